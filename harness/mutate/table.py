"""The result of a session as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.mutate.mutant import DETECTED, Result
from harness.mutate.plan import Outcome

ORDER = ("killed", "misattributed", "crash", "timeout", "survived", "not covered", "equivalent", "elsewhere", "error")
UNCOUNTED = frozenset({"equivalent", "elsewhere", "error"})
_MARK = {
    "killed": "✓",
    "equivalent": "=",
    "elsewhere": "=",
    "crash": "!",
    "timeout": "!",
    "not covered": "?",
    "error": "!",
}


def score(results: Sequence[Result]) -> float | None:
    """Percent of mutants that were noticed (crash and time-out included), of all that count; None when none does."""
    counted = [r for r in results if r.verdict not in UNCOUNTED]
    return 100.0 * sum(r.verdict in DETECTED for r in counted) / len(counted) if counted else None


def counts(results: Sequence[Result]) -> str:
    """How many of each verdict, in a fixed order."""
    found: Counter[str] = Counter(r.verdict for r in results)
    return "   ".join(f"{name} {found[name]}" for name in ORDER if found[name]) or "nothing was run"


def lines(outcome: Outcome) -> list[str]:
    """The table: catalogue mutants one a line, generic ones by module, then what was not noticed, then the sums."""
    out: list[str] = []
    catalogue = [r for r in outcome.results if not r.generic]
    generic = [r for r in outcome.results if r.generic]
    if catalogue:
        wide = min(44, max(len(r.id) for r in catalogue))
        out.append(f"{'mutant':{wide + 2}} {'breaks':22} {'verdict':14} by")
        out += [_catalogue_line(r, wide) for r in catalogue]
        out.append("")
    if generic:
        out += _by_module(generic)
        out.append("")
        left = [r for r in generic if r.verdict in ("survived", "not covered", "error")]
        for r in left[:40]:
            out.append(f"{_MARK.get(r.verdict, '✗')} {r.id}  {r.verdict}: {_short(r)}")
        if len(left) > 40:
            out.append(f"  ... and {len(left) - 40} more: see --report")
        if left:
            out.append("")
    return [*out, *summary(outcome)]


def summary(outcome: Outcome) -> list[str]:
    """The last lines: counts, score, controls, time."""
    results = outcome.results
    out = [f"{counts(results)}"]
    good = sum(not c.wrong for c in outcome.controls)
    out += [f"✗ control failed: {c.wrong}" for c in outcome.controls if c.wrong]
    out += [f"✗ stale entry: {text}" for text in outcome.stale]
    ran = [r for r in results if not r.cached and r.verdict not in ("equivalent", "not covered", "elsewhere")]
    parts = [
        _score(results),
        f"controls {good}/{len(outcome.controls)}",
        f"checks {len(outcome.checks)}",
    ]
    if ran and outcome.mutating_s:
        rate = len(ran) / outcome.mutating_s
        parts.append(f"{len(ran)} mutants in {outcome.mutating_s:.1f} s ({rate:.1f}/s, {outcome.workers} workers)")
    if cached := sum(r.cached for r in results):
        parts.append(f"{cached} from the cache")
    if outcome.skipped:
        parts.append(f"{outcome.skipped} not touched by the change")
    if outcome.left and not outcome.interrupted:
        parts.append(f"{outcome.left} not run")
    parts.append(f"{outcome.seconds:.0f} s")
    out.append(" · ".join(parts))
    if outcome.interrupted:
        done = sum(not r.cached for r in results)
        kept = (
            f"{done} finished and kept, {outcome.left} left" if results else f"none of {outcome.left} mutants was run"
        )
        out.append(f"interrupted: {kept}; the same command goes on from here")
    return out


def _score(results: Sequence[Result]) -> str:
    reached = score(results)
    if reached is None:
        return "no score"
    found: Counter[str] = Counter(r.verdict for r in results)
    others = " and ".join(f"{found[name]} {name}" for name in ("crash", "timeout") if found[name])
    return f"score {reached:.1f} %" + (f" ({others} counted as noticed)" if others else "")


def _catalogue_line(r: Result, wide: int) -> str:
    mark = _MARK.get(r.verdict, "✗")
    by = r.rule or r.by
    why = " ".join((f"{by}: {r.detail}" if r.detail else by).split())
    breaks = ",".join(r.breaks) if len(r.breaks) < 4 else f"{r.breaks[0]} and {len(r.breaks) - 1} more"
    return f"{mark} {r.id:{wide}} {breaks:22} {r.verdict:14} {why[:100]}"


def _by_module(results: Sequence[Result]) -> list[str]:
    modules = sorted({r.target.partition(":")[0] for r in results})
    wide = max(len(m) for m in modules)
    out = [f"{'module':{wide}}  mutants  score   verdicts"]
    for module in modules:
        own = [r for r in results if r.target.partition(":")[0] == module]
        out.append(f"{module:{wide}}  {len(own):7}  {percent(own):>5}   {counts(own)}")
    return out


def percent(results: Sequence[Result]) -> str:
    """The score for a cell of a table; a dash where nothing counts."""
    reached = score(results)
    return "-" if reached is None else f"{reached:.1f}"


def _short(r: Result) -> str:
    if r.verdict == "error":
        return r.detail
    old, new = " ".join(r.original.split()), " ".join(r.replacement.split())
    return f"{old[:50]} -> {new[:50]}"
