"""COLL: groups of a trainer and engine ranks. Every call that joins or receives waits for its peers."""

from __future__ import annotations

from conformance.grouping import (
    announced_first,
    buffers_kept,
    cumem_agrees,
    default_group_alone,
    every_rank_walks,
    let_go,
    lock_given_back,
    names_are_free,
    none_left,
    numbers_fit,
    ready_when_all_are,
    same_order,
    waits_end,
)
from conformance.judging import DIES, Answer, Judge, every, said, wrong
from conformance.pushes import push_answered, push_gives
from conformance.refits import Finding, each_call, met_by_traffic
from conformance.rules.make import engine, refit
from conformance.view import State
from harness.history import Call, History
from harness.rules import Verdict, held

WU = "managers/scheduler_components/weight_updater.py"
MWU = "model_executor/model_runner_components/weight_updater.py"
BROADCAST = "update_weights_from_distributed"
PARTIAL = "The full weights of the ModelRunner are partially updated. Please discard the whole weights."
TRAINER_ONLY = "an engine does not see {}; only the trainer's records tell"


def asked(kind: str, *allowed: Answer) -> Judge:
    """The call that follows the scenario's fact `asked` {kind} is answered as allowed."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for note in history.facts("asked", source="harness", kind=kind):
            following = [c for c in history.calls(engine=note.engine) if c.pos > note.pos and c.origin == "probe"]
            if not following or following[0].fault:
                continue
            exercised += 1
            if not any(answer.test(following[0]) for answer in allowed):
                return wrong(following[0], [a.text for a in allowed], exercised)
        return held(exercised)

    return judge


def _taken(kind: str, taken: bool) -> Judge:
    """What the scenario broadcast as `kind` was taken by everybody, or by nobody."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for note in history.facts("broadcast", source="harness", kind=kind):
            exercised += 1
            if bool(note.get("taken")) is not taken:
                calls = [c for c in history.calls(BROADCAST) if c.pos < note.pos]
                right = "taken by every rank" if taken else "left alone: the engine had said no"
                told = "it was taken" if note.get("taken") else "it was left alone"
                return wrong(calls[-1], [f"a broadcast that is {right}"], exercised, told)
        return held(exercised)

    return judge


def _still_open(history: History) -> Verdict:
    exercised = 0
    for note in history.facts("still_open", source="harness"):
        exercised += 1
        if not note.get("open"):
            calls = [c for c in history.calls("init_weights_update_group", engine=note.engine) if c.pos < note.pos]
            return wrong(calls[-1], ["no answer before every rank has come"], exercised)
    return held(exercised)


def _survives(kind: str) -> Judge:
    """After a push of this kind the engine still answers."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for note in history.facts("push", source="harness", kind=kind):
            after = [c for c in history.calls("generate", engine=note.engine) if c.pos > note.pos]
            exercised += bool(after)
            if after and not after[0].ok:
                return wrong(after[0], ["an answer: only the update failed"], exercised)
        return held(exercised)

    return judge


NO_ANSWER = Answer("no answer", lambda call: call.error.startswith("timeout"))


def _idle_at_the_collective(call: Call, state: State, history: History) -> Finding | bool:
    """An engine that may be in the middle of a forward pass cannot also take part in a broadcast."""
    if call.op != BROADCAST or not call.delivered:
        return False
    busy = state.running - state.waiting
    if not busy or state.paused == "retract":
        return None if met_by_traffic(history, call) else False
    if state.paused == "abort":
        return None
    told = f"{len(busy)} requests on the engine, paused: {state.paused or 'no'}"
    return "no broadcast to an engine with requests under way", told, str(call)


RULES = (
    refit(
        "COLL-1",
        "Group rank 0 broadcasts exactly the tensors that were announced, in their order, shapes and dtypes.",
        same_order,
        [f"{MWU}:280@0.5.23", "sgl-project/sglang#19255"],
        mend="announce names, dtypes and shapes from the very list that rank 0 then broadcasts, in that order",
    ),
    refit(
        "COLL-2",
        "A group is destroyed before its name is used again; no update is sent in a group that an engine is not in.",
        names_are_free,
        [f"{MWU}:112@0.5.23", "vllm-project/vllm#40646", "vllm-project/vime#329"],
        mend=(
            "post /destroy_weights_update_group and wait for its answer before a name is used again; re-init before "
            "the next update"
        ),
    ),
    refit(
        "COLL-3",
        "World size is 1 plus all engine ranks; each engine's rank_offset follows the ranks of the one before.",
        numbers_fit,
        [f"{MWU}:120@0.5.23", "sgl-project/sglang#19255", "vllm-project/vime#329"],
        mend="world_size = 1 + sum of the engines' tp sizes, rank_offset = 1 + the sum of those before",
    ),
    refit(
        "COLL-4",
        "The group does not depend on the trainer's default group, which is as it was afterwards.",
        default_group_alone,
        ["torch/distributed/distributed_c10d.py:2040@2.13", "NVIDIA-NeMo/RL#3189"],
        mend=(
            "make the update group from a store and process group of its own, not with init_process_group or as a "
            "new_group of the default one"
        ),
    ),
    refit(
        "COLL-5",
        "Every trainer rank takes every step of a transfer, also one that broadcasts nothing.",
        every_rank_walks,
        ["RLinf/RLinf#1540", "huggingface/trl#7103", "radixark/miles#1730"],
        mend="let ranks that broadcast nothing still enter every gather and barrier of the loop over buckets",
    ),
    refit(
        "COLL-6",
        "An engine is idle, not merely frozen, when an update is broadcast to it.",
        each_call(_idle_at_the_collective),
        ["sgl-project/sglang#22623"],
        mend=(
            "pause with abort or retract and flush until 200 before /update_weights_from_distributed; in_place leaves "
            "requests on the engine"
        ),
    ),
    refit(
        "COLL-7",
        "A wait in a group ends by the refit's deadline, and the error names the ranks or the engine waited for.",
        waits_end,
        [f"{WU}:192@0.5.23", "NVIDIA-NeMo/RL#3330"],
        mend=(
            "pass a timeout to init, broadcasts and barriers out of the refit's deadline, and name who has not come "
            "in the error"
        ),
    ),
    refit(
        "COLL-8",
        "Nothing is broadcast before every engine of the group was told what will come.",
        announced_first,
        [f"{WU}:192@0.5.23"],
        needs=("call", "trainer:broadcast"),
        black_box=TRAINER_ONLY.format("when a broadcast that it takes later was begun"),
        mend="start /update_weights_from_distributed on all engines first, without waiting for answers, then broadcast",
    ),
    refit(
        "COLL-9",
        "When one engine refuses, those that wait for the group are let go of at once and answer again.",
        let_go,
        [f"{WU}:192@0.5.23", "utils/common.py:2899@0.5.23"],
        mend=(
            "watch the update calls while broadcasting; when one fails abort the group, so that those who wait in it "
            "return, and raise"
        ),
    ),
    refit(
        "COLL-10",
        "Only contiguous memory is broadcast, and it is kept until the broadcast was waited for.",
        buffers_kept,
        ["observed: gloo of torch 2.13", "NVIDIA-NeMo/RL#3612"],
        mend=(
            "call contiguous() before a broadcast, hold the tensor, and wait for the work's handle before it is freed "
            "or used again"
        ),
    ),
    refit(
        "COLL-11",
        "The lock among trainers is waited for with a deadline and given back by its owner on every way out.",
        lock_given_back,
        ["radixark/miles#1967", "NVIDIA-NeMo/RL#3330"],
        needs=("call", "trainer:lock"),
        black_box=TRAINER_ONLY.format("a lock among trainers"),
        mend="acquire the lock with a time-out out of the deadline, and release it in a finally by the owner alone",
    ),
    refit(
        "COLL-12",
        "NCCL_CUMEM_ENABLE is set before the trainer's first group, as the engines have it, and only for such groups.",
        cumem_agrees,
        ["entrypoints/engine.py@0.5.23 (_set_envs_and_config)", "NVIDIA-NeMo/RL#3612"],
        mend=(
            "give the trainer the engines' NCCL_CUMEM_ENABLE (SGLang: 0 unless --enable-symm-mem) before its first "
            "NCCL group, and only for such groups"
        ),
    ),
    refit(
        "COLL-13",
        "A group is called ready when every engine has confirmed, with its real size.",
        ready_when_all_are,
        ["NVIDIA-NeMo/RL#3612"],
        needs=("call", "trainer:GROUP_READY"),
        black_box=TRAINER_ONLY.format("what the trainer's log says"),
        mend=(
            "call the group ready when every engine's /init_weights_update_group answered 200 and the sizes add up, "
            "not when it was sent"
        ),
    ),
    refit(
        "COLL-14",
        "A new layout replaces the old group, and when the client closes no group is left on either side.",
        none_left,
        ["NVIDIA-NeMo/RL#3612", "vllm-project/vime#329"],
        mend="on a new layout destroy the old group on engines and trainer before the new init; do the same in close()",
    ),
    engine(
        "COLL-51",
        "A set broadcast tensor by tensor in a group of all ranks arrives on every rank.",
        every(push_answered("group", said(200)), _taken("group", True), push_gives("group")),
        [f"{MWU}:280@0.5.23", "observed 0.5.23 on CPU over gloo"],
        mend="look at the receive loop of update_weights_from_distributed: one broadcast per name, in order, then load",
    ),
    engine(
        "COLL-52",
        "A flattened bucket is one broadcast.",
        every(push_answered("group-bucket", said(200)), _taken("group-bucket", True), push_gives("group-bucket")),
        [f"{MWU}:298@0.5.23", "observed 0.5.23 on CPU over gloo"],
        mend="look at load_format flattened_bucket of a broadcast: one flat tensor, split by the metadata",
    ),
    engine(
        "COLL-53",
        "A group name that exists is refused.",
        asked("taken-name", said(400, contains="The specified group name has already been created")),
        ["torch/distributed/distributed_c10d.py:2013@2.13"],
        mend="look at init_weights_update_group: a name that is there is an answer of 400",
    ),
    engine(
        "COLL-54",
        "A group is destroyed once; one that does not exist is refused.",
        every(
            asked("destroy", said(200, "Succeeded to destroy custom process group.")),
            asked("destroy-missing", said(400, "The group to be destroyed does not exist.")),
        ),
        [f"{MWU}:146@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at destroy_weights_update_group: it forgets the group, and an unknown one is an answer of 400",
    ),
    engine(
        "COLL-55",
        "An update in a group that does not exist is refused.",
        push_answered("no-group", said(400, contains="Failed to receive weights: Group conformance not in []")),
        [f"{WU}:209@0.5.23", "observed 0.5.23 on CPU"],
        versions=">=0.5.21",
        mend="look at the check of the group's name: since 0.5.21 it is an answer",
    ),
    engine(
        "COLL-56",
        "An update in a group that does not exist kills the engine.",
        push_answered("no-group", DIES),
        [f"{MWU}:245@0.5.20", "observed 0.5.20 on CPU"],
        versions="<0.5.21,!=miles",
        mend="look at the look-up of the group's name: before 0.5.21 it is an assert in the scheduler",
    ),
    engine(
        "COLL-57",
        "An update in a group that does not exist is refused as a partial update.",
        push_answered("no-group", said(400, contains=PARTIAL)),
        [f"{WU}@miles-00a2ca2e"],
        versions="miles",
        mend="look at the exception handler of a broadcast update: a group that is not there lands in it",
    ),
    engine(
        "COLL-58",
        "A group without a name kills the engine.",
        asked("empty-name", DIES),
        [f"{MWU}:118@0.5.23"],
        mend="look at the assert on group_name in the weight updater",
    ),
    engine(
        "COLL-59",
        "dtypes are attributes of torch: `torch.bfloat16` is refused, and nothing is received for it.",
        every(push_answered("torch-dtype", said(400, contains="has no attribute")), _taken("torch-dtype", False)),
        [f"{MWU}:282@0.5.23"],
        mend="look at getattr(torch, dtype): a dotted name is refused before the first receive",
    ),
    engine(
        "COLL-60",
        "Names, dtypes and shapes of unequal length are cut to the shortest, with 200.",
        every(push_answered("unequal", said(200)), _taken("unequal", True)),
        [f"{MWU}:280@0.5.23"],
        mend="look at the zip over names, dtypes and shapes: it ends with the shortest",
    ),
    engine(
        "COLL-61",
        "A bucket of unequal lists is refused before anything is received.",
        every(push_answered("unequal-bucket", said(400, contains="zip() argument")), _taken("unequal-bucket", False)),
        ["weight_sync/tensor_bucket.py:98@0.5.23"],
        versions=">=0.5.23",
        mend="look at the bucket's check of lengths: since 0.5.23 it precedes the receive",
    ),
    engine(
        "COLL-62",
        "A load that fails leaves the tensors before it in the weights, and says that they are partly updated.",
        every(push_answered("load-fails", said(400, contains=PARTIAL)), push_gives("load-fails")),
        [f"{MWU}:340@0.5.23"],
        mend="look at the exception handler of the load: no rollback, and the message says so",
    ),
    engine(
        "COLL-63",
        "A refused update takes no broadcast; what was sent for it is taken by the next one.",
        every(_taken("refused", False), push_gives("out-of-step")),
        [f"{WU}:192@0.5.23", "observed: gloo of torch 2.13"],
        versions=">=0.5.21",
        mend="look at the order of check and receive: a broadcast that nobody took stays in the group for the next",
    ),
    engine(
        "COLL-64",
        "An engine that joins answers nothing of its scheduler's until every rank has come.",
        every(_still_open, asked("meanwhile", NO_ANSWER)),
        ["utils/common.py:2899@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the blocking init in the scheduler: its loop answers nothing until the rendezvous is whole",
    ),
    engine(
        "COLL-65",
        "An engine that waits for a broadcast hears that the trainer is gone, refuses the update and lives.",
        every(
            push_answered("trainer-gone", said(400, contains="Connection closed by peer")), _survives("trainer-gone")
        ),
        [f"{WU}:209@0.5.23", "observed: gloo of torch 2.13"],
        mend="look at the exception handler around the receive: a lost peer is an answer of 400, not a death",
    ),
    engine(
        "COLL-66",
        "An engine on a CPU refuses NCCL.",
        asked("no-nccl", said(400, contains="NCCL built in")),
        ["observed 0.5.23 on CPU"],
        mend="look at the backend that the group is made with on a CPU: nccl has no device there",
    ),
    engine(
        "COLL-67",
        "A bucket of unequal lists is cut to the shortest, with 200.",
        every(push_answered("unequal-bucket", said(200)), _taken("unequal-bucket", True)),
        [f"{MWU}:302@0.5.22"],
        versions="<0.5.23",
        mend="look at the zip over the bucket's lists: before 0.5.23 it ends with the shortest",
    ),
)
