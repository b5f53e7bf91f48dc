"""The broadcast lock: how often and how long it is asked for, for how long it is leased, and when it comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fakes.world import World
from harness.reference.deadline import Deadline
from harness.reference.errors import DeadlineSpent, LockBusy
from harness.reference.lease import held


@dataclass
class Lock:
    """Free after so many refusals."""

    world: World
    busy: int = 0
    who: str = "another trainer"
    asked: list[tuple[str, float, float]] = field(default_factory=list)
    back: list[str] = field(default_factory=list)

    def holder(self) -> str:
        return self.who

    def try_acquire(self, owner: str, lease_s: float) -> bool:
        self.asked.append((owner, round(self.world.now, 6), round(lease_s, 6)))
        return len(self.asked) > self.busy

    def release(self, owner: str) -> bool:
        self.back.append(owner)
        return True


def take(lock: Lock, total: float, spent: float = 0.0) -> None:
    deadline = Deadline(lock.world.clock, total)
    lock.world.sleep(spent)
    with held(lock, "me", lock.world.clock, deadline):
        assert lock.back == []


def test_a_free_lock_is_taken_at_once_for_all_that_is_left_and_given_back() -> None:
    lock = Lock(World())
    take(lock, 40.0, spent=4.0)
    assert (lock.asked, lock.back) == ([("me", 4.0, 36.0)], ["me"])


def test_a_busy_one_is_asked_for_every_twentieth_of_a_second() -> None:
    lock = Lock(World(), busy=3)
    take(lock, 40.0)
    assert [when for _, when, _ in lock.asked] == [0.0, 0.05, 0.1, 0.15]
    assert lock.asked[-1][-1] == 39.85


@pytest.mark.parametrize(("who", "said"), [("another trainer", "another trainer"), ("", "somebody")])
def test_half_of_the_time_for_work_is_waited_and_no_longer(who: str, said: str) -> None:
    lock = Lock(World(), busy=99, who=who)
    with pytest.raises(LockBusy) as error:
        take(lock, 2.0)
    assert str(error.value) == f"transfer: the broadcast lock is held by {said}"
    assert 0.7 <= lock.asked[-1][1] <= 0.75  # half of 1.5 s
    assert len(lock.asked) in (15, 16)
    assert lock.back == []


def test_the_last_poll_may_be_the_last_moment() -> None:
    class Tenth(Deadline):
        def work(self, step: str) -> float:
            return 0.1

    lock = Lock(World(), busy=99)
    with pytest.raises(LockBusy), held(lock, "me", lock.world.clock, Tenth(lock.world.clock, 1.0)):
        raise AssertionError("never held")
    assert [when for _, when, _ in lock.asked] == [0.0, 0.05]


def test_without_time_it_is_not_asked_for() -> None:
    lock = Lock(World())
    with pytest.raises(DeadlineSpent, match=r"^lock: the refit's deadline is spent$"):
        take(lock, 40.0, spent=30.0)
    assert lock.asked == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_it_comes_back_on_every_way_out(error: type[BaseException]) -> None:
    lock = Lock(World())
    with pytest.raises(error), held(lock, "me", lock.world.clock, Deadline(lock.world.clock, 1.0)):
        raise error
    assert lock.back == ["me"]
