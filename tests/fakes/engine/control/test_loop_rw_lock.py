"""The RW lock of the deterministic loop: writers first, never shared."""

from __future__ import annotations

import random

import pytest

from fakes.engine.loop import Loop, RWLock
from tests.fakes.engine.control.test_loop import run_all


@pytest.mark.parametrize("seed", range(40))
def test_the_rw_lock_is_never_shared_with_a_writer(seed: int) -> None:
    """srt/utils/aio_rwlock.py@0.5.23, against a count of who is inside."""
    rng = random.Random(seed)
    loop = Loop()
    lock = RWLock(loop)
    inside: list[str] = []

    async def one(kind: str, start: float, hold: float) -> None:
        await loop.sleep(start)
        async with lock.writer if kind == "w" else lock.reader:
            assert "w" not in inside
            assert kind == "r" or not inside
            inside.append(kind)
            assert (lock.writer_active, lock.readers) == (kind == "w", inside.count("r"))
            try:
                await loop.sleep(hold)
            finally:
                inside.remove(kind)

    tasks = [
        loop.spawn(one(rng.choice("rrw"), rng.randrange(6) + i * 1e-3, rng.randrange(1, 4) + i * 1e-4))
        for i in range(9)
    ]
    for number in range(30):
        loop.run(number * 0.5)
        if rng.random() < 0.15:
            rng.choice(tasks).cancel()
    run_all(loop)
    assert inside == []
    assert all(task.done for task in tasks)
    for task in tasks:
        if not task.cancelled:
            task.result()  # raises what was asserted inside
    assert (lock.readers, lock.writer_active, lock.waiting_writers) == (0, False, 0)

    async def locked() -> bool:
        return await lock.is_locked()

    free = loop.spawn(locked())
    run_all(loop)
    assert free.result() is False


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_whether_it_is_locked(kind: str) -> None:
    loop = Loop()
    lock = RWLock(loop)

    async def hold() -> None:
        async with getattr(lock, kind):
            await loop.sleep(1)

    async def ask() -> list[bool]:
        return [await lock.is_locked(), await lock.is_locked()]

    before = loop.spawn(ask())
    loop.run(0.0)
    loop.spawn(hold())
    loop.run(0.0)
    during = loop.spawn(ask())
    run_all(loop)
    after = loop.spawn(ask())
    run_all(loop)
    assert [task.result() for task in (before, during, after)] == [[False] * 2, [True] * 2, [False] * 2]
