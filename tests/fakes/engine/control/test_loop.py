"""The deterministic loop against asyncio itself: the same program wakes the same tasks in the same order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.engine.loop import Cancelled, Condition, Event, Lock, Loop, RWLock

OPS = st.sampled_from(["lock", "cond", "notify", "event", "set", "sleep1", "sleep2", "yield"])
PROGRAMS = st.lists(st.lists(OPS, min_size=1, max_size=6), min_size=1, max_size=6)


class VirtualSelector(selectors.SelectSelector):
    """Never waits: it moves the loop's clock on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for ever")
        self.now += max(timeout, 0.0)
        return super().select(0)


async def steps(name: int, program: list[str], log: list[Any], kit: dict[str, Any]) -> None:
    for index, op in enumerate(program):
        extra = 0.001 * (name + 1) + 0.0001 * index  # asyncio's order of timers that are due at once is a heap's
        log.append((name, index, op, round(kit["now"]())))
        if op == "lock":
            async with kit["lock"]:
                await kit["sleep"](1.0 + extra)
        elif op == "cond":
            async with kit["cond"]:
                await kit["cond"].wait()
        elif op == "notify":
            async with kit["cond"]:
                kit["cond"].notify_all()
        elif op == "event":
            await kit["event"].wait()
        elif op == "set":
            kit["event"].set()
        elif op.startswith("sleep"):
            await kit["sleep"](float(op[5:]) + extra)
        else:
            async with kit["lock"]:
                pass
    log.append((name, "end", round(kit["now"]())))


async def waker(kit: dict[str, Any]) -> None:
    """Nobody waits for ever: every second the event is set and the condition notified."""
    for _ in range(60):
        await kit["sleep"](1.00003)
        kit["event"].set()
        async with kit["cond"]:
            kit["cond"].notify_all()


def on_asyncio(programs: list[list[str]]) -> list[Any]:
    selector = VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]  # virtual time for asyncio
    log: list[Any] = []

    async def main() -> None:
        kit = {"lock": asyncio.Lock(), "cond": asyncio.Condition(), "event": asyncio.Event(), "sleep": asyncio.sleep}
        kit["now"] = loop.time
        tasks = [asyncio.create_task(steps(i, p, log, kit)) for i, p in enumerate(programs)]
        await asyncio.gather(*tasks, asyncio.create_task(waker(kit)))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return log


def on_ours(programs: list[list[str]]) -> list[Any]:
    loop = Loop()
    log: list[Any] = []
    kit: dict[str, Any] = {"lock": Lock(loop), "cond": Condition(loop), "event": Event(loop), "sleep": loop.sleep}
    kit["now"] = lambda: loop.now
    for i, program in enumerate(programs):
        loop.spawn(steps(i, program, log, kit))
    loop.spawn(waker(kit))
    run_all(loop)
    return log


def run_all(loop: Loop) -> None:
    loop.run(loop.now)
    while (due := loop.next_deadline()) is not None:
        loop.run(due)


@given(PROGRAMS)
def test_the_same_program_runs_in_the_same_order_as_on_asyncio(programs: list[list[str]]) -> None:
    assert on_ours(programs) == on_asyncio(programs)


def started(loop: Loop, *coros: Coroutine[Any, Any, None]) -> None:
    for coro in coros:
        loop.spawn(coro)
    loop.run(loop.now)


def reader(lock: RWLock, loop: Loop, log: list[str], name: str, hold: float) -> Coroutine[Any, Any, None]:
    async def run() -> None:
        async with lock.reader:
            log.append(f"{name}+")
            await loop.sleep(hold)
        log.append(f"{name}-")

    return run()


def writer(lock: RWLock, loop: Loop, log: list[str], name: str, hold: float) -> Coroutine[Any, Any, None]:
    async def run() -> None:
        async with lock.writer:
            log.append(f"{name}+")
            await loop.sleep(hold)
        log.append(f"{name}-")

    return run()


def test_a_writer_waits_for_all_readers_and_holds_back_later_ones() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]  # of whatever is logged
    lock = RWLock(loop)
    started(loop, reader(lock, loop, log, "r1", 2), reader(lock, loop, log, "r2", 3))
    started(loop, writer(lock, loop, log, "w1", 1), reader(lock, loop, log, "r3", 1), writer(lock, loop, log, "w2", 1))
    run_all(loop)
    assert log == ["r1+", "r2+", "r1-", "r2-", "w1+", "w1-", "w2+", "w2-", "r3+", "r3-"]


def test_a_cancelled_writer_lets_the_readers_go_on() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]  # of whatever is logged
    lock = RWLock(loop)
    started(loop, reader(lock, loop, log, "r1", 5))
    waiting = loop.spawn(writer(lock, loop, log, "w1", 1))
    started(loop, reader(lock, loop, log, "r2", 1))
    assert log == ["r1+"]
    waiting.cancel()
    loop.run(loop.now)
    with pytest.raises(Cancelled):
        waiting.result()
    assert lock.waiting_writers == 0
    run_all(loop)
    assert log == ["r1+", "r1-", "r2+", "r2-"], "as asyncio: a cancelled writer wakes nobody, the last reader does"


@pytest.mark.parametrize("hold", [lambda loop: Lock(loop), lambda loop: Condition(loop)])
def test_a_cancelled_waiter_passes_the_turn_on(hold: Callable[[Loop], Any]) -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]  # of whatever is logged
    lock = hold(loop)

    async def take(name: str, seconds: float) -> None:
        async with lock:
            log.append(name)
            await loop.sleep(seconds)

    started(loop, take("a", 1))
    second = loop.spawn(take("b", 1))
    started(loop, take("c", 1))
    second.cancel()
    run_all(loop)
    assert log == ["a", "c"]


def test_a_closed_task_runs_no_more() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]  # of whatever is logged

    async def run() -> None:
        log.append("never")

    task = loop.spawn(run())
    task.close()
    loop.run(0.0)
    assert not log
