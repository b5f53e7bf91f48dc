"""What the oracle is asked: a table of steps, legal and illegal, drawn with weights; and the cells that they reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from fakes.engine import messages as m
from fakes.engine.engine_profile import EngineProfile
from real_runs.fuzz.payloads import EVERY, NORM, PLAIN

Step = dict[str, Any]
Answer = dict[str, Any]
CAUSE = "no such folder"
IN_SESSION = ("update_weights_from_tensor", "update_weights_from_distributed", "end_weight_update")
GOOD_SELECTORS, BAD_SELECTORS = ("all", "target", "draft"), ("both",)
SELECTORS = ("all", "target", "draft", "both")
TAGS: Sequence[Any] = (None, [], ["weights"], ["kv_cache"], ["cuda_graph"], ["weights", "kv_cache"], ["else"])

RECEIVES: Mapping[str, tuple[list[str], list[str], list[list[int]]]] = {
    "good": ([NORM], ["float32"], [[64]]),
    "unknown": (["model.nothing.weight"], ["float32"], [[2]]),
    "misfit": ([NORM], ["float32"], [[2]]),
    "two": ([NORM, "model.nothing.weight"], ["float32", "float32"], [[64], [2]]),
    "unequal": ([NORM, "model.nothing.weight"], ["float32"], [[64]]),
    "dtype": ([NORM], ["torch.float32"], [[64]]),
    "late_dtype": ([NORM, "model.nothing.weight"], ["float32", "nothing"], [[64], [2]]),
    "negative": ([NORM], ["float32"], [[-1]]),
    "none": ([], [], []),
    "unaligned": (["model.nothing.weight", NORM], ["uint8", "float32"], [[3], [64]]),
}
"""What a distributed update declares: names, dtypes, shapes."""


class Digits:
    """Reads one drawn integer as digits of a mixed radix: cheap to draw, and smaller integers are plainer choices."""

    def __init__(self, number: int) -> None:
        self._left = number

    def of(self, options: Sequence[Any]) -> Any:
        """The next digit, as one of the options."""
        self._left, digit = divmod(self._left, len(options))
        return options[digit]


WIDTH = 2**24
"""How many integers a step is drawn from: few enough for hypothesis to draw evenly, more than there are steps."""


class Vocabulary:
    """The steps that `profile` knows and that the oracle's `parts` can judge, with their weights."""

    def __init__(self, profile: EngineProfile, parts: Sequence[str]) -> None:
        self._profile = profile
        self._own_unpickler, self._own_runner = "unpickler" in parts, "runner" in parts
        receives = [name for name in RECEIVES if self._own_runner or name in ("good", "unknown", "misfit", "two")]
        if not profile.bucket_strict and "unaligned" in receives:
            receives.remove("unaligned")  # what a bucket says that does not fit together is the bucket's business
        self._receives = ["good"] * 6 + receives
        sessions, asserts = profile.session != "none", profile.session == "assert"
        gentle = [
            (8, self._tensor),
            (4, self._distributed),
            (2, self._disk),
            (2, self._ipc),
            (3, self._join),
            (2, lambda d: _step("destroy_weights_update_group", group_name=d.of("ggh"))),
            (2, lambda d: _step("release_memory_occupation", tags=d.of(TAGS))),
            (1, lambda d: _step("resume_memory_occupation", tags=d.of(TAGS))),
            (
                1,
                lambda d: _step(
                    "weights_checker", action=d.of(["snapshot", "nonsense"]), **self._selector(d, SELECTORS)
                ),
            ),
            (3, lambda d: {"op": "generate"}),
            (4, lambda d: {"op": "pause", "mode": d.of(["retract", "in_place"])}),
            (3, lambda d: {"op": "continue"}),
            (3, lambda d: {"op": "abort"}),
            (2, lambda d: {"op": "flush_cache"}),
            (6 * sessions, lambda d: _step("begin_weight_update", **self._selector(d))),
            (3 * sessions, lambda d: {"op": "end_weight_update", "body": {}}),
            (2 * profile.spans, lambda d: _step("update_weight_version", new_version=d.of("13"))),
        ]
        fatal = [
            (8, self._wrong_tensor),
            (2, lambda d: _step("resume_memory_occupation", tags=d.of(TAGS))),
            (1, lambda d: self._join(d, ("",))),
            (2, lambda d: self._distributed(d, BAD_SELECTORS)),
            (1 * sessions, lambda d: _step("begin_weight_update", **self._selector(d, BAD_SELECTORS))),
            (6 * asserts, lambda d: _step("begin_weight_update", **self._selector(d))),
            (9 * asserts, lambda d: _step("end_weight_update")),
            (9 * asserts, self._distributed),
            (3 * asserts, self._tensor),
        ]
        self._gentle = [make for weight, make in gentle for _ in range(weight)]
        self._any = [make for weight, make in (*gentle, *fatal, *fatal) for _ in range(weight)]

    def sequence(self, numbers: Sequence[int]) -> list[Step]:
        """The steps of drawn integers. Only the last may be one that kills in every state."""
        last = len(numbers) - 1
        digits = [Digits(number) for number in numbers]
        steps = [d.of(self._any if index == last else self._gentle)(d) for index, d in enumerate(digits)]
        return self._within_sessions(steps) if self._profile.session == "assert" else steps

    def _within_sessions(self, steps: list[Step]) -> list[Step]:
        """Where a call outside its session kills, only the last may be one; others become begin or end."""
        is_open = False
        for index, step in enumerate(steps[:-1]):
            if step["op"] == "begin_weight_update" and is_open:
                steps[index] = {"op": "end_weight_update", "body": {}}
            elif step["op"] in IN_SESSION and not is_open:
                steps[index] = _step("begin_weight_update", selector="all")
            is_open = {"begin_weight_update": True, "end_weight_update": False}.get(steps[index]["op"], is_open)
        return steps

    def strategy(self, longest: int = 40) -> st.SearchStrategy[list[Step]]:
        """Sequences on a fresh engine, of 1 to `longest` steps, all lengths as likely."""
        number = st.integers(0, WIDTH - 1)
        lengths = st.integers(1, longest)
        return lengths.flatmap(lambda n: st.lists(number, min_size=n, max_size=n)).map(self.sequence)

    def _selector(self, d: Digits, options: Sequence[str] = GOOD_SELECTORS) -> dict[str, Any]:
        return {"selector": d.of(options)} if self._profile.selector else {}

    def _flags(self, d: Digits) -> dict[str, Any]:
        often = [True, True, False] if self._profile.flush_failure == "refuse" else [False, False, False, True]
        return {"flush_cache": d.of(often), "weight_version": d.of([None, "1", "2"])}

    def _tensor(self, d: Digits) -> Step:
        kind = d.of(["good", "good", "good", "unknown", "empty"])
        body = {"serialized_named_tensors": [kind], "load_format": None, **self._flags(d), **self._selector(d)}
        return {"op": "update_weights_from_tensor", "body": body}

    def _wrong_tensor(self, d: Digits) -> Step:
        kinds = EVERY if self._own_unpickler else PLAIN
        payloads = d.of([["good"], *([kind] for kind in kinds), [], ["good", "garbage"]])
        formats = (
            [None, "auto"]
            + ["direct"] * self._own_runner
            + ["flattened_bucket"] * (self._own_runner and self._own_unpickler)
        )
        body = {"serialized_named_tensors": payloads, "load_format": d.of(formats), **self._flags(d)}
        return {"op": "update_weights_from_tensor", "body": {**body, **self._selector(d, SELECTORS)}}

    def _distributed(self, d: Digits, selectors: Sequence[str] = GOOD_SELECTORS) -> Step:
        names, dtypes, shapes = RECEIVES[d.of(self._receives)]
        formats = [None, None, "flattened_bucket", "direct"] if self._own_runner else [None]
        body = {"names": names, "dtypes": dtypes, "shapes": shapes, "group_name": d.of("ggggh")}
        body |= {"load_format": d.of(formats), **self._flags(d), **self._selector(d, selectors)}
        return {"op": "update_weights_from_distributed", "body": body, "receive": d.of(["", "", "", "raises"])}

    def _check(self, d: Digits) -> Step:
        return _step("weights_checker", action=d.of(["snapshot", "nonsense"]), **self._selector(d, SELECTORS))

    def _disk(self, d: Digits) -> Step:
        step = _step("update_weights_from_disk", model_path="/nowhere", **self._flags(d))
        works = d.of([True, False])
        return step if works else {**step, "fails": m.DISK_ITERATOR(error=CAUSE), "cause": CAUSE}

    def _ipc(self, d: Digits) -> Step:
        step = _step("update_weights_from_ipc", zmq_handles={}, **self._flags(d))
        return {**step, "fails": m.IPC_FAILED(error=m.IPC_MISSING.text)}

    def _join(self, d: Digits, groups: Sequence[str] = ("g", "g", "h")) -> Step:
        peer = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "backend": "gloo"}
        step = _step("init_weights_update_group", **peer, group_name=d.of(groups))
        return {**step, "join": d.of(["", "", "", "timed out"])}


def _step(op: str, **body: Any) -> Step:
    return {"op": op, "body": body}
