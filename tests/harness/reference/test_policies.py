"""What becomes of engines when a refit fails: policies, memory, deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.reference.control import Control
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine
from harness.reference.errors import CallFailed, DeadlineSpent, NoEngines, Terminal
from harness.reference.profile import EngineProfile
from tests.harness.reference.fleet import BEGIN, END, UPDATE, Rig, client, failing


def test_memory_comes_back_weights_first_kv_before_continue_and_the_trainer_last():
    rig = Rig()
    sut = client(rig)
    sut.phase("train")
    assert rig.e[0].ops == ["pause_generation", "flush_cache", "release_memory_occupation"]
    assert rig.e[0].paused
    assert rig.e[0].released == {"weights", "kv_cache", "cuda_graph"}
    rig.e[0].log.clear()
    sut.refit(100)
    assert rig.e[0].log[0] == ("resume_memory_occupation", {"tags": ["weights"]})
    assert rig.e[0].log[-2:] == [
        ("resume_memory_occupation", {"tags": ["kv_cache", "cuda_graph"]}),
        ("continue_generation", {}),
    ]
    assert rig.names()[-2:] == ["OFFLOADED", "REFIT_SUCCESS"]
    assert not rig.e[0].paused


@pytest.mark.parametrize(
    "how", ["400 before", "200 false before", "500 after", "drop before", "drop after", "hang before"]
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_resume_holds_a_torn_engine_until_a_complete_set_was_sent(how, nth):
    rig = Rig()
    rig.e[0].script[UPDATE, nth] = how
    sut, _ = failing(rig)
    assert rig.e[0].ops.count(UPDATE) == nth
    assert rig.e[0].ops.count(END) == 1
    assert rig.e[0].paused
    assert not rig.e[0].open
    assert sut.reported_version() is None
    sut.refit(100)
    assert not rig.e[0].paused
    assert rig.e[0].label == sut.reported_version() == "v1"


def test_resume_continues_an_engine_that_got_everything_and_holds_the_other():
    rig = Rig(engines=2)
    rig.e[1].script[UPDATE, 3] = "500 before"
    failing(rig)
    assert [e.paused for e in rig.e] == [False, True]
    assert rig.e[0].label == "v1"


def test_quarantine_sends_nothing_more_to_a_torn_engine():
    rig = Rig(engines=2)
    rig.e[1].script[UPDATE, 3] = "500 before"
    sut, _ = failing(rig, policy="quarantine")
    assert rig.e[1].ops[-1] == UPDATE
    assert rig.marker("ENGINE_LOST")["engine"] == "e1"
    assert rig.names().count("ENGINE_LOST") == 1
    assert not rig.e[0].paused
    before = list(rig.e[1].log)
    assert sut.refit(100).detail == "without e1"
    assert rig.e[1].log == before


def test_a_quarantined_engine_comes_back_as_a_new_incarnation():
    rig = Rig()
    rig.e[0].script[UPDATE, 2] = "drop before"
    sut, _ = failing(rig, policy="quarantine")
    with pytest.raises(NoEngines, match="e0"):
        sut.refit(100)
    rig.e[0].incarnation, rig.e[0].open, rig.e[0].paused = 1, False, False
    rig.e[0].log.clear()
    rig.e[0].script.clear()
    sut.refit(100)
    assert rig.e[0].ops[0] == "model_info"
    assert rig.names().count("GROUP_READY") == 2


def test_terminal_latches_once_the_first_update_was_sent():
    rig = Rig(engines=2)
    rig.e[1].script[UPDATE, 1] = "drop before"
    sut, error = failing(rig, policy="terminal")
    assert not {"continue_generation", END} & {*rig.e[0].ops, *rig.e[1].ops}
    assert all(e.paused for e in rig.e)
    before = list(rig.order)
    with pytest.raises(Terminal, match=str(error)[:30]):
        sut.refit(100)
    with pytest.raises(Terminal):
        sut.phase("train")
    assert rig.order == before


def test_terminal_gives_everything_back_before_that():
    rig = Rig(engines=2)
    rig.e[1].script[BEGIN, 1] = "500 before"
    sut, _ = failing(rig, policy="terminal")
    assert not any(e.paused or e.open for e in rig.e)
    sut.refit(100)
    assert [e.label for e in rig.e] == ["v1", "v1"]


@pytest.mark.parametrize("how", ["400 before", "500 after", "drop before", "hang before"])
def test_a_resume_of_memory_without_a_yes_is_not_repeated_and_costs_the_engine(how):
    rig = Rig(engines=2)
    sut = client(rig)
    sut.phase("train")
    rig.e[0].script["resume_memory_occupation", 2] = how
    with pytest.raises(CallFailed) as caught:
        sut.refit(100)
    assert caught.value.phase == "onload_kv"
    assert rig.e[0].ops.count("resume_memory_occupation") == 2
    assert rig.e[0].paused
    assert rig.marker("ENGINE_LOST")["engine"] == "e0"
    assert not rig.e[1].paused
    assert not any(e.dead for e in rig.e)


def test_released_weights_are_not_served_after_a_refit_that_sent_nothing():
    rig = Rig(engines=2)
    sut = client(rig)
    sut.phase("train")
    rig.e[0].script[BEGIN, 1] = "400 before"
    with pytest.raises(CallFailed):
        sut.refit(100)
    assert all(e.paused and not e.released for e in rig.e)
    sut.refit(100)
    assert not any(e.paused for e in rig.e)


def test_a_continue_that_is_never_confirmed_fails_the_refit_within_its_deadline():
    rig = Rig()
    for nth in range(1, 2000):
        rig.e[0].script["continue_generation", nth] = "hang before"
    failing(rig)
    assert rig.world.now <= 100.01


@pytest.mark.parametrize("op", ["model_info", "pause_generation", "flush_cache", BEGIN, UPDATE, END])
def test_a_silent_engine_costs_at_most_the_deadline_and_the_others_are_continued(op):
    rig = Rig(engines=2)
    for nth in range(1, 50):
        rig.e[0].script[op, nth] = "hang before"
    failing(rig, deadline_s=60)
    assert rig.world.now <= 60.01
    assert rig.e[1].ops[-1] != UPDATE
    assert not rig.e[1].open
    assert rig.e[1].paused == (op == UPDATE)


@pytest.mark.parametrize("policy", ["resume", "quarantine", "terminal"])
def test_a_dead_engine_is_lost_and_the_refit_fails(policy):
    rig = Rig(engines=2)
    rig.e[0].script[UPDATE, 2] = "die"
    failing(rig, policy=policy)
    assert not rig.e[1].open or policy != "resume"


def test_memory_that_the_trainer_has_is_not_released_again():
    rig = Rig(engines=2)
    sut = client(rig)
    sut.phase("train")
    sut.phase("train")
    assert [e.ops.count("release_memory_occupation") for e in rig.e] == [1, 1]


def test_a_spent_deadline_sends_no_more_work():
    rig = Rig()
    rig.e[0].script["pause_generation", 1] = "hang after"
    sut = client(rig)
    with pytest.raises((CallFailed, DeadlineSpent)):
        sut.refit(10)
    assert "flush_cache" not in rig.e[0].ops
    assert not rig.e[0].paused


def test_a_session_of_which_nothing_is_known_keeps_whole_weights_from_serving():
    rig = Rig()
    rig.e[0].script |= {(BEGIN, 1): "drop after", (END, 1): "drop before"}
    sut, _ = failing(rig)
    assert rig.e[0].paused
    assert rig.marker("ENGINE_HELD")["reason"] == "its session is unknown"
    sut.refit(100)
    assert not rig.e[0].paused


def test_quarantine_gives_such_an_engine_up():
    rig = Rig(engines=2)
    rig.e[0].script |= {(BEGIN, 1): "drop after", (END, 1): "drop before"}
    failing(rig, policy="quarantine")
    assert rig.marker("ENGINE_LOST")["reason"] == "whether its session is open is unknown"
    assert "continue_generation" not in rig.e[0].ops
    assert not rig.e[1].paused


def test_an_engine_that_dies_while_memory_is_given_away_is_reported():
    rig = Rig(engines=2)
    rig.e[0].script["pause_generation", 1] = "die"
    sut = client(rig)
    with pytest.raises(CallFailed):
        sut.phase("train")
    assert rig.marker("ENGINE_LOST")["engine"] == "e0"
    assert not rig.e[1].paused


def test_a_release_that_fails_is_told_and_costs_the_engine():
    rig = Rig(engines=2)
    rig.e[0].script["release_memory_occupation", 1] = "500 after"
    sut = client(rig)
    with pytest.raises(CallFailed, match="release failed on e0"):
        sut.phase("train")
    assert rig.marker("ENGINE_LOST")["engine"] == "e0"


def test_what_an_earlier_refit_completed_does_not_count_for_the_next():
    rig = Rig(engines=2)
    sut = client(rig, policy="terminal")
    sut.refit(100)
    sut.phase("train")
    rig.e[1].script[BEGIN, 2] = "400 before"
    with pytest.raises(CallFailed):
        sut.refit(100)
    assert "TERMINAL" not in rig.names()
    assert all(e.paused and not e.open for e in rig.e)
    sut.refit(100)
    assert not any(e.paused for e in rig.e)


def test_engines_with_a_cpu_backup_stay_paused_while_their_memory_is_away_and_are_whole_after_it():
    rig = Rig(engines=2)
    rig.fleet = replace(rig.fleet, options={"enable_weights_cpu_backup": True})
    sut = client(rig)
    sut.phase("train")
    assert all(e.paused for e in rig.e)
    rig.e[1].script[BEGIN, 1] = "400 before"
    with pytest.raises(CallFailed):
        sut.refit(100)
    assert not any(e.paused for e in rig.e)


def test_an_engine_that_never_confirmed_continue_still_counts_as_paused():
    rig = Rig()
    control = Control(rig.world.clock, EngineProfile.of("0.5.23"), "retract")
    e = Engine(rig.e[0], (0,), 0, paused=True)
    for nth in range(1, 50):
        rig.e[0].script["continue_generation", nth] = "500 before"
    with pytest.raises(CallFailed):
        control.resume_generation([e], Deadline(rig.world.clock, 5))
    assert e.paused
