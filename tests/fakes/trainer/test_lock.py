"""The lock actor: one owner at a time, for a while."""

from __future__ import annotations

from fakes.trainer.lock import LockActor


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[dict] = []
        self.lock = LockActor(lambda: self.now, lambda name, rank, data: self.told.append(dict(data)))


def test_one_owner_at_a_time_until_he_gives_it_back():
    rig = Rig()
    assert rig.lock.holder() == ""
    assert rig.lock.try_acquire("a", 10.0)
    assert not rig.lock.try_acquire("b", 10.0)
    assert rig.lock.holder() == "a"
    assert rig.lock.release("a")
    assert rig.lock.try_acquire("b", 10.0)


def test_a_lease_ends_by_itself_and_the_late_owner_frees_nobody_elses():
    rig = Rig()
    rig.lock.try_acquire("a", 10.0)
    rig.now = 10.0
    assert rig.lock.holder() == ""
    assert rig.lock.try_acquire("b", 10.0)
    assert not rig.lock.release("a")
    assert rig.lock.holder() == "b"
    assert rig.told[-1] == {"op": "release", "owner": "a", "mine": False}
    assert rig.told[-2]["overtook"] == "a"


def test_the_owner_may_ask_again():
    rig = Rig()
    rig.lock.try_acquire("a", 1.0)
    rig.now = 0.5
    assert rig.lock.try_acquire("a", 1.0)
    rig.now = 1.2
    assert rig.lock.holder() == "a"


def test_nobody_gives_back_what_nobody_has():
    assert not Rig().lock.release("")
    assert not Rig().lock.release("a")
