"""What an upgrade of SGLang breaks for one driver, in plain words."""

from __future__ import annotations

from harness.frameworks.cells import Cell
from harness.frameworks.pages import causes, evidence, facts

GOOD = ("works",)


def told(before: Cell, after: Cell) -> list[str]:
    """Lines for a person: the verdict first, then what is missing, then how to see it."""
    head = f"{before.sut}: {before.version} -> {after.version}"
    new = [rule for rule in after.violated if rule not in before.violated]
    if "unsupported" in (before.outcome, after.outcome) or "error" in (before.outcome, after.outcome):
        bad = before if before.outcome in ("unsupported", "error") else after
        return [f"{head}: cannot be said: on {bad.version} it {_verb(bad)}: {bad.why}"]
    if after.outcome == "works" and not new:
        return [f"{head}: nothing breaks."] if before.outcome == "works" else _mends(head, before, after)
    if after.outcome == before.outcome and not new:
        return [f"{head}: it {_verb(after)} on both.", *_indented(after)]
    if after.outcome == "works":
        return [f"{head}: it works, but breaks {', '.join(new)}, which it kept before.", *_indented(after)]
    return [
        f"{head}: it breaks. On {before.version} it {_verb(before)}, on {after.version} it {_verb(after)}.",
        *_indented(after),
    ]


def breaks(before: Cell, after: Cell) -> int:
    """The exit code: 0 nothing breaks, 1 something does, 2 it was not run, 3 it could not be judged."""
    outcomes = {before.outcome, after.outcome}
    if outcomes & {"unsupported", "error"}:
        return 3 if "error" in outcomes else 2
    worse = before.outcome == "works" and after.outcome != "works"
    return 1 if worse or set(after.violated) - set(before.violated) else 0


def _mends(head: str, before: Cell, after: Cell) -> list[str]:
    """Nothing breaks, but nobody may read from that that the driver runs on both."""
    why = "; ".join(facts(before))
    return [
        f"{head}: it works on {after.version}; on {before.version} it does not: it {_verb(before)}"
        + (f": {why}" if why else "."),
        *(f"  {line}" for line in evidence(before)),
    ]


def _verb(cell: Cell) -> str:
    verbs = {
        "works": "works",
        "refused": "is refused",
        "hangs": "hangs",
        "stale": "reports success and leaves old weights in the engine",
        "dies": "kills the engine",
        "unsupported": "was not run",
        "error": "could not be judged",
    }
    return verbs[cell.outcome] + (" and leaves the engine paused" if cell.paused else "")


def _indented(cell: Cell) -> list[str]:
    return [f"  {line}" for line in causes(cell)]
