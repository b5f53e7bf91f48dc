"""Giving back: what fails there is named, what is not there is not asked for, and what is lost is said once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.reference.errors import CallFailed, DeadlineSpent
from tests.harness.reference.fleet import BEGIN, END, UPDATE, Rig, client, failing


def spent(rig: Rig, op: str = UPDATE, **options: object) -> BaseException:
    """A refit whose time is spent to the last second before anything is given back."""
    rig.e[0].script[op, 1] = "hang before"
    sut = client(rig, **options)
    everyone = type(rig.e[0]).request

    def slow(op_: str, body: object = None, *, method: str = "POST", query: object = None, timeout_s: float) -> object:
        answer = everyone(rig.e[0], op_, body, timeout_s=timeout_s)
        rig.world.sleep(1000)
        return answer

    rig.e[0].request = slow  # type: ignore[method-assign]
    with pytest.raises(BaseException) as caught:
        sut.refit(100)
    return caught.value


def test_steps_without_time_are_named_and_steps_without_work_are_not_tried() -> None:
    error = spent(Rig())
    spent_too = "the refit's deadline is spent, its reserve too"
    assert error.__notes__ == [
        f"afterwards, end: DeadlineSpent: end: {spent_too}",
    ], "no memory was away, and an engine that may not serve is not continued"


def test_memory_that_cannot_come_back_any_more_is_named() -> None:
    rig = Rig()
    sut = client(rig)
    sut.phase("train")
    everyone = type(rig.e[0]).request

    def slow(op: str, body: object = None, *, method: str = "POST", query: object = None, timeout_s: float) -> object:
        answer = everyone(rig.e[0], op, body, timeout_s=timeout_s)
        rig.world.sleep(1000)
        return answer

    rig.e[0].request = slow  # type: ignore[method-assign]
    rig.e[0].script[UPDATE, 1] = "400 before"
    with pytest.raises(CallFailed) as caught:
        sut.refit(100)
    notes = [note.partition(": DeadlineSpent: ") for note in caught.value.__notes__]
    assert [(first, last.partition(":")[0]) for first, _, last in notes] == [
        ("afterwards, end", "end"),
        ("afterwards, onload_kv", "onload_kv"),
    ]


def test_an_offload_that_fails_is_taken_back_as_far_as_it_goes() -> None:
    rig = Rig(engines=2)
    sut = client(rig)
    rig.e[1].script["pause_generation", 1] = "die"
    rig.e[0].script["continue_generation", 1] = "interrupt"
    with pytest.raises(CallFailed) as caught:
        sut.phase("train")
    assert [note.partition(":")[0] for note in caught.value.__notes__] == ["afterwards, continue"]
    assert rig.names() == [], "that e1 is gone was not seen: the interrupt came before it was asked again"


def test_every_engine_starts_a_refit_untouched() -> None:
    for first in (0, 1):
        rig = Rig(engines=2)
        sut = client(rig, policy="terminal")
        sut.refit(100)
        rig.e[first].script[BEGIN, 2] = "400 before"
        with pytest.raises(CallFailed):
            sut.refit(100)
        assert "TERMINAL" not in rig.names()


def test_terminal_counts_a_touch_of_any_engine() -> None:
    for torn in (0, 1):
        rig = Rig(engines=2)
        rig.e[torn].script[UPDATE, 1] = "400 before"
        failing(rig, policy="terminal")
        assert rig.names().count("TERMINAL") == 1


@pytest.mark.parametrize("policy", ["resume", "quarantine"])
def test_a_session_of_which_an_end_left_nothing_known_costs_the_engine_only_under_quarantine(policy: str) -> None:
    rig = Rig(engines=2)
    rig.e[0].script |= {(BEGIN, 1): "drop after", (END, 1): "drop before"}
    failing(rig, policy=policy)
    lost = [data for name, _, data in rig.records if name == "ENGINE_LOST"]
    if policy == "resume":
        assert lost == []
    else:
        reason = "whether its session is open is unknown"
        assert lost == [{"engine": "e0", "incarnation": 0, "reason": reason}]


def slow(rig: Rig, op: str, nth: int) -> None:
    """The nth answer of e0 to this call takes all the time that there is."""
    start = rig.e[0].start

    def started(asked: str, body: object = None, *, method: str = "POST", timeout_s: float) -> object:
        wait = start(asked, body, method=method, timeout_s=timeout_s)
        if (asked, rig.e[0].ops.count(asked)) != (op, nth):
            return wait
        return lambda: (rig.world.sleep(1000), wait())[1]

    rig.e[0].start = started  # type: ignore[method-assign, assignment]


def test_nothing_to_end_is_not_tried_without_time() -> None:
    rig = Rig()
    slow(rig, "flush_cache", 1)
    with pytest.raises(DeadlineSpent, match=r"^begin: ") as caught:
        client(rig).refit(100)
    assert caught.value.__notes__ == ["afterwards, continue: DeadlineSpent: continue: the refit's deadline is spent"]


def test_engines_that_are_known_are_not_connected_again_even_without_time() -> None:
    rig = Rig()
    sut = client(rig)
    sut.refit(100)
    sut._client.control.onload_weights = lambda engines, deadline: rig.world.sleep(80)  # type: ignore[union-attr, method-assign]
    with pytest.raises(DeadlineSpent, match=r"^pause: "):
        sut.refit(100)
    assert rig.marker("REFIT_FAILURE")["phase"] == "pause"


@pytest.mark.parametrize("touched", [0, 1])
def test_terminal_counts_a_touch_of_one_engine_alone(touched: int) -> None:
    rig = Rig(engines=2)
    sut = client(rig, policy="terminal")
    rig.kit.break_export[1 - touched] = RuntimeError("no memory")
    with pytest.raises(RuntimeError, match="no memory"):
        sut.refit(100)
    assert [UPDATE in engine.ops for engine in rig.e] == [touched == 0, touched == 1]
    assert rig.names().count("TERMINAL") == 1


def test_an_engine_with_a_complete_set_and_no_end_is_kept_under_quarantine_while_nothing_fails() -> None:
    rig = Rig()
    rig.fleet = replace(rig.fleet, options={"enable_weights_cpu_backup": True})
    slow(rig, UPDATE, 3)
    sut = client(rig, policy="quarantine")
    with pytest.raises(DeadlineSpent):
        sut.refit(100)
    sut.phase("train")
    assert "ENGINE_LOST" not in rig.names()
    assert sut.refit(100).version == "v1"


@pytest.mark.parametrize("train", [False, True])
def test_a_log_that_takes_no_more_is_a_note_of_the_report(train: bool) -> None:
    rig = Rig()
    record = rig.record
    sut = client(rig)

    def full(name: str, rank: int, data: dict[str, object]) -> None:
        if name == "ENGINE_LOST":
            raise OSError("disk full")
        record(name, rank, data)

    sut._client.markers._record = full  # type: ignore[union-attr, assignment]
    rig.e[0].script |= {("pause_generation", 1): "400 before", ("continue_generation", 1): "die"}
    with pytest.raises(CallFailed, match="pause failed on e0") as caught:
        sut.phase("train") if train else sut.refit(100)
    assert caught.value.__notes__[-1] == "afterwards, report: OSError: disk full"
