"""Checks of the log: markers, their indices, the topology, what no good log says."""

from __future__ import annotations

from collections.abc import Iterator

from real_runs.evidence.training import fatal
from real_runs.evidence.training.markers import Doubt, Marker
from real_runs.evidence.training.run import TrainingRun


def whole_markers(run: TrainingRun) -> Iterator[str]:
    """Every marker is a whole token with the fields that it has and no others, and all have one prefix."""
    for one in run.seen:
        if isinstance(one, Doubt):
            yield one.line
    refits = [one for one in run.seen if isinstance(one, Marker) and not one.kind.endswith("_CHECK")]
    prefixes = sorted({one.prefix for one in refits})
    if len(prefixes) > 1:
        yield f"markers of {len(prefixes)} prefixes: {', '.join(prefix or '(none)' for prefix in prefixes)}"


def paired(run: TrainingRun) -> Iterator[str]:
    """Refit n starts once, after refit n - 1 has succeeded, and succeeds once before the next; none fails."""
    expected = run.told.expected
    under_way: Marker | None = None
    last = 0
    for one in run.seen:
        if not isinstance(one, Marker) or one.kind not in ("REFIT_START", "REFIT_SUCCESS", "REFIT_FAILURE"):
            continue
        index = one.number("refit")
        if one.fields["transfer"] != expected.transfer:
            yield f"{one.place}: transfer {one.fields['transfer']}, the run was to send by {expected.transfer}"
        if one.kind == "REFIT_FAILURE":
            yield f"{one.place}: refit {index} failed in {one.fields['phase']} with {one.fields['error_type']}"
            under_way = None
        elif one.kind == "REFIT_START":
            if under_way is not None:
                yield f"{one.place}: refit {index} starts while refit {under_way.number('refit')} has not ended"
            if index != last + 1:
                yield f"{one.place}: refit {index} starts after refit {last}: indices grow by one, from 1"
            under_way, last = one, max(last, index)
        else:
            if under_way is None or under_way.number("refit") != index:
                yield f"{one.place}: refit {index} succeeds and was not under way"
            if float(one.fields["duration_s"]) <= 0:
                yield f"{one.place}: refit {index} took {one.fields['duration_s']} s"
            under_way = None
    if under_way is not None:
        yield f"{under_way.place}: refit {under_way.number('refit')} has no end"


def topology(run: TrainingRun) -> Iterator[str]:
    """GROUP_READY comes before the first success and says the expected topology wherever it stands."""
    expected = run.told.expected
    wanted = (expected.world_size, expected.engines)
    ready = run.marked("REFIT_GROUP_READY")
    if not ready:
        yield "no GROUP_READY"
        return
    for one in ready:
        told = (one.number("world_size"), one.number("engines"))
        if told != wanted:
            yield (
                f"{one.place}: world_size {told[0]} and {told[1]} engines, expected world_size {wanted[0]} and "
                f"{wanted[1]} engines"
            )
    first = next((one for one in run.seen if isinstance(one, Marker) and one.kind == "REFIT_SUCCESS"), None)
    if first is not None and run.seen.index(ready[0]) > run.seen.index(first):
        yield f"{ready[0].place}: GROUP_READY comes after the first success ({first.place})"


def nothing_fatal(run: TrainingRun) -> Iterator[str]:
    """No traceback, OOM, watchdog or collective error in any log, also where the line is broken."""
    for name, text in run.logs.items():
        yield from fatal.found(name, text)
