"""Threads that the world did not make: pools and executors of a client, in virtual time like everybody else."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes.engine.protocol import EngineConfig
from fakes.world import DeadlockError, World, WorldBroken, WorldClosed
from fakes.world.guests import at_rest
from tests.fakes.scripted import ScriptedCore


@pytest.fixture
def world():
    with World(make_core=ScriptedCore) as w:
        yield w


@pytest.fixture
def engine(world):
    return world.add_engine("e0", EngineConfig(), {}, {})


def tasks():
    return set(map(int, os.listdir("/proc/self/task")))


def in_thread(work):
    """What it raised, of a thread that is joined in real time."""
    raised = []

    def body():
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body, name="of-a-client")
    thread.start()
    return thread, raised


def test_a_pool_s_calls_overlap_and_cost_the_time_of_one(world, engine):
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(world.call, engine, "POST", "/in", {"s": 5.0}) for _ in range(4)]
        assert all(future.result().ok for future in futures)
    assert 5.0 < world.now < 5.1


def test_calls_one_after_the_other_add_up_in_every_thread(world, engine):
    def three():
        return [world.call(engine, "POST", "/in", {"s": 2.0}).ok for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        done = [future.result() for future in [pool.submit(three) for _ in range(3)]]
    assert done == [[True] * 3] * 3
    assert 6.0 < world.now < 6.1


def test_executors_of_an_event_loop(world, engine):
    async def main():
        calls = [asyncio.to_thread(world.call, engine, "POST", "/in", {"s": 3.0}) for _ in range(3)]
        return await asyncio.gather(*calls)

    assert [outcome.status for outcome in asyncio.run(main())] == [200] * 3
    assert 3.0 < world.now < 3.1


def test_main_works_on_beside_them(world, engine):
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(world.call, engine, "POST", "/in", {"s": 4.0}) for _ in range(2)]
        assert world.call(engine, "POST", "/in", {"s": 4.0}).ok
        assert all(future.result().ok for future in futures)
    assert 4.0 < world.now < 4.1


def test_a_participant_may_wait_for_a_thread_of_its_own_in_real_time(world):
    def rank():
        thread, raised = in_thread(lambda: world.sleep(7.0))
        thread.join()
        return raised

    participant = world.spawn(rank)
    world.join(participant)
    assert participant.value() == []
    assert world.now == 7.0


def test_time_waits_for_a_thread_that_is_at_work(world, engine):
    """A call with a deadline is not timed out while its answer is being worked for elsewhere."""
    woke = threading.Event()

    def slow():
        world.sleep(1.0)
        total = 0
        while not woke.is_set():  # ended by the other, not by time
            total += 1
        world.sleep(1.0)

    def other():
        world.sleep(1.5)
        early = not woke.is_set()
        woke.set()
        return early

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(slow), pool.submit(other)
        assert second.result()  # patience with it ends, for it may never call again
        first.result()
    assert world.now == 2.5


def test_a_deadlock_names_the_thread(world, engine):
    thread, raised = in_thread(lambda: world.call(engine, "POST", "/hang"))
    thread.join()
    [error] = raised
    assert isinstance(error, DeadlockError)
    assert "of-a-client waits for e0 POST /hang" in str(error)


def test_what_breaks_in_a_fake_is_raised_in_the_thread_that_met_it(world):
    def broken():
        raise ZeroDivisionError("of a fake")

    world.at(1.0, broken)
    thread, raised = in_thread(lambda: world.sleep(2.0))
    thread.join()
    assert isinstance(raised[0], WorldBroken)
    assert world.broken is raised[0]


def test_a_world_that_ends_takes_them_along(world, engine):
    inside = threading.Event()

    def patient():
        ticket = world.submit(engine, "POST", "/in", {"s": 1.0})
        ticket.on_done(lambda _: inside.set())
        world.run_until(ticket)
        world.block(_never(world), None, "what never comes")

    thread, raised = in_thread(patient)
    inside.wait()
    world.close()
    thread.join()
    assert isinstance(raised[0], WorldClosed | DeadlockError)
    with pytest.raises(WorldClosed):
        world.sleep(1.0)


def _never(world):
    world.at(3600.0, lambda: None)
    return lambda: False


def test_once_they_are_gone_the_order_is_the_seed_s_again():
    def order(guests):
        came = []
        with World(3, make_core=ScriptedCore) as world:
            for _ in range(guests):
                thread, _ = in_thread(lambda: world.sleep(0.5))
                thread.join()

            def rank(name):
                for _ in range(5):
                    came.append(name)
                    world.yield_()

            world.join(*[world.spawn(rank, name, name=name) for name in "abc"])
        return came

    assert order(0) == order(2)


def test_rest_is_when_nobody_runs():
    stop, ready = threading.Event(), threading.Event()

    def spin():
        ready.set()
        while not stop.is_set():
            pass

    before = tasks()
    thread = threading.Thread(target=spin)
    thread.start()
    ready.wait()
    try:
        assert not at_rest(before)
    finally:
        stop.set()
        thread.join()

    held = threading.Lock()
    held.acquire()
    waiting = threading.Thread(target=held.acquire)
    waiting.start()
    try:
        assert any(at_rest(before) for _ in range(1000))
    finally:
        held.release()
        waiting.join()


def test_rest_is_at_once_where_nobody_else_is():
    assert at_rest(tasks())
