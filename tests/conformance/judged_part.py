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


@leaves_open("PART-1")
def nothing_was_sent() -> Tape:
    return after_a_failure(A, touched=False)
