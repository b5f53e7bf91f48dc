"""NAME: what the engine does with names, shapes and dtypes, and that a client sends all of them right."""

from __future__ import annotations

from conformance.content import content
from conformance.judging import DIES, Judge, every, said
from conformance.pushes import push_answered, push_gives, push_unchanged
from conformance.receiving import must_fail, one_walk
from conformance.refits import Finding, Part, each_part, fleet_parts, parts, reported
from conformance.rules.make import engine, refit
from conformance.sent import NEVER_SENT, listed, never_sent
from conformance.view import BUCKETS, UPDATE_OPS
from harness.history import History
from harness.rules import Verdict, held, violated

MWU = "model_executor/model_runner_components/weight_updater.py"
LLAMA = "models/llama.py"


def _of_state(kind: str) -> Judge:
    """The content of refits whose policy state the scenario calls `kind` (fact `state` {index, kind})."""

    def judge(history: History) -> Verdict:
        indices = {n.get("index") for n in history.facts("state", source="harness") if kind in n.get("kinds", ())}

        def check(part: Part, h: History) -> Finding | bool:
            if part.refit.index not in indices or not part.buckets:
                return False
            if part.refit.ok is False:
                return False
            return content(part, h)

        return each_part(check)(history)

    return judge


def _complete(part: Part, history: History) -> Finding | bool:
    if not part.refit.ok:
        return False
    if not part.op(*UPDATE_OPS):
        told = f"{reported(part.refit)}, and no update call went to {part.engine}"
        return "a refit that sent something", told, part.where
    return content(part, history)


def _nothing_left_out(part: Part, history: History) -> Finding | bool:
    """Wrong answers, and a name that never came. A client may fuse or rename tensors: names alone are no verdict."""
    found = content(part, history)
    if not isinstance(found, tuple):
        return found
    missing = never_sent(part, history)
    if not missing:
        return False  # wrong for another reason, which is another rule's
    return "every tensor of the policy's state", f"{reported(part.refit)}; {NEVER_SENT}{listed(missing)}", part.where


def _empty_fails(history: History) -> Verdict:
    """A refit from an empty or partial state is a failure, not a quick success."""
    exercised = 0
    kinds = {n.get("index"): n.get("kinds", ()) for n in history.facts("state", source="harness")}
    for r in history.refits():
        if not {"empty", "partial"} & set(kinds.get(r.index, ())):
            continue
        exercised += 1
        if r.ok:
            what = "/".join(kinds[r.index])
            article = "an" if what.startswith("e") else "a"
            sent = len([c for c in history.during(r).calls(BUCKETS, origin="sut") if c.ok])
            told = f"{reported(r)} after {sent} update calls, of a state of {len(r.data.get('names', ()))} tensors"
            return violated(allowed=["a failed refit"], actual=told, where=f"refit {r.index} of {article} {what} state")
    return held(exercised)


def _any_size(history: History) -> Verdict:
    """The same answers whatever the bucket size: refits of the same state, cut differently."""
    sizes: set[int] = set()
    exercised = 0
    for part in parts(history):
        if not part.refit.ok or not part.buckets:
            continue
        found = content(part, history)
        if found is False:
            continue
        if isinstance(found, tuple):
            where = f"{part.where} ({len(part.buckets)} buckets): {found[2]}"
            return violated(allowed=[found[0]], actual=found[1], where=where, exercised=exercised + 1)
        if len(part.buckets) not in sizes:
            sizes.add(len(part.buckets))
            exercised += 1
    return held(exercised if len(sizes) > 1 else 0)


LEFT_OUT = ("NAME-71",)  # accounts for wrong content, whichever rule sees that
WRONG = ("VERIF-1",)  # wrong content of every refit is none of these rules' business

RULES = (
    refit(
        "NAME-1",
        "Names, shapes and dtypes are told in the order of the bytes, in buckets of mixed dtypes too.",
        _of_state("mixed"),
        ["weight_sync/tensor_bucket.py:19@0.5.23", "NovaSky-AI/SkyRL#1816"],
        follows=LEFT_OUT,
        echoes=WRONG,
        mend=(
            "write names, shapes, dtypes and offsets in one pass over the same list that fills the bytes; aligned "
            "where dtypes are mixed"
        ),
    ),
    refit(
        "NAME-2",
        "A refit updates every tensor, or fails: an empty or partial state is a failure.",
        every(each_part(_complete, over=fleet_parts), _empty_fails),
        [f"{LLAMA}:701@0.5.23", "NovaSky-AI/SkyRL#1471", "NVIDIA-NeMo/RL#3519"],
        follows=LEFT_OUT,
        echoes=["VERIF-1"],
        mend=(
            "compare the names to be sent with the model's full list before the first call, and raise where the set "
            "is empty or smaller"
        ),
    ),
    refit(
        "NAME-3",
        "What arrives does not depend on the bucket size.",
        _any_size,
        ["sgl-project/sglang#14178"],
        follows=LEFT_OUT,
        echoes=WRONG,
        asks=["buckets"],
        mend=(
            "cut buckets between tensors and carry the remainder to the next one; check with a bucket smaller than "
            "the largest tensor"
        ),
    ),
    refit(
        "NAME-4",
        "Auxiliary tensors (biases, per-head norms, an untied head) arrive in full shape, like all others.",
        _of_state("auxiliary"),
        ["THUDM/slime#1673", "NVIDIA-NeMo/RL#3226", "radixark/miles#1730"],
        follows=LEFT_OUT,
        echoes=WRONG,
        mend="send biases, q/k norms and an untied lm_head gathered to their full shape, by their checkpoint names",
    ),
    refit(
        "NAME-71",
        "A refit that reports success left out no tensor of the policy's state.",
        each_part(_nothing_left_out),
        [f"{LLAMA}:701@0.5.23", "NovaSky-AI/SkyRL#1471"],
        follows=["ERR-1"],
        mend=(
            "iterate the whole state_dict (all dtypes, replicated and last tensors), flush the last bucket, and count "
            "names before success"
        ),
    ),
    engine(
        "NAME-51",
        "A name that the model does not know is skipped, with 200.",
        every(push_answered("unknown-name", said(200)), push_unchanged("unknown-name")),
        [f"{LLAMA}:779@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the model's load_weights: an unknown name is skipped with a warning",
    ),
    engine(
        "NAME-52",
        "load_format direct wants the device's names: another name kills the engine.",
        push_answered("direct-unknown-name", DIES),
        [f"{MWU}:438@0.5.23"],
        mend="look at load_format direct: a name that is no parameter of the model raises in the scheduler",
    ),
    engine(
        "NAME-53",
        "Missing names are not noticed: half of a set is a success, and leaves a mixture.",
        every(push_answered("half", said(200)), push_gives("half")),
        [f"{LLAMA}:701@0.5.23", "observed 0.5.21 on a GPU"],
        mend="look at load_weights: nothing counts what did not come",
    ),
    engine(
        "NAME-54",
        "dtypes are cast silently: float32 tensors of the same values give the same answers.",
        every(push_answered("cast", said(200)), push_gives("cast")),
        ["model_loader/weight_utils.py:1582@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the default weight loader: copy_ casts to the parameter's dtype",
    ),
    engine(
        "NAME-55",
        "A plain parameter of the wrong length kills the engine.",
        push_answered("wrong-length", DIES),
        ["model_loader/weight_utils.py:1582@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the default weight loader: a shape that does not fit is an assert, in the scheduler",
    ),
    engine(
        "NAME-56",
        "A bucket may mix dtypes as long as every tensor is aligned.",
        every(push_answered("mixed", said(200)), push_gives("mixed")),
        ["weight_sync/tensor_bucket.py:19@0.5.23"],
        mend="look at the bucket's views: offsets are in bytes and each dtype needs its alignment",
    ),
    engine(
        "NAME-57",
        "An empty list of tensors is a success and changes nothing.",
        every(push_answered("no-tensors", said(200)), push_unchanged("no-tensors")),
        [f"{MWU}:372@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the load of an empty list: no tensor, no error",
    ),
    engine(
        "NAME-58",
        "load_format direct takes the device's own names and local shards.",
        every(push_answered("direct", said(200)), push_gives("direct")),
        [f"{MWU}:372@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at load_format direct: tensors are copied into parameters by their own names, without slicing",
    ),
    refit(
        "NAME-72",
        "Streams that bring no tensor fail the refit, and no engine is told its version.",
        must_fail("nothing"),
        ["NVIDIA-NeMo/RL#3519"],
        mend="count the tensors of every stream; where none came raise before any bucket or version is sent",
    ),
    refit(
        "NAME-73",
        "Streams of one engine's ranks that differ in names, dtypes or length fail the refit.",
        must_fail("uneven", "renamed", "retyped"),
        ["NVIDIA-NeMo/RL#3519"],
        mend=(
            "compare names, dtypes and lengths of the ranks' streams while they are merged, and raise at the first "
            "that differs"
        ),
    ),
    refit(
        "NAME-74",
        "The policy is exported once per refit: nothing of it is gathered before the first bucket, not for metadata.",
        one_walk,
        ["NVIDIA-NeMo/RL#3519"],
        needs=("call", "trainer:walk"),
        black_box="only the trainer's ranks know what they gather",
        mend="stream the policy's export once, and take names, shapes and dtypes from that pass or from a cached plan",
    ),
)
