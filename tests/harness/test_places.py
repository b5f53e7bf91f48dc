"""Where a violation shows, out of the words of its judge."""

from __future__ import annotations

import pytest

from harness.places import Place, breaches_of, done_in, place_of
from tests.conformance.tape import Tape

BUCKET = "update_weights_from_tensor"


@pytest.fixture(scope="module")
def history():
    """Refit 0 goes well, a probe asks; in refit 1 a bucket is slowed down and another meets a fault; it fails."""
    tape = Tape(tp=2)
    with tape.refit(0, "v1"):
        tape.sut("pause_generation", {"mode": "retract"})
        tape.trainer("export")
        tape.bucket(request={"weight_version": "v1", "load_format": None})
    tape.gen([1, 2])
    tape.sut("release_memory_occupation")
    with tape.refit(1, "v2", error="no"):
        tape.bucket(fault="e0:update_weights_from_tensor#2:before:delay=1")
        tape.bucket(status=400, fault="e0:update_weights_from_tensor#3:before:400")
    tape.call("model_info", method="GET")
    return tape.history


def test_a_call_and_a_record_are_found_by_their_words(history):
    first, slow, refused = history.calls(BUCKET)
    (export,) = history.trainer("export")
    assert place_of(f"refit 0 on e0: {first}", history) == Place(first.pos, 0, own=True, after_fault=False)
    assert place_of(str(export), history) == Place(export.pos, 0, own=True, after_fault=False)
    assert place_of(str(slow), history) == Place(slow.pos, 1, own=True, after_fault=False)
    assert place_of(str(refused), history) == Place(refused.pos, 1, own=True, after_fault=True)


def test_what_others_asked_is_not_the_clients_own(history):
    (answer,) = history.calls("generate")
    (info,) = history.calls("model_info")
    assert place_of(f"{answer}, first request after refit 0", history) == Place(answer.pos, 0, False, False)
    assert place_of(str(info), history) == Place(info.pos, 1, own=False, after_fault=True)


@pytest.mark.parametrize("words", ["refit 0 on e0", "refit v1", "refit 0 on e0: refit 0 on e0"])
def test_a_refit_is_judged_at_its_last_call(history, words):
    assert place_of(words, history).pos == history.calls(BUCKET)[0].pos


def test_a_refit_without_a_call_is_judged_at_its_end(history):
    last = history.refits()[0].end_pos
    assert place_of("refit 0 on e7", history) == Place(last, 0, own=True, after_fault=False)


@pytest.mark.parametrize("words", ["the end of the history", "t=9.000 e0 POST /generate -> 200", ""])
def test_what_names_nothing_of_the_history_is_at_its_end(history, words):
    assert place_of(words, history) == Place(history.length, 1, own=True, after_fault=True)


def test_a_refit_that_failed_by_itself_counts_as_a_fault_for_what_comes_after_it():
    tape = Tape()
    with tape.refit(0, "v1", error="the trainer's own"):
        tape.bucket()
    tape.gen([1])
    (bucket,), (answer,) = tape.history.calls(BUCKET), tape.history.calls("generate")
    assert not place_of(str(bucket), tape.history).after_fault
    assert place_of(str(answer), tape.history).after_fault


def test_a_call_that_kills_the_engine_itself_is_not_after_a_fault():
    tape = Tape()
    with tape.refit(0, "v1", error="dropped"):
        tape.bucket(status=None, error="dropped")
        tape.sut("continue_generation", status=None, error="refused")
    (bucket,), (resume,) = tape.history.calls(BUCKET), tape.history.calls("continue_generation")
    assert not place_of(str(bucket), tape.history).after_fault
    assert place_of(str(resume), tape.history).after_fault


def test_a_history_that_breaks_nothing_has_no_breaches():
    assert breaches_of((), {"A-1": None}) is None
    found = breaches_of((), {"A-1": None, "B-1": Place(3)})
    assert found is not None
    assert (dict(found.places), found.judged) == ({"B-1": Place(3)}, {"A-1", "B-1"})


def test_what_a_client_did_in_its_refits_are_operations_and_fields_with_a_value(history):
    done = done_in(history)
    assert {"pause_generation", BUCKET, ":weight_version", ":mode"} <= done
    assert done.isdisjoint({"generate", "release_memory_occupation", ":input_ids", ":load_format"})
