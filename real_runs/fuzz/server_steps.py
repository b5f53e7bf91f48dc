"""What a server is asked over HTTP: control calls, legal and illegal, in every state; what kills is apart.

One drawn integer is one draw: now and then a state to go to, then an operation with its arguments. `cells.py` of the
oracle names operations and states alike; here a pause counts by its mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from hypothesis import strategies as st

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.profiles import ORDER
from real_runs import sequence as s
from real_runs.fuzz.cells import Cell
from real_runs.fuzz.draft import ABORT, Draft
from real_runs.fuzz.server_payloads import alone, deadly, plain, sent, unusual
from real_runs.fuzz.steps import WIDTH, Digits
from real_runs.recipes import Entry

TRAFFIC = (
    ("", "idle"), ("", "running"), ("abort", "idle"), ("abort", "held"), ("retract", "idle"), ("retract", "held"),
    ("retract", "queued"), ("in_place", "idle"), ("in_place", "held"), ("in_place", "queued"), ("in_place", "running"),
)  # fmt: skip
"""How the engine is paused, and what it holds: running (frozen where paused), queued in the scheduler, or held before
it. An abort pause leaves nothing running, a retract neither."""
TAGS: Sequence[Any] = (None, ["weights"], ["kv_cache"], ["cuda_graph"], ["weights", "kv_cache"])
LEAVE = s.call("destroy_weights_update_group", {"group_name": "g"})
RECEIVE = {"names": ["model.nothing.weight"], "dtypes": ["float32"], "shapes": [[2]], "group_name": "g"}
"""Received, and skipped when it is loaded: what a group's only member receives from itself nobody has written."""
DISTRIBUTED = {"names": ["model.norm.weight"], "dtypes": ["float32"], "shapes": [[64]], "group_name": "g"}
PROMPTS = (None, [3, 1, 4], [7, 31, 202, 9])
Draw = Callable[[Digits, Draft], None]
State = tuple[str, str, bool, bool]


def state_name(pause: str, traffic: str, session: bool, released: bool) -> str:
    """A state as it stands in a cell."""
    return f"{pause or 'free'} {traffic}, {'open' if session else 'closed'}{', released' if released else ''}"


class ServerVocabulary:
    """The calls that `profile` knows, and some that no version does, for an engine of `tp` ranks.

    `bypass`: the server's /health does not generate."""

    def __init__(self, profile: EngineProfile, *, bypass: bool = True, tp: int = 1) -> None:
        self._bypass, self._tp = bypass, tp
        self._alone = s.call("init_weights_update_group", alone(tp))
        self._payloads = [*plain() * 2, *unusual(tp)]
        self._profile = profile
        self._sessions = profile.session != "none"
        draws: dict[str, Draw] = {
            "update_weights_from_tensor": self._tensor,
            "update_weights_from_distributed": self._distributed,
            "update_weights_from_disk": self._disk,
            "update_weights_from_ipc": lambda d, to: to.add(s.call("update_weights_from_ipc", {"zmq_handles": {}})),
            "init_weights_update_group": lambda d, to: to.add(self._alone),
            "destroy_weights_update_group": lambda d, to: to.add(LEAVE),
            "pause abort": lambda d, to: to.add(s.pause("abort") if d.of([1, 1, 0]) else s.call(*_NO_MODE)),
            "pause retract": lambda d, to: to.add(s.pause("retract")),
            "pause in_place": lambda d, to: to.add(s.pause("in_place")),
            "continue_generation": self._continue,
            "flush_cache": self._flush,
            "generate": self._generate,
            "abort_request": self._abort,
            "release_memory_occupation": self._release,
            "resume_memory_occupation": self._resume,
            "update_weight_version": self._version,
            "weights_checker": self._check,
            "get_weights_by_name": self._by_name,
            "model_info": lambda d, to: to.put(s.get(d.of(["model_info", "get_model_info"]))),
            "server_info": lambda d, to: to.put(s.get("server_info", compare="keys")),
            "ready": _get("ready"),
            "ping": _get("ping"),
            "health": self._health,
        }
        if self._sessions:
            draws |= {"begin_weight_update": self._begin, "end_weight_update": lambda d, to: to.add(s.END)}
        self._draws = draws
        self._others: list[Draw] = [self._malformed, self._wrong_update, _elsewhere, _get("weight_version")]
        self.operations = tuple(draws)
        self.states: list[State] = [
            (*traffic, session, released)
            for traffic, session, released in product(TRAFFIC, [False, True][: 1 + self._sessions], [False, True])
        ]

        running = [state for state in self.states if state[1] == "running"]
        self._often = [*self.states, *running, *running]
        self._table = [*draws.values()] * 4 + [self._tensor] * 16 + self._others

    @property
    def cells(self) -> list[Cell]:
        """Every (operation, state)."""
        return [(operation, state_name(*state)) for state in self.states for operation in self.operations]

    def sequence(self, numbers: Sequence[int], missing: Sequence[Cell] = ()) -> s.Sequence:
        """The sequence of drawn integers. Half of the draws that go to a state go to a cell of `missing`."""
        return self.draft(numbers, missing).whole("drawn")

    def draft(self, numbers: Sequence[int], missing: Sequence[Cell] = ()) -> Draft:
        """The steps of drawn integers, each with the index of its draw."""
        draft = Draft(self._profile)
        for index, number in enumerate(numbers):
            draft.owner = index
            self._draw(Digits(number), draft, missing)
        return draft

    def at(self, cell: Cell) -> s.Sequence:
        """The plainest way to one cell."""
        operation, name = cell
        draft = Draft(self._profile)
        draft.to(*next(state for state in self.states if state_name(*state) == name))
        plain = self._forced(operation, draft)
        for step in (plain, s.CONTINUE, ABORT):
            draft.put(step)
        for label in draft.live:
            draft.put(s.join(label))
        return s.Sequence(name="drawn", about=f"{operation} while {name}", steps=draft.steps)

    def fatal(self, number: int) -> s.Sequence:
        """A sequence that ends with what kills in any state, or in most."""
        digits = Digits(number)
        draft = Draft(self._profile)
        state: State = digits.of(self.states)
        draft.to(state[0], state[1], self._sessions, state[3])
        step: s.Step = digits.of(deadly(self._tp))
        draft.put(step)
        for label in draft.live:
            draft.put(s.join(label))
        return s.Sequence(name="drawn", about="kills", steps=draft.steps, fatal=True)

    def strategy(self, longest: int = 12) -> st.SearchStrategy[list[int]]:
        """Integers for sequences of `longest` draws, or half as many; each is made of two, which are drawn evenly."""
        part = st.integers(0, WIDTH - 1)
        number = st.tuples(part, part).map(lambda two: two[0] + WIDTH * two[1])
        return st.integers(max(2, longest // 2), longest).flatmap(lambda n: st.lists(number, min_size=n, max_size=n))

    def _draw(self, d: Digits, draft: Draft, missing: Sequence[Cell]) -> None:
        goes, guided = d.of([False, False, True]), d.of([False, True])
        if goes and guided and missing:
            operation, name = d.of(missing)
            draft.to(*next(state for state in self.states if state_name(*state) == name))
            self._draws[operation](d, draft)
            return
        if goes:
            draft.to(*d.of(self._often))
        d.of(self._table)(d, draft)

    def _begin(self, d: Digits, to: Draft) -> None:
        body = d.of([{}, {}, {"selector": "target"}, {"selector": "draft"}, {"selector": "both"}, {"selector": 3}])
        step = s.call("begin_weight_update", body)
        (to.put if body.get("selector") in ("both", 3) else to.add)(step)

    def _flags(self, d: Digits) -> dict[str, Any]:
        flags: dict[str, Any] = d.of([{}, {}, {"flush_cache": False}, {"abort_all_requests": True}])
        return {**flags, **d.of([{}, {"weight_version": "v1"}, {"weight_version": "v2"}])}

    def _tensor(self, d: Digits, to: Draft) -> None:
        """Half of those that a closed session would refuse get one; half of them are looked at in tokens."""
        entries, formats = d.of(self._payloads)
        if self._sessions and not to.session and d.of([False, True]):
            to.add(s.BEGIN)
        more = d.of([{}, {}, {"selector": "target"}, {"selector": "draft"}]) if self._profile.selector else {}
        to.add(sent(entries, format=d.of(formats), **self._flags(d), **more))
        if not to.pause and not to.live and d.of([False, True]):
            to.add(s.canary())

    def _distributed(self, d: Digits, to: Draft) -> None:
        """Without a group it is refused, or (up to 0.5.20) deadly."""
        if not to.group and (self._profile.group_missing == "die" or d.of([True, False])):
            to.add(self._alone)
        body = RECEIVE if to.group else DISTRIBUTED
        to.add(s.call("update_weights_from_distributed", {**body, **self._flags(d)}))

    def _disk(self, d: Digits, to: Draft) -> None:
        path = d.of([{"$model": 0}, {"$model": 1}, "/nowhere/at/all"])
        to.add(s.call("update_weights_from_disk", {"model_path": path, **self._flags(d)}))

    def _continue(self, d: Digits, to: Draft) -> None:
        to.add(s.call("continue_generation", d.of([{}, {"torch_empty_cache": False}, {"torch_empty_cache": True}])))

    def _flush(self, d: Digits, to: Draft) -> None:
        to.put(d.of([s.FLUSH, s.FLUSH, *(s.call("flush_cache", query={"timeout": t}) for t in ("0", "0.2"))]))

    def _generate(self, d: Digits, to: Draft) -> None:
        prompt, n = d.of(PROMPTS), d.of([4, 8])
        if d.of([True, False]):
            to.start(d.of([13, 14, 15]))
        else:
            logprobs = d.of([False, True]) and not self._profile.pins_input_logprobs  # which kills on a CPU
            to.add(s.call("generate", s.generate(prompt, n, return_logprob=logprobs)))

    def _abort(self, d: Digits, to: Draft) -> None:
        to.add(s.call("abort_request", d.of([{"abort_all": True}, {"rid": "nobody"}, {}])))

    def _release(self, d: Digits, to: Draft) -> None:
        """Only of an idle engine, or (from 0.5.21) of a paused one in which nothing runs."""
        if to.running or (to.queued and not self._profile.idle_ignores_queue_when_paused):
            to.finish()
        tags = d.of(TAGS)
        to.add(s.call("release_memory_occupation", {} if tags is None else {"tags": tags}))

    def _resume(self, d: Digits, to: Draft) -> None:
        """Only what is released: a tag that is not kills."""
        tags = sorted(to.released)
        if not tags:
            self._release(d, to)
            return
        to.add(s.call("resume_memory_occupation", {"tags": d.of([tags, tags[:1]])}))

    def _version(self, d: Digits, to: Draft) -> None:
        body = {"new_version": d.of(["v1", "v2"]), "abort_all_requests": d.of([False, False, True])}
        to.add(s.call("update_weight_version", body))

    def _check(self, d: Digits, to: Draft) -> None:
        """No compare without a snapshot of its own: a server keeps the last one, whatever it is brought back to."""
        action = d.of(["snapshot", "checksum", "compare", "nothing"])
        if action == "compare":
            to.put(s.call("weights_checker", {"action": "snapshot"}))
        to.put(s.call("weights_checker", {"action": action}))

    def _by_name(self, d: Digits, to: Draft) -> None:
        name = d.of(["model.norm.weight", "model.layers.0.mlp.down_proj.weight", "nothing"])
        to.put(s.call("get_weights_by_name", {"name": name, "truncate_size": d.of([2, 100])}))

    def _health(self, d: Digits, to: Draft) -> None:
        """The server answers /health at once; every tenth asks /health_generate, which takes a second, unless it would
        take twenty."""
        slow = d.of([*[False] * 9, True]) and not to.pause
        to.put(s.get("health_generate" if slow else "health" if self._bypass else "ping"))

    def _wrong_update(self, d: Digits, to: Draft) -> None:
        bodies: list[Any] = [{}, {"serialized_named_tensors": 3}, {"serialized_named_tensors": ["gA=="], "selector": 9}]
        raw = self._profile.version != ORDER[0] and d.of([True, False])  # decoded in its scheduler, which dies of it
        to.put(s.update(Entry(raw="not base64!")) if raw else s.call("update_weights_from_tensor", d.of(bodies[:2])))

    def _malformed(self, d: Digits, to: Draft) -> None:
        op = d.of(["pause_generation", "continue_generation", "flush_cache", "update_weights_from_disk", "generate"])
        if op == "flush_cache":
            to.put(s.call(op, query={"timeout": d.of(["-1", "x"])}))
            return
        if d.of([True, False]):
            to.put(s.call(op, raw=d.of(["{", "null"]), compare="ending"))
            return
        bodies: list[Any] = [{"mode": "no", "model_path": 3, "torch_empty_cache": "no", "input_ids": "x"}, [], 7]
        to.put(s.call(op, d.of(bodies)))

    def _forced(self, operation: str, draft: Draft) -> s.Step:
        """The plainest call of an operation, whatever it does."""
        bodies: dict[str, Any] = {
            "init_weights_update_group": self._alone.body,
            "update_weights_from_distributed": DISTRIBUTED,
            "update_weights_from_disk": {"model_path": {"$model": 0}},
            "update_weights_from_ipc": {"zmq_handles": {}},
            "destroy_weights_update_group": {"group_name": "g"},
            "resume_memory_occupation": {"tags": sorted(draft.released)} if draft.released else {},
            "update_weight_version": {"new_version": "v1"},
            "weights_checker": {"action": "snapshot"},
            "get_weights_by_name": {"name": "model.norm.weight"},
            "abort_request": {"abort_all": True},
        }
        if operation == "update_weights_from_tensor":
            return s.update(s.whole(0), format="flattened_bucket")
        if operation.startswith("pause "):
            return s.pause(operation.removeprefix("pause "))
        if operation == "generate":
            return s.start("g", "generate", s.generate())
        if operation in ("model_info", "server_info", "ready", "ping", "health"):
            return s.get(operation)
        return s.call(operation, bodies.get(operation, {}))


_NO_MODE: tuple[str, dict[str, Any]] = ("pause_generation", {})


def _get(op: str) -> Draw:
    return lambda d, to: to.put(s.get(op))


def _elsewhere(d: Digits, to: Draft) -> None:
    """Routes that no table has: of adapters, which the server was not started with, and some that say little."""
    adapter = {"lora_name": "a", "lora_path": "/nowhere"}
    to.put(
        d.of([
            s.get("no_such_route"),
            s.get("get_server_info", compare="keys"),
            s.get(""),
            s.call("slow_down", {"forward_sleep_time": None}),
            s.get("slow_down"),
            s.call("load_lora_adapter", adapter),
            s.call("load_lora_adapter", {}),
            s.call("load_lora_adapter_from_tensors", {"lora_name": "a", "config_dict": {}, "serialized_tensors": ""}),
            s.call("unload_lora_adapter", {"lora_name": "a"}),
        ])
    )  # fmt: skip
