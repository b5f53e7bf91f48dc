from __future__ import annotations

from typing import Any

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

LOAD, UNLOAD = "load_lora_adapter_from_tensors", "unload_lora_adapter"
BASE, ONE, TWO, PROMPT = [1, 1], [2, 2], [3, 3], (5, 6)


def known(*, base: int = 0) -> Tape:
    tape = Tape()
    tape.fact("base", seed=base)
    for seed in (0, 1):
        for adapter, tokens in ((None, BASE), (1, ONE), (2, TWO)):
            found = [token + 10 * seed for token in tokens]
            tape.fact("adapter_truth", base=seed, adapter=adapter, prompt=PROMPT, tokens=found, logprobs=[-1.0, -1.0])
    return tape


def load(
    tape: Tape,
    name: str,
    status: int | None = 200,
    *,
    sut: bool = False,
    loaded: tuple[str, ...] = (),
    says: str = "no",
    **rest: Any,
) -> int:
    body: Any = {"success": True, "error_message": "", "loaded_adapters": dict.fromkeys((name, *loaded), "__tensor__")}
    if status != 200:
        body = {"success": False, "error_message": says, "loaded_adapters": {}}
    origin = "sut" if sut else "probe"
    return tape.call(LOAD, {"lora_name": name}, status, body if status else ..., origin=origin, **rest)


def unload(tape: Tape, name: str, status: int | None = 200, *, says: str = "no", **rest: Any) -> int:
    body = {"success": status == 200, "error_message": "" if status == 200 else says, "loaded_adapters": None}
    return tape.call(UNLOAD, {"lora_name": name}, status, body if status else ..., **rest)


def use(tape: Tape, name: str, tokens: list[int], *, origin: str = "traffic", cached: int = 0, **rest: Any) -> int:
    request: dict[str, Any] = {"input_ids": list(PROMPT)}
    if name:
        request["lora_path"] = name
    return tape.call("generate", request, 200, tape.answer(tokens, cached=cached), origin=origin, **rest)


def refused(tape: Tape, says: str, *, name: str = "x", origin: str = "probe") -> None:
    tape.call("generate", {"input_ids": [1], "lora_path": name}, 400, {"error": {"message": says}}, origin=origin)


def pushes(*names: str, rollout: str = "", tokens: list[int] = ONE, give_back: bool = True) -> Tape:
    tape = known()
    for number, name in enumerate(names, 1):
        with tape.refit(number, seed=1):
            load(tape, name, sut=True)
            if give_back and number > 2:
                unload(tape, names[number - 3], origin="sut")
    if rollout:
        use(tape, rollout, tokens, origin="sut")
    return tape


@holds("LORA-1", "LORA-2", "LORA-5")
def two_steps() -> Tape:
    return pushes("a", "b", rollout="b")


@holds("LORA-2")
def three_steps() -> Tape:
    return pushes("a", "b", "c")


@breaks("LORA-2", "3: a, b, c")
def nothing_is_given_back() -> Tape:
    return pushes("a", "b", "c", give_back=False)


@holds("LORA-2")
def the_oldest_is_still_used() -> Tape:
    tape = known()
    running = 0
    for number, name in enumerate(("a", "b", "c"), 1):
        with tape.refit(number, seed=1):
            load(tape, name, sut=True)
        if name == "a":
            running = tape.start("generate", {"input_ids": [1], "lora_path": "a"}, origin="traffic")
    tape.finish(running, 200, tape.answer(ONE))
    return tape


@breaks("LORA-1", "got 400")
def a_name_that_nobody_loaded() -> Tape:
    tape = pushes("a")
    refused(
        tape,
        "Got LoRA adapter that has never been loaded: default\nAll loaded adapters: dict_keys(['a']).",
        origin="sut",
    )
    return tape


@breaks("LORA-1", "got 400")
def a_name_that_was_given_back() -> Tape:
    tape = pushes("a")
    unload(tape, "a", origin="sut")
    refused(tape, "Failed to implicitly load LoRA adapter a: no", name="a", origin="sut")
    return tape


@breaks("LORA-1", "b was not loaded when")
def used_before_the_load_is_answered() -> Tape:
    tape = pushes("a")
    call = tape.start(LOAD, {"lora_name": "b"}, origin="sut")
    request = tape.start("generate", {"input_ids": [1], "lora_path": "b"}, origin="sut")
    tape.finish(call)
    tape.finish(request, 200, tape.answer(ONE))
    return tape


@breaks("LORA-5", "[3, 3]")
def answers_of_another_adapter() -> Tape:
    return pushes("a", rollout="a", tokens=TWO)


@leaves_open("LORA-1", "LORA-2", "LORA-3", "LORA-4", "LORA-5")
def nothing_of_adapters() -> Tape:
    tape = known()
    with tape.refit():
        tape.bucket()
    use(tape, "", BASE)
    return tape


def unloads(*, paused: str) -> Tape:
    tape = pushes("a")
    if paused:
        tape.sut("pause_generation", {"mode": paused})
    unload(tape, "a", origin="sut")
    return tape


@holds("LORA-3")
def unloaded_while_it_runs() -> Tape:
    return unloads(paused="")


@holds("LORA-3")
def unloaded_where_nothing_runs() -> Tape:
    return unloads(paused="abort")


@breaks("LORA-3", "it is paused (retract)")
def unloaded_while_requests_stand_still() -> Tape:
    return unloads(paused="retract")


def one_load_fails(status: int | None, *, error: str) -> Tape:
    tape = known()
    with tape.refit(error=error) if error else tape.refit():
        load(tape, "a", status, sut=True, **({} if status else {"error": "timeout"}))
    return tape


@holds("LORA-4")
def a_refusal_is_told() -> Tape:
    return one_load_fails(400, error="no")


@breaks("LORA-4", "reported success")
def a_refusal_is_not_told() -> Tape:
    return one_load_fails(400, error="")


@breaks("LORA-4", "reported success")
def an_answer_that_never_came_is_not_told() -> Tape:
    return one_load_fails(None, error="")
