"""Which (operation, state) cells of the contract's tables a run of the oracle reached, and which it could reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from fakes.engine.engine_profile import EngineProfile
from real_runs.fuzz.steps import Answer, Step

Cell = tuple[str, str]
TRAFFIC = ("free idle", "free running", "retract idle", "retract queued", "in_place idle", "in_place running",
           "in_place queued")  # fmt: skip
"""How the engine is paused, and what it holds. Where nothing is paused nothing waits, and a retract leaves nothing
running."""
OPERATIONS = (
    "begin_weight_update", "end_weight_update", "update_weights_from_tensor", "update_weights_from_distributed",
    "update_weights_from_disk", "update_weights_from_ipc", "init_weights_update_group", "destroy_weights_update_group",
    "release_memory_occupation", "resume_memory_occupation", "weights_checker", "generate", "pause", "continue",
    "abort", "flush_cache", "update_weight_version",
)  # fmt: skip


class Situation:
    """The state of the engine, followed along the steps. Requests are booleans: whether they were aborted."""

    def __init__(self) -> None:
        self.session = self.released = False
        self.pause = "free"
        self.running: list[bool] = []
        self.waiting: list[bool] = []

    @property
    def name(self) -> str:
        """As it stands in a cell."""
        busy = "running" if self.running else "queued" if self.waiting else "idle"
        return f"{self.pause} {busy}, {'open' if self.session else 'closed'}{', released' if self.released else ''}"

    def after(self, step: Step, answer: Answer) -> None:
        """Go on to the state after `step`. An aborted request ends with its next step, so not while it is paused."""
        self.session, self.released = answer.get("session") is not None, bool(answer.get("tags"))
        op = step["op"]
        if op == "generate":
            (self.running if self.pause == "free" else self.waiting).append(False)
        elif op == "pause":
            self.pause = step["mode"]
            if self.pause == "retract":
                self.waiting, self.running = self.waiting + self.running, []
        elif op == "continue":
            self.running, self.waiting = self.running + self.waiting, []
            self.pause = "free"
        elif op == "abort":
            self.waiting, self.running = [], [True] * len(self.running)
        if self.pause == "free":
            self.running = [aborted for aborted in self.running if not aborted]


def reached(steps: Sequence[Step], answers: Sequence[Answer]) -> list[Cell]:
    """The cells of one sequence, step by step."""
    situation, found = Situation(), []
    for step, answer in zip(steps, answers, strict=False):
        found.append((step["op"], situation.name))
        situation.after(step, answer)
    return found


def reachable(profile: EngineProfile) -> list[Cell]:
    """Every cell of a version that the oracle can be brought to."""
    sessions = ["closed"] if profile.session == "none" else ["closed", "open"]
    left_out = set() if profile.session != "none" else {"begin_weight_update", "end_weight_update"}
    if not profile.spans:
        left_out.add("update_weight_version")
    states = [
        f"{traffic}, {session}{released}"
        for traffic, session, released in product(TRAFFIC, sessions, ("", ", released"))
    ]
    return [(op, state) for op in OPERATIONS if op not in left_out for state in states]


def coverage(profile: EngineProfile, cells: Iterable[Cell]) -> tuple[int, int, list[Cell]]:
    """(reached, reachable, those that were not)."""
    wanted, got = reachable(profile), set(cells)
    missing = [cell for cell in wanted if cell not in got]
    return len(wanted) - len(missing), len(wanted), missing
