from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

SUMS = {
    "model.norm.weight": "t0",
    "model.embed_tokens.weight": "e0",
    "draft.model.fc.weight": "d0",
    "draft.lm_head.weight": "h0",
}


def look(tape: Tape, *, target: str = "t0", draft: str = "d0", ranks: int = 2, last: str = "", **rest: Any) -> None:
    """`last`: the draft of the last rank."""
    found = []
    for rank in range(ranks):
        own = last if last and rank == ranks - 1 else draft
        found.append({"checksums": {**SUMS, "model.norm.weight": target, "draft.model.fc.weight": own}})
    tape.call(
        "weights_checker", {"action": "checksum"}, 200, {"success": True, "message": "Success.", "ranks": found}, **rest
    )


def pushed(*steps: tuple[str, str, str], fact: str = "push") -> Tape:
    """Steps: kind, what the target is afterwards, what the draft is."""
    tape = Tape()
    look(tape)
    for kind, target, draft in steps:
        tape.fact(fact, kind=kind)
        tape.bucket()
        look(tape, target=target, draft=draft)
    return tape


@holds("DRAFT-51")
def each_selector() -> Tape:
    return pushed(("draft-all", "t1", "d1"), ("draft-target", "t2", "d1"), ("draft-draft", "t2", "d2"))


@breaks("DRAFT-51", "target and draft")
def the_target_alone_is_both() -> Tape:
    return pushed(("draft-all", "t1", "d1"), ("draft-target", "t2", "d2"), ("draft-draft", "t2", "d3"))


@breaks("DRAFT-51", "nothing")
def the_draft_alone_is_nobody() -> Tape:
    return pushed(("draft-all", "t1", "d1"), ("draft-target", "t2", "d1"), ("draft-draft", "t2", "d1"))


@leaves_open("DRAFT-51", "DRAFT-52")
def one_of_them_was_not_tried() -> Tape:
    return pushed(("draft-all", "t1", "d1"))


@holds("DRAFT-52")
def with_and_without() -> Tape:
    return pushed(("draft-all", "t1", "d1"), ("draft-target", "t2", "d1"))


@breaks("DRAFT-52", "target and draft")
def always_with() -> Tape:
    return pushed(("draft-all", "t1", "d1"), ("draft-target", "t2", "d2"))


@holds("DRAFT-53")
def it_goes_stale() -> Tape:
    return pushed(("draft-stale", "t1", "d0"))


@breaks("DRAFT-53", "target and draft")
def it_does_not_go_stale() -> Tape:
    return pushed(("draft-stale", "t1", "d1"))


@holds("DRAFT-54")
def it_hears() -> Tape:
    return pushed(("draft-group", "t1", "d1"))


@breaks("DRAFT-54", "a change of target")
def it_hears_nothing() -> Tape:
    return pushed(("draft-group", "t1", "d0"))


@holds("DRAFT-55")
def spoilt_by_a_session_for_all() -> Tape:
    return pushed(("frozen-apart", "t0", "d0"), ("frozen-in-all", "t0", "d1"))


@breaks("DRAFT-55", "draft")
def spoilt_by_any() -> Tape:
    return pushed(("frozen-apart", "t0", "d1"), ("frozen-in-all", "t0", "d2"))


@breaks("DRAFT-55", "nothing")
def spoilt_by_none() -> Tape:
    return pushed(("frozen-apart", "t0", "d0"), ("frozen-in-all", "t0", "d0"))


@holds("DRAFT-56")
def gone() -> Tape:
    return pushed(("", "t0", "z"), fact="away")


@breaks("DRAFT-56", "nothing")
def not_gone() -> Tape:
    return pushed(("", "t0", "d0"), fact="away")


@breaks("DRAFT-56", "target")
def the_target_is_gone() -> Tape:
    return pushed(("", "z", "z"), fact="away")


def refitted(draft: str, *, error: str = "", last: str = "") -> Tape:
    tape = Tape()
    with tape.refit(error=error):
        tape.bucket()
    tape.fact("draft_sums", sums={"draft.model.fc.weight": "d1"})
    look(tape, draft=draft, last=last)
    return tape


@holds("DRAFT-1")
def it_follows() -> Tape:
    return refitted("d1")


@breaks("DRAFT-1", "draft.model.fc.weight of rank 0 is another")
def it_stays_behind() -> Tape:
    return refitted("d0")


@breaks("DRAFT-1", "of rank 1 is another")
def it_stays_behind_on_one_rank() -> Tape:
    return refitted("d1", last="d0")


@leaves_open("DRAFT-1")
def the_refit_failed() -> Tape:
    return refitted("d0", error="no")
