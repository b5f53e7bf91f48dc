from __future__ import annotations

from tests.conformance.judged import breaks, holds
from tests.conformance.judged_lora import BASE, LOAD, ONE, TWO, UNLOAD, known, load, refused, unload, use
from tests.conformance.tape import Tape


def loads(*uses: tuple[str, list[int]], listed: bool = True) -> Tape:
    tape = known()
    for name, seed in (("one", 1), ("two", 2)):
        tape.fact("adapter", lora_name=name, adapter=seed)
        if listed:
            load(tape, name)
        else:
            tape.call(LOAD, {"lora_name": name}, 200, {"success": True, "error_message": "", "loaded_adapters": {}})
    for name, tokens in uses:
        use(tape, name, tokens)
    return tape


@holds("LORA-51")
def three_answers() -> Tape:
    return loads(("", BASE), ("one", ONE), ("two", TWO))


@breaks("LORA-51", "[1, 1]")
def the_base_answers_for_it() -> Tape:
    return loads(("one", BASE))


@breaks("LORA-51", "[2, 2]")
def it_answers_for_the_base() -> Tape:
    return loads(("", ONE))


@breaks("LORA-51", "200")
def it_is_not_listed() -> Tape:
    return loads(("one", ONE), listed=False)


def taken(status: int, tokens: list[int]) -> Tape:
    tape = known()
    tape.fact("adapter", lora_name="one", adapter=1)
    load(tape, "one")
    tape.fact("asked", kind="taken")
    load(tape, "one", status, says="Failed to load LoRA adapter one because it is already loaded")
    use(tape, "one", tokens)
    return tape


@holds("LORA-52")
def a_name_is_taken() -> Tape:
    return taken(400, ONE)


@breaks("LORA-52", "200")
def a_name_is_taken_over() -> Tape:
    return taken(200, ONE)


@breaks("LORA-52", "[3, 3]")
def a_name_is_refused_and_taken_over() -> Tape:
    return taken(400, TWO)


def used(*, waits: bool, whole: bool = True, gone: bool = True) -> Tape:
    tape = known()
    load(tape, "one")
    request = tape.start("generate", {"input_ids": [1], "lora_path": "one"}, origin="traffic")
    tape.fact("asked", kind="in-use")
    call = tape.start(UNLOAD, {"lora_name": "one"})
    done = {"success": True, "error_message": "", "loaded_adapters": {}}
    if not waits:
        tape.finish(call, 200, done)
    tape.finish(request, 200, tape.answer(ONE, finish="length" if whole else "abort"))
    if waits:
        tape.finish(call, 200, done)
    tape.fact("asked", kind="gone")
    if gone:
        refused(tape, "Failed to implicitly load LoRA adapter one: no", name="one")
    else:
        use(tape, "one", ONE, origin="probe")
    return tape


@holds("LORA-53")
def an_unload_waits() -> Tape:
    return used(waits=True)


@breaks("LORA-53", "before")
def an_unload_waits_for_nobody() -> Tape:
    return used(waits=False)


@breaks("LORA-53", "")
def an_unload_aborts() -> Tape:
    return used(waits=True, whole=False)


@breaks("LORA-53", "200")
def it_is_still_there() -> Tape:
    return used(waits=True, gone=False)


def unknown(*, request: bool, release: bool) -> Tape:
    tape = known()
    tape.fact("asked", kind="unknown")
    if request:
        refused(
            tape,
            "Got LoRA adapter that has never been loaded: nobody\nAll loaded adapters: dict_keys([]).",
            name="nobody",
        )
    else:
        use(tape, "nobody", BASE, origin="probe")
    tape.fact("asked", kind="unload-unknown")
    status = 400 if release else 200
    unload(tape, "nobody", status, says="LoRA with name nobody does not exist. Loaded LoRAs: odict_keys([])")
    return tape


@holds("LORA-54")
def nobody_is_refused() -> Tape:
    return unknown(request=True, release=True)


@breaks("LORA-54", "200")
def nobody_is_served() -> Tape:
    return unknown(request=False, release=True)


@breaks("LORA-54", "200")
def nobody_is_unloaded() -> Tape:
    return unknown(request=True, release=False)


UNFIT = {
    "unfit-rank": "LoRA adapter x with rank 16 is incompatible with",
    "unfit-modules": "LoRA adapter x with rank 4 is incompatible with",
    "unfit-dora": "because LoRA serving currently doesn't support DoRA adapters",
}


def unfit(taken: str = "") -> Tape:
    tape = known()
    for kind, says in UNFIT.items():
        tape.fact("asked", kind=kind)
        load(tape, "x", 200 if kind == taken else 400, says=says)
    return tape


@holds("LORA-55")
def none_of_them_fits() -> Tape:
    return unfit()


@breaks("LORA-55", "200")
def any_rank() -> Tape:
    return unfit("unfit-rank")


@breaks("LORA-55", "200")
def any_module() -> Tape:
    return unfit("unfit-modules")


@breaks("LORA-55", "200")
def dora_too() -> Tape:
    return unfit("unfit-dora")


def another_shape(loads: int, *, dies: bool) -> Tape:
    tape = known()
    tape.fact("asked", kind="shape-load")
    load(tape, "small", loads)
    tape.fact("asked", kind="shape-use")
    if dies:
        tape.call("generate", {"lora_path": "small"}, None, error="dropped")
    else:
        use(tape, "small", BASE, origin="probe")
    return tape


@holds("LORA-56")
def its_first_use_kills() -> Tape:
    return another_shape(200, dies=True)


@breaks("LORA-56", "400")
def it_is_refused_when_loaded() -> Tape:
    return another_shape(400, dies=True)


@breaks("LORA-56", "200")
def it_is_used() -> Tape:
    return another_shape(200, dies=False)


def full(*loaded: str, status: int = 200, tokens: list[int] = ONE, gone: bool = True) -> Tape:
    tape = known()
    tape.fact("adapter", lora_name="one", adapter=1)
    load(tape, "one")
    tape.fact("asked", kind="one-too-many")
    load(tape, "three", status, loaded=loaded)
    use(tape, "one", tokens)
    tape.fact("asked", kind="evicted")
    if gone:
        refused(tape, "Failed to implicitly load LoRA adapter two: no", name="two")
    else:
        use(tape, "two", TWO, origin="probe")
    return tape


@holds("LORA-57")
def the_oldest_goes() -> Tape:
    return full("one")


@breaks("LORA-57", "200")
def all_stay() -> Tape:
    return full("one", "two")


@breaks("LORA-57", "400")
def the_newest_is_refused() -> Tape:
    return full(status=400)


@breaks("LORA-57", "[3, 3]")
def the_one_that_stays_is_another() -> Tape:
    return full("one", tokens=TWO)


@breaks("LORA-57", "200")
def it_comes_back() -> Tape:
    return full("one", gone=False)


def new_base(tokens: list[int]) -> Tape:
    tape = known()
    tape.fact("adapter", lora_name="one", adapter=1)
    load(tape, "one")
    use(tape, "one", ONE)
    tape.fact("base", seed=1)
    tape.bucket()
    use(tape, "one", tokens)
    return tape


@holds("LORA-58")
def the_new_base_and_the_adapter() -> Tape:
    return new_base([12, 12])


@breaks("LORA-58", "[11, 11]")
def the_new_base_alone() -> Tape:
    return new_base([11, 11])


@breaks("LORA-58", "[2, 2]")
def the_old_base() -> Tape:
    return new_base(ONE)


def off(load_: int, unload_: int) -> Tape:
    tape = known()
    says = "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."
    tape.fact("asked", kind="off-load")
    load(tape, "one", load_, says=says)
    tape.fact("asked", kind="off-unload")
    unload(tape, "one", unload_, says=says)
    return tape


@holds("LORA-60")
def both_are_refused() -> Tape:
    return off(400, 400)


@breaks("LORA-60", "200")
def loads_are_taken() -> Tape:
    return off(200, 400)


@breaks("LORA-60", "200")
def unloads_are_taken() -> Tape:
    return off(400, 200)


def queued(status: int | None) -> Tape:
    tape = known()
    tape.fact("asked", kind="after-a-queued-abort")
    unload(tape, "one", status, **({} if status else {"error": "timeout"}))
    return tape


@holds("LORA-61")
@breaks("LORA-62", "timeout")
def never_given_back() -> Tape:
    return queued(None)


@holds("LORA-62")
@breaks("LORA-61", "200")
def given_back() -> Tape:
    return queued(200)


def under_a_pause(first: int | None, second: int | None = None, third: int = 400) -> Tape:
    tape = known()
    tape.fact("asked", kind="paused")
    unload(tape, "one", first, **({} if first else {"error": "timeout"}))
    tape.fact("asked", kind="behind-it")
    load(tape, "two", second, **({} if second else {"error": "timeout"}))
    tape.fact("asked", kind="after-it")
    unload(tape, "one", third, says="LoRA with name one does not exist. Loaded LoRAs: odict_keys([])")
    return tape


@holds("LORA-63")
def all_wait() -> Tape:
    return under_a_pause(None)


@breaks("LORA-63", "200")
def the_unload_does_not_wait() -> Tape:
    return under_a_pause(200)


@breaks("LORA-63", "200")
def the_load_does_not_wait() -> Tape:
    return under_a_pause(None, 200)


@breaks("LORA-63", "200")
def the_unload_was_lost() -> Tape:
    return under_a_pause(None, third=200)
