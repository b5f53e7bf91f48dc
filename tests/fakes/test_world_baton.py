"""Participants under the baton: one runs, the seed picks, time passes only when all are blocked."""

from __future__ import annotations

import threading
import time

import pytest

from fakes.engine.protocol import EngineConfig
from fakes.world import DeadlockError, MeetTimeout, World, WorldClosed
from tests.fakes.scripted import ScriptedCore


@pytest.fixture
def world():
    with World(make_core=ScriptedCore) as w:
        yield w


def interleaving(seed, steps=6):
    order = []
    with World(seed, make_core=ScriptedCore) as world:
        engine = world.add_engine("e0", EngineConfig(), {}, {})

        def rank(name):
            for _ in range(steps):
                order.append(name)
                world.call(engine, "POST", "/echo")

        world.join(*[world.spawn(rank, name, name=name) for name in "abc"])
    return "".join(order)


def test_the_same_seed_gives_the_same_order():
    assert interleaving(7) == interleaving(7)


def test_seeds_give_different_orders():
    assert len({interleaving(seed) for seed in range(8)}) > 4


def test_exactly_one_participant_runs(world):
    running, most = 0, 0

    def rank():
        nonlocal running, most
        for _ in range(20):
            running += 1
            most = max(most, running)
            running -= 1
            world.yield_()

    world.join(*[world.spawn(rank) for _ in range(4)])
    assert most == 1


def test_sleepers_wake_in_the_order_of_their_times(world):
    woke = []

    def sleeper(seconds):
        world.sleep(seconds)
        woke.append((seconds, world.now))

    world.join(*[world.spawn(sleeper, s) for s in (3.0, 1.0, 2.0)])
    assert woke == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


def test_time_stands_still_while_somebody_can_go_on(world):
    seen = []

    def busy():
        for _ in range(5):
            seen.append(world.now)
            world.yield_()

    busy_one = world.spawn(busy)
    world.sleep(1.0)
    assert busy_one.done
    assert seen == [0.0] * 5


def test_a_result_and_an_error_stay_with_their_participant(world):
    def fails():
        raise ValueError("no")

    good, bad = world.spawn(lambda: 42), world.spawn(fails)
    assert world.join(good, bad) is None
    assert good.value() == 42
    with pytest.raises(ValueError, match="no"):
        bad.value()


def test_two_of_one_name_are_told_apart(world):
    assert [world.spawn(lambda: None, name="rank").name for _ in range(2)] == ["rank", "rank#2"]


def test_join_gives_up_after_its_time(world):
    slow = world.spawn(world.sleep, 10.0)
    assert world.join(slow, timeout_s=1.0) is None
    assert (slow.done, world.now) == (False, 1.0)


def test_a_deadlock_names_everybody_and_what_they_wait_for(world):
    barrier, lock = world.barrier(3, "export"), world.lock("weights")
    lock.acquire()
    ranks = [world.spawn(barrier.wait, name="rank0"), world.spawn(lock.acquire, name="rank1")]
    deadlock = world.join(*ranks)
    assert deadlock is not None
    assert {(w.who, w.what) for w in deadlock.waiting} == {
        ("main", "the end of rank0, rank1"),
        ("rank0", "barrier 'export' of 3"),
        ("rank1", "lock 'weights', held by main"),
    }
    assert all(isinstance(rank.error, DeadlockError) for rank in ranks)


def test_a_deadlock_names_who_died_before(world):
    group = world.group(2, "tp")

    def dies():
        raise RuntimeError("export failed")

    deadlock = world.join(world.spawn(group.barrier, 0, name="rank0"), world.spawn(dies, name="rank1"))
    assert deadlock is not None
    assert deadlock.ended == ("rank1 with RuntimeError: export failed",)
    assert "rank1 with RuntimeError: export failed" in str(deadlock)


def test_a_retry_loop_does_not_swallow_a_deadlock(world):
    lock = world.lock()
    lock.acquire()

    def client():
        while True:
            try:
                lock.acquire()
            except Exception:
                continue

    stuck = world.spawn(client)
    assert world.join(stuck) is not None
    assert isinstance(stuck.error, DeadlockError)


def test_closing_ends_whoever_still_waits_and_leaves_no_thread():
    before = set(threading.enumerate())
    world = World(make_core=ScriptedCore)
    cleaned = []

    def stuck():
        try:
            world.sleep(1000.0)
        finally:
            cleaned.append(True)
            world.sleep(1.0)

    participant = world.spawn(stuck)
    world.yield_()
    world.close()
    assert isinstance(participant.error, WorldClosed)
    assert cleaned == [True]
    assert set(threading.enumerate()) <= before
    with pytest.raises(WorldClosed):
        world.sleep(1.0)


def test_a_participant_that_never_ran_ends_with_the_world():
    world = World(make_core=ScriptedCore)
    participant = world.spawn(lambda: 1)
    world.close()
    assert isinstance(participant.error, WorldClosed)


def test_a_client_that_uses_the_time_module_can_live_in_virtual_time(world):
    real = time.sleep, time.monotonic
    with world.patched_time():
        before = time.monotonic(), time.time()
        time.sleep(1000.0)
        assert (time.monotonic() - before[0], round(time.time() - before[1], 3)) == (1000.0, 1000.0)
        assert time.monotonic_ns() - round(before[0] * 1e9) == 1000 * 10**9
    assert world.now == 1000.0
    assert (time.sleep, time.monotonic) == real


def test_a_barrier_lets_everybody_go_together_and_again(world):
    barrier, passed = world.barrier(3), []

    def rank(delay):
        for turn in range(2):
            world.sleep(delay)
            barrier.wait()
            passed.append((turn, world.now))

    world.join(*[world.spawn(rank, d) for d in (1.0, 2.0, 3.0)])
    assert passed == [(0, 3.0)] * 3 + [(1, 6.0)] * 3


def test_a_barrier_says_who_came(world):
    barrier = world.barrier(2, "export")
    with pytest.raises(MeetTimeout, match="only main of 2 came within 5 s"):
        barrier.wait(timeout_s=5.0)


def test_who_left_a_barrier_does_not_count(world):
    barrier = world.barrier(2)
    with pytest.raises(MeetTimeout):
        barrier.wait(timeout_s=1.0)
    late = world.spawn(barrier.wait)
    world.yield_()
    barrier.wait(timeout_s=1.0)
    world.join(late)
    assert late.error is None


def test_a_lock_is_held_by_one(world):
    lock, inside, most = world.lock(), 0, 0

    def rank():
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            world.sleep(1.0)
            inside -= 1

    world.join(*[world.spawn(rank) for _ in range(3)])
    assert (most, world.now) == (1, 3.0)


def test_a_lock_has_an_end_to_its_patience(world):
    lock = world.lock()
    lock.acquire()
    assert lock.acquire(timeout_s=2.0) is False
    lock.release()
    with pytest.raises(RuntimeError, match="not held"):
        lock.release()


def run_ranks(world, size, fn):
    ranks = [world.spawn(fn, rank, name=f"rank{rank}") for rank in range(size)]
    assert world.join(*ranks) is None
    return [rank.value() for rank in ranks]


def test_the_collectives_of_a_group(world):
    group = world.group(3)

    def rank(r):
        return (
            group.all_gather(r, r * 10),
            group.gather(r, r, dst=1),
            group.broadcast(r, "w" if r == 2 else None, src=2),
            group.scatter(r, [5, 6, 7] if r == 0 else None),
        )

    assert run_ranks(world, 3, rank) == [
        ([0, 10, 20], None, "w", 5),
        ([0, 10, 20], [0, 1, 2], "w", 6),
        ([0, 10, 20], None, "w", 7),
    ]
    assert group._meetings == {}


def test_ranks_that_call_different_collectives_never_meet(world):
    group = world.group(2, "tp")
    deadlock = world.join(world.spawn(group.barrier, 0), world.spawn(group.all_gather, 1, 0))
    assert deadlock is not None
    assert "barrier #0 of group 'tp' as rank 0 of 2" in str(deadlock)
    assert "all_gather #0 of group 'tp' as rank 1 of 2" in str(deadlock)


def test_a_collective_names_the_ranks_that_did_not_come(world):
    group = world.group(3, "tp")
    with pytest.raises(MeetTimeout, match=r"ranks \[0, 2\] did not come within 4 s"):
        group.barrier(1, timeout_s=4.0)
    with pytest.raises(ValueError, match="rank 3 is not in group 'tp' of 3"):
        group.barrier(3)
