"""value_check.json: checksums of every tensor of every rank, before and after, from which the verdict is made again.

The order is: checksum; refit, checksum; reset_tensors, checksum (the control: every tensor has changed); refit again,
checksum (every tensor is what it was after the first refit). A refit that moves nothing passes without the control, one
that always spoils the same tensor passes without the first: before any training an engine has from disk what it gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from harness.words import quoted

NAME = "value_check.json"
FRESH = ("disk", "refit", "reset", "again")
PHASES = FRESH[1:]
ACTIONS = frozenset({"snapshot", "reset_tensors", "compare", "checksum"})
"""What /weights_checker knows: utils/weight_checker.py:149@0.5.23."""
_RANK = re.compile(r"(0|[1-9]\d{0,3})/([1-9]\d{0,3})")


class ValueCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check: the step it came after, the actions that were asked of the engines, in order, and the checksums.

    `engines`: engine -> phase -> "rank/size" -> tensor -> checksum. Phase disk is there at step 1 alone.
    """

    step: int
    actions: list[str]
    engines: dict[str, dict[str, dict[str, dict[str, str]]]]

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that it must have, in order."""
        return FRESH if self.step == 1 else PHASES


def wrong_actions(check: ValueCheck) -> Iterator[str]:
    """An action that the engine refuses, or too few of them for a control."""
    unknown = sorted(set(check.actions) - ACTIONS)
    if unknown:
        yield f"action {quoted(unknown[0], 40)} is none of the engine's: {', '.join(sorted(ACTIONS))}"
    if check.actions.count("reset_tensors") != 1 or check.actions.count("checksum") < len(check.phases):
        yield "it needs one reset_tensors and a checksum in every phase"
    elif "checksum" not in check.actions[: check.actions.index("reset_tensors")]:
        yield "no checksum comes before reset_tensors"


def wrong_ranks(check: ValueCheck, engines: int, tp: int) -> Iterator[str]:
    """Engines, phases or ranks that are missing, or that are not known by their number."""
    if len(check.engines) != engines:
        yield f"{len(check.engines)} engines, the run has {engines}"
    wanted = {f"{rank}/{tp}" for rank in range(tp)}
    for engine, phases in check.engines.items():
        if set(phases) != set(check.phases):
            yield f"{quoted(engine, 40)}: phases {', '.join(sorted(phases))}, not {', '.join(check.phases)}"
        for phase, ranks in phases.items():
            strange = sorted(rank for rank in ranks if not _RANK.fullmatch(rank))
            if strange:
                yield f"{quoted(engine, 40)}: {phase}: {quoted(strange[0], 40)} is no rank/size, as arrival order gives"
            elif set(ranks) != wanted:
                missing = sorted(wanted - set(ranks)) or sorted(set(ranks) - wanted)
                yield f"{quoted(engine, 40)}: {phase}: ranks differ from the {tp} of the engine: {', '.join(missing)}"


def without_control(check: ValueCheck) -> Iterator[str]:
    """Tensors that the reset did not change: what follows proves nothing of them."""
    for where, sums in _ranks(check):
        same = sorted(name for name, digest in sums["refit"].items() if sums["reset"].get(name) == digest)
        if same:
            yield f"{where}: the reset left {_few(same)} as it was"


def wrong_values(check: ValueCheck) -> Iterator[str]:
    """Tensors that a refit left unwritten, or wrote with something else; or that not every phase has."""
    for where, sums in _ranks(check):
        names: list[set[str]] = [set(found) for found in sums.values()]
        odd = sorted(names[0].union(*names) - names[0].intersection(*names))
        if odd or not names[0]:
            yield f"{where}: not in every phase: {_few(odd)}" if odd else f"{where}: no tensor"
            continue
        empty = sorted(name for name in names[0] if not all(found[name] for found in sums.values()))
        if empty:
            yield f"{where}: no checksum of {_few(empty)}"
        wrong = sorted(name for name in names[0] if sums["again"][name] != sums["refit"][name])
        unwritten = [name for name in wrong if sums["again"][name] == sums["reset"][name]]
        if unwritten:
            yield f"{where}: the refit did not write {_few(unwritten)}"
        elif wrong:
            yield f"{where}: the refit wrote something else into {_few(wrong)}"
        first = sorted(name for name in names[0] if sums.get("disk", sums["refit"])[name] != sums["refit"][name])
        if first:
            yield f"{where}: before any training the refit changed {_few(first)}"


def _ranks(check: ValueCheck) -> Iterator[tuple[str, Mapping[str, Mapping[str, str]]]]:
    """Of every rank: where it is, and phase -> tensor -> checksum."""
    for engine, phases in sorted(check.engines.items()):
        for rank in sorted({rank for found in phases.values() for rank in found}):
            sums = {phase: phases.get(phase, {}).get(rank, {}) for phase in check.phases}
            yield f"{quoted(engine, 40)} rank {quoted(rank, 20)}", sums


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(quoted(name, 60) for name in names[:3]) + more
