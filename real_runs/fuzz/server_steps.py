"""What a server is asked over HTTP: control calls, legal and illegal, with traffic; drawn so that nothing hangs.

A sequence follows the pause and the traffic while it is drawn: a generation that is waited for becomes a background
one while the engine is paused, and an abort pause is not drawn while a frozen batch runs, since it never returns
(managers/tokenizer_manager.py:2267@0.5.23). Every sequence goes on, joins its traffic and ends with a canary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from fakes.engine.profiles import EngineProfile
from real_runs import sequence as s
from real_runs.fuzz.steps import WIDTH, Digits
from real_runs.recipes import Entry

LONG, SETTLE_S = 400, 0.3
"""Tokens of a generation that is still running when the next calls come, and how long it gets to start."""
CHANGES = frozenset({
    "update_weights_from_tensor", "update_weights_from_disk", "update_weight_version", "abort_request",
    "release_memory_occupation", "resume_memory_occupation", "weights_checker", "flush_cache",
})  # fmt: skip
"""After one of these only the ending of traffic is compared: how far it had come then is a matter of timing."""
TAGS: Sequence[Any] = (None, ["weights"], ["kv_cache"], ["cuda_graph"], ["weights", "kv_cache"])
SEEDS = (0, 1, 2)
LAYER = Entry(seed=1, only=["model.layers.0.*"])

Draw = Callable[[Digits], list[s.Step]]


class Draft:
    """A sequence while it is drawn: its steps, and the state that they lead to."""

    def __init__(self) -> None:
        self.steps: list[s.Step] = []
        self.pause, self.labels = "", 0
        self.frozen = False

    def add(self, step: s.Step) -> None:
        """One step, changed where it would hang."""
        if step.op == "generate" and step.do == "call" and self.pause:
            step = s.start("", "generate", step.body)
        if step.op == "pause_generation" and self.frozen and isinstance(step.body, dict):
            step = s.CONTINUE if step.body.get("mode", "abort") == "abort" else step
        if step.do == "start":
            if self.labels == 3:
                return
            self.labels += 1
            step = s.Step(do="start", op=step.op, body=step.body, label=f"t{self.labels}", compare="prefix")
            self.steps += [step, s.sleep(SETTLE_S)]
            return
        self._follow(step)
        self.steps.append(step)

    def _follow(self, step: s.Step) -> None:
        if step.op == "continue_generation" and isinstance(step.body, dict):
            self.pause, self.frozen = "", False
        elif step.op == "pause_generation" and step.raw is None and step.method == "POST":
            mode = step.body.get("mode", "abort") if isinstance(step.body, dict) else None
            if mode in ("abort", "retract", "in_place"):
                self.pause = mode
                self.frozen = mode == "in_place" and self.labels > 0

    def whole(self, name: str) -> s.Sequence:
        """The sequence, with an end that brings everything home."""
        steps = [*self.steps, s.CONTINUE, *(s.join(f"t{n + 1}") for n in range(self.labels)), s.MODEL_INFO, s.canary()]
        changed, out = False, []
        for step in reversed(steps):
            changed = changed or step.op in CHANGES
            if step.do == "start" and changed:
                step = s.Step(do="start", op=step.op, body=step.body, label=step.label, compare="ending")
            out.append(step)
        return s.Sequence(name=name, about="drawn", steps=out[::-1])


class ServerVocabulary:
    """The calls that `profile` knows, and some that no version does; with their weights."""

    def __init__(self, profile: EngineProfile) -> None:
        self._profile = profile
        sessions = profile.session != "none"
        table: list[tuple[int, Draw]] = [
            (5 * sessions, lambda d: [s.BEGIN]),
            (4 * sessions, lambda d: [s.END]),
            (1, lambda d: [s.call("begin_weight_update", self._selector(d))]),
            (6, self._update),
            (4 * sessions, lambda d: [s.BEGIN, *self._update(d), s.END]),
            (1, self._refused_update),
            (2, self._disk),
            (1, lambda d: [s.call("update_weights_from_ipc", {"zmq_handles": {}})]),
            (1, lambda d: [s.call("destroy_weights_update_group", {"group_name": "g"})]),
            (5, lambda d: [s.pause(d.of(["retract", "in_place", "abort"]))]),
            (3, lambda d: [s.CONTINUE]),
            (2, lambda d: [s.call("continue_generation", {"torch_empty_cache": d.of([False, True])})]),
            (3, lambda d: [s.FLUSH]),
            (1, lambda d: [s.call("flush_cache", query={"timeout": d.of(["0", "0.2"])})]),
            (3, lambda d: [s.canary(d.of([None, [3, 1, 4], [7, 31, 202, 9]]), d.of([4, 8]))]),
            (5, lambda d: [s.start("", "generate", s.generate([11, 12, d.of([13, 14, 15])], LONG))]),
            (1, lambda d: [s.call("abort_request", d.of([{"abort_all": True}, {"rid": "nobody"}, {}]))]),
            (2, lambda d: [s.call("release_memory_occupation", self._tags(d))]),
            (2, lambda d: [s.call("resume_memory_occupation", self._tags(d))]),
            (1, lambda d: [s.call("update_weight_version", self._version(d))]),
            (2, lambda d: [s.MODEL_INFO]),
            (1, self._check),
            (1, lambda d: [s.call("get_weights_by_name", self._name(d))]),
            (1, lambda d: [s.get(d.of(["ready", "ping", "weight_version", "no_such_route"]))]),
            (2, self._malformed),
            (1, self._fatal),
        ]
        self._draws = [draw for weight, draw in table for _ in range(weight)]

    def sequence(self, numbers: Sequence[int]) -> s.Sequence:
        """The sequence of drawn integers."""
        draft = Draft()
        for number in numbers:
            digits = Digits(number)
            for step in digits.of(self._draws)(digits):
                draft.add(step)
        return draft.whole("drawn")

    def strategy(self, longest: int = 12) -> st.SearchStrategy[list[int]]:
        """Integers for sequences of 2 to `longest` draws."""
        number = st.integers(0, WIDTH - 1)
        return st.integers(2, longest).flatmap(lambda n: st.lists(number, min_size=n, max_size=n))

    def _check(self, d: Digits) -> list[s.Step]:
        """No compare without a snapshot of its own: a server keeps the last one, whatever it is brought back to."""
        action = d.of(["snapshot", "checksum", "compare", "nothing"])
        before = [s.call("weights_checker", {"action": "snapshot"})] if action == "compare" else []
        return [*before, s.call("weights_checker", {"action": action})]

    def _selector(self, d: Digits) -> dict[str, Any]:
        body: dict[str, Any] = d.of(
            [{}, {"selector": "target"}, {"selector": "draft"}, {"selector": "both"}, {"selector": 3}]
        )
        return body

    def _tags(self, d: Digits) -> dict[str, Any]:
        tags = d.of(TAGS)
        return {} if tags is None else {"tags": tags}

    def _version(self, d: Digits) -> dict[str, Any]:
        return {"new_version": d.of(["v1", "v2"]), "abort_all_requests": d.of([False, True])}

    def _name(self, d: Digits) -> dict[str, Any]:
        name = d.of(["model.norm.weight", "model.layers.0.mlp.down_proj.weight", "nothing"])
        return {"name": name, "truncate_size": d.of([2, 100])}

    def _flags(self, d: Digits) -> dict[str, Any]:
        flags: dict[str, Any] = d.of([{}, {}, {"flush_cache": False}, {"abort_all_requests": True}])
        return {**flags, **d.of([{}, {"weight_version": "v1"}, {"weight_version": "v2"}])}

    def _update(self, d: Digits) -> list[s.Step]:
        entry = d.of([s.whole(0), s.whole(1), s.whole(2), LAYER])
        more = d.of([{}, {}, {"selector": "target"}, {"selector": "draft"}]) if self._profile.selector else {}
        return [s.update(entry, format=d.of(["flattened_bucket", None]), **self._flags(d), **more)]

    def _refused_update(self, d: Digits) -> list[s.Step]:
        raw = s.update(Entry(raw=d.of(["not base64!", "", "gARLBy4"])))
        bodies: list[Any] = [
            {},
            {"serialized_named_tensors": 3},
            {"serialized_named_tensors": ["gA=="], "selector": "x"},
        ]
        return [raw if d.of([True, False]) else s.call("update_weights_from_tensor", d.of(bodies))]

    def _disk(self, d: Digits) -> list[s.Step]:
        path = d.of([{"$model": 0}, {"$model": 1}, "/nowhere/at/all"])
        return [s.call("update_weights_from_disk", {"model_path": path, **self._flags(d)})]

    def _malformed(self, d: Digits) -> list[s.Step]:
        op = d.of(["pause_generation", "continue_generation", "flush_cache", "update_weights_from_disk", "generate"])
        if op == "flush_cache":
            return [s.call(op, query={"timeout": d.of(["-1", "x"])})]
        bodies: list[Any] = [{"mode": "no", "model_path": 3, "torch_empty_cache": "no", "input_ids": "x"}, [], 7]
        return [
            s.call(op, raw=d.of(["{", "null"]), compare="ending") if d.of([True, False]) else _bad(op, d.of(bodies))
        ]

    def _fatal(self, d: Digits) -> list[s.Step]:
        one = Entry(seed=1, only=["model.norm.weight"])
        steps: list[s.Step] = d.of([
            [s.update(one, load_format="auto")],
            [s.update(Entry(raw="bm90IGEgcGlja2xl"))],
            [s.update(entries=[])],
            [s.update(Entry(change={"model.norm.weight": ([3], 1.0)}))],
            [s.call("update_weights_from_distributed", {"names": [], "dtypes": [], "shapes": []})],
            [s.call("init_weights_update_group", {**PEER, "group_name": ""})],
        ])  # fmt: skip
        return steps


PEER = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "backend": "gloo"}


def _bad(op: str, body: Any) -> s.Step:
    """A body of the wrong form; what the error text quotes of it is compared, too."""
    return s.call(op, body)
