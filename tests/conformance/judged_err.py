from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_name import kills
from tests.conformance.judged_rank import A, B, push
from tests.conformance.tape import Tape

for _kind, _rule in (
    ("not-base64", "ERR-54"),
    ("not-a-pickle", "ERR-56"),
    ("forbidden-global", "ERR-57"),
    ("unknown-load-format", "ERR-58"),
    ("wrong-load-format", "ERR-59"),
    ("empty-list", "ERR-60"),
):
    kills(_kind, _rule)

BASE64 = "2 validation errors: Expected base64-encoded bytes"


@holds("ERR-53")
def not_base64() -> Tape:
    return push("not-base64", 400, A, before=A, message=BASE64)


@breaks("ERR-53", "dropped")
def not_base64_kills() -> Tape:
    return push("not-base64", None, None)


@breaks("ERR-53", "after [2, 2]")
def not_base64_changes() -> Tape:
    return push("not-base64", 400, B, before=A, message=BASE64)


def failed(error: str, *, op: str = "update_weights_from_tensor", message: str = "Weights are torn") -> Tape:
    tape = Tape()
    with tape.refit(error=error):
        tape.message(op, 400, message, {"a": 1}, origin="sut")
    return tape


@holds("ERR-1")
def the_engines_words_are_raised() -> Tape:
    return failed("transfer failed on e0: HTTP 400: Weights are torn")


@breaks("ERR-1", "the client reported success, though POST /update_weights_from_tensor to e0 got 400 Weights are torn")
def failure_is_success() -> Tape:
    return failed("")


@breaks("ERR-1", "unknown error")
def the_engines_words_are_lost() -> Tape:
    return failed("unknown error")


@holds("ERR-2")
def a_whole_refit() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    tape.sut("continue_generation", {})
    return tape


@breaks("ERR-2", "update_weights_from_tensor was sent after it")
def a_thread_that_nobody_waited_for() -> Tape:
    tape = Tape()
    tape.gen([1], engine="e1")
    with tape.refit():
        tape.bucket()
    tape.bucket(engine="e1")
    return tape


@breaks("ERR-2", "end_weight_update was still under way")
def an_end_that_nobody_waited_for() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
        end = tape.start("end_weight_update", {}, origin="sut")
    tape.finish(end)
    return tape


@leaves_open("ERR-2")
def a_refit_that_failed() -> Tape:
    return failed("transfer failed")


NONE_OPEN = {"success": False, "message": "no weight-update session is open; call begin_weight_update() first"}


@leaves_open("ERR-1")
def a_session_that_was_to_be_closed_and_is_not_there() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("end_weight_update", {}, 400, NONE_OPEN)
        tape.sut("begin_weight_update")
        tape.bucket()
        tape.sut("end_weight_update")
    return tape


@breaks("ERR-1", "got 400 no weight-update session is open")
def an_end_that_found_none_open_and_nothing_after_it() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update")
        tape.bucket()
        tape.sut("end_weight_update", {}, 400, NONE_OPEN)
    return tape


@holds("ERR-1")
def a_clean_up_that_found_nothing_before_the_first_failure() -> Tape:
    """The session died with the incarnation before; what the error has to tell is the lost connection."""
    tape = Tape()
    with tape.refit(error="update_weights_from_tensor: Server disconnected"):
        tape.sut("end_weight_update", {}, 400, NONE_OPEN)
        tape.sut("begin_weight_update")
        tape.bucket(status=None, error="dropped")
    return tape


@holds("ERR-1")
def a_clean_up_that_found_nothing_before_a_begin_that_was_not_answered() -> Tape:
    tape = Tape()
    with tape.refit(error="begin_weight_update: Server disconnected"):
        tape.sut("end_weight_update", {}, 400, NONE_OPEN)
        tape.sut("begin_weight_update", status=None, error="dropped")
    return tape


@holds("ERR-1")
def a_clean_up_that_met_the_next_incarnation_after_the_first_failure() -> Tape:
    tape = Tape()
    with tape.refit(error="update_weights_from_tensor: Server disconnected"):
        tape.sut("begin_weight_update")
        tape.bucket(status=None, error="dropped")
        tape.sut("end_weight_update", {}, 400, NONE_OPEN, incarnation=1)
    return tape


@holds("ERR-1")
def a_clean_up_that_failed_while_the_first_failure_was_heard_first() -> Tape:
    tape = Tape()
    tape.gen([1], engine="e1")
    with tape.refit(error="e1: Weights are torn"):
        end = tape.start("end_weight_update", {}, origin="sut")
        tape.message("update_weights_from_tensor", 400, "Weights are torn", {"a": 1}, origin="sut", engine="e1")
        tape.finish(end, 400, NONE_OPEN)
    return tape


def asked_again(again: str = "p0", status: int = 400, **request: str) -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("begin_weight_update")
        tape.bucket(("p0",), status)
        tape.bucket((again,), request=dict(request))
        tape.sut("end_weight_update")
    return tape


@leaves_open("ERR-1")
def a_refused_bucket_that_was_taken_when_sent_again() -> Tape:
    return asked_again()


@breaks("ERR-1", "the client reported success")
def a_refused_bucket_and_another_one() -> Tape:
    return asked_again("p1")


@breaks("ERR-1", "the client reported success")
def a_refused_bucket_sent_again_in_another_way() -> Tape:
    return asked_again(load_format="direct")


@breaks("ERR-1", "the client reported success")
def a_bucket_that_may_still_be_loading_sent_again() -> Tape:
    return asked_again(status=500)


@leaves_open("ERR-1")
def a_flush_that_was_granted_later() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.sut("flush_cache", {}, 400, "Flush cache failed.")
        tape.sut("flush_cache", {}, 200, "Cache flushed.")
    return tape


def death(after: str, status: int | None = None) -> Tape:
    tape = Tape()
    tape.call("begin_weight_update", status=None, error="dropped")
    tape.call("model_info", {}, status, {}, error=after, method="GET")
    return tape


@holds("ERR-51")
def dead_is_dead() -> Tape:
    return death("refused")


@breaks("ERR-51", "200")
def dead_answers() -> Tape:
    return death("", 200)


@leaves_open("ERR-51")
def a_drop_and_nothing_after() -> Tape:
    tape = Tape()
    tape.call("begin_weight_update", status=None, error="dropped")
    return tape


def missing_field(status: int) -> Tape:
    tape = Tape()
    tape.call("update_weights_from_tensor", {}, status, {"message": "2 validation errors"})
    return tape


@holds("ERR-52")
def missing_field_is_400() -> Tape:
    return missing_field(400)


@breaks("ERR-52", "422")
def missing_field_is_422() -> Tape:
    return missing_field(422)


def routes(unknown: int, method: int) -> Tape:
    tape = Tape()
    tape.call("no_such_route", {}, unknown, {"detail": "Not Found"})
    tape.call("pause_generation", {}, method, {"detail": "Method Not Allowed"}, method="GET")
    return tape


@holds("ERR-55")
def route_and_method() -> Tape:
    return routes(404, 405)


@breaks("ERR-55", "404")
def method_is_404() -> Tape:
    return routes(404, 404)


def tokenizer(status: int | None, after: int = 200) -> Tape:
    tape = Tape()
    told = {"error": {"message": "min_new_tokens=2 is unavailable"}} if status else None
    tape.call("generate", {"sampling_params": {"min_new_tokens": 2}}, status, told, error="" if status else "dropped")
    if status:
        tape.call("model_info", {}, after, {}, method="GET")
    return tape


@holds("ERR-61")
def no_tokenizer_is_400() -> Tape:
    return tokenizer(400)


@breaks("ERR-61", "dropped")
def no_tokenizer_kills_late() -> Tape:
    return tokenizer(None)


@breaks("ERR-61", "500")
def no_tokenizer_harms() -> Tape:
    return tokenizer(400, after=500)


@holds("ERR-62")
def no_tokenizer_kills() -> Tape:
    return tokenizer(None)


@breaks("ERR-62", "400")
def no_tokenizer_is_refused() -> Tape:
    return tokenizer(400)


@leaves_open("ERR-61")
@leaves_open("ERR-62")
def nobody_needs_a_tokenizer() -> Tape:
    tape = Tape()
    tape.call("generate", {"sampling_params": {"max_new_tokens": 2}}, 200, {})
    return tape
