from __future__ import annotations

from conformance.rules.sess import ALREADY, NOT_OPEN, OUTSIDE
from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

FAULT = "e0:update_weights_from_tensor#1:before:status400"


def whole(tape: Tape, index: int = 1) -> Tape:
    with tape.refit(index, str(index), index):
        tape.sut("begin_weight_update")
        tape.bucket()
        tape.bucket()
        tape.sut("end_weight_update")
    return tape


@holds("SESS-1")
def one_whole_refit() -> Tape:
    return whole(Tape())


@breaks("SESS-1", "outside a session")
def bucket_without_begin() -> Tape:
    tape = Tape()
    with tape.refit(error="x"):
        tape.bucket(status=400)
    return tape


@breaks("SESS-1", "never ended")
def no_end() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update")
        tape.bucket()
    return tape


def failed_once(tape: Tape) -> Tape:
    with tape.refit(1, error="bucket failed"):
        tape.sut("begin_weight_update")
        tape.bucket(status=400, fault=FAULT)
        tape.sut("end_weight_update")
    return tape


@leaves_open("SESS-3", "SESS-4")
def failed_and_no_more() -> Tape:
    return failed_once(Tape())


@holds("SESS-3")
def failed_then_whole() -> Tape:
    return whole(failed_once(Tape()), 2)


@breaks("SESS-3", ALREADY)
def session_left_open() -> Tape:
    tape = failed_once(Tape())
    with tape.refit(2, error=ALREADY):
        tape.message("begin_weight_update", 400, ALREADY, origin="sut")
    return tape


@holds("SESS-4")
def twice_whole() -> Tape:
    return whole(whole(Tape()), 2)


@breaks("SESS-4", "2 of them")
def a_session_per_bucket() -> Tape:
    tape = whole(Tape())
    with tape.refit(2, "2"):
        for _ in range(2):
            tape.sut("begin_weight_update")
            tape.bucket()
            tape.sut("end_weight_update")
    return tape


@holds("SESS-71")
def end_after_a_begin_that_may_have_opened() -> Tape:
    tape = Tape()
    with tape.refit(error="begin failed"):
        tape.sut("begin_weight_update", status=500, body="Internal Server Error")
        tape.message("end_weight_update", 400, NOT_OPEN, origin="sut")
    return tape


@breaks("SESS-71", "an end of nothing")
def end_after_a_refused_begin() -> Tape:
    tape = Tape()
    with tape.refit(error="begin failed"):
        tape.message("begin_weight_update", 400, "no", origin="sut")
        tape.message("end_weight_update", 400, NOT_OPEN, origin="sut")
    return tape


@breaks("SESS-71", "an end of nothing")
def end_twice() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update")
        tape.sut("end_weight_update")
        tape.sut("end_weight_update")
    return tape


@leaves_open("SESS-71")
def no_end_at_all() -> Tape:
    tape = Tape()
    with tape.refit(error="x"):
        tape.sut("begin_weight_update", status=500, body="")
    return tape


def outside(after: list[int], message: str = OUTSIDE) -> Tape:
    tape = Tape()
    tape.gen([5, 6])
    tape.message("update_weights_from_tensor", 400, message)
    tape.gen(after)
    return tape


@holds("SESS-51")
def refused_outside() -> Tape:
    return outside([5, 6])


@breaks("SESS-51", "after [5, 7]")
def refused_but_changed() -> Tape:
    return outside([5, 7])


@breaks("SESS-51", "other words")
def refused_in_other_words() -> Tape:
    return outside([5, 6], "other words")


@leaves_open("SESS-51")
def refused_and_nobody_looked() -> Tape:
    tape = Tape()
    tape.message("update_weights_from_tensor", 400, OUTSIDE)
    return tape


def begun_twice(second: int) -> Tape:
    tape = Tape()
    tape.call("begin_weight_update")
    tape.message("begin_weight_update", second, ALREADY if second == 400 else "Success")
    tape.call("update_weights_from_tensor")
    return tape


@holds("SESS-52")
def second_begin_refused() -> Tape:
    return begun_twice(400)


@breaks("SESS-52", "200")
def second_begin_taken() -> Tape:
    return begun_twice(200)


@breaks("SESS-52", OUTSIDE)
def second_begin_closes() -> Tape:
    tape = Tape()
    tape.call("begin_weight_update")
    tape.message("begin_weight_update", 400, ALREADY)
    tape.message("update_weights_from_tensor", 400, OUTSIDE)
    return tape


@holds("SESS-53")
def end_refused() -> Tape:
    tape = Tape()
    tape.message("end_weight_update", 400, NOT_OPEN)
    return tape


@breaks("SESS-53", "200")
def end_taken() -> Tape:
    tape = Tape()
    tape.call("end_weight_update")
    return tape


@holds("SESS-54")
def no_session_before_21() -> Tape:
    tape = Tape("0.5.20")
    tape.call("begin_weight_update", status=404, body={"detail": "Not Found"})
    tape.call("update_weights_from_tensor")
    return tape


@breaks("SESS-54", "200")
def a_session_before_21() -> Tape:
    tape = Tape("0.5.20")
    tape.call("begin_weight_update")
    return tape


@holds("SESS-55")
def asserting_build_dies() -> Tape:
    tape = Tape("miles")
    tape.call("end_weight_update", status=None, error="dropped")
    return tape


@breaks("SESS-55", NOT_OPEN)
def asserting_build_answers() -> Tape:
    tape = Tape("miles")
    tape.message("end_weight_update", 400, NOT_OPEN)
    return tape


def visible(tokens: list[int]) -> Tape:
    tape = Tape()
    tape.gen([1, 1])
    tape.call("begin_weight_update")
    tape.call("update_weights_from_tensor")
    tape.gen(tokens)
    return tape


@holds("SESS-56")
def bucket_is_visible() -> Tape:
    return visible([2, 2])


@breaks("SESS-56", "after [1, 1]")
def bucket_waits_for_end() -> Tape:
    return visible([1, 1])


def empty_session(tokens: list[int]) -> Tape:
    tape = Tape()
    tape.gen([1, 1])
    tape.call("begin_weight_update")
    tape.call("end_weight_update")
    tape.gen(tokens)
    return tape


@holds("SESS-57")
def empty_session_is_harmless() -> Tape:
    return empty_session([1, 1])


@breaks("SESS-57", "after [1, 2]")
def empty_session_changes_weights() -> Tape:
    return empty_session([1, 2])


@leaves_open("SESS-57")
def a_session_with_a_bucket() -> Tape:
    tape = visible([2, 2])
    tape.call("end_weight_update")
    tape.gen([2, 2])
    return tape


@holds("SESS-58")
def body_is_missed() -> Tape:
    tape = Tape()
    tape.call("begin_weight_update", None, 400, {"message": "1 validation error: Field required"}, bare=True)
    return tape


@breaks("SESS-58", "422")
def body_is_missed_with_422() -> Tape:
    tape = Tape()
    tape.call("begin_weight_update", None, 422, {"message": "Field required"}, bare=True)
    return tape


def died_with_its_session(between: str = "") -> Tape:
    """The engine dies in an open session; another incarnation answers at the same url."""
    tape = Tape()
    with tape.refit(1, error="dropped"):
        tape.sut("begin_weight_update")
        tape.bucket(status=None, error="dropped")
        if between == "end":
            tape.message("end_weight_update", 400, NOT_OPEN, origin="sut", incarnation=1)
    with tape.refit(2):
        if between != "end":
            tape.message("end_weight_update", 400, NOT_OPEN, origin="sut", incarnation=1)
        tape.sut("begin_weight_update", incarnation=1)
        tape.bucket(incarnation=1)
        tape.sut("end_weight_update", incarnation=1)
        if between == "twice":
            tape.sut("end_weight_update", incarnation=1)
    return tape


@holds("SESS-71")
def an_end_of_a_session_that_died() -> Tape:
    return died_with_its_session()


@holds("SESS-71")
def an_end_of_a_session_that_died_in_the_same_refit() -> Tape:
    return died_with_its_session("end")


@breaks("SESS-71", "an end of nothing")
def an_end_after_the_end_in_the_next_incarnation() -> Tape:
    return died_with_its_session("twice")


@breaks("SESS-71", "an end of nothing")
def an_end_of_a_session_that_was_ended_before_the_death() -> Tape:
    tape = whole(Tape())
    with tape.refit(2, error="x"):
        tape.message("end_weight_update", 400, NOT_OPEN, origin="sut", incarnation=1)
    return tape
