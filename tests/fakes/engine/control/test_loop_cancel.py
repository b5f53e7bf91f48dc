"""Cancellation and futures of the deterministic loop: against asyncio's own, and rule by rule."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any

import pytest

from fakes.engine.loop import Cancelled, Condition, Event, Future, Lock, Loop
from tests.fakes.engine.control.test_loop import VirtualSelector, run_all

OPS = ("lock", "cond", "event", "sleep1", "sleep2", "cancel", "notify", "set", "clear")


async def act(name: int, program: list[str], log: list[Any], kit: dict[str, Any]) -> None:
    for index, op in enumerate(program):
        extra = 0.001 * (name + 1) + 0.0001 * index
        try:
            log.append((name, index, op, round(kit["now"](), 3)))
            if op == "lock":
                async with kit["lock"]:
                    await kit["sleep"](1.0 + extra)
            elif op == "cond":
                async with kit["cond"]:
                    await kit["cond"].wait()
            elif op == "event":
                await kit["event"].wait()
            elif op.startswith("sleep"):
                await kit["sleep"](float(op[5:]) + extra)
            elif op == "cancel":
                kit["tasks"][(name + index + 1) % len(kit["tasks"])].cancel()
            elif op == "notify":
                async with kit["cond"]:
                    kit["cond"].notify_all()
            elif op == "set":
                kit["event"].set()
            else:
                kit["event"].clear()
        except kit["cancelled"]:
            log.append((name, index, "cancelled", round(kit["now"](), 3)))
    log.append((name, "end", round(kit["now"](), 3)))


async def waker(kit: dict[str, Any]) -> None:
    for _ in range(40):
        await kit["sleep"](1.00003)
        kit["event"].set()
        async with kit["cond"]:
            kit["cond"].notify_all()


def on_asyncio(programs: list[list[str]]) -> list[Any]:
    selector = VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    log: list[Any] = []

    async def main() -> None:
        kit: dict[str, Any] = {"lock": asyncio.Lock(), "cond": asyncio.Condition(), "event": asyncio.Event()}
        kit |= {"sleep": asyncio.sleep, "now": loop.time, "cancelled": asyncio.CancelledError}
        kit["tasks"] = [asyncio.create_task(act(i, p, log, kit)) for i, p in enumerate(programs)]
        await asyncio.gather(*kit["tasks"], asyncio.create_task(waker(kit)), return_exceptions=True)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return log


def on_ours(programs: list[list[str]]) -> list[Any]:
    loop = Loop()
    log: list[Any] = []
    kit: dict[str, Any] = {"lock": Lock(loop), "cond": Condition(loop), "event": Event(loop), "sleep": loop.sleep}
    kit |= {"now": lambda: loop.now, "cancelled": Cancelled}
    kit["tasks"] = [loop.spawn(act(i, p, log, kit)) for i, p in enumerate(programs)]
    loop.spawn(waker(kit))
    run_all(loop)
    return log


@pytest.mark.parametrize("ops", [OPS, ("lock", "cancel", "cancel"), ("lock", "cond", "notify", "cancel", "cancel")])
@pytest.mark.parametrize("seed", range(60))
def test_cancelled_tasks_go_on_as_on_asyncio(seed: int, ops: tuple[str, ...]) -> None:
    rng = random.Random(seed)
    programs = [[rng.choice(ops) for _ in range(rng.randint(1, 6))] for _ in range(rng.randint(2, 6))]
    assert on_ours(programs) == on_asyncio(programs)


def test_a_future_keeps_its_first_end_and_calls_back_once_from_the_loop() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    future: Future[int] = loop.future()
    future.add_callback(lambda: log.append("early"))
    assert not future.done
    future.set_result(1)
    future.set_result(2)
    future.set_exception(ValueError())
    assert log == []
    assert future.result() == 1
    future.add_callback(lambda: log.append("late"))
    assert loop.run(0.0)
    assert log == ["early", "late"]
    assert not loop.run(0.0)


def test_a_future_that_failed_raises_in_whoever_awaits() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    future: Future[int] = loop.future()

    async def wait() -> None:
        try:
            await future
        except ValueError as error:
            log.append(str(error))

    loop.spawn(wait())
    loop.run(0.0)
    future.set_exception(ValueError("x"))
    loop.spawn(wait())
    loop.run(0.0)
    assert log == ["x", "x"]


def test_a_cancelled_future_raises_cancelled_and_only_once() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    future: Future[None] = loop.future()
    future.add_callback(lambda: log.append("end"))
    assert not future.cancelled
    assert future.cancel()
    assert not future.cancel()
    assert future.cancelled
    future.set_result(None)
    with pytest.raises(Cancelled):
        future.result()
    loop.run(0.0)
    assert log == ["end"]
    other: Future[None] = loop.future()
    other.set_exception(ValueError())
    assert not other.cancelled
    assert not other.cancel()


def test_a_task_gives_back_or_raises_what_its_coroutine_did() -> None:
    loop = Loop()

    async def good() -> int:
        await loop.sleep(1)
        return 7

    async def bad() -> None:
        raise KeyError("k")

    one, two = loop.spawn(good(), "one"), loop.spawn(bad())
    assert (one.name, two.name) == ("one", "")
    run_all(loop)
    assert one.done
    assert one.result() == 7
    with pytest.raises(KeyError):
        two.result()


def test_cancelling() -> None:
    """Before it began, while it waits, twice, while it runs, when it is over."""
    loop, log = Loop(), []  # type: ignore[var-annotated]

    async def body(name: str) -> None:
        try:
            log.append(f"{name} began")
            await loop.sleep(5)
        except Cancelled:
            log.append(f"{name} cancelled {loop.now:g}")
            await loop.sleep(1)
            log.append(f"{name} cleaned up {loop.now:g}")

    unborn = loop.spawn(body("unborn"))
    assert unborn.cancel()
    waiting = loop.spawn(body("waiting"))
    loop.run(0.0)
    loop.run(2.0)
    waiting.cancel()
    waiting.cancel()
    run_all(loop)
    assert not waiting.cancel()
    run_all(loop)
    assert log == ["waiting began", "waiting cancelled 2", "waiting cleaned up 3"]
    with pytest.raises(Cancelled):
        unborn.result()
    assert waiting.result() is None
    assert loop.now == 5.0, "the sleep that nobody waits for is still a deadline"

    async def itself() -> None:
        task.cancel()
        try:
            await loop.sleep(1)
        except Cancelled:
            log.append("itself")

    task = loop.spawn(itself())
    run_all(loop)
    assert log[-1] == "itself"


def test_a_closed_task_is_done_and_its_coroutine_cleans_up() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]

    async def body() -> None:
        try:
            await loop.sleep(1)
        finally:
            log.append("finally")

    task = loop.spawn(body())
    loop.run(0.0)
    task.close()
    assert log == ["finally"]
    assert task.done
    run_all(loop)


def test_sleepers_wake_by_time_and_then_by_age() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    for name, seconds in (("a", 2), ("b", 1), ("c", 2), ("d", 0), ("e", 1)):
        loop.sleep(seconds).add_callback(lambda name=name: log.append(name))
    assert loop.next_deadline() == 0
    assert loop.run(0.5)
    assert (log, loop.next_deadline()) == (["d"], 1.0)
    assert not loop.run(0.9)
    loop.run(2.0)
    assert log == ["d", "b", "e", "a", "c"]
    assert loop.next_deadline() is None
    loop.run(1.0)
    assert loop.now == 2.0, "time does not go back"
    loop.sleep(1)
    assert loop.next_deadline() == 3.0


def test_an_event() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    event = Event(loop)

    async def wait(name: str) -> None:
        await event.wait()
        log.append(name)

    loop.spawn(wait("a"))
    loop.spawn(wait("b"))
    loop.run(0.0)
    assert (log, event.is_set()) == ([], False)
    event.set()
    event.set()
    assert event.is_set()
    loop.run(0.0)
    loop.spawn(wait("c"))
    loop.run(0.0)
    assert log == ["a", "b", "c"]
    event.clear()
    assert not event.is_set()
    loop.spawn(wait("d"))
    loop.run(0.0)
    assert log == ["a", "b", "c"]
    event.set()
    event.clear()
    loop.run(0.0)
    assert log == ["a", "b", "c", "d"], "who was woken goes on, as on asyncio"


def test_wait_for_tests_its_predicate_with_the_lock_held() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    lock = Lock(loop)
    cond, open_ = Condition(loop, lock), deque([False, False, True])

    def predicate() -> bool:
        log.append(lock.locked)
        return open_.popleft()

    async def wait() -> None:
        async with cond:
            await cond.wait_for(predicate)
            log.append("through")

    async def notify() -> None:
        async with cond:
            cond.notify_all()

    loop.spawn(wait())
    loop.run(0.0)
    for asked in (1, 2):
        assert log == [True] * asked
        loop.spawn(notify())
        loop.run(0.0)
    assert log == [True, True, True, "through"]
    assert not lock.locked


def test_a_waiter_that_is_cancelled_after_its_notice_still_gets_the_lock_before_it_gives_up() -> None:
    loop, log = Loop(), []  # type: ignore[var-annotated]
    lock = Lock(loop)
    cond = Condition(loop, lock)

    async def wait() -> None:
        async with cond:
            try:
                await cond.wait()
                log.append("woken")
            except Cancelled:
                log.append(f"cancelled {loop.now:g} {lock.locked}")
                raise

    async def notify() -> None:
        async with cond:
            cond.notify_all()
            await loop.sleep(2)

    waiting = loop.spawn(wait())
    loop.run(0.0)
    loop.spawn(notify())
    loop.run(1.0)
    waiting.cancel()
    loop.run(1.0)
    waiting.cancel()
    run_all(loop)
    assert log == ["cancelled 3 True"]
    assert waiting.cancelled
    assert not lock.locked


def test_a_waiter_that_is_closed_does_not_wait_for_the_lock() -> None:
    loop = Loop()
    lock = Lock(loop)
    cond = Condition(loop, lock)

    async def wait() -> None:
        async with cond:
            await cond.wait()

    async def hold() -> None:
        async with lock:
            await loop.sleep(5)

    waiting = loop.spawn(wait())
    loop.run(0.0)
    loop.spawn(hold())
    loop.run(0.0)
    waiting.close()
    assert waiting.done
