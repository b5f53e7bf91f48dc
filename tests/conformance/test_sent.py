"""A verdict about wrong content names the tensors that never reached the engine, where anybody recorded it."""

from __future__ import annotations

import pytest

from conformance.refits import parts
from conformance.rules import all_rules
from conformance.sent import listed, never_sent
from tests.conformance.judged_rank import PROMPT, A, B, truth
from tests.conformance.tape import Tape

RULES = {rule.id: rule for rule in all_rules()}
NAMES = ["embed", "q", "k", "v", "o", "norm"]


def half_sent(*, recorded: bool = True, core: bool = False, status: int = 200, tokens: list[int] | None = None) -> Tape:
    """Six tensors in the state, two in the only bucket."""
    tape = Tape()
    truth(tape)
    with tape.refit(names=NAMES):
        if recorded:
            tape.trainer("export", sha256="p0", names=NAMES[:2], consumers=[["e0", 0]])
        tape.bucket(("p0",), status=status)
        if core:
            tape.fact("load", source="core", names=NAMES[:3], rank=0)
    tape.gen([9, 9] if tokens is None else tokens, prompt=PROMPT, origin="traffic")
    return tape


@pytest.mark.parametrize("rule", ["NAME-2", "VERIF-1"])
def test_the_trainers_records_name_what_was_never_sent(rule: str) -> None:
    tape = half_sent()
    with tape.refit(2, "2", error="the state is empty", names=[]):
        tape.fact("state", engine="", index=2, kinds=["empty"])
    verdict = RULES[rule].judge(tape.history)
    assert verdict.status == "violated"
    assert "of no set; never sent: k, v, o and 1 more" in verdict.actual


def test_without_records_the_verdict_stays_and_says_no_cause() -> None:
    verdict = RULES["VERIF-1"].judge(half_sent(recorded=False).history)
    assert verdict.status == "violated"
    assert verdict.actual == "[9, 9], of no set"


def test_a_fakes_own_facts_tell_it_where_no_trainer_did() -> None:
    (part,) = parts(half_sent(recorded=False, core=True).history)
    assert never_sent(part, half_sent(recorded=False, core=True).history) == ("v", "o", "norm")


def test_a_bucket_that_was_refused_brought_nothing() -> None:
    history = half_sent(status=400).history
    (part,) = parts(history)
    assert never_sent(part, history) == tuple(NAMES)


def test_a_label_on_half_a_set_says_which_half() -> None:
    tape = Tape()
    truth(tape)
    with tape.refit(names=NAMES):
        tape.trainer("export", sha256="p0", names=NAMES[:5], consumers=[["e0", 0]])
        tape.bucket(("p0",))
    tape.gen(A, prompt=PROMPT, origin="traffic", label="1")
    verdict = RULES["VER-4"].judge(tape.history)
    assert verdict.actual.endswith("is an answer of seed 0; never sent: norm")
    assert B != A


def test_where_no_update_was_sent_no_tensor_was() -> None:
    tape = Tape()
    with tape.refit(names=NAMES):
        tape.sut("flush_cache")
    (part,) = parts(tape.history)
    assert never_sent(part, tape.history) == tuple(NAMES)


@pytest.mark.parametrize(("count", "text"), [(1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more")])
def test_three_names_and_how_many_more(count: int, text: str) -> None:
    assert listed(str(n) for n in range(count)) == text


def test_where_fresh_prompts_are_wrong_too_an_empty_cache_is_not_accused() -> None:
    tape = Tape()
    other = (4, 5, 6)
    truth(tape)
    for seed, tokens in ((0, A), (1, B)):
        tape.expect(seed, tokens, prompt=other)
    tape.gen(A, prompt=PROMPT, origin="traffic")
    with tape.refit():
        tape.bucket()
    tape.gen([9, 9], prompt=other, origin="traffic")
    tape.gen([9, 9], prompt=PROMPT, origin="traffic")
    assert RULES["CACHE-4"].judge(tape.history).status == "inconclusive"
    assert RULES["VERIF-1"].judge(tape.history).status == "violated"
