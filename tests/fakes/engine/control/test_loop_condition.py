"""A waiter of a condition that is cancelled while another task holds the lock, as on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fakes.engine.loop import Cancelled, Condition, Loop
from tests.fakes.engine.control.test_loop import VirtualSelector, run_all

Log = list[tuple[str, float]]
Start = Callable[[Coroutine[Any, Any, None]], Any]


async def scene(cond: Any, sleep: Any, now: Callable[[], float], start: Start, cancelled: Any) -> Log:
    """One waits, another holds the lock from 1 to 5, the first is cancelled at 2."""
    log: Log = []

    async def wait() -> None:
        async with cond:
            try:
                await cond.wait()
            except cancelled:
                log.append(("cancelled", now()))
                raise
        log.append(("never", now()))

    async def hold() -> None:
        await sleep(1.0)
        async with cond:
            log.append(("held", now()))
            await sleep(4.0)
            log.append(("let go", now()))

    async def late() -> None:
        await sleep(3.0)
        async with cond:
            log.append(("late", now()))

    waiting = start(wait())
    start(hold())
    start(late())
    await sleep(2.0)
    waiting.cancel()
    await sleep(8.0)
    return log


def on_asyncio() -> Log:
    selector = VirtualSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]  # virtual time for asyncio
    try:
        return loop.run_until_complete(
            scene_on(asyncio.Condition, asyncio.sleep, loop.time, loop.create_task, asyncio.CancelledError)
        )
    finally:
        loop.close()


async def scene_on(make: Any, *kit: Any) -> Log:
    return await scene(make(), *kit)


def test_a_cancelled_waiter_has_the_lock_again_before_it_hears_of_it() -> None:
    """The pause condition is such a lock: a generation whose client left must not open it for others
    (managers/tokenizer_manager.py:939@0.5.23 waits in `async with self.is_pause_cond`)."""
    loop = Loop()
    task = loop.spawn(scene(Condition(loop), loop.sleep, lambda: loop.now, loop.spawn, Cancelled))
    run_all(loop)
    log = task.result()
    assert log == [("held", 1.0), ("let go", 5.0), ("cancelled", 5.0), ("late", 5.0)]
    assert log == [(word, round(at, 2)) for word, at in on_asyncio()]
