"""A toy lane, a toy client and a toy suite: the harness's own tests need no fake engine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from fakes.outcome import Outcome
from fakes.trace import AnyRecord, Fact, Header, TraceWriter
from harness.bench import Bench
from harness.gate import FaultGate
from harness.history import History
from harness.lanes.base import EngineSpec, Expected
from harness.passage import GatedEngine, Request
from harness.rules import Rule, Verdict, held, violated
from harness.scenario import Scenario
from harness.suites import Book, Plant, Suite
from harness.sut.protocol import Caps, Fleet, RefitResult

OK = Outcome(ending="reply", status=200, body={"success": True, "message": "Success"})


class ToyReply:
    def __init__(self, link: ToyLink, outcome: Outcome) -> None:
        self._link, self._outcome, self.cancelled = link, outcome, False

    @property
    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> Outcome:
        cost = self._link.cost
        if cost > timeout_s:
            self._link.sleep(timeout_s)
            return Outcome(ending="timeout", elapsed_s=timeout_s)
        self._link.sleep(cost)
        return self._outcome

    def cancel(self) -> None:
        self.cancelled = True


class ToyLink:
    """An engine that answers every call after `cost` seconds, and remembers what reached it."""

    def __init__(self, clock: list[float], answer: Callable[[Request], Outcome]) -> None:
        self.clock, self.answer = clock, answer
        self.reached: list[tuple[float, str]] = []
        self.killed = 0
        self.cost = 0.125

    def submit(self, request: Request, on_done: Callable[[Outcome], None] | None = None) -> ToyReply:
        self.reached.append((self.now(), request.op))
        outcome = Outcome(ending="refused") if self.killed else self.answer(request)
        if on_done is not None:
            on_done(outcome)
        return ToyReply(self, outcome)

    def kill(self) -> None:
        self.killed += 1

    def now(self) -> float:
        return self.clock[0]

    def sleep(self, seconds: float) -> None:
        self.clock[0] += seconds

    def spawn(self, work: Callable[[], None]) -> Callable[[], None]:
        work()
        return lambda: None


class ToyEngine(GatedEngine):
    url: str | None = None

    def __init__(self, gate: FaultGate, link: ToyLink, spec: EngineSpec, name: str) -> None:
        super().__init__(gate, link, name)
        self.spec, self.link = spec, link

    @property
    def alive(self) -> bool:
        return not self.link.killed

    def restart(self) -> None:
        self.link.killed = 0
        self.incarnation += 1

    def payloads(self, named: Sequence[Mapping[str, Any]], load_format: str | None = None) -> list[str]:
        return ["payload"] * len(named)


class ToyLane:
    name = "toy"
    kind = "fake"
    where = "in a toy"
    clock = "virtual"
    default_tp = 1
    versions = ("0.5.20", "0.5.23")
    provides = frozenset({"core:flush"})

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.time = [0.0]
        self.closed = 0
        self.answer: Callable[[Request], Outcome] = lambda request: OK

    def begin(self, gate: FaultGate, seed: int) -> None:
        self.time[0] = 0.0
        self._gate = gate

    def finish(self) -> list[list[AnyRecord]]:
        return []

    def now(self) -> float:
        return self.time[0]

    def sleep(self, seconds: float) -> None:
        self.time[0] += seconds

    def engine(self, spec: EngineSpec, name: str = "e0") -> ToyEngine:
        return ToyEngine(self._gate, ToyLink(self.time, lambda request: self.answer(request)), spec, name)

    def trainer(self, ranks: int) -> Any:
        return None

    def weights(self, spec: EngineSpec, seed: int) -> dict[str, Any]:
        return {"w": seed}

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        return Expected((seed,) * n)

    def close(self) -> None:
        self.closed += 1


class ToySut:
    """Flushes once per refit; any answer that is not ok is a failed refit."""

    def setup(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        self.version = version

    def refit(self, deadline_s: float) -> RefitResult:
        for endpoint in self.fleet.endpoints:
            outcome = endpoint.request("flush_cache", timeout_s=deadline_s)
            if not outcome.ok:
                raise RuntimeError(f"flush_cache: {outcome.text}")
        return RefitResult(self.version)

    def capabilities(self) -> Caps:
        return Caps()

    def close(self) -> None:
        pass


def flush_answered(history: History) -> Verdict:
    calls = history.calls("flush_cache", origin="probe")
    for call in calls:
        if call.status != 200:
            return violated(allowed=["200"], actual=call.message, where=str(call), exercised=len(calls))
    return held(len(calls))


def failure_told(history: History) -> Verdict:
    """A refit whose flush failed must not succeed."""
    hurt = 0
    for refit in history.refits():
        failed = [c for c in history.during(refit).calls(origin="sut") if not c.ok]
        hurt += bool(failed)
        if failed and refit.ok:
            return violated(allowed=["a failed refit"], actual="success", where=str(failed[0]), exercised=hurt)
    return held(hurt)


def rule(id_: str, judge: Callable[[History], Verdict], side: Any = "engine", **rest: Any) -> Rule:
    fields = {"level": "MUST", "text": f"the text of {id_}", "versions": "", "citations": ("somewhere.py:1",), **rest}
    return Rule(id=id_, side=side, judge=judge, **fields)


def flushes(bench: Bench) -> None:
    bench.e0.call("flush_cache")


def refits(bench: Bench) -> None:
    bench.refit(1)


def toy_suite() -> Suite:
    return Suite(
        "toy",
        (rule("TOY-1", flush_answered), rule("TOY-2", failure_told, "refit")),
        (
            Scenario("toy/flushes", frozenset({"TOY-1"}), flushes, "fake only: a toy"),
            Scenario("toy/refits", frozenset({"TOY-2"}), refits, "fake only: a toy", side="refit", explore=True),
        ),
    )


def book(*suites: Suite, plants: Sequence[Plant] = ()) -> Book:
    out = Book()
    for suite in suites or (toy_suite(),):
        out.add_suite(suite)
    out.add_plants(plants)
    return out


def trace(*records: AnyRecord, header: Header | None = None) -> list[AnyRecord]:
    """The records as a writer would number them, behind a header."""
    writer = TraceWriter()
    writer.write(header or Header())
    for record in records:
        writer.write(record)
    return writer.records


def fact(name: str, t: float = 0.0, engine: str = "", source: Any = "core", **data: Any) -> Fact:
    return Fact(t=t, engine=engine, source=source, name=name, data=data)


@contextmanager
def _careless_client() -> Iterator[Any]:
    class Careless(ToySut):
        def refit(self, deadline_s: float) -> RefitResult:
            self.fleet.endpoints[0].request("flush_cache", timeout_s=deadline_s)
            return RefitResult(self.version)

    yield Careless


def toy_plants() -> list[Plant]:
    return [
        Plant("careless", "client", frozenset({"TOY-2"}), "a toy", _careless_client, "it looks at no answer"),
        Plant("mute", "engine", frozenset({"TOY-1"}), "a toy", nullcontext, "no flush is answered"),
    ]


def toy_mutants() -> list[Any]:
    both, one = frozenset({"TOY-1", "TOY-2"}), frozenset({"TOY-2"})
    return [SimpleNamespace(id="both", breaks=both, origin="a toy"), SimpleNamespace(id="one", breaks=one, origin="")]


def real_mutants() -> list[Any]:
    return [SimpleNamespace(id="real", breaks=frozenset({"REAL-1", "REAL-2"}), origin="a toy")]


def validated_suite() -> Suite:
    """Two rules: one that was seen on real engines, one that was not."""
    seen = [("a", "validated: 0.5.23 2026-03-01"), ("b", "validated: 0.5.23 2026-03-04"), ("c", "fake only: a toy")]
    seen.append(("d", "validated: 0.5.20 2026-01-02"))
    unseen = [("e", "not yet: not now"), ("f", "fake only: a toy")]
    scenarios = [
        Scenario(f"real/{name}", frozenset({rule_id}), flushes, relation)
        for rule_id, relations in (("REAL-1", seen), ("REAL-2", unseen))
        for name, relation in relations
    ]
    return Suite("real", (rule("REAL-1", flush_answered), rule("REAL-2", flush_answered)), tuple(scenarios))


def without_progress(text: str) -> str:
    """Standard error without what a slow machine adds to it."""
    return "".join(line for line in text.splitlines(keepends=True) if " parts done, " not in line)


def soon(again: float = 5.0) -> float:
    """The time of the watch that is over us is up at once, however slow this machine was so far; gives an age."""
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0, "nothing is watched"
    signal.setitimer(signal.ITIMER_REAL, 0.2, again)
    return 1e6


def toy_command(times: int = 1) -> int:
    """A command of another package."""
    print("toy " * times)
    return 0


class MuteSut(ToySut):
    """Fails when it must, but hides what the engine said: no rule of the toys sees that, an invariant does."""

    def refit(self, deadline_s: float) -> RefitResult:
        try:
            return super().refit(deadline_s)
        except RuntimeError:
            raise RuntimeError("the refit failed") from None


class SetupSut(ToySut):
    """Cannot be set up."""

    def setup(self, fleet: Fleet) -> None:
        raise ValueError("no trainer\nat this address")


class CloseSut(ToySut):
    """Cannot be closed."""

    def close(self) -> None:
        raise OSError("still busy")
