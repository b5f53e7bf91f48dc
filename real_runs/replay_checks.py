"""Recorded exchanges as checks of a mutation session: does a replay show what a mutant of the fake engine does?"""

from __future__ import annotations

from pathlib import Path

from fakes.trace import Header
from harness.errors import UsageError
from harness.mutate.checks import Check, Finding
from real_runs.comparing import Exchange
from real_runs.replaying import compare, read

RULE = "RECORDED"
"""What the fake breaks when it does not answer as the recorded engine did."""


class ReplayCheck:
    """One exchange of one recording: it holds when the fake answers what the real engine answered."""

    rules = frozenset({RULE})

    def __init__(self, path: Path, head: Header, exchange: Exchange) -> None:
        self._head, self._exchange = head, exchange
        self.id = f"{path.name.removesuffix('.jsonl.xz')} {exchange.name}"
        self.path = str(path)
        self.same = exchange.name

    def run(self) -> list[Finding]:
        """Replay it on a fresh fake."""
        found = compare(self._head, self._exchange)
        return [Finding(RULE, f"{self._exchange.name}: {found[0]}")] if found else []


def checks(folder: str) -> list[Check]:
    """All exchanges of all recordings in `folder`. UsageError when there are none."""
    paths = sorted(Path(folder).glob("*.jsonl.xz"))
    if not paths:
        raise UsageError(f"{folder}: no recordings (*.jsonl.xz)")
    return [ReplayCheck(path, head, exchange) for path in paths for head, found in [read(path)] for exchange in found]
