from __future__ import annotations

from conformance.rules.sess import ALREADY, NOT_OPEN, OUTSIDE, RULES
from tests.conformance.tape import Tape

JUDGE = {rule.id: rule.judge for rule in RULES}


def whole_refit(tape: Tape, index: int = 1, seed: int = 1) -> None:
    with tape.refit(index, str(index), seed):
        tape.sut("begin_weight_update")
        tape.bucket()
        tape.bucket()
        tape.sut("end_weight_update")


def test_sess_1_holds_around_all_buckets() -> None:
    tape = Tape()
    whole_refit(tape)
    assert JUDGE["SESS-1"](tape.history).status == "held"


def test_sess_1_sees_a_bucket_without_a_session() -> None:
    tape = Tape()
    with tape.refit(error="x"):
        tape.bucket(status=400)
    verdict = JUDGE["SESS-1"](tape.history)
    assert verdict.status == "violated"
    assert "outside a session" in verdict.actual


def test_sess_1_sees_a_session_that_is_never_ended() -> None:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update")
        tape.bucket()
    assert JUDGE["SESS-1"](tape.history).status == "violated"


def test_sess_1_is_inconclusive_without_buckets_and_unsupported_without_sessions() -> None:
    assert JUDGE["SESS-1"](Tape().history).status == "inconclusive"
    assert JUDGE["SESS-1"](Tape("0.5.20").history).status == "unsupported"


def test_sess_3() -> None:
    tape = Tape()
    with tape.refit(1, error="bucket failed"):
        tape.sut("begin_weight_update")
        tape.bucket(status=400, fault="e0:x:1:before:status400")
        tape.sut("end_weight_update")
    assert JUDGE["SESS-3"](tape.history).status == "inconclusive"
    whole_refit(tape, 2)
    assert JUDGE["SESS-3"](tape.history).status == "held"


def test_sess_3_sees_a_session_left_open() -> None:
    tape = Tape()
    with tape.refit(1, error="bucket failed"):
        tape.sut("begin_weight_update")
        tape.bucket(status=400)
    with tape.refit(2, error=ALREADY):
        tape.message("begin_weight_update", 400, ALREADY, origin="sut")
    assert JUDGE["SESS-3"](tape.history).status == "violated"


def test_sess_4_holds_over_two_refits_and_sees_a_session_per_bucket() -> None:
    tape = Tape()
    whole_refit(tape)
    assert JUDGE["SESS-4"](tape.history).status == "inconclusive"
    whole_refit(tape, 2)
    assert JUDGE["SESS-4"](tape.history).status == "held"
    with tape.refit(3, "3"):
        for _ in range(2):
            tape.sut("begin_weight_update")
            tape.bucket()
            tape.sut("end_weight_update")
    assert JUDGE["SESS-4"](tape.history).status == "violated"


def test_sess_51_wants_the_refusal_and_the_same_answer_after_it() -> None:
    tape = Tape()
    tape.gen([5, 6])
    assert JUDGE["SESS-51"](tape.history).status == "inconclusive"
    tape.message("update_weights_from_tensor", 400, OUTSIDE)
    assert JUDGE["SESS-51"](tape.history).status == "inconclusive", "no canary after it"
    tape.gen([5, 6])
    assert JUDGE["SESS-51"](tape.history).status == "held"


def test_sess_51_sees_acceptance_and_a_silent_change() -> None:
    tape = Tape()
    tape.call("update_weights_from_tensor")
    verdict = JUDGE["SESS-51"](tape.history)
    assert verdict.status == "violated"
    assert OUTSIDE in verdict.allowed[0]
    tape = Tape()
    tape.gen([5, 6])
    tape.message("update_weights_from_tensor", 400, OUTSIDE)
    tape.gen([5, 7])
    assert JUDGE["SESS-51"](tape.history).status == "violated"


def test_sess_52_and_53() -> None:
    tape = Tape()
    tape.message("end_weight_update", 400, NOT_OPEN)
    tape.call("begin_weight_update")
    tape.message("begin_weight_update", 400, ALREADY)
    assert JUDGE["SESS-52"](tape.history).status == "inconclusive"
    tape.call("update_weights_from_tensor")
    assert JUDGE["SESS-52"](tape.history).status == "held"
    assert JUDGE["SESS-53"](tape.history).status == "held"
    tape.call("begin_weight_update")
    assert JUDGE["SESS-52"](tape.history).status == "violated"
    tape.call("end_weight_update")
    tape.call("end_weight_update")
    assert JUDGE["SESS-53"](tape.history).status == "violated"
    assert JUDGE["SESS-53"](Tape().history).status == "inconclusive"


def test_sess_54_old_versions_have_no_session() -> None:
    tape = Tape("0.5.20")
    tape.call("begin_weight_update", status=404, body={"detail": "Not Found"})
    assert JUDGE["SESS-54"](tape.history).status == "inconclusive"
    tape.call("update_weights_from_tensor")
    assert JUDGE["SESS-54"](tape.history).status == "held"
    tape.call("begin_weight_update")
    assert JUDGE["SESS-54"](tape.history).status == "violated"


def test_sess_55_the_asserting_build_dies() -> None:
    tape = Tape("miles")
    assert JUDGE["SESS-55"](tape.history).status == "inconclusive"
    tape.call("end_weight_update", status=None, error="dropped")
    assert JUDGE["SESS-55"](tape.history).status == "held"
    tape.call("end_weight_update", status=400, incarnation=1)
    assert JUDGE["SESS-55"](tape.history).status == "violated"


def test_sess_56_a_bucket_is_visible_before_the_end() -> None:
    tape = Tape()
    tape.gen([1, 1])
    tape.call("begin_weight_update")
    tape.call("update_weights_from_tensor")
    assert JUDGE["SESS-56"](tape.history).status == "inconclusive"
    tape.gen([2, 2])
    assert JUDGE["SESS-56"](tape.history).status == "held"
    tape.call("update_weights_from_tensor")
    tape.gen([2, 2])
    assert JUDGE["SESS-56"](tape.history).status == "violated"


def test_sess_57_an_empty_session_changes_nothing() -> None:
    def run(after: list[int]) -> str:
        tape = Tape()
        tape.gen([1, 1])
        tape.call("begin_weight_update")
        tape.call("end_weight_update")
        tape.gen(after)
        return JUDGE["SESS-57"](tape.history).status

    assert run([1, 1]) == "held"
    assert run([1, 2]) == "violated"
    assert JUDGE["SESS-57"](Tape().history).status == "inconclusive"
