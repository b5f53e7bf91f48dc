from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_guard import built
from tests.conformance.judged_rank import PROMPT, A, B, push, truth
from tests.conformance.tape import Tape

WEIGHT = "model.layers.0.mlp.down_proj.weight"
SCALE = WEIGHT + "_scale_inv"


def refits(*tokens: list[int], seeds: tuple[int, ...] = ()) -> Tape:
    """One refit per answer, of seed 1 unless told."""
    tape = Tape()
    truth(tape)
    for index, said in enumerate(tokens):
        with tape.refit(index, seed=(seeds or (1,) * len(tokens))[index]):
            tape.bucket()
        tape.expect(0, A, (7, index))
        tape.expect(1, B, (7, index))
        tape.gen(said, prompt=(7, index), origin="traffic")
    return tape


@holds("DERIV-1")
def derived() -> Tape:
    return refits(B)


@breaks("DERIV-1", "of seeds [0]")
def not_derived() -> Tape:
    return refits(A)


@holds("DERIV-3")
def the_same() -> Tape:
    return refits(B, B)


@breaks("DERIV-3", "of no set")
def not_the_same() -> Tape:
    return refits(B, [3, 3])


@leaves_open("DERIV-3")
def another_set() -> Tape:
    return refits(A, B, seeds=(0, 1))


def exports(*named: tuple[str, ...]) -> Tape:
    tape = Tape()
    with tape.refit():
        for number, names in enumerate(named):
            tape.trainer("export", export=number, sha256=f"p{number}", consumers=[["e0", 0]], names=list(names))
            tape.bucket((f"p{number}",))
    return tape


@holds("DERIV-2")
def together() -> Tape:
    return exports(("model.norm.weight",), (WEIGHT, SCALE))


@breaks("DERIV-2", "without its other half")
def apart() -> Tape:
    return exports((WEIGHT,), (SCALE,))


@breaks("DERIV-2", "exported twice")
def twice() -> Tape:
    return exports((WEIGHT, SCALE), (SCALE, WEIGHT))


@leaves_open("DERIV-2")
def nothing_quantised() -> Tape:
    return exports((WEIGHT,))


@holds("DERIV-4")
def refused() -> Tape:
    return built("BadSetup: quantisation scheme 'mxpf8' is none of", names="mxpf8")


@breaks("DERIV-4", "set up without a word")
def taken() -> Tape:
    return built("", names="mxpf8")


def loaded(rule: str, kind: str, seeds: tuple[int, ...], right: list[int], wrong: list[int]) -> None:
    def good() -> Tape:
        return push(kind, 200, right, seeds)

    def bad() -> Tape:
        return push(kind, 200, wrong, seeds)

    def refused_() -> Tape:
        return push(kind, 400, None, seeds)

    holds(rule)(good)
    breaks(rule)(bad)
    breaks(rule, "400")(refused_)


loaded("DERIV-51", "derived-whole", (1,), B, A)
loaded("DERIV-52", "derived-never", (), [3, 3], B)
loaded("DERIV-54", "derived-part", (), [3, 3], A)
loaded("DERIV-55", "derived-disk", (1,), B, A)


def session(tokens: list[int], *, empty: bool = True) -> Tape:
    tape = Tape()
    truth(tape)
    if empty:
        tape.fact("empty_session")
    tape.call("begin_weight_update", {})
    tape.call("end_weight_update", {})
    tape.gen(tokens, prompt=PROMPT)
    return tape


@holds("DERIV-53")
def spoilt() -> Tape:
    return session([3, 3])


@breaks("DERIV-53", "that of seeds [0]")
def not_spoilt() -> Tape:
    return session(A)


@leaves_open("DERIV-53")
def a_session_that_may_have_brought_everything() -> Tape:
    return session(A, empty=False)


@leaves_open("DERIV-53")
def nobody_asked() -> Tape:
    tape = Tape()
    truth(tape)
    tape.fact("empty_session")
    tape.gen(A, prompt=PROMPT)
    tape.call("end_weight_update", {})
    return tape


def cast_and_mended(cast: list[int], mended: list[int], status: int = 200) -> Tape:
    tape = push("derived-bf16", status, cast)
    tape.fact("push", kind="derived-mended", seeds=[1])
    tape.message("update_weights_from_tensor", 200, "Success", {})
    tape.gen(mended, prompt=PROMPT)
    return tape


@holds("DERIV-56")
def bfloat16_cast() -> Tape:
    return cast_and_mended([3, 3], B)


@breaks("DERIV-56", "400")
def bfloat16_refused() -> Tape:
    return cast_and_mended([3, 3], B, 400)


@breaks("DERIV-56", "of seeds [1]")
def bfloat16_understood() -> Tape:
    return cast_and_mended(B, B)


@breaks("DERIV-56", "of seeds []")
def bfloat16_not_mended() -> Tape:
    return cast_and_mended([3, 3], [3, 3])


@holds("DERIV-57")
def dead_of_a_second_set() -> Tape:
    return push("derived-tensor", None, None)


@breaks("DERIV-57", "200")
def a_second_set_taken() -> Tape:
    return push("derived-tensor", 200, None)


def empty_session(kind: str, op: str, status: int | None) -> Tape:
    tape = Tape()
    tape.call("begin_weight_update", {})
    tape.fact("asked", kind=kind)
    tape.call(op, {"input_ids": [1]} if op == "generate" else {}, status, error="dropped" if status is None else "")
    return tape


@holds("DERIV-58")
def dead_of_a_transpose() -> Tape:
    return empty_session("turned", "generate", None)


@breaks("DERIV-58", "200")
def alive_after_a_transpose() -> Tape:
    return empty_session("turned", "generate", 200)


@holds("DERIV-59")
def dead_of_an_end() -> Tape:
    return empty_session("quantised-again", "end_weight_update", None)


@breaks("DERIV-59", "200")
def alive_after_an_end() -> Tape:
    return empty_session("quantised-again", "end_weight_update", 200)


loaded("DERIV-60", "derived-llama", (), [3, 3], B)
