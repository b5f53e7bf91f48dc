from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_rank import PROMPT, A, B, push
from tests.conformance.tape import Tape


def round_trip(tokens: list[int] | None, *, old: list[int] = A) -> Tape:
    tape = Tape()
    tape.expect(0, old, PROMPT)
    tape.expect(1, B, PROMPT)
    with tape.refit(seed=1):
        tape.bucket()
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


@holds("VERIF-1")
def content_is_equal() -> Tape:
    return round_trip(B)


@breaks("VERIF-1", "of seeds [0]")
def nothing_arrived() -> Tape:
    return round_trip(A)


@breaks("VERIF-1", "of no set")
def garbage_arrived() -> Tape:
    return round_trip([7, 7])


@leaves_open("VERIF-1")
def a_blind_canary() -> Tape:
    return round_trip(B, old=B)


@holds("VERIF-2")
def every_tensor_shows() -> Tape:
    return push("omitted", 200, [9, 9], seed=1, tensor="model.norm.weight")


@breaks("VERIF-2", "complete set")
def a_tensor_does_not_show() -> Tape:
    return push("omitted", 200, B, seed=1, tensor="model.norm.weight")


def bogus(message: str) -> Tape:
    tape = Tape()
    tape.message("weights_checker", 400, message, {"action": "bogus"})
    return tape


def read_back(body: object, *, status: int = 200, seed: int = 1) -> Tape:
    tape = Tape()
    with tape.refit(seed=1):
        tape.bucket()
    tape.fact("stored", tensor="x", seed=seed, rows=[[0.5, 1.0]])
    tape.call("get_weights_by_name", {"name": "x"}, status, body)
    return tape


@holds("VERIF-3")
def as_the_policy_has_it() -> Tape:
    return read_back([[0.5, 1.0]])


@breaks("VERIF-3", "1.01, and 0 more")
def one_number_off() -> Tape:
    return read_back([[0.5, 1.01]])


@breaks("VERIF-3", "(2,) of x")
def a_row_instead() -> Tape:
    return read_back([0.5, 1.0])


@breaks("VERIF-3", "no numbers for x")
def no_numbers() -> Tape:
    return read_back([["a", None]])


@leaves_open("VERIF-3")
def names_that_the_model_cannot_give() -> Tape:
    return read_back({"error": {"message": "Get parameter by name failed"}}, status=400)


@leaves_open("VERIF-3")
def of_another_refit() -> Tape:
    return read_back([[0.5, 1.01]], seed=2)


@holds("VERIF-51")
def bogus_action() -> Tape:
    return bogus("Unsupported action='bogus'")


@breaks("VERIF-51", "what?")
def bogus_action_in_other_words() -> Tape:
    return bogus("what?")


def checksums(*pairs: tuple[int, list[str]]) -> Tape:
    tape = Tape(tp=2)
    for seed, sums in pairs:
        tape.fact("holds", seed=seed)
        tape.call("weights_checker", {}, body={"success": True, "ranks": [{"per_gpu_checksum": s} for s in sums]})
    return tape


@holds("VERIF-52")
def checksum_follows() -> Tape:
    return checksums((0, ["a", "b"]), (1, ["c", "d"]), (0, ["a", "b"]))


@breaks("VERIF-52", "have the same")
def checksum_is_constant() -> Tape:
    return checksums((0, ["a", "b"]), (1, ["a", "b"]))


@breaks("VERIF-52", "('x', 'b')")
def checksum_is_random() -> Tape:
    return checksums((0, ["a", "b"]), (1, ["c", "d"]), (0, ["x", "b"]))


@breaks("VERIF-52")
def checksum_of_one_rank() -> Tape:
    return checksums((0, ["a"]))


def by_name(first: float | None, status: int, body: object) -> Tape:
    tape = Tape()
    tape.fact("by_name", first=first)
    tape.call("get_weights_by_name", {"name": "x"}, status, body)
    return tape


@holds("VERIF-53")
def read_by_name() -> Tape:
    return by_name(0.5, 200, [[0.5, 1.0]])


@holds("VERIF-53")
def unknown_name() -> Tape:
    return by_name(None, 400, {"error": {"message": "Get parameter by name failed"}})


@breaks("VERIF-53", "200 0.25")
def other_values() -> Tape:
    return by_name(0.5, 200, [[0.25]])


def gate(
    *, theirs: float, ours: float = -1.0, seed: int = 1, ok: bool = True, tokens: tuple[int, ...] = (2, 2)
) -> Tape:
    tape = Tape()
    with tape.refit(seed=1, error="" if ok else "no"):
        tape.bucket()
    tape.gen([2, 2], prompt=(5, 6), origin="traffic", logprobs=[ours, ours])
    tape.fact("scored", seed=seed, prompt=[5, 6], tokens=list(tokens), logprobs=[theirs] * len(tokens))
    return tape


@holds("VERIF-4")
def trainer_and_engine_agree() -> Tape:
    return gate(theirs=-1.01)


@breaks("VERIF-4", "token_mult_prob_error 1.0513")
def trainer_and_engine_differ() -> Tape:
    return gate(theirs=-1.05)


@breaks("VERIF-4", "token_mult_prob_error 1.0513")
def they_differ_the_other_way() -> Tape:
    return gate(theirs=-0.95)


@leaves_open("VERIF-4")
def scored_after_a_failure() -> Tape:
    return gate(theirs=-9.0, ok=False)


@leaves_open("VERIF-4")
def scored_by_another_policy() -> Tape:
    return gate(theirs=-9.0, seed=2)


@leaves_open("VERIF-4")
def scored_for_another_answer() -> Tape:
    return gate(theirs=-9.0, tokens=(2, 3))
