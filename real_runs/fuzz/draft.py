"""A sequence while it is drawn, and the state that its steps lead to: nothing in it may hang, or die by chance.

A generation that is waited for becomes a background one while the engine is paused, and a call that waits for running
generations becomes one in the background that an abort lets through. An abort pause is not drawn while a frozen batch
runs, since it never returns (managers/tokenizer_manager.py:2267@0.5.23).
"""

from __future__ import annotations

import msgspec

from fakes.engine.engine_profile import EngineProfile
from real_runs import sequence as s

LONG = 480
"""Tokens of a generation that is still running when the next calls come; prompt and output fit the tiny model's 512."""
GO_ON_S, WAIT_S = 0.05, 0.02
"""Seconds of virtual time until running generations have gone on, and until a call that waits has arrived. A real
server takes what it needs: see `real_runs.fuzz.traffic`."""
MOST, OLD = 3, 12
"""Generations at once; calls that one may outlive before it is ended: it would run out at a moment nobody knows."""
WAITING = frozenset({
    "begin_weight_update", "end_weight_update", "update_weights_from_tensor", "update_weights_from_distributed",
    "update_weights_from_disk", "update_weights_from_ipc",
})  # fmt: skip
"""Calls that wait for running generations, unless the engine is paused."""
UPDATES = frozenset({
    "update_weights_from_tensor", "update_weights_from_distributed", "update_weights_from_disk",
})  # fmt: skip
"""Calls that flush unless they say otherwise."""
CHANGES = UPDATES | {
    "update_weight_version", "release_memory_occupation", "resume_memory_occupation", "weights_checker", "flush_cache",
}  # fmt: skip
"""After one of these only the ending of traffic is compared: how far it had come then is a matter of timing."""
ABORT = s.call("abort_request", {"abort_all": True})
TAGS = ("weights", "kv_cache", "cuda_graph")


class Draft:
    """Steps, who drew each, and the state: how it is paused, what runs, is frozen, waits in the scheduler (queued) or
    before it (held), whether a session or a group is open, which tags are released."""

    def __init__(self, profile: EngineProfile) -> None:
        self._profile = profile
        self.steps: list[s.Step] = []
        self.owners: list[int] = []
        self.owner = -1
        self.pause = ""
        self.session = self.group = False
        self.released: set[str] = set()
        self.running: list[str] = []
        self.queued: list[str] = []
        self.held: list[str] = []
        self._doomed: set[str] = set()
        self._labels = self._age = 0

    @property
    def live(self) -> list[str]:
        """Labels of the generations that have no answer yet."""
        return [*self.running, *self.queued, *self.held]

    def put(self, step: s.Step) -> None:
        """One step as it is; the state does not follow."""
        self.steps.append(step)
        self.owners.append(self.owner)

    def add(self, step: s.Step) -> None:
        """One step, changed where it would hang or where chance would decide."""
        if self.running and not self.pause:
            self._age += 1
            if self._age > OLD:
                self.finish()
        if step.op == "generate":
            self._generate(step)
            return
        if step.op == "pause_generation" and step.body.get("mode", "abort") == "abort" and self.running and self.pause:
            self.finish()
        refused = self.pause and self._profile.flush_failure == "refuse"  # a flush that fails, in a state that stays
        if step.op in UPDATES and self.live and not refused:
            step = msgspec.structs.replace(step, body={**step.body, "flush_cache": False})
        if step.op in WAITING and self.running and not self.pause and not _aborts(step):
            self._beside(step)
            return
        self.put(step)
        self._follow(step)

    def finish(self) -> None:
        """End all generations."""
        if self.pause and self.live:
            self.add(s.CONTINUE)
        if self.live:
            self.add(ABORT)

    def to(self, pause: str, traffic: str, session: bool, released: bool) -> None:
        """Go to a state, by way of an idle engine that is not paused where it has to be."""
        if self.live or self.pause not in ("", pause):
            self.finish()
        if session != self.session and self._profile.session != "none":
            self.add(s.BEGIN if session else s.END)
        if released != bool(self.released):
            tags = {} if released else {"tags": sorted(self.released)}
            self.add(s.call(f"{'release' if released else 'resume'}_memory_occupation", tags))
        if traffic in ("running", "queued"):
            if self.pause:
                self.add(s.CONTINUE)
            self.start()
        if traffic == "queued" and pause == "in_place":
            self.add(s.pause("retract"))
        if pause and self.pause != pause:
            self.add(s.pause(pause))
        elif not pause and self.pause:
            self.add(s.CONTINUE)
        if traffic == "held":
            self.start()

    def start(self, last: int = 13) -> None:
        """A long generation in the background."""
        self.add(s.start("", "generate", s.generate([11, 12, last], LONG)))

    def whole(self, name: str) -> s.Sequence:
        """The sequence, with an end that brings everything home."""
        self.owner = -1
        self.finish()
        if self.pause:
            self.add(s.CONTINUE)
        if self.group:
            self.add(s.call("destroy_weights_update_group", {"group_name": "g"}))
        for step in (s.MODEL_INFO, s.canary()):
            self.put(step)
        return s.Sequence(name=name, about="drawn", steps=_compared(self.steps))

    def _generate(self, step: s.Step) -> None:
        if step.do == "call" and not self.pause:
            self.put(step)
            return
        if len(self.live) >= MOST:
            return
        label = self._label()
        sampling = {**step.body["sampling_params"], "max_new_tokens": LONG}  # it ends when it is aborted, not before
        body = {**step.body, "sampling_params": sampling, "stream": True}  # so that a real server shows that it runs
        self.put(s.start(label, "generate", body, compare="prefix"))
        self.put(s.sleep(WAIT_S if self.pause else GO_ON_S))
        (self.held if self.pause else self.running).append(label)

    def _label(self) -> str:
        if not self.running:
            self._age = 0
        self._labels += 1
        return f"t{self._labels}"

    def _beside(self, step: s.Step) -> None:
        """A call that waits for what runs: begun, seen to have done nothing yet, and let through by an abort."""
        label = self._label()
        self.put(msgspec.structs.replace(step, do="start", label=label))
        self.put(s.sleep(WAIT_S))
        self.put(s.MODEL_INFO)
        self.add(ABORT)
        self.put(s.join(label))
        self._follow(step)

    def _follow(self, step: s.Step) -> None:
        op, body = step.op, step.body
        if op == "begin_weight_update":
            self.session = True
        elif op == "end_weight_update":
            self.session = False
        elif op in ("init_weights_update_group", "destroy_weights_update_group"):
            self.group = op.startswith("init")
        elif op == "release_memory_occupation":
            self.released |= set(body.get("tags") or TAGS)
        elif op == "resume_memory_occupation":
            self.released -= set(body.get("tags") or TAGS)
        elif op == "continue_generation":
            self._continue()
        elif op == "pause_generation":
            self._pause(body.get("mode", "abort"))
        elif _aborts(step):
            self._abort()

    def _pause(self, mode: str) -> None:
        if mode == "retract":
            self.running, self.queued = [], [*self.queued, *self.running]
        self.pause = mode
        if mode == "abort":
            self._abort()
            self._join(self.running)

    def _continue(self) -> None:
        self.pause = ""
        self.running, self.queued, self.held = self.live, [], []
        if self.running:
            self.put(s.sleep(GO_ON_S))
        self._join([label for label in self.running if label in self._doomed])

    def _abort(self) -> None:
        """What waits in the scheduler ends at once, what runs with its next step, what is held does not hear of it."""
        self._join(self.queued)
        if self.pause == "in_place":
            self._doomed |= set(self.running)
        else:
            self._join(self.running)

    def _join(self, labels: list[str]) -> None:
        for label in list(labels):
            self.put(s.join(label))
            for where in (self.running, self.queued, self.held):
                if label in where:
                    where.remove(label)


def _aborts(step: s.Step) -> bool:
    body = step.body if isinstance(step.body, dict) else {}
    return bool(body.get("abort_all_requests") or (step.op == "abort_request" and body.get("abort_all")))


def _compared(steps: list[s.Step]) -> list[s.Step]:
    """Traffic in whose life something changed is compared by its ending only."""
    out = []
    for index, step in enumerate(steps):
        if step.do == "start" and step.op == "generate":
            end = next(n for n, later in enumerate(steps) if later.do == "join" and later.label == step.label)
            if any(later.op in CHANGES for later in steps[index:end]):
                step = msgspec.structs.replace(step, compare="ending")
        out.append(step)
    return out
