"""RANK: one payload per tensor-parallel rank, from the producer on that rank's GPU. At tp 1 nothing can be told."""

from __future__ import annotations

from collections import Counter

from conformance.content import content
from conformance.exports import gpus_of, origins
from conformance.judging import DIES, Judge, every, said
from conformance.pushes import push_answered, push_gives
from conformance.receiving import local_devices, same_names
from conformance.refits import Finding, Part, each_part, parts
from conformance.rules.make import engine, refit
from conformance.view import died, payloads, tp
from harness.history import Call, History
from harness.rules import Verdict, held, violated

WORKER = "managers/tp_worker.py"


def _at_tp_2(judge: Judge) -> Judge:
    """Inconclusive where no engine of the history has two ranks."""

    def judged(history: History) -> Verdict:
        return judge(history) if any(tp(history, e) > 1 for e in history.engines()) else held(0)

    return judged


def _right_producers(part: Part, history: History) -> Finding | bool:
    """payload[i] was made for tp rank i of this engine, of the tensors that the others carry, too.

    Where nobody recorded who made it, the answers tell: but wrong ones are VERIF-1's alone where every rank got the
    very same bytes, since ranks cut full tensors themselves.
    """
    if tp(history, part.engine) < 2 or not part.payload_buckets:
        return False
    for call in part.payload_buckets:
        if (short := _too_few(call, tp(history, part.engine))) is not None:
            return short
    known, gpus = origins(history), gpus_of(history, part.engine)
    sure = True
    for call in part.payload_buckets:
        names: frozenset[str] = frozenset()
        for position, payload in enumerate(payloads(call)):
            origin = known.get(payload)
            if origin is None:
                sure = False
                continue
            if names and origin.names and origin.names != names:
                other = min(origin.names ^ names)
                return "the same tensors for every rank", f"only some of its payloads carry {other}", str(call)
            names = names or origin.names
            right = f"payload[{position}] from the producer of {part.engine} tp rank {position}"
            if (origin.engine, origin.tp_rank) != (part.engine, position):
                actual = f"payload[{position}] was made for {origin.engine} tp rank {origin.tp_rank}"
                return right, actual, str(call)
            if position < len(gpus) and origin.rank != gpus[position]:
                actual = f"payload[{position}] came from rank {origin.rank}, not from GPU {gpus[position]}"
                return right, actual, str(call)
    if sure:
        return None
    found = content(part, history)
    alike = all(len(set(payloads(call))) == 1 for call in part.payload_buckets)
    return False if alike and isinstance(found, tuple) else found


def _too_few(call: Call, ranks: int) -> Finding:
    """A list that is shorter than the engine has ranks: its body tells, answered or not."""
    listed = call.arg("serialized_named_tensors")
    if not isinstance(listed, list | tuple) or len(listed) >= ranks:
        return None
    told = f"{len(listed)} payload{'s' if len(listed) != 1 else ''} for {ranks} ranks"
    told += "; the engine died of it" if died(call) else ""
    return f"{ranks} payloads for {ranks} ranks", told, str(call)


def _own_payload_each(part: Part, history: History) -> Finding | bool:
    """No export is sent more often than it was made.

    Equal bytes alone are no proof: torch writes one CPU tensor in file_system sharing into the same bytes each time.
    """
    if tp(history, part.engine) < 2 or not part.payload_buckets:
        return False
    made = Counter(str(note.get("sha256")) for note in history.trainer("export"))
    sent: dict[str, list[str]] = {}
    told = False
    for call in part.payload_buckets:
        for position, payload in enumerate(payloads(call)):
            places = sent.setdefault(payload, [])
            places.append(f"payload[{position}] of {call}")
            told = told or payload in made
            if payload in made and len(places) > made[payload]:
                return "every export once, for one rank", f"{' and '.join(places)} are the same export", str(call)
    return None if told else False


def _shape_of_the_fleet(history: History) -> Verdict:
    """Every engine of the fleet gets one payload per rank, whatever the sizes of the others."""
    sizes = {e: tp(history, e) for e in history.engines()}
    exercised = 0
    for part in parts(history):
        for call in part.payload_buckets:
            exercised += len(sizes) > 1
            if len(payloads(call)) != sizes[part.engine]:
                return violated(
                    allowed=[f"{sizes[part.engine]} payloads for {part.engine}"],
                    actual=f"{len(payloads(call))} payloads",
                    where=str(call),
                    exercised=max(1, exercised),
                )
        found = content(part, history) if part.payload_buckets else False
        if found not in (False, None, True):
            assert isinstance(found, tuple)
            return violated(allowed=[found[0]], actual=found[1], where=found[2], exercised=max(1, exercised))
    return held(exercised)


def _ragged(part: Part, history: History) -> Finding | bool:
    """The scenario's policy leaves a rank without tensors for some steps (fact `ragged`)."""
    if not history.facts("ragged", source="harness") or tp(history, part.engine) < 2:
        return False
    if part.refit.ok is False and not any(c.fault for c in history.during(part.refit).calls_):
        return "a refit in which some rank has nothing to give still succeeds", part.refit.error[:160], part.where
    if not part.payload_buckets:
        return False
    for call in part.payload_buckets:
        if len(payloads(call)) != tp(history, part.engine) or "None" in payloads(call):
            return "a payload for every rank", f"{payloads(call)}", str(call)
    return content(part, history)


RULES = (
    refit(
        "RANK-1",
        "Every tp rank has a payload, and payload[i] comes from the producer on the GPU of the engine's tp rank i.",
        each_part(_right_producers),
        [f"{WORKER}:200@0.5.23", "NVIDIA-NeMo/RL#3519", "vllm-project/vllm#48981"],
        follows=["NAME-71"],
        mend=(
            "gather payloads by tp rank and send serialized_named_tensors[i] from the process on the GPU of tp rank i "
            "of that very engine"
        ),
    ),
    refit(
        "RANK-2",
        "Every rank has a payload of its own: none is handed to two ranks or sent twice.",
        each_part(_own_payload_each),
        ["sgl-project/sglang#32580", "Tencent-Hunyuan/UniRL#227"],
        needs=("call", "trainer:export"),
        black_box="equal payloads may be two exports of one tensor: only who made them can tell",
        mend=(
            "export once for every tp rank; do not repeat rank 0's payload for the others, nor send an export a "
            "second time"
        ),
    ),
    refit(
        "RANK-3",
        "Payload lists follow each engine's real size, also in a fleet of unequal engines.",
        _at_tp_2(_shape_of_the_fleet),
        ["NovaSky-AI/SkyRL#1398", f"{WORKER}:200@0.5.23"],
        follows=["NAME-71"],
        echoes=["VERIF-1"],
        mend=(
            "take each engine's tp size from the engine (its /server_info), not from the first one or the config, and "
            "gather within its own ranks"
        ),
    ),
    refit(
        "RANK-4",
        "A rank that has nothing to give for a step takes part in it all the same.",
        each_part(_ragged),
        ["THUDM/slime#2134"],
        follows=["NAME-71"],
        echoes=["VERIF-1"],
        mend=(
            "let every rank enter each gather, with an empty or filler payload where it has nothing, and send one "
            "payload per rank"
        ),
    ),
    engine(
        "RANK-51",
        "A payload list shorter than the number of ranks kills the engine.",
        _at_tp_2(push_answered("short-list", DIES)),
        [f"{WORKER}:200@0.5.23", "observed 0.5.23 on CPU, tp 2"],
        mend=(
            "look at the worker's indexing of the payload list by tp rank: too short is an IndexError in the scheduler"
        ),
    ),
    engine(
        "RANK-52",
        "Payloads beyond the number of ranks are ignored.",
        _at_tp_2(every(push_answered("long-list", said(200)), push_gives("long-list"))),
        [f"{WORKER}:200@0.5.23", "observed 0.5.21 on a GPU"],
        mend="look at the worker's indexing of the payload list by tp rank: nobody compares its length",
    ),
    engine(
        "RANK-53",
        "Each rank takes its own payload and nobody compares: ranks fed from two sets answer 200 and serve neither.",
        _at_tp_2(every(push_answered("torn-ranks", said(200)), push_gives("torn-ranks"))),
        [f"{WORKER}:200@0.5.23", "observed 0.5.21 on two GPUs"],
        mend="look at the load on each rank: no cross-rank check is made, and a test must show what is then served",
    ),
    engine(
        "RANK-54",
        "Payloads of full tensors may be swapped among ranks: each rank cuts its own shard.",
        _at_tp_2(every(push_answered("swapped", said(200)), push_gives("swapped"))),
        ["layers/linear.py:570@0.5.23", "observed 0.5.21 on two GPUs"],
        mend="look at the layers' weight_loader: it slices a full tensor by its own tp rank",
    ),
    refit(
        "RANK-71",
        "Streams that are cut differently by rank are put side by side: a call carries the same tensors for all ranks.",
        same_names,
        ["NVIDIA-NeMo/RL#3519"],
        needs=("call", "trainer:export"),
        black_box="what lies in a payload is told by who made it",
        follows=["NAME-71"],
        mend=(
            "cut buckets by one plan that all ranks share, or align the streams by name, so that a call carries the "
            "same names for every rank"
        ),
    ),
    refit(
        "RANK-72",
        "A rank's device is named as its own process counts it, not by its physical number.",
        local_devices,
        ["NVIDIA-NeMo/RL#3519", "THUDM/slime#1326"],
        needs=("call", "trainer:receiver"),
        black_box="an engine does not see where its payloads were received",
        mend=(
            "pass the device's index within the process (torch.cuda.current_device()), not the number that nvidia-smi "
            "gives it"
        ),
    ),
)
