"""A lane of scripted engines: the real gate and bench over the small control plane of the reference tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fakes.outcome import Outcome
from fakes.trace import Fact, Header, TraceWriter
from fakes.world import World
from harness.bench import Bench, generation
from harness.explore.plans import Plan
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec
from harness.passage import GatedEngine, Request
from tests.harness.reference.fleet import OK, ScriptedEngine, ScriptedKit, state


class Said:
    done = True

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def wait(self, timeout_s: float) -> Outcome:
        return self.outcome

    def cancel(self) -> None:
        pass


class ScriptedLink:
    def __init__(self, lane: ScriptedLane, engine: ScriptedEngine) -> None:
        self.lane, self.engine = lane, engine

    def submit(self, request: Request, on_done=None) -> Said:
        engine = self.engine
        if engine.dead:
            outcome = Outcome(ending="refused", error="connection refused")
        elif request.op == "generate":
            outcome = self.serve()
        else:
            outcome = engine.act(request.op, request.body)
            if engine.dead:
                outcome = Outcome(ending="dropped")
        self.tell("pause", state="paused" if engine.paused else "running", mode="")
        self.tell("memory", tags=sorted(engine.released))
        if request.op == "update_weights_from_tensor":
            self.tell("version", owner="tokenizer", value=engine.label)
        if on_done:
            on_done(outcome)
        return Said(outcome)

    def serve(self) -> Outcome:
        if self.engine.paused:
            return Outcome(ending="timeout")
        contents = {p.split(";")[2] for ps in self.engine.loaded.values() for p in ps} or {"0"}
        torn = len(contents) > 1 or len(self.engine.loaded) not in (0, 5)
        self.tell("serve", weights="+".join(sorted(contents)), kv=[], released=sorted(self.engine.released), torn=torn)
        return OK

    def tell(self, name: str, **data: Any) -> None:
        life = {"engine": self.engine.name, "incarnation": self.engine.incarnation, "t": self.lane.now()}
        self.lane.gate.trace.write(Fact(source="core", name=name, data=data, **life))

    def kill(self) -> None:
        self.engine.dead = True

    def now(self) -> float:
        return self.lane.now()

    def sleep(self, seconds: float) -> None:
        self.lane.sleep(seconds)

    def spawn(self, work: Callable[[], None]) -> Callable[[], None]:
        thread = self.lane.world.spawn(work, name="call")
        return lambda: self.lane.world.join(thread)


class ScriptedHandle(GatedEngine):
    def __init__(self, lane: ScriptedLane, spec: EngineSpec, name: str) -> None:
        self.spec, self.lane = spec, lane
        self.engine = self.fresh(name, 0)
        super().__init__(lane.gate, ScriptedLink(lane, self.engine), name)

    def fresh(self, name: str, incarnation: int) -> ScriptedEngine:
        version = self.spec.version
        sessions = version == "miles" or version >= "0.5.21"
        return ScriptedEngine(
            name, self.lane.world, self.spec.tp, incarnation=incarnation, sessions=sessions, asserts=version == "miles"
        )

    @property
    def alive(self) -> bool:
        return not self.engine.dead

    def restart(self) -> None:
        self.incarnation += 1
        self.engine = self.fresh(self.name, self.incarnation)
        self._link = ScriptedLink(self.lane, self.engine)


class ScriptedLane:
    name, clock, provides = "scripted", "virtual", frozenset[str]()

    def begin(self, gate: FaultGate, seed: int) -> None:
        self.gate, self.world = gate, World(seed)

    world: World | None = None

    def finish(self) -> list[Any]:
        self.world.close()
        return []

    def now(self) -> float:
        return self.world.now if self.world else 0.0

    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)

    def engine(self, spec: EngineSpec, name: str = "e0") -> ScriptedHandle:
        return ScriptedHandle(self, spec, name)

    def trainer(self, ranks: int) -> ScriptedKit:
        return ScriptedKit(self.world, ranks, self.gate.trainer)

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, Any]:
        return state(float(seed))

    def expected(self, *_: Any) -> None:
        return None


def two_refits(bench: Bench) -> None:
    """Serve, refit (the faulted one), replace what is lost, refit again, serve."""
    engines = bench.fleet(bench.fleet_size)
    serve(bench, "before")
    rollouts = [bench.traffic(handle, f"rollout {handle.name}", n=60) for handle in engines if bench.inflight]
    bench.sleep(0.05)
    if "phase" in bench.caps.optional and bench.offload:
        with suppress(Exception):
            bench.sut.phase("train")
    bench.refit(1, "v1", deadline_s=60)
    serve(bench, "between")
    for handle in engines:
        lost = any(
            r.name == "ENGINE_LOST" and r.data["engine"] == handle.name and r.data["incarnation"] == handle.incarnation
            for r in bench.gate.trace.records
            if r.__class__.__name__ == "Trainer"
        )
        if lost or not handle.alive:
            handle.restart()
    bench.refit(2, "v2", deadline_s=60)
    serve(bench, "after")
    for rollout in rollouts:
        rollout.result(60)


def serve(bench: Bench, label: str) -> None:
    for handle in bench.engines:
        handle.call("generate", generation(bench.prompt(label), 2), origin="traffic", timeout_s=1)


def runner(
    make_sut: Callable[[], Any],
    *,
    version: str = "0.5.23",
    engines: int = 3,
    tp: int = 1,
    offload: bool = False,
    policy: str = "resume",
    lane: Any = None,
    inflight: bool = False,
    **launch: Any,
) -> Callable[[Plan], History]:
    lane = lane or ScriptedLane()

    def run(faults: Plan) -> History:
        trace = TraceWriter()
        gate = FaultGate(trace, lane.now, faults)
        trace.write(Header(clock="virtual", lane=lane.name, engine_version=version, tp=tp, meta={"policy": policy}))
        lane.begin(gate, 0)
        spec = EngineSpec(version=version, tp=tp, options=tuple(launch.items()))
        bench = Bench(lane, gate, spec, sut_factory=make_sut, sut_options={"policy": policy})
        bench.fleet_size, bench.offload, bench.inflight = engines, offload, inflight
        try:
            two_refits(bench)
        finally:
            lane.finish()
        return History.from_records(trace.records)

    return run
