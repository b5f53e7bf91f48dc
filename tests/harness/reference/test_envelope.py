"""The envelope of the reference client against a scripted control plane: order, guards, what is asked again."""

from __future__ import annotations

import pytest

from harness.reference.errors import NeverIdle
from tests.harness.reference.fleet import BEGIN, END, UPDATE, Rig, client, failing, state


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


def test_only_the_last_update_carries_the_version_and_none_flushes():
    rig = Rig()
    client(rig).refit(100)
    bodies = [body for op, body in rig.e[0].log if op == UPDATE]
    assert [b.get("weight_version") for b in bodies] == [None, None, "v1"]
    assert not any(b["flush_cache"] for b in bodies)


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


@pytest.mark.parametrize("how", ["drop before", "drop after", "500 before", "400 before", "hang before"])
def test_continue_is_asked_again_until_it_is_confirmed(how):
    rig = Rig()
    rig.e[0].script["continue_generation", 1] = how
    client(rig).refit(100)
    assert rig.e[0].ops.count("continue_generation") == 2
    assert not rig.e[0].paused


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


def test_a_leftover_session_that_cannot_be_closed_is_not_ended_again():
    rig = Rig()
    rig.e[0].open = True
    rig.e[0].script[END, 1] = "drop before"
    failing(rig)
    assert rig.e[0].ops.count(END) == 1


def test_an_interrupt_while_giving_back_does_not_stop_giving_back():
    rig = Rig()
    sut = client(rig)
    sut.phase("train")
    rig.e[0].script[END, 1] = "interrupt"
    with pytest.raises(KeyboardInterrupt):
        sut.refit(100)
    assert not rig.e[0].released
    assert rig.names()[-2:] == ["OFFLOADED", "REFIT_FAILURE"]
