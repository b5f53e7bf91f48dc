"""A small scripted fleet: engines that follow the contract's control plane, and a trainer kit on the world's baton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fakes.outcome import Outcome
from fakes.world import World
from harness.reference.adapter import ReferenceSut
from harness.reference.errors import CallFailed
from harness.sut.protocol import Fleet

UPDATE = "update_weights_from_tensor"
BEGIN, END = "begin_weight_update", "end_weight_update"
OK = Outcome(ending="reply", status=200, body={"success": True, "message": "Success"})


def no(status: int, message: str) -> Outcome:
    return Outcome(ending="reply", status=status, body={"success": False, "message": message})


@dataclass
class ScriptedEngine:
    """Answers at once unless `script[(op, nth)]` says otherwise: "before" and "after" the effect, or a status."""

    name: str
    world: World
    tp: int = 1
    gpu_ids: tuple[int, ...] = ()
    url: str | None = None
    incarnation: int = 0
    sessions: bool = True
    asserts: bool = False
    script: dict[tuple[str, int], str] = field(default_factory=dict)
    log: list[tuple[str, Any]] = field(default_factory=list)
    everybody: list[str] = field(default_factory=list)
    dead: bool = False
    paused: bool = False
    open: bool = False
    busy_for: int = 0
    released: set[str] = field(default_factory=set)
    loaded: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    label: str = "default"
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def ops(self) -> list[str]:
        return [op for op, _ in self.log]

    def request(self, op, body=None, *, method="POST", query=None, timeout_s):
        return self.start(op, body, method=method, timeout_s=timeout_s)()

    def start(self, op, body=None, *, method="POST", timeout_s) -> Callable[[], Outcome]:
        assert timeout_s > 0
        self.log.append((op, body))
        self.everybody.append(f"{self.name}:{op}")
        if self.dead:
            return lambda: Outcome(ending="refused", error="connection refused")
        what = self.script.get((op, self.ops.count(op)), "")
        if what == "interrupt":
            raise KeyboardInterrupt
        if what in ("hang before", "hang after"):
            if what == "hang after":
                self.act(op, body)
            until = self.world.now + timeout_s
            return lambda: (self.world.sleep(until - self.world.now), Outcome(ending="timeout", elapsed_s=timeout_s))[1]
        if what == "die":
            self.dead = True
        outcome = OK if what.endswith("before") or self.dead else self.act(op, body)
        if self.dead or what.startswith("drop"):
            return lambda: Outcome(ending="dropped", error="connection reset")
        if what.startswith("400"):
            return lambda: no(400, "scripted refusal")
        if what.startswith("200 false"):
            return lambda: no(200, "scripted refusal")
        if what.startswith("500"):
            return lambda: Outcome(ending="reply", status=500, body="Internal Server Error")
        assert what == "", what
        return lambda: outcome

    def act(self, op: str, body: Any) -> Outcome:
        if op == "begin_weight_update":
            return self.toggle(True, "a weight-update session is already open; call end_weight_update() first")
        if op == "end_weight_update":
            return self.toggle(False, "no weight-update session is open; call begin_weight_update() first")
        if op in ("pause_generation", "continue_generation"):
            self.paused = op == "pause_generation"
        elif op == "flush_cache":
            if self.busy_for:
                self.busy_for -= 1
                return Outcome(ending="reply", status=400, body="Flush cache failed.\n")
        elif op == "release_memory_occupation":
            self.released |= set(body["tags"])
        elif op == "resume_memory_occupation":
            self.dead = not set(body["tags"]) <= self.released
            self.released -= set(body["tags"])
        elif op == "update_weights_from_tensor":
            if self.sessions and not self.open:
                self.dead = self.asserts
                return no(
                    400, "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"
                )
            payloads = body["serialized_named_tensors"]
            assert len(payloads) == self.tp
            for name in payloads[0].split(";")[1].split(","):
                self.loaded[name] = tuple(payloads)
            self.label = body.get("weight_version", self.label)
        elif op in self.answers:
            return Outcome(ending="reply", status=200, body=self.answers[op])
        return OK

    def toggle(self, wanted: bool, message: str) -> Outcome:
        if not self.sessions:
            return Outcome(ending="reply", status=404, body={"detail": "Not Found"})
        if self.open is wanted:
            self.dead = self.asserts
            return no(400, message)
        self.open = wanted
        return OK


@dataclass
class ScriptedExport:
    payload: str
    kit: ScriptedKit

    def release(self) -> None:
        assert self in self.kit.live
        self.kit.live.remove(self)
        self.kit.record("release", 0, {})


class ScriptedKit:
    """Payloads are text: "rank;names;version of the contents"."""

    def __init__(self, world: World, ranks: int, record) -> None:
        self.world, self.ranks, self.record = world, ranks, record
        self.everyone = world.group(ranks, "trainer")
        self.groups: dict[tuple[int, ...], Any] = {}
        self.live: list[ScriptedExport] = []
        self.drained = [0] * ranks
        self.break_export: dict[int, BaseException] = {}
        self.silent: set[int] = set()
        self.skip: set[str] = set()

    def run(self, fn, timeout_s):
        threads = [self.world.spawn(fn, rank, name=f"rank{rank}") for rank in range(self.ranks)]
        self.world.join(*threads)
        return [t.error if t.error is not None else t.result for t in threads]

    def stream(self, rank, state, timeout_s):
        for name, tensor in state.items():
            if name in self.skip:
                continue
            self.everyone.barrier(rank, timeout_s)
            self.drained[rank] += 1
            yield name, tensor

    def export(self, rank, named, consumers):
        if rank in self.break_export:
            raise self.break_export[rank]
        content = float(np.asarray(named[0][1], dtype=np.float32).ravel()[0])
        payload = f"{rank};{','.join(name for name, _ in named)};{content};{consumers}"
        export = ScriptedExport(payload, self)
        self.live.append(export)
        return export

    def gather(self, rank, value, *, dst, group, timeout_s):
        comm = self.groups.setdefault(group, self.world.group(len(group), f"gather{group}"))
        value = None if rank in self.silent else value
        return comm.gather(group.index(rank), value, dst=group.index(dst), timeout_s=timeout_s)

    def all_gather(self, rank, value, timeout_s):
        return self.everyone.all_gather(rank, value, timeout_s)

    def live_exports(self):
        return len(self.live)


def state(value: float = 1.0, **more: Any) -> dict[str, Any]:
    full = {f"w{i}": np.full((4, 4), value, dtype=ml_dtypes.bfloat16) for i in range(4)}
    return full | {"bias": np.full((4,), value, dtype=np.float32)} | more


@dataclass
class Rig:
    """Engines, a kit with `spare` placeholder ranks, and everything that was recorded."""

    version: str = "0.5.23"
    engines: int = 1
    tp: int = 1
    spare: int = 0
    world: World = field(default_factory=World)
    records: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        order: list[str] = []
        has = self.version not in ("0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20")
        self.e = [
            ScriptedEngine(
                f"e{i}",
                self.world,
                tp=self.tp,
                gpu_ids=tuple(range(i * self.tp, (i + 1) * self.tp)),
                sessions=has,
                asserts=self.version == "miles",
                everybody=order,
            )
            for i in range(self.engines)
        ]
        self.order = order
        self.kit = ScriptedKit(self.world, self.engines * self.tp + self.spare, self.record)
        self.fleet = Fleet(tuple(self.e), self.world.clock, self.version, self.record, self.kit)

    def record(self, name, rank, data) -> None:
        self.records.append((name, rank, dict(data)))

    def names(self) -> list[str]:
        return [name for name, _, _ in self.records if name != "release"]

    def marker(self, name: str) -> dict[str, Any]:
        return next(data for n, _, data in reversed(self.records) if n == name)


def client(rig: Rig, **options) -> ReferenceSut:
    sut = ReferenceSut(bucket_bytes=64, **options)
    sut.setup(rig.fleet)
    sut.set_weights(state(1.0), "v1")
    return sut


def failing(rig: Rig, deadline_s: float = 100.0, expect: type[BaseException] = CallFailed, **options):
    sut = client(rig, **options)
    with pytest.raises(expect) as caught:
        sut.refit(deadline_s)
    return sut, caught.value
