from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_lora import BASE, load, unload, use
from tests.conformance.tape import Tape

WARM = (("", 0), ("", 2))
"""The base's prompt is found: this engine caches it."""


def caches(*hits: tuple[str, int]) -> Tape:
    tape = Tape()
    for name, cached in hits:
        use(tape, name, BASE, cached=cached)
    return tape


@holds("LORA-59")
def each_has_its_own() -> Tape:
    return caches(("", 0), ("one", 0), ("two", 0), ("one", 2), ("", 2))


@breaks("LORA-59", "2 cached tokens")
def one_for_all() -> Tape:
    return caches(("", 0), ("one", 2))


@breaks("LORA-59", "2 cached tokens")
def an_adapter_s_for_the_base() -> Tape:
    return caches(("one", 0), ("", 2))


@breaks("LORA-59", "0 cached tokens")
def none_for_adapters() -> Tape:
    return caches(*WARM, ("one", 0), ("one", 0))


@leaves_open("LORA-59")
def nobody_uses_an_adapter() -> Tape:
    return caches(("", 0), ("", 0), ("", 2), ("", 0))


@leaves_open("LORA-59")
def an_engine_that_caches_nothing() -> Tape:
    return caches(("one", 0), ("one", 0))


def between(op: str, request: Any = None, status: int | None = 200, **rest: Any) -> Tape:
    """Of an adapter alone, so that nothing else is judged: it is found, something happens, it is not found."""
    tape = caches(("one", 0), ("one", 2))
    tape.call(op, request, status, **rest)
    use(tape, "one", BASE, cached=0)
    return tape


@breaks("LORA-59", "0 cached tokens")
def lost_at_a_look() -> Tape:
    return between("model_info", method="GET")


@holds("LORA-59")
def flushed_in_between() -> Tape:
    return between("flush_cache")


@holds("LORA-59")
def a_flush_without_an_answer() -> Tape:
    return between("flush_cache", None, None, error="timeout")


@holds("LORA-59")
def updated_in_between() -> Tape:
    return between("update_weights_from_tensor", {"serialized_named_tensors": ["p0"]})


@holds("LORA-59")
def paused_in_between() -> Tape:
    return between("pause_generation", {"mode": "retract"})


@holds("LORA-59")
def pushed_out_by_another_prompt() -> Tape:
    return between("generate", {"input_ids": [7, 8]}, body=Tape.answer(BASE))


@holds("LORA-59")
def loaded_again_in_between() -> Tape:
    tape = caches(("one", 0), ("one", 2))
    unload(tape, "one")
    load(tape, "one")
    use(tape, "one", BASE, cached=0)
    return tape


def after(**answer: Any) -> Tape:
    """The request before was not whole."""
    tape = caches(*WARM)
    tape.call("generate", {"input_ids": [5, 6], "lora_path": "one"}, 200, Tape.answer(BASE, **answer))
    use(tape, "one", BASE, cached=0)
    return tape


@breaks("LORA-59", "0 cached tokens")
def lost_after_a_whole_one() -> Tape:
    return after()


@holds("LORA-59")
def the_one_before_was_aborted() -> Tape:
    return after(finish="abort")


@holds("LORA-59")
def the_one_before_was_retracted() -> Tape:
    return after(retractions=1)


@holds("LORA-59")
def both_at_once() -> Tape:
    tape = caches(*WARM)
    first = tape.start("generate", {"input_ids": [5, 6], "lora_path": "one"})
    use(tape, "one", BASE, cached=0)
    tape.finish(first, 200, tape.answer(BASE))
    return tape


def beside(prompt: list[int]) -> Tape:
    tape = caches(("one", 0), ("one", 2))
    other = tape.start("generate", {"input_ids": prompt})
    use(tape, "one", BASE, cached=0)
    tape.finish(other, 200, tape.answer(BASE))
    return tape


@breaks("LORA-59", "0 cached tokens")
def the_same_prompt_runs_beside_it() -> Tape:
    return beside([5, 6])


@holds("LORA-59")
def something_runs_beside_it() -> Tape:
    return beside([7, 8])


@holds("LORA-59")
def another_namespace() -> Tape:
    tape = caches(("one", 0), ("one", 2))
    request = {"input_ids": [5, 6], "lora_path": "one", "extra_key": "x"}
    tape.call("generate", request, 200, tape.answer(BASE))
    return tape


@holds("LORA-59")
def another_incarnation() -> Tape:
    tape = caches(("one", 0), ("one", 2))
    use(tape, "one", BASE, cached=0, incarnation=1)
    return tape


def begun_by(request: dict[str, Any]) -> Tape:
    """The base had the whole prompt, and a request of the adapter itself may have had its beginning."""
    tape = caches(("", 0))
    tape.call("generate", request, 200, tape.answer(BASE))
    use(tape, "one", BASE, cached=1)
    return tape


@breaks("LORA-59", "1 cached tokens")
def another_prompt_does_not_begin_it() -> Tape:
    return begun_by({"input_ids": [6, 5], "lora_path": "one"})


@breaks("LORA-59", "1 cached tokens")
def nor_does_the_base() -> Tape:
    return begun_by({"input_ids": [5, 9]})


@leaves_open("LORA-59")
def begun_by_its_own() -> Tape:
    return begun_by({"input_ids": [5, 9], "lora_path": "one"})


@leaves_open("LORA-59")
def begun_by_a_text() -> Tape:
    return begun_by({"text": "so", "lora_path": "one"})


@leaves_open("LORA-59")
def begun_by_a_batch() -> Tape:
    return begun_by({"input_ids": [[5, 9], [6]], "lora_path": ["one", None]})


@leaves_open("LORA-59")
def texts_are_not_compared() -> Tape:
    tape = Tape()
    for name, cached in (("one", 0), ("two", 2), ("one", 2), ("one", 0)):
        tape.call("generate", {"text": "so", "lora_path": name}, 200, tape.answer(BASE, cached=cached))
    return tape
