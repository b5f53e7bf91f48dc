from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

UPDATES = {"tensor": "update_weights_from_tensor", "distributed": "update_weights_from_distributed"}


def built(refused: str, *, before: bool = False, used: str = "", **about: Any) -> Tape:
    tape = Tape()
    tape.fact("construct", engine="", setup={}, refused="", transport="tensor")
    tape.sut(UPDATES["tensor"], {})
    tape.fact("closing", engine="")
    tape.sut("destroy_weights_update_group", {})
    if before:
        tape.sut("pause_generation", {})
    tape.fact("construct", engine="", setup={"colocated": True}, refused=refused, **about)
    if used:
        tape.sut(UPDATES[used], {})
    return tape


@holds("GUARD-1", "GUARD-2")
def refused_by_name() -> Tape:
    return built("BadSetup: kv_scales are refused", names="kv_scales")


@breaks("GUARD-1", "set up without a word")
def taken() -> Tape:
    return built("", names="kv_scales")


@breaks("GUARD-1", "refused: KeyError")
def refused_without_its_name() -> Tape:
    return built("KeyError", names="kv_scales")


@breaks("GUARD-1", "pause_generation")
def refused_too_late() -> Tape:
    return built("BadSetup: kv_scales", names="kv_scales", before=True)


@holds("GUARD-3")
@leaves_open("GUARD-1")
def a_key_is_missing() -> Tape:
    return built("BadSetup: the setup lacks colocated", names="colocated", missing="colocated")


@breaks("GUARD-3", "without a word")
def a_key_is_guessed() -> Tape:
    return built("", names="colocated", missing="colocated")


@holds("GUARD-2")
def a_contradiction_is_refused() -> Tape:
    return built("BadSetup: contradicts", transport="", names="tensor")


@breaks("GUARD-2", "was taken, and sent by distributed")
def a_contradiction_is_taken() -> Tape:
    return built("", transport="", names="tensor", used="distributed")


@breaks("GUARD-2", "sent by tensor")
def another_transport() -> Tape:
    return built("", transport="distributed", used="tensor")


@breaks("GUARD-2", "refused: no")
def what_works_is_refused() -> Tape:
    return built("no", transport="distributed")


def received(used_nixl: bool, transport: str) -> Tape:
    tape = Tape()
    tape.fact("construct", engine="", setup={}, refused="", transport=transport)
    if used_nixl:
        tape.trainer("nixl_transfer", agent="a", regions=[0])
    tape.sut(UPDATES["tensor"], {})
    return tape


@holds("GUARD-2")
def receivers_post_what_they_got() -> Tape:
    return received(True, "checkpoint-engine")


@breaks("GUARD-2", "sent by checkpoint-engine")
def receivers_where_tensors_were_asked_for() -> Tape:
    return received(True, "tensor")


@breaks("GUARD-2", "sent by tensor")
def tensors_where_receivers_were_asked_for() -> Tape:
    return received(False, "checkpoint-engine")
