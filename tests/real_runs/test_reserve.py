"""Servers started while scenarios wait."""

import threading

import pytest

from harness.errors import UsageError
from harness.lanes.base import EngineSpec
from real_runs.reserve import READY, Reserve
from real_runs.server import ServerError, ServerSpec
from real_runs.sglang_cpu import SglangCpuLane
from tests.real_runs.scripted_lane import SPEC, ScriptedServer, begun
from tests.real_runs.scripted_lane import scripted_fixture as scripted_fixture  # fixtures are found by name

FIRST, SECOND = ServerSpec("0.5.23", "a"), ServerSpec("0.5.23", "b")


class Scripted:
    """Starts when it is let."""

    def __init__(self, may_start, fails=False):
        self.may_start, self.fails = may_start, fails
        self.begun, self.stopped, self.gave_up = threading.Event(), False, False

    def start(self):
        self.begun.set()
        self.may_start.wait(300)
        if self.fails or self.gave_up:
            raise ServerError("it does not start")

    def give_up(self):
        self.gave_up = True
        self.may_start.set()

    def stop(self):
        self.stopped = True


def at_once():
    event = threading.Event()
    event.set()
    return event


def reserve(*servers):
    left = list(servers)
    return Reserve(lambda spec: left.pop(0), len(servers))


def test_none_before_it_was_begun():
    kept = reserve(Scripted(at_once()))
    assert kept.take(FIRST) is None
    kept.close()


def test_each_is_taken_once_and_none_is_replaced():
    servers = [Scripted(at_once()), Scripted(at_once())]
    kept = reserve(*servers)
    kept.begin(FIRST)
    kept.begin(SECOND)

    assert kept.take(SECOND) is None
    assert [kept.take(FIRST) for _ in range(3)] == [*servers, None]
    kept.close()
    assert not any(server.stopped for server in servers)


def test_one_starts_after_the_other():
    slow, second = Scripted(threading.Event()), Scripted(at_once())
    kept = reserve(slow, second)
    kept.begin(FIRST)
    assert slow.begun.wait(300)
    assert not second.begun.is_set()

    slow.may_start.set()
    assert [kept.take(FIRST), kept.take(FIRST)] == [slow, second]
    kept.close()


def test_no_more_wait_than_there_is_room_for():
    servers = [Scripted(at_once()) for _ in range(READY + 1)]
    kept = reserve(*servers)
    kept.begin(FIRST)
    assert servers[READY - 1].begun.wait(300)
    assert not servers[READY].begun.is_set()

    assert kept.take(FIRST) is servers[0]
    assert servers[READY].begun.wait(300)
    kept.close()
    assert [server.stopped for server in servers] == [False, *[True] * READY]


def test_one_that_does_not_start_is_none():
    broken, good = Scripted(at_once(), fails=True), Scripted(at_once())
    kept = reserve(broken, good)
    kept.begin(FIRST)

    assert [kept.take(FIRST), kept.take(FIRST), kept.take(FIRST)] == [None, good, None]
    kept.close()
    assert broken.stopped
    assert not good.stopped


@pytest.mark.parametrize("begun", [True, False])
def test_close_ends_what_nobody_took(begun):
    starting, waiting = Scripted(threading.Event()), Scripted(at_once())
    kept = reserve(starting, waiting)
    if begun:
        kept.begin(FIRST)
        assert starting.begun.wait(300)
    kept.close()

    assert starting.gave_up is begun
    assert (starting.stopped, waiting.stopped) == (begun, False)
    assert not waiting.begun.is_set()
    assert kept.take(FIRST) is None


def test_a_death_of_the_lane_costs_no_start():
    lane = SglangCpuLane({"quiet": "1", "reserve": "1"})
    for _ in range(3):
        begun(lane)
        engine = lane.engine(SPEC)
        engine.held.server.alive = False
        lane.finish()
    lane.close()

    held, ahead = ScriptedServer.made
    assert (held.starts, held.adopted) == (2, [ahead])
    assert (ahead.starts, ahead.alive) == (1, False)


def test_only_servers_without_options_are_kept_in_reserve():
    lane = SglangCpuLane({"quiet": "1", "reserve": "1"})
    begun(lane)
    lane.engine(EngineSpec("0.5.23", options=(("weight_version", "v0"),)))
    lane.close()

    assert len(ScriptedServer.made) == 1


def test_a_reserve_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="reserve=two: not a number"):
        SglangCpuLane({"reserve": "two"})
