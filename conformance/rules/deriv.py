"""DERIV: what an engine derives from weights, such as the layouts of quantised layers."""

from __future__ import annotations

from collections import Counter

from conformance.content import content
from conformance.exports import exports
from conformance.judging import DIES, Judge, every, said, wrong
from conformance.pushes import push_answered, push_gives
from conformance.refits import Finding, Part, each_part
from conformance.rules.coll import asked
from conformance.rules.guard import refused_by_name
from conformance.rules.make import engine, refit
from conformance.tokens import samples, seeds_of, truths
from harness.history import History
from harness.rules import Verdict, held, violated

FP8 = "layers/quantization/fp8.py"
LOADER = "model_loader/loader.py:1079@0.5.23"
SCALE = "_scale_inv"
UNSEEN = "an update shows digests only: which tensors share a bucket is told by the trainer's records"


def _fresh(part: Part, history: History) -> Finding | bool:
    return content(part, history, fresh=True)


def _the_same_again(part: Part, history: History) -> Finding | bool:
    """Only refits that bring what the refit before had brought."""
    before = [r.seed for r in history.refits() if r.index == part.refit.index - 1]
    return content(part, history, fresh=True) if before == [part.refit.seed] else False


def _pairs(history: History) -> Verdict:
    """In every refit that succeeded each scale is in the export of its weight, and both come once for each consumer."""
    exercised = 0
    scaled = {str(name) for e in exports(history) for name in e.note.get("names", ()) if str(name).endswith(SCALE)}
    for refit_ in history.refits():
        mine = [e for e in exports(history) if refit_.pos < e.note.pos < refit_.end_pos]
        if not refit_.ok or not mine:
            continue
        seen: Counter[tuple[object, str]] = Counter()
        for export in mine:
            names = {str(name) for name in export.note.get("names", ())}
            seen.update((export.consumers, name) for name in names)
            for scale in scaled:
                weight = scale.removesuffix(SCALE)
                if weight not in names and scale not in names:
                    continue
                exercised += 1
                if not {weight, scale} <= names:
                    told = f"{weight if weight in names else scale} without its other half"
                    return violated(
                        allowed=["both in one bucket"], actual=told, where=str(export.note), exercised=exercised
                    )
        twice = [name for (_, name), times in seen.items() if times > 1 and name.removesuffix(SCALE) + SCALE in scaled]
        if twice:
            told = f"{sorted(twice)[0]} was exported twice"
            return violated(allowed=["once"], actual=told, where=str(mine[-1].note), exercised=exercised)
    return held(exercised)


def _finalised_twice(history: History) -> Verdict:
    """After a session without a bucket (fact `empty_session`) nothing is answered as by a whole set."""
    truth = truths(history)
    exercised = 0
    for call in history.calls("end_weight_update"):
        if not any(n.pos < call.pos for n in history.facts("empty_session", source="harness", engine=call.engine)):
            continue
        for sample in samples(history, engine=call.engine):
            seeds = seeds_of(sample, truth)
            if seeds is None or sample.call.pos < call.end_pos:
                continue
            exercised += 1
            if seeds:
                return wrong(sample.call, ["the answer of no whole set"], exercised, f"that of seeds {sorted(seeds)}")
    return held(exercised)


def _loaded(kind: str) -> Judge:
    return every(push_answered(kind, said(200)), push_gives(kind))


RULES = (
    refit(
        "DERIV-1",
        "When a refit is over, what engines derive from weights follows from the weights that it sent.",
        each_part(_fresh),
        ["verl-project/verl#7519", f"{FP8}:1076@0.5.23"],
        follows=["DERIV-2"],
        mend=(
            "send scales beside their weights in every refit, inside one session, and end it: the end derives what "
            "kernels read"
        ),
    ),
    refit(
        "DERIV-2",
        "A quantised weight and its scale travel in one bucket, once each.",
        _pairs,
        ["NVIDIA-NeMo/RL#3614", "NVIDIA-NeMo/RL#3615"],
        needs=("call", "trainer:export"),
        black_box=UNSEEN,
        mend="treat a weight and its weight_scale_inv as one item when buckets are cut, and send each once",
    ),
    refit(
        "DERIV-3",
        "Refits that bring the same weights leave the same derived state.",
        each_part(_the_same_again),
        ["sgl-project/sglang#28963", "sgl-project/sglang#40586", "sgl-project/sglang#40587"],
        versions=">=0.5.21 || miles",
        mend=(
            "send the whole quantised set in each session, also where little changed: an end derives again for what "
            "was not sent"
        ),
    ),
    refit(
        "DERIV-4",
        "A scheme of quantisation that is missing, misspelt or cannot be sent is refused by name, before any call.",
        refused_by_name,
        ["NVIDIA-NeMo/RL#3612"],
        mend=(
            "check the scheme against the list of those that can be sent before the first call, and raise with its name"
        ),
    ),
    engine(
        "DERIV-51",
        "end_weight_update derives what kernels read from what the session brought.",
        _loaded("derived-whole"),
        [LOADER, f"{FP8}:1076@0.5.23"],
        versions=">=0.5.21 || miles",
        mend="look at process_weights_after_loading at the end of a session: it runs for every quantised module",
    ),
    engine(
        "DERIV-52",
        "Without sessions nothing derives anew after an update from tensors: a 200, and answers of no whole set.",
        _loaded("derived-never"),
        ["managers/scheduler_update_weights_mixin.py@0.5.12.post1", "verl-project/verl#7519"],
        versions="<0.5.21,!=miles",
        mend="look at the tensor path before sessions: nobody calls process_weights_after_loading",
    ),
    engine(
        "DERIV-53",
        "Deriving in place is not idempotent: a session without a bucket spoils what is shuffled where it lies.",
        _finalised_twice,
        [LOADER, f"{FP8}:1058@0.5.23", "sgl-project/sglang#28963"],
        versions=">=0.5.21 || miles",
        mend="look at layouts that are shuffled in place: a second call shuffles the shuffled",
    ),
    engine(
        "DERIV-54",
        "The end of a session derives for every module: those that the session did not bring are spoilt in place.",
        _loaded("derived-part"),
        [LOADER, f"{FP8}:1058@0.5.23"],
        versions=">=0.5.21 || miles",
        mend="look at the loop of the end: it goes over every module, sent or not",
    ),
    engine(
        "DERIV-55",
        "A disk update derives by itself, in every version.",
        _loaded("derived-disk"),
        ["model_executor/model_runner_components/weight_updater.py:190@0.5.23"],
        mend="look at the disk path: it goes through the loader, which derives",
    ),
    engine(
        "DERIV-56",
        "A weight that was not quantised is cast into the place of one that is: a 200, and answers of no whole set.",
        every(_loaded("derived-bf16"), _loaded("derived-mended")),
        ["layers/parameter.py:175@0.5.23", "observed 0.5.23 on an H200"],
        mend="look at the parameter's loader: copy_ casts bf16 to fp8 without a scale",
    ),
    engine(
        "DERIV-57",
        "fp8 with one scale for a tensor is final once it is launched: an update from tensors kills.",
        push_answered("derived-tensor", DIES),
        [f"{FP8}:1256@0.5.23", "models/llama.py:762@0.5.23", "sgl-project/sglang#7421", "observed 0.5.23 on an H200"],
        mend=(
            "look at fp8 with one scale per tensor: weights were transposed at launch, so a load of the plain shape "
            "asserts"
        ),
    ),
    engine(
        "DERIV-58",
        "A session without a bucket transposes fp8 of one scale once more: the next generation kills.",
        asked("turned", DIES),
        [f"{FP8}:1256@0.5.23", "observed 0.5.23 on an H200"],
        versions=">=0.5.21 || miles",
        mend="look at fp8's process_weights_after_loading: each call transposes once more",
    ),
    engine(
        "DERIV-59",
        "What was quantised when it was loaded is quantised again by the end of any session, which kills.",
        asked("quantised-again", DIES),
        [f"{FP8}:1151@0.5.23", "observed 0.5.23 on an H200"],
        versions=">=0.5.21 || miles",
        mend="look at the online quantisation: its second run takes fp8 for a plain weight",
    ),
    engine(
        "DERIV-60",
        "Llama takes scales of blocks for those of tensors and skips them: a 200, and answers of no whole set.",
        _loaded("derived-llama"),
        ["models/llama.py:723@0.5.23", "observed 0.5.23 on an H200"],
        mend="look at llama's load_weights: a weight_scale_inv that is no parameter of the model is skipped",
    ),
)
