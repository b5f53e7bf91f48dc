from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_name import gives
from tests.conformance.judged_rank import PROMPT, A, B, truth
from tests.conformance.tape import Tape

gives("first-half", "PART-51", [9, 9], (), A)
gives("heal", "PART-52", B, (1,), [9, 9])


def after_a_failure(tokens: list[int] | None, *, touched: bool = True) -> Tape:
    tape = Tape()
    truth(tape)
    with tape.refit(seed=1, error="bucket 2 failed"):
        if touched:
            tape.bucket()
            tape.bucket(status=500)
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT, origin="traffic")
    else:
        tape.start("generate", {"input_ids": list(PROMPT)}, origin="traffic")
    return tape


@holds("PART-1")
def nobody_is_served() -> Tape:
    return after_a_failure(None)


@holds("PART-1")
def the_old_set_is_served() -> Tape:
    return after_a_failure(A)


@breaks("PART-1", "[9, 9]")
def torn_weights_are_served() -> Tape:
    return after_a_failure([9, 9])


def in_between(tokens: list[int], *, served: str) -> Tape:
    tape = Tape()
    truth(tape)
    with tape.refit(seed=1):
        tape.sut("begin_weight_update")
        tape.bucket()
        late = tape.start("generate", {"input_ids": list(PROMPT)}, origin="traffic")
        if served == "meanwhile":
            tape.finish(late, body=tape.answer(tokens))
        tape.bucket()
        tape.sut("end_weight_update")
    if served == "afterwards":
        tape.finish(late, body=tape.answer(tokens))
    return tape


@holds("PART-71")
def served_afterwards() -> Tape:
    return in_between(B, served="afterwards")


@holds("PART-71")
def served_from_the_old_set() -> Tape:
    return in_between(A, served="meanwhile")


@breaks("PART-71", "of no set")
def served_from_a_part() -> Tape:
    return in_between([9, 9], served="meanwhile")


@leaves_open("PART-71")
def nobody_asked_meanwhile() -> Tape:
    return after_a_failure(A)


@leaves_open("PART-1")
def nothing_was_sent() -> Tape:
    return after_a_failure(A, touched=False)
