"""update_weights_from_ipc: every rank is the worker of a checkpoint engine, at the socket of its own device id.

The call neither needs nor changes a session (scheduler_components/weight_updater.py:265@0.5.23). Ranks go on by
themselves and meet in the barrier at the end; rank 0 alone answers. Failures are replies, never deaths.
"""

from __future__ import annotations

import platform
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from fakes.engine import messages as m
from fakes.engine.crash import Crash
from fakes.engine.ipc_wire import Message
from fakes.engine.ipc_worker import Worker
from fakes.engine.loading import LoadError
from fakes.engine.protocol import AnyOf, Barrier, Done, Raised

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler
    from fakes.engine.weight_update import WeightUpdater

OP = "update_weights_from_ipc"
Reply = dict[str, Any]
_ASKS_CUDA = frozenset({"0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "miles"})
"""Where the id comes from torch.cuda (checkpoint_engine/checkpoint_engine_worker.py:105@0.5.19)."""


def device_uuid(base_gpu_id: int, rank: int) -> str:
    """The key of rank `rank` in zmq_handles on a GPU (checkpoint_engine/checkpoint_engine_worker.py:118@0.5.23)."""
    gpu = base_gpu_id + rank
    return f"GPU-{gpu:08x}-0000-4000-8000-{gpu:012x}"


class IpcUpdate:
    """One engine's side."""

    def __init__(self, updater: WeightUpdater, scheduler: Scheduler) -> None:
        self._u, self._s = updater, scheduler

    def handle(self, obj: dict[str, Any]) -> Reply | Generator[list[Any], dict[int, Done], Reply]:
        """Refused at once where the package or a GPU is missing (model_runner_components/weight_updater.py:415
        @0.5.23)."""
        if not self._s.config.checkpoint_engine:
            return self._over(m.IPC_FAILED(error=m.IPC_MISSING.text))
        if self._s.config.device == "cpu":
            return self._over(self._without_gpu(obj["zmq_handles"]))
        return self._run(obj)

    def _run(self, obj: dict[str, Any]) -> Generator[list[Any], dict[int, Done], Reply]:
        handles, base = obj["zmq_handles"], self._s.config.base_gpu_id
        self._u.next_update()
        ids = [device_uuid(base, rank) for rank in range(len(self._s.ranks))]
        workers = {rank: self._worker(rank, handles[uuid]) for rank, uuid in enumerate(ids) if uuid in handles}
        new = [worker.start() for worker in workers.values()]
        waits = {turn.id: workers[turn.rank] for turn in new}
        while waits:
            found = yield AnyOf(new, waits.keys() - {turn.id for turn in new})
            new = []
            for done in found.values():
                worker = waits.pop(done.id)
                turn = worker.go(done)
                if turn is None:
                    self._s.emit(worker.close())
                else:
                    waits[turn.id] = worker
                    new.append(turn)
        if len(workers) < len(ids) or any(worker.error for worker in workers.values()):
            self._u.wholeness.break_()  # whatever ranks took, they do not all hold the same set
        first = workers.get(0)
        if first is None:
            return self._over(_not_found(ids[0], handles))
        if first.error is not None:
            return self._over(first.error.message)
        return self._u._after_load(obj, OP, m.IPC_OK.text, barrier=True)

    def _worker(self, rank: int, address: str) -> Worker:
        def load(message: Message) -> Raised | None:
            return self._load(rank, message)

        config, ranks = self._s.config, self._s.ranks
        return Worker(rank, address, config.checkpoint_engine, self._s.next_id, load, ranks[rank].finalise)

    def _load(self, rank: int, message: Message) -> Raised | None:
        try:
            self._s.memory.check_writable()
            names = self._s.ranks[rank].load(message.named)
        except LoadError as error:
            self._u.wholeness.break_()
            return Raised(error.type, error.message)
        except Crash as error:
            return error.raised
        except Exception as error:  # a name that is no text, say: the worker answers for whatever is raised
            self._u.wholeness.break_()
            return Raised(type(error).__name__, str(error))
        self._u._fact(rank, names, rank, "ipc", "")
        return None

    def _without_gpu(self, handles: dict[str, Any]) -> str:
        """What a CPU engine says, as read: it asks torch.cuda up to 0.5.19; later it has an id made of the machine's
        architecture, and 0.4.2 refuses (checkpoint_engine/device_utils.py:172@0.4.2)."""
        if self._s.profile.version in _ASKS_CUDA:
            return m.NO_CUDA.text
        uuid = f"GPU-{platform.machine()}"
        return m.IPC_NO_DEVICE.text if uuid in handles else _not_found(uuid, handles)

    def _over(self, message: str) -> Reply:
        self._s.emit(Barrier(OP))
        return {"success": False, "message": message}


def _not_found(uuid: str, handles: dict[str, Any]) -> str:
    return m.IPC_NOT_FOUND(uuid=uuid, known=list(handles))
