"""LORA: adapters beside the weights. Who uses one, how many there are, and what their requests get."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.adapters import LOAD, UNLOAD
from conformance.judging import Answer, Judge, every, said, wrong
from conformance.lora_cache import adapter_of, apart
from conformance.refits import Finding, Part, each_call, each_part, got, reported
from conformance.rules.coll import asked
from conformance.rules.make import engine, refit
from conformance.tokens import Said, Sample, same, sample_of, samples
from conformance.view import State, died
from harness.history import Call, History, Note
from harness.rules import Verdict, held

TM = "managers/tokenizer_manager.py"
TCM = "managers/tokenizer_control_mixin.py"
AREAL = "areal-project/AReaL#1385"
KEPT = 2
"""Adapters that may lie on an engine after a refit: the new one, and the one that requests may still name."""

SILENCE = Answer("no answer", lambda call: call.status is None and not died(call))
GONE = "Failed to implicitly load LoRA adapter"
Key = tuple[tuple[int, ...], int, int | None]


def _name(call: Call) -> str:
    return str(call.arg("lora_name", ""))


def _truths(history: History) -> dict[Key, Said]:
    """(prompt, seed of the base weights, seed of the adapter) -> what a clean engine answers."""
    out: dict[Key, Said] = {}
    for note in history.facts("adapter_truth", source="harness"):
        key = (tuple(note.get("prompt", ())), int(note.get("base", 0)), note.get("adapter"))
        out[key] = tuple(note.get("tokens", ())), tuple(note.get("logprobs", ()))
    return out


def _last(notes: list[Note], call: Call) -> Note | None:
    before = [note for note in notes if note.pos < call.pos]
    return before[-1] if before else None


def _pushed(history: History, call: Call) -> int | None:
    """The seed of the adapter that the client loaded under the name that a request uses: that of the refit."""
    for refit_ in reversed(history.refits()):
        loads = [c for c in history.during(refit_).calls(LOAD, engine=call.engine) if _name(c) == adapter_of(call)]
        if loads and refit_.pos < call.pos:
            return refit_.seed
    return None


def _wanted(history: History, call: Call, truth: dict[Key, Said]) -> Said | None:
    """What a sample has to be: of the base weights that the scenario says, and of the adapter that it names."""
    base = _last(history.facts("base", source="harness", engine=call.engine), call)
    adapter: int | None = None
    if adapter_of(call):
        note = _last(history.facts("adapter", source="harness", engine=call.engine, lora_name=adapter_of(call)), call)
        adapter = note.get("adapter") if note is not None else _pushed(history, call)
        if adapter is None:
            return None
    seed = int(base.get("seed", 0)) if base is not None else 0
    return truth.get((tuple(call.arg("input_ids") or ()), seed, adapter))


def _gives(when: Callable[[Sample], bool] = lambda _: True) -> Judge:
    """Selected samples are those of base weights and adapter together."""

    def judge(history: History) -> Verdict:
        truth, exercised = _truths(history), 0
        for sample in samples(history):
            wanted = _wanted(history, sample.call, truth)
            if wanted is None or not when(sample):
                continue
            exercised += 1
            if not same(sample.said, wanted):
                right = f"{list(wanted[0])} of adapter {adapter_of(sample.call) or '(none)'}"
                return wrong(sample.call, [right], exercised, str(list(sample.tokens)))
        return held(exercised)

    return judge


def _loaded(*names: str, kind: str = "") -> Judge:
    """A load is answered with the adapters that there are now: its own among them, or exactly `names`."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for call in history.calls(LOAD):
            note = _last(history.facts("asked", source="harness", engine=call.engine), call)
            if call.fault or (kind and (note is None or note.get("kind") != kind)):
                continue
            exercised += 1
            listed = sorted(call.answer("loaded_adapters") or ())
            if call.status != 200 or (listed != sorted(names) if names else _name(call) not in listed):
                return wrong(call, [f"200 with {', '.join(names) or _name(call)} in loaded_adapters"], exercised)
        return held(exercised)

    return judge


def _waits(history: History) -> Verdict:
    """An unload ends after the requests that it found, and these are whole."""
    exercised = 0
    for call in history.calls(UNLOAD):
        for request in history.calls("generate", engine=call.engine):
            if adapter_of(request) != _name(call) or not request.pos < call.pos < request.end_pos:
                continue
            exercised += 1
            sample = sample_of(request)
            if not request.end_pos < call.end_pos or sample is None or sample.finish != "length":
                told = f"{call} had an end before {request}" if sample else f"{request} under {_name(call)}"
                return wrong(call, ["an answer after every request that uses the adapter"], exercised, told)
    return held(exercised)


# -- the client ---------------------------------------------------------------------------------------------------


def _names_what_is_there(call: Call, state: State, history: History) -> Finding | bool:
    """A request of the client under an adapter finds it loaded."""
    name = adapter_of(call)
    if call.op != "generate" or not name or call.fault or state.dead:
        return False
    if call.status == 400 and ("never been loaded" in call.message or GONE in call.message):
        return "a name that is loaded on this engine", got(call), str(call)
    if name not in _resident(history, call.engine, call.incarnation, call.pos):
        return "a name whose load this engine has answered", f"{name} was not loaded when the request left", str(call)
    return None


def _resident(history: History, name: str, incarnation: int, pos: int) -> list[str]:
    """What lies on one incarnation at a place in the history: loads that it confirmed, less the unloads."""
    out: list[str] = []
    for call in history.calls((LOAD, UNLOAD), engine=name, incarnation=incarnation):
        if call.end_pos >= pos or not call.ok:
            continue
        if call.op == LOAD:
            out.append(_name(call))
        elif _name(call) in out:
            out.remove(_name(call))
    return out


def _in_use(history: History, part: Part) -> Iterator[str]:
    for request in history.calls("generate", engine=part.engine):
        if request.pos < part.refit.end_pos < request.end_pos and adapter_of(request):
            yield adapter_of(request)


def _bounded(part: Part, history: History) -> Finding | bool:
    loads = part.op(LOAD)
    if not loads or not part.refit.ok:
        return False
    names = _resident(history, part.engine, part.incarnation, part.refit.end_pos)
    spare = [name for name in names if name not in set(_in_use(history, part))]
    if len(spare) > KEPT:
        return f"at most {KEPT} adapters that no request uses", f"{len(names)}: {', '.join(names)}", str(loads[-1])
    return None


def _unloaded_while_paused(call: Call, state: State, history: History) -> Finding | bool:
    if call.op != UNLOAD:
        return False
    if state.paused in ("retract", "in_place"):
        return "an unload of an engine that runs", f"it is paused ({state.paused}), its requests cannot end", str(call)
    return None


def _refusal_is_told(part: Part, history: History) -> Finding | bool:
    calls = [call for call in part.op(LOAD) if not call.ok]
    if not calls:
        return False
    if part.refit.ok:
        return "an error: an engine has no such adapter", f"{reported(part.refit)}, and {got(calls[0])}", str(calls[0])
    return None


RULES = (
    refit(
        "LORA-1",
        "A request names an adapter that its engine has confirmed and not given back.",
        each_call(_names_what_is_there),
        [AREAL, f"{TM}:3769@0.5.23"],
        mend="send the name that the last refit loaded with every request, and unload a name only when none uses it",
    ),
    refit(
        "LORA-2",
        "Adapters do not pile up: after a refit the new one and the one before are left, and what requests still use.",
        each_part(_bounded),
        [AREAL, f"{TCM}:708@0.5.23"],
        mend="after each load, /unload_lora_adapter every version but the new one and the one before it",
    ),
    refit(
        "LORA-3",
        "No adapter is unloaded on an engine whose requests stand still: the unload waits for them, and loads for it.",
        each_call(_unloaded_while_paused),
        [f"{TCM}:651@0.5.23"],
        mend="load and unload adapters while the engine runs; neither needs a pause",
    ),
    refit(
        "LORA-4",
        "A load that an engine refused or did not answer is a failed refit.",
        each_part(_refusal_is_told),
        [f"{TCM}:739@0.5.23", "lora/lora_manager.py:341@0.5.23"],
        mend="check status and success of every load, on every engine, before requests name the adapter",
    ),
    refit(
        "LORA-5",
        "A request under an adapter gets what the base weights and that very adapter give together.",
        _gives(lambda sample: bool(adapter_of(sample.call))),
        [AREAL, "managers/schedule_batch.py:1165@0.5.23"],
        mend="give every version a name of its own, and send its own tensors, rank and alpha with it",
    ),
    engine(
        "LORA-51",
        "An adapter from tensors is loaded and listed; requests that name it get its answers, the others the base's.",
        every(_loaded(), _gives()),
        [f"{TCM}:745@0.5.23", "lora/torch_ops/lora_ops.py:45@0.5.23"],
        mend="look at what the pool of adapters is filled with: slices of each rank, alpha over r, the module's order",
    ),
    engine(
        "LORA-52",
        "A name that is loaded is refused, and goes on with what it had.",
        every(asked("taken", said(400, contains="because it is already loaded")), _gives()),
        ["lora/lora_manager.py:341@0.5.23"],
        mend="look at the check of names before a load, and that it leaves the adapter of that name alone",
    ),
    engine(
        "LORA-53",
        "An unload waits for the requests that use the adapter; afterwards it is gone.",
        every(_waits, asked("in-use", said(200)), asked("gone", said(400, contains=GONE))),
        ["lora/lora_registry.py:181@0.5.23", f"{TCM}:651@0.5.23"],
        mend="look at the count of requests by adapter: taken when a name is resolved, given back when one ends",
    ),
    engine(
        "LORA-54",
        "A name that was never loaded is refused, in requests and in unloads.",
        every(
            asked("unknown", said(400, contains="Got LoRA adapter that has never been loaded: nobody")),
            asked("unload-unknown", said(400, contains="LoRA with name nobody does not exist")),
        ),
        [f"{TM}:3769@0.5.23", "lora/lora_registry.py:112@0.5.23"],
        mend="look at how a request's name is resolved: never quietly to the base model",
    ),
    engine(
        "LORA-55",
        "An adapter of a higher rank or of other modules than the launch allowed is refused, and so is DoRA.",
        every(
            asked("unfit-rank", said(400, contains="with rank 16 is incompatible")),
            asked("unfit-modules", said(400, contains="with rank 4 is incompatible")),
            asked("unfit-dora", said(400, contains="doesn't support DoRA adapters")),
        ),
        ["lora/lora_manager.py:334,355@0.5.23", "lora/mem_pool.py:238@0.5.23"],
        mend="look at what a load compares with --max-lora-rank and --lora-target-modules",
    ),
    engine(
        "LORA-56",
        "Shapes are looked at when a request first uses an adapter: one that does not fit kills the engine then.",
        every(asked("shape-load", said(200)), asked("shape-use", Answer("no reply: the connection drops", died))),
        ["lora/mem_pool.py:908@0.5.23"],
        mend="look at where weights are copied into the pool of a batch: loads do not compare them with it",
    ),
    engine(
        "LORA-57",
        "Above --max-loaded-loras the adapter goes that was used longest ago; one that came as tensors is lost.",
        every(_loaded("one", "three", kind="one-too-many"), _gives(), asked("evicted", said(400, contains=GONE))),
        [f"{TCM}:708@0.5.23", "lora/lora_registry.py:216@0.5.23"],
        mend="look at the order of use in the registry, and what is kept of an adapter without a path",
    ),
    engine(
        "LORA-58",
        "An update of the base weights leaves adapters loaded, and their requests get the new base with them.",
        _gives(),
        ["lora/layers.py:58@0.5.23"],
        mend="look at which parameters the wrapped layers show to the loader, and that adapters lie apart from them",
    ),
    engine(
        "LORA-59",
        "Cached prefixes of one adapter are used for its requests, not for those of another, nor for the base.",
        apart,
        ["managers/schedule_batch.py:1165@0.5.23"],
        mend="look at the key of the prefix cache: the adapter's id is part of it",
    ),
    engine(
        "LORA-60",
        "An engine that was launched without --enable-lora refuses loads and unloads.",
        every(
            asked("off-load", said(400, contains="LoRA is not enabled")),
            asked("off-unload", said(400, contains="LoRA is not enabled")),
        ),
        [f"{TCM}:669@0.5.23"],
        mend="look at the option before anything else of a load or an unload",
    ),
    engine(
        "LORA-61",
        "A request that is aborted in the queue never gives its adapter back: an unload waits for ever.",
        asked("after-a-queued-abort", SILENCE),
        [f"{TM}:2417@0.5.12.post1", f"{TM}:3370@0.5.21"],
        versions="<0.5.22,!=miles",
        mend="look at how the tokenizer side takes an abort from the queue: the registry hears nothing of it",
    ),
    engine(
        "LORA-62",
        "A request that is aborted in the queue gives its adapter back.",
        asked("after-a-queued-abort", said(200)),
        [f"{TM}:3637@0.5.22"],
        versions=">=0.5.22",
        mend="look at every way in which a request leaves the tokenizer side: each has to tell the registry, once",
    ),
    engine(
        "LORA-63",
        "An unload under a retract pause waits for the continue, and every load waits behind it.",
        every(
            asked("paused", SILENCE),
            asked("behind-it", SILENCE),
            asked("after-it", said(400, contains="does not exist")),
        ),
        [f"{TCM}:651,681@0.5.23"],
        versions=">=0.5.21",
        mend="look at the one lock of loads and unloads, and at requests that a pause put back into the queue",
    ),
)
