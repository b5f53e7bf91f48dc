"""IPC: exported memory. The producer keeps it until every consumer has copied, and not longer."""

from __future__ import annotations

from conformance.exports import Export, exports
from conformance.judging import DIES, every, said
from conformance.parameter_servers import no_session, nobody_left_waiting, own_device, used_when_answered
from conformance.pushes import push_answered, push_gives, push_unchanged
from conformance.receiving import before_any_pause, copied_in_time, fresh_receivers, nothing_registered, one_size
from conformance.refits import each_part
from conformance.rules.coll import asked
from conformance.rules.make import engine, refit
from harness.history import History
from harness.rules import Verdict, held, violated

WORKER = "checkpoint_engine/checkpoint_engine_worker.py"
BESIDE = "receivers are the trainer's: an engine sees posts only"
UNSEEN = "an engine does not see whether its producer keeps or frees memory; only the trainer's records tell"


def _accounted(history: History) -> Verdict:
    """After a refit each of its exports is released, and was opened once, by its own rank, where opens are seen."""
    opens_seen = bool(history.trainer("open"))
    exercised = 0
    for refit_ in history.refits():
        for export in exports(history):
            if not refit_.pos < export.note.pos < refit_.end_pos or refit_.ok is None:
                continue
            exercised += 1
            if not [n for n in export.released if n.pos < refit_.end_pos]:
                return _wrong(
                    export, f"never released in refit {refit_.index}", "released by the refit's end", exercised
                )
            if refit_.ok and opens_seen and len(export.opened) != 1:
                return _wrong(export, f"opened {len(export.opened)} times", "opened once", exercised)
            for opened in export.opened:
                if not opened.get("own", True):
                    told = f"opened by {opened.get('engine')} tp rank {opened.get('tp_rank')}"
                    return _wrong(export, told, "opened by the rank that it was made for", exercised)
    return held(exercised)


def _kept_until_copied(history: History) -> Verdict:
    """No export is released, freed or reused while the update that carries it is under way, or before it is sent."""
    exercised = 0
    for export in exports(history):
        if export.call is None:
            continue
        exercised += 1
        for note in (*export.released, *export.gone):
            if note.pos < export.call.end_pos:
                return _wrong(export, f"{note.name} before {export.call} had ended", "kept until then", exercised)
    return held(exercised)


def _exportable(history: History) -> Verdict:
    """No export was refused because its storage lies where CUDA has no handle for it."""
    refused = history.trainer("export_refused")
    made = history.trainer("export")
    for note in refused:
        told = f"rank {note.rank} exported {len(note.get('names', ()))} tensors from {note.get('allocation')!r} memory"
        allowed = ["storage from the ordinary pool, outside the memory saver's regions"]
        return violated(allowed=allowed, actual=told, where=str(note), exercised=len(made) + len(refused))
    return held(len(made))


def _wrong(export: Export, told: str, allowed: str, exercised: int) -> Verdict:
    what = f"export {export.number} of rank {export.note.rank}"
    return violated(allowed=[allowed], actual=f"{what} {told}", where=str(export.note), exercised=exercised)


RULES = (
    refit(
        "IPC-1",
        "Every export is opened once, by its own consumer, and released by the end of its refit.",
        _accounted,
        ["THUDM/slime#1731", "vllm-project/vllm#51258"],
        needs=("call", "trainer:export"),
        black_box=UNSEEN,
        follows=["RANK-1", "RANK-2", "LIVE-2", "ERR-1"],
        mend=(
            "make one export for each receiving rank, let nobody else open it, and release it in a finally after the "
            "update call's answer"
        ),
    ),
    refit(
        "IPC-2",
        "Exported memory is neither freed nor used again before the engine's ranks have copied it.",
        _kept_until_copied,
        ["modelscope/ms-swift#10207", "vllm-project/vime#170"],
        needs=("call", "trainer:export"),
        black_box=UNSEEN,
        mend=(
            "keep exported tensors referenced and untouched until the update call was answered; release, or fill the "
            "buffer anew, only after that"
        ),
    ),
    refit(
        "IPC-3",
        "What is exported lies in exportable memory: not in a region of the memory saver.",
        _exportable,
        ["THUDM/slime#2188"],
        needs=("call", "trainer:export"),
        black_box=UNSEEN,
        mend=(
            "allocate bucket buffers outside the memory saver's regions (in its disable() block, or from an ordinary "
            "pool) before they are exported"
        ),
    ),
    engine(
        "IPC-51",
        "A payload whose producer is gone kills the engine.",
        push_answered("gone-producer", DIES),
        ["observed 0.5.23 on CPU: No such file or directory", "observed 0.5.21 on a GPU: invalid resource handle"],
        mend="look at the rebuild of a handle: where its memory is gone it raises in the scheduler, which dies",
    ),
    engine(
        "IPC-52",
        "A handle gives what its memory holds when it is opened: memory used again meanwhile is loaded as it is now.",
        every(push_answered("used-again", said(200)), push_gives("used-again")),
        ["modelscope/ms-swift#10207", "vllm-project/vime#170"],
        mend="look at the rebuild of a handle: it maps the producer's memory and copies nothing before the load",
    ),
    engine(
        "IPC-53",
        "A checkpoint engine's set reaches every rank through the socket of its own device id, outside any session.",
        every(push_answered("ipc-whole", said(200, contains="IPC weight update completed")), push_gives("ipc-whole")),
        [
            f"{WORKER}:72@0.5.23",
            "checkpoint_engine/worker.py:50@0.4.2",
            "managers/tokenizer_control_mixin.py:598@0.5.23",
        ],
        mend="look at the checkpoint-engine worker: socket by the rank's device id, loaded without the session check",
    ),
    engine(
        "IPC-54",
        "A device id that is not among the handles is refused by name, and changes nothing.",
        every(
            push_answered("ipc-other-id", said(400, contains="not found in zmq_handles")),
            push_unchanged("ipc-other-id"),
        ),
        [f"{WORKER}:83@0.5.23"],
        mend="look at the look-up in zmq_handles: a missing device id is an error by name, before any load",
    ),
    engine(
        "IPC-55",
        "A load that fails goes back to the parameter server as a traceback; what that then says ends the call: 400.",
        push_answered("ipc-load-fails", said(400, contains="Some workers failed to update weights")),
        ["checkpoint_engine/worker.py:106@0.4.2", "checkpoint_engine/ps.py:850@0.4.2"],
        mend="look at the worker's error path: the traceback goes back over the socket, and the answer is 400",
    ),
    engine(
        "IPC-56",
        "Without the checkpoint-engine package an update over IPC is refused, and changes nothing.",
        every(
            push_answered("ipc-no-package", said(400, contains="ImportError checkpoint-engine is not installed")),
            push_unchanged("ipc-no-package"),
        ),
        [f"{WORKER}:31@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the import of checkpoint_engine: an ImportError becomes an answer, not a death",
    ),
    engine(
        "IPC-57",
        "An update over IPC inside a session is taken, and leaves it open.",
        every(push_answered("ipc-inside", said(200)), asked("end-after-ipc", said(200))),
        ["managers/scheduler_components/weight_updater.py:265@0.5.23"],
        versions=">=0.5.21",
        mend="look at the session check: an update over IPC passes it, and the session stays open",
    ),
    refit(
        "IPC-71",
        "A buffer is used again only when what was in it was read, and beside the engine exported.",
        copied_in_time,
        ["NVIDIA-NeMo/RL#3519", "modelscope/ms-swift#10207"],
        needs=("call", "trainer:batch"),
        black_box=BESIDE,
        follows=["NAME-71"],
        mend=(
            "wait for the read of a receive buffer (an event or a copy) before it is posted again, and clone out of "
            "it what is exported"
        ),
    ),
    refit(
        "IPC-72",
        "Receivers belong to one incarnation of an engine: after a restart they are made anew and their peers bound.",
        fresh_receivers,
        ["NVIDIA-NeMo/RL#3944"],
        needs=("call", "trainer:receiver"),
        black_box=BESIDE,
        mend=(
            "key receivers and peers by engine and incarnation; after a restart make new ones and bind their peers "
            "before the first transfer"
        ),
    ),
    refit(
        "IPC-73",
        "Both sides of a stream have buffers of one size.",
        one_size,
        ["nixl_agent.cpp:942@1.5.1 (length mismatch)", "NVIDIA-NeMo/RL#3519"],
        needs=("call", "trainer:nixl_agent"),
        black_box=BESIDE,
        mend=(
            "agree on one bucket size in the set-up exchange, and allocate sender's and receiver's buffers from that "
            "one number"
        ),
    ),
    refit(
        "IPC-74",
        "A transport that does not come up fails the refit in its own words, before any engine is paused.",
        before_any_pause,
        ["nixl_agent.cpp:371@1.5.1", "NVIDIA-NeMo/RL#3519"],
        mend=(
            "bring the transport up (agent, peers, registration) before the first /pause_generation, and raise its "
            "own error unchanged"
        ),
    ),
    refit(
        "IPC-75",
        "When the client closes nothing stays registered with the transport.",
        nothing_registered,
        ["NVIDIA-NeMo/RL#3944"],
        needs=("call", "trainer:nixl_register"),
        black_box=BESIDE,
        mend="in close() deregister every region and drop every peer, also after a failed refit",
    ),
    refit(
        "IPC-76",
        "What a worker was told to read is neither written nor freed before the worker has answered for it.",
        used_when_answered,
        ["checkpoint_engine/ps.py:723@0.4.2"],
        needs=("call", "trainer:ipc_fill"),
        black_box=UNSEEN,
        follows=["VERIF-1", "NAME-71"],
        mend="fill the other half of the buffer while one is out, and wait for its reply before you come back to it",
    ),
    refit(
        "IPC-77",
        "An update over IPC names for every rank, under the id of its device, the socket of the trainer rank there.",
        each_part(own_device),
        [f"{WORKER}:118@0.5.23"],
        needs=("call", "trainer:ipc_line"),
        black_box="that an address belongs to the trainer rank on the same device only the trainer's records tell",
        mend="gather (device uuid, address) of all ranks before the call, and send each engine those of its own GPUs",
    ),
    refit(
        "IPC-78",
        "No session is opened around an update over IPC, whose workers finalise by themselves.",
        each_part(no_session),
        ["managers/scheduler_components/weight_updater.py:265@0.5.23", f"{WORKER}:72@0.5.23"],
        versions=">=0.5.21 || miles",
        mend="leave /begin_weight_update and /end_weight_update out of refits that go through a parameter server",
    ),
    refit(
        "IPC-79",
        "When a rank fails every worker that came is told to stop: none waits for ever, and its engine with it.",
        nobody_left_waiting,
        ["checkpoint_engine/ps.py:850@0.4.2"],
        needs=("call", "trainer:ipc_line"),
        black_box="what a socket carried only the trainer's records tell",
        mend="on any error send an exception down each socket that owes you nothing, on all ranks, before you raise",
    ),
)
