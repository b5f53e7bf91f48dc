"""The envelope of the reference client against a scripted control plane: order, guards, deadline, policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.errors import Unsupported
from harness.reference.adapter import ReferenceSut
from harness.reference.control import Control
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine
from harness.reference.errors import BadState, BrokenGather, CallFailed, DeadlineSpent, NeverIdle, NoEngines, Terminal
from harness.reference.profile import EngineProfile
from tests.harness.reference.fleet import Rig, state

UPDATE = "update_weights_from_tensor"
BEGIN, END = "begin_weight_update", "end_weight_update"


def client(rig: Rig, **options) -> ReferenceSut:
    sut = ReferenceSut(bucket_bytes=64, **options)
    sut.setup(rig.fleet)
    sut.set_weights(state(1.0), "v1")
    return sut


def failing(rig: Rig, deadline_s: float = 100.0, expect: type[BaseException] = CallFailed, **options):
    sut = client(rig, **options)
    with pytest.raises(expect) as caught:
        sut.refit(deadline_s)
    return sut, caught.value


def test_a_refit_is_pause_flush_begin_buckets_end_continue():
    rig = Rig()
    assert client(rig).refit(100).buckets == 3
    assert rig.e[0].ops == [
        "model_info",
        "pause_generation",
        "flush_cache",
        BEGIN,
        *[UPDATE] * 3,
        END,
        "continue_generation",
    ]
    assert rig.e[0].label == "v1"
    assert set(rig.e[0].loaded) == set(state())


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.20"])
def test_a_version_without_sessions_sees_neither_begin_nor_end(version):
    rig = Rig(version)
    client(rig).refit(100)
    assert rig.e[0].ops == ["model_info", "pause_generation", "flush_cache", *[UPDATE] * 3, "continue_generation"]


@pytest.mark.parametrize(("version", "mode"), [("0.5.20", "abort"), ("miles", "abort"), ("0.5.21", "retract")])
def test_the_default_pause_mode_is_one_under_which_that_version_can_be_flushed(version, mode):
    rig = Rig(version)
    sut = client(rig)
    sut.refit(100)
    assert dict(rig.e[0].log)["pause_generation"] == {"mode": mode}
    assert sut.capabilities().pause_mode == mode


def test_in_place_is_refused_at_construction():
    with pytest.raises(ValueError, match="unsafe for weight refit"):
        ReferenceSut(pause_mode="in_place")


@pytest.mark.parametrize("bad", [{"pause_mode": "x"}, {"policy": "x"}, {"bucket_bytes": 0}])
def test_a_wrong_option_is_refused_at_construction(bad):
    with pytest.raises(ValueError):
        ReferenceSut(**bad)


def test_only_the_last_update_carries_the_version_and_none_flushes():
    rig = Rig()
    client(rig).refit(100)
    bodies = [body for op, body in rig.e[0].log if op == UPDATE]
    assert [b.get("weight_version") for b in bodies] == [None, None, "v1"]
    assert not any(b["flush_cache"] for b in bodies)


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


def test_a_flush_that_is_refused_is_asked_again_with_growing_waits():
    rig = Rig()
    rig.e[0].busy_for = 5
    client(rig).refit(100)
    assert rig.e[0].ops.count("flush_cache") == 6
    assert 3.0 < rig.world.now < 3.5


def test_an_engine_that_never_becomes_idle_is_reported_in_its_own_words_and_continued():
    rig = Rig()
    rig.e[0].busy_for = 10**6
    _, error = failing(rig, expect=NeverIdle)
    assert "Flush cache failed." in str(error)
    assert UPDATE not in rig.e[0].ops
    assert BEGIN not in rig.e[0].ops
    assert not rig.e[0].paused
    assert rig.e[0].ops.count("flush_cache") < 15


def test_only_busy_engines_are_flushed_again():
    rig = Rig(engines=2)
    rig.e[1].busy_for = 2
    client(rig).refit(100)
    assert [e.ops.count("flush_cache") for e in rig.e] == [1, 3]


@pytest.mark.parametrize(
    "how", ["400 before", "200 false before", "500 before", "500 after", "drop before", "drop after"]
)
def test_a_pause_that_fails_on_one_engine_leaves_none_paused(how):
    rig = Rig(engines=3)
    rig.e[1].script["pause_generation", 1] = how
    _, error = failing(rig)
    assert error.engine == "e1"
    assert not any(e.paused for e in rig.e)
    assert all(e.ops[-1] == "continue_generation" for e in rig.e)


def test_a_refused_begin_is_never_followed_by_an_end_on_that_engine():
    rig = Rig(engines=2)
    rig.e[1].script[BEGIN, 1] = "400 before"
    _, error = failing(rig)
    assert "scripted refusal" in str(error)
    assert END in rig.e[0].ops
    assert END not in rig.e[1].ops
    assert not any(e.open or e.paused for e in rig.e)


@pytest.mark.parametrize("how", ["500 before", "500 after", "drop before", "drop after", "hang after"])
def test_a_begin_without_an_answer_is_settled_by_one_end(how):
    rig = Rig()
    rig.e[0].script[BEGIN, 1] = how
    sut, _ = failing(rig)
    assert rig.e[0].ops.count(END) == 1
    assert not rig.e[0].open
    assert not rig.e[0].paused
    sut.refit(100)
    assert rig.e[0].label == "v1"


def test_where_an_unmatched_end_kills_a_begin_without_an_answer_costs_the_engine():
    rig = Rig("miles", engines=2)
    rig.e[0].script[BEGIN, 1] = "drop before"
    failing(rig)
    assert END not in rig.e[0].ops
    assert not rig.e[0].dead
    assert rig.marker("ENGINE_LOST")["engine"] == "e0"
    assert not rig.e[1].paused


def test_a_session_that_somebody_left_open_is_closed_first():
    rig = Rig()
    rig.e[0].open = True
    client(rig).refit(100)
    assert rig.e[0].ops[3:6] == [BEGIN, END, BEGIN]
    assert not rig.e[0].open


@pytest.mark.parametrize(
    "how", ["500 after", "drop after", "hang after", "drop before", "400 before", "200 false before"]
)
def test_an_end_is_sent_once_whatever_it_answers_and_the_engine_does_not_serve(how):
    rig = Rig()
    rig.e[0].script[END, 1] = how
    sut, _ = failing(rig)
    assert rig.e[0].ops.count(END) == 1
    assert rig.e[0].paused
    assert rig.marker("ENGINE_HELD")["engine"] == "e0"
    assert sut.reported_version() is None
    sut.refit(100)
    assert not rig.e[0].paused
    assert not rig.e[0].open
    assert sut.reported_version() == "v1"


def test_an_end_that_was_refused_leaves_the_session_open_and_the_next_refit_closes_it_first():
    rig = Rig("miles")
    rig.e[0].script[END, 1] = "400 before"
    sut, _ = failing(rig)
    sut.refit(100)
    assert not rig.e[0].dead
    assert not rig.e[0].open
    assert rig.e[0].ops.count(BEGIN) == 2
    assert rig.e[0].ops.count(END) == 3


def test_an_engine_that_is_found_gone_at_the_very_end_is_reported():
    rig = Rig(engines=2)
    rig.e[0].script["continue_generation", 1] = "die"
    failing(rig)
    assert rig.marker("ENGINE_LOST")["engine"] == "e0"
    assert rig.names().count("ENGINE_LOST") == 1
    assert rig.e[0].ops.count("continue_generation") <= 2
    assert not rig.e[1].paused


def test_a_failing_end_does_not_keep_the_others_from_continuing():
    rig = Rig(engines=3)
    rig.e[1].script[END, 1] = "500 before"
    failing(rig)
    assert [e.paused for e in rig.e] == [False, True, False]


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


@pytest.mark.parametrize("how", ["drop before", "drop after", "500 before", "400 before", "hang before"])
def test_continue_is_asked_again_until_it_is_confirmed(how):
    rig = Rig()
    rig.e[0].script["continue_generation", 1] = how
    client(rig).refit(100)
    assert rig.e[0].ops.count("continue_generation") == 2
    assert not rig.e[0].paused


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


def test_the_first_error_is_raised_and_later_ones_are_notes():
    rig = Rig()
    rig.e[0].script[UPDATE, 2] = "500 before"
    rig.e[0].script[END, 1] = "drop before"
    _, error = failing(rig)
    assert error.phase == "transfer"
    assert any("end failed on e0" in note for note in error.__notes__)


def test_the_failures_of_other_engines_are_notes():
    rig = Rig(engines=2)
    for e in rig.e:
        e.script[BEGIN, 1] = "400 before"
    _, error = failing(rig)
    assert error.engine == "e0"
    assert any("e1" in note for note in error.__notes__)


def test_the_failure_that_came_first_is_raised_not_the_engine_that_was_asked_first():
    rig = Rig(engines=2)
    rig.e[0].script["pause_generation", 1] = "hang before"
    rig.e[1].script["pause_generation", 1] = "400 before"
    _, error = failing(rig)
    assert error.engine == "e1"


def test_memory_that_the_trainer_has_is_not_released_again():
    rig = Rig(engines=2)
    sut = client(rig)
    sut.phase("train")
    sut.phase("train")
    assert [e.ops.count("release_memory_occupation") for e in rig.e] == [1, 1]


def test_an_interrupt_is_a_failure_like_any_other():
    rig = Rig()
    rig.e[0].script[UPDATE, 2] = "interrupt"
    failing(rig, expect=KeyboardInterrupt)
    assert rig.marker("REFIT_FAILURE")["error_type"] == "KeyboardInterrupt"
    assert rig.e[0].paused
    assert not rig.e[0].open


def test_an_interrupt_between_two_engines_pauses_counts_for_both():
    rig = Rig(engines=2)
    rig.e[1].script["pause_generation", 1] = "interrupt"
    failing(rig, expect=KeyboardInterrupt)
    assert not any(e.paused for e in rig.e)


def test_the_markers_of_a_success():
    rig = Rig(engines=2, tp=2)
    client(rig).refit(100)
    assert rig.names() == ["REFIT_START", "GROUP_READY", "OFFLOADED", "REFIT_SUCCESS"]
    assert rig.marker("GROUP_READY") == {"world_size": 4, "engines": 2, "names": ["e0", "e1"]}
    assert rig.marker("REFIT_START") == {"transfer": "tensor", "index": 1, "version": "v1"}


def test_the_group_is_not_ready_while_an_engine_has_not_answered():
    rig = Rig(engines=2)
    rig.e[1].script["model_info", 1] = "500 before"
    failing(rig)
    assert "GROUP_READY" not in rig.names()
    assert rig.marker("REFIT_FAILURE")["phase"] == "connect"


def test_it_connects_once_per_incarnation():
    rig = Rig()
    sut = client(rig)
    sut.refit(100)
    sut.refit(100)
    assert rig.e[0].ops.count("model_info") == 1
    assert rig.names().count("GROUP_READY") == 1
    rig.e[0].incarnation = 1
    sut.refit(100)
    assert rig.e[0].ops.count("model_info") == 2


def test_an_empty_state_is_an_error_before_anything_is_sent():
    rig = Rig()
    sut = client(rig)
    sut.set_weights({}, "v1")
    with pytest.raises(BadState, match="empty"):
        sut.refit(100)
    assert rig.order == []


def test_a_state_that_lacks_what_an_earlier_one_had_is_an_error_before_anything_is_sent():
    rig = Rig()
    sut = client(rig)
    sut.refit(100)
    before = list(rig.order)
    smaller = state()
    del smaller["bias"]
    sut.set_weights(smaller, "v2")
    with pytest.raises(BadState, match="bias"):
        sut.refit(100)
    assert rig.order == before
    assert sut.reported_version() == "v1"


def test_an_export_that_leaves_something_out_fails_before_the_last_call_is_sent():
    rig = Rig()
    sut = client(rig)
    rig.kit.skip = {"w2"}
    with pytest.raises(BadState, match="w2"):
        sut.refit(100)
    assert rig.e[0].label == "default"
    assert rig.e[0].paused
    assert rig.kit.live == []


def test_a_spent_deadline_sends_no_more_work():
    rig = Rig()
    rig.e[0].script["pause_generation", 1] = "hang after"
    sut = client(rig)
    with pytest.raises((CallFailed, DeadlineSpent)):
        sut.refit(10)
    assert "flush_cache" not in rig.e[0].ops
    assert not rig.e[0].paused


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_a_deadline_is_above_zero(bad):
    with pytest.raises(ValueError):
        client(Rig()).refit(bad)


def test_refits_without_setup_or_weights_say_so():
    with pytest.raises(BadState, match="set_weights"):
        ReferenceSut().refit(1)
    sut = ReferenceSut()
    sut.set_weights({"w": np.zeros(1)}, "v1")
    with pytest.raises(RuntimeError, match="setup"):
        sut.refit(1)


def test_a_missing_payload_of_a_rank_fails_everywhere_and_nothing_is_posted():
    rig = Rig(tp=2)
    sut = client(rig)
    rig.kit.silent = {1}
    with pytest.raises(BrokenGather, match="rank 1"):
        sut.refit(100)
    assert UPDATE not in rig.e[0].ops
    assert rig.kit.live == []
    assert not rig.e[0].paused


@pytest.mark.parametrize(
    ("op", "phase"),
    [
        ("pause_generation", "pause"),
        ("flush_cache", "flush"),
        (BEGIN, "begin"),
        (UPDATE, "transfer"),
        (END, "end"),
    ],
)
def test_the_failure_marker_names_the_phase(op, phase):
    rig = Rig()
    rig.e[0].script[op, 1] = "500 before"
    failing(rig)
    assert rig.marker("REFIT_FAILURE")["phase"] == phase
    assert rig.marker("REFIT_FAILURE")["error_type"] == "CallFailed"


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


def test_a_leftover_session_that_cannot_be_closed_is_not_ended_again():
    rig = Rig()
    rig.e[0].open = True
    rig.e[0].script[END, 1] = "drop before"
    failing(rig)
    assert rig.e[0].ops.count(END) == 1


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


def test_an_interrupt_while_giving_back_does_not_stop_giving_back():
    rig = Rig()
    sut = client(rig)
    sut.phase("train")
    rig.e[0].script[END, 1] = "interrupt"
    with pytest.raises(KeyboardInterrupt):
        sut.refit(100)
    assert not rig.e[0].released
    assert rig.names()[-2:] == ["OFFLOADED", "REFIT_FAILURE"]


def test_a_lane_without_a_trainer_kit_is_unsupported():
    rig = Rig()
    with pytest.raises(Unsupported, match="trainer kit"):
        ReferenceSut().setup(replace(rig.fleet, trainer=None))


def test_the_policy_of_the_fleet_is_taken_unless_one_was_given():
    rig = Rig()
    rig.fleet = replace(rig.fleet, options={"policy": "terminal"})
    assert client(rig).capabilities().policy == "terminal"
    assert client(rig, policy="quarantine").capabilities().policy == "quarantine"


@pytest.mark.parametrize(
    ("meta", "version"),
    [
        ({"weight_version": "v2"}, "v2"),
        ({"weight_version": "v3", "weight_versions": [{"version": "v1"}, {"version": "v2"}]}, "v2"),
    ],
)
def test_a_rollout_is_labelled_by_the_engine_not_by_the_policy(meta, version):
    rig = Rig()
    sut = client(rig)
    rig.e[0].answers["generate"] = {"output_ids": [5, 6], "meta_info": meta}
    assert sut.rollout([1, 2], 2) == {"tokens": [5, 6], "version": version}


def test_a_rollout_that_fails_says_so():
    rig = Rig()
    rig.e[0].script["generate", 1] = "500 before"
    with pytest.raises(CallFailed, match="rollout failed on e0"):
        client(rig).rollout([1], 1)


def test_an_engine_that_never_confirmed_continue_still_counts_as_paused():
    rig = Rig()
    control = Control(rig.world.clock, EngineProfile.of("0.5.23"), "retract")
    e = Engine(rig.e[0], (0,), 0, paused=True)
    for nth in range(1, 50):
        rig.e[0].script["continue_generation", nth] = "500 before"
    with pytest.raises(CallFailed):
        control.resume_generation([e], Deadline(rig.world.clock, 5))
    assert e.paused
