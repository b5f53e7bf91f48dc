from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_rank import PROMPT, A, B, push, truth
from tests.conformance.tape import Tape


def refit_of(*kinds: str, tokens: list[int] | None = None, error: str = "", buckets: int = 1) -> Tape:
    tape = Tape()
    truth(tape)
    tape.fact("state", engine="", index=1, kinds=list(kinds))
    with tape.refit(1, seed=1, error=error):
        for _ in range(buckets):
            tape.bucket()
        if not buckets:
            tape.sut("pause_generation")
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


@holds("NAME-1")
def mixed_dtypes_arrive() -> Tape:
    return refit_of("mixed", tokens=B)


@breaks("NAME-1", "of no set")
def mixed_dtypes_get_wrong_names() -> Tape:
    return refit_of("mixed", tokens=[9, 9])


def of_two_names(tokens: list[int], *exported: str) -> Tape:
    tape = Tape()
    truth(tape)
    with tape.refit(1, seed=1, names=["embed", "norm"]):
        tape.trainer("export", sha256="p0", names=list(exported), consumers=[["e0", 0]])
        tape.bucket(("p0",))
    tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


@holds("NAME-71")
def all_names_were_sent() -> Tape:
    return of_two_names(B, "embed", "norm")


@holds("NAME-71")
def names_of_its_own_and_the_right_answers() -> Tape:
    return of_two_names(B, "everything in one")


@breaks("NAME-71", "the client reported success; never sent: norm")
def a_norm_was_left_out() -> Tape:
    return of_two_names([9, 9], "embed")


@leaves_open("NAME-71")
def wrong_though_all_names_were_sent() -> Tape:
    return of_two_names([9, 9], "embed", "norm")


@holds("NAME-4")
def biases_arrive() -> Tape:
    return refit_of("auxiliary", tokens=B)


@breaks("NAME-4", "of no set")
def biases_do_not() -> Tape:
    return refit_of("auxiliary", tokens=[9, 9])


@leaves_open("NAME-1", "NAME-2", "NAME-3", "NAME-4")
def nobody_asked() -> Tape:
    return refit_of("plain")


def complete_and_empty(*, empty_error: str, tokens: list[int] = B) -> Tape:
    tape = refit_of("plain", tokens=tokens)
    tape.fact("state", engine="", index=2, kinds=["empty"])
    with tape.refit(2, "2", error=empty_error):
        pass
    return tape


@holds("NAME-2")
def complete_and_an_empty_state_fails() -> Tape:
    return complete_and_empty(empty_error="the policy's state is empty")


@breaks("NAME-2", "success")
def an_empty_state_succeeds() -> Tape:
    return complete_and_empty(empty_error="")


@breaks("NAME-2", "of no set")
def a_tensor_is_left_out() -> Tape:
    return complete_and_empty(empty_error="x", tokens=[9, 9])


@breaks("NAME-2", "no update call went to e0")
def success_without_an_update() -> Tape:
    return refit_of("plain", buckets=0)


def sizes(*tokens: list[int]) -> Tape:
    tape = Tape()
    truth(tape)
    for number, said in enumerate(tokens):
        with tape.refit(number, str(number), seed=1):
            for _ in range(number + 1):
                tape.bucket()
        tape.gen(said, prompt=PROMPT, origin="traffic")
    return tape


@holds("NAME-3")
def any_bucket_size() -> Tape:
    return sizes(B, B, B)


@breaks("NAME-3", "of no set")
def one_bucket_size_is_wrong() -> Tape:
    return sizes(B, [9, 9])


@leaves_open("NAME-3")
def one_bucket_size() -> Tape:
    return sizes(B)


def unchanged(kind: str, rule: str) -> None:
    holds(rule)(lambda: push(kind, 200, A, before=A))
    breaks(rule, "400")(lambda: push(kind, 400, A, before=A, message="no"))
    breaks(rule, "after [2, 2]")(lambda: push(kind, 200, B, before=A))


def gives(kind: str, rule: str, right: list[int], seeds: tuple[int, ...], wrong: list[int]) -> None:
    holds(rule)(lambda: push(kind, 200, right, seeds))
    breaks(rule)(lambda: push(kind, 200, wrong, seeds))
    leaves_open(rule)(lambda: push(kind, 200, None, seeds))


def kills(kind: str, rule: str) -> None:
    holds(rule)(lambda: push(kind, None, None))
    breaks(rule, "200")(lambda: push(kind, 200, None))


unchanged("unknown-name", "NAME-51")
kills("direct-unknown-name", "NAME-52")
gives("half", "NAME-53", [9, 9], (), B)
gives("cast", "NAME-54", B, (1,), [9, 9])
kills("wrong-length", "NAME-55")
gives("mixed", "NAME-56", B, (1,), [9, 9])
unchanged("no-tensors", "NAME-57")
gives("direct", "NAME-58", B, (1,), A)
