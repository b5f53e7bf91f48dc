"""Servers started ahead of their need."""

import threading

import pytest

from real_runs.server import ServerError, ServerSpec
from real_runs.spares import Spares


class Scripted:
    """Starts when it is let."""

    def __init__(self, spec, may_start, fails=False):
        self.spec, self.may_start, self.fails = spec, may_start, fails
        self.stopped = self.gave_up = False

    def start(self):
        self.may_start.wait(300)
        if self.fails or self.gave_up:
            raise ServerError("it does not start")

    def give_up(self):
        self.gave_up = True
        self.may_start.set()

    def stop(self):
        self.stopped = True


@pytest.fixture
def go():
    event = threading.Event()
    event.set()
    return event


@pytest.fixture
def made():
    return []


@pytest.fixture
def keep(made, go):
    """Spares of `count`, closed at the end."""
    opened = []

    def make(count, **options):
        def server(spec):
            made.append(Scripted(spec, go, **options))
            return made[-1]

        opened.append(Spares(server, count))
        return opened[-1]

    yield make
    for spares in opened:
        spares.close()


FIRST, SECOND = ServerSpec("0.5.23", "a"), ServerSpec("0.5.23", "b")


def test_none_are_kept_unless_asked_for(keep, made):
    assert keep(0).take(FIRST) is None
    assert made == []


def test_the_first_kind_is_ahead_at_once_and_stays_so(keep, made):
    spares = keep(2)
    first = spares.take(FIRST)
    assert len(made) == 3
    second = spares.take(FIRST)

    assert first is not second
    assert len(made) == 4
    spares.close()
    assert [server.stopped for server in made if server not in (first, second)] == [True, True]
    assert not first.stopped
    assert not second.stopped


def test_another_kind_is_ahead_from_its_second_start_on(keep, made):
    spares = keep(1)
    spares.take(FIRST)
    assert spares.take(SECOND) is None
    assert [server.spec for server in made if server.spec is SECOND] == []
    assert spares.take(SECOND).spec is SECOND


def test_a_start_that_fails_is_told_to_the_one_who_takes_it(keep):
    with pytest.raises(ServerError, match="does not start"):
        keep(1, fails=True).take(FIRST)


def test_the_first_that_serves_is_taken(go, made):
    slow = threading.Event()

    def server(spec):
        made.append(Scripted(spec, go if made else slow))
        return made[-1]

    spares = Spares(server, 1)

    assert spares.take(FIRST) is made[1]
    spares.close()


def test_close_ends_one_that_still_starts(go, made):
    def server(spec):
        made.append(Scripted(spec, threading.Event() if made else go))
        return made[-1]

    spares = Spares(server, 1)
    spares.take(FIRST)
    spares.close()

    assert [(server.gave_up, server.stopped) for server in made] == [(False, False), (True, True)]
