"""The lines of a refit in the trainer's log, word by word: judges read them (harness/history.py)."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.world import World
from harness.reference.deadline import Deadline
from harness.reference.engines import any_refused
from harness.reference.guards import Guards
from harness.reference.markers import Markers
from tests.harness.reference.fleet import no
from tests.harness.reference.test_knowledge import OK, Waiting


def made() -> tuple[World, Markers, list[tuple[str, int, dict[str, Any]]]]:
    world, records = World(), []  # type: ignore[var-annotated]
    return world, Markers(lambda name, rank, data: records.append((name, rank, dict(data))), world.clock), records


def test_a_refit_that_succeeds() -> None:
    world, markers, records = made()
    assert markers.phase == ""
    world.sleep(5.0)
    with markers.refit(transfer="tensor", index=3, version="v"):
        assert markers.phase == "prepare"
        world.sleep(2.5)
    what = {"transfer": "tensor", "index": 3, "version": "v"}
    assert records == [("REFIT_START", 0, what), ("REFIT_SUCCESS", 0, {**what, "duration_s": 2.5})]


@pytest.mark.parametrize("error", [KeyError("k"), KeyboardInterrupt("stop")])
def test_a_refit_that_fails(error: BaseException) -> None:
    _, markers, records = made()

    def fail() -> None:
        with markers.refit(transfer="disk", index=1, version="v"):
            markers.phase = "flush"
            raise error

    with pytest.raises(type(error)):
        fail()
    what = {"transfer": "disk", "index": 1, "version": "v"}
    failed = {"phase": "flush", "error_type": type(error).__name__, "message": str(error)}
    assert records == [("REFIT_START", 0, what), ("REFIT_FAILURE", 0, {**what, **failed})]


def test_the_other_lines() -> None:
    _, markers, records = made()
    markers.group_ready(5, ["a", "b"])
    markers.engine("ENGINE_LOST", "a", 2, "because")
    markers.terminal("why")
    markers.offloaded(4)
    assert records == [
        ("GROUP_READY", 0, {"world_size": 5, "engines": 2, "names": ["a", "b"]}),
        ("ENGINE_LOST", 0, {"engine": "a", "incarnation": 2, "reason": "because"}),
        ("TERMINAL", 0, {"reason": "why"}),
        ("OFFLOADED", 0, {"live_exports": 4}),
    ]


def test_half_a_second_is_time() -> None:
    world = World()
    deadline = Deadline(world.clock, 0.5)
    assert deadline.work("x") == deadline.giving_back("x") == pytest.approx(0.375)
    assert deadline.meeting("x") == pytest.approx(0.375 + 0.125 / 4)


def test_the_first_of_several_calls_may_be_the_refused_one() -> None:
    refused, fine = Waiting(no(400, "x")), Waiting(OK)
    for waits in ([refused], [refused, fine], [fine, refused]):
        assert any_refused([(None, wait) for wait in waits])  # type: ignore[misc]
    assert not any_refused([])


def test_guards_raise_what_came_first_and_nothing_when_nothing_came() -> None:
    with Guards() as guards:
        guards.hold("fine", lambda: None)
    assert guards.error is None
    first = ValueError("first")
    failed = Guards()

    def fail() -> None:
        with failed:
            failed.hold("fine", lambda: None)
            raise first

    with pytest.raises(ValueError, match="first") as caught:
        fail()
    assert caught.value is first
    assert failed.error is first
    assert not hasattr(first, "__notes__")
