"""One rank of a checkpoint engine's ParameterServer: one buffer of two halves on its GPU, filled in turns.

The protocol of checkpoint_engine/ps.py:723@0.4.2: the buffer's handle, per bucket what it holds and where, None to let
go of the buffer, None again to finish. 0.1.2 says one None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fakes.tiny import TORCH_NAMES
from fakes.trainer.kit import TrainerKit
from fakes.trainer.pickling import Global, Reduce, dumps
from fakes.trainer.registry import Consumer

ALIGN = 256
_SIZE = Global("torch", "Size")

Named = Sequence[tuple[str, np.ndarray]]


class ServerError(RuntimeError):
    """A worker answered with a traceback, or not in time."""


class ParameterServer:
    """Rank `rank` at `address`. `step()` at a time, or `run()`. `package` is the version whose protocol it speaks.

    buckets: what each message carries. ServerError from whichever call meets it; after one, `give_up()`.
    """

    def __init__(
        self,
        kit: TrainerKit,
        rank: int,
        address: str,
        buckets: Sequence[Named],
        *,
        consumers: Sequence[Consumer] = (),
        package: str = "0.4.2",
    ) -> None:
        self._kit, self._rank, self._buckets, self._package = kit, rank, list(buckets), package
        self._half = max((sum(_aligned(a) for _, a in bucket) for bucket in buckets), default=ALIGN)
        self._socket = kit.ipc.bind(address)
        registry = kit.registry
        self._block = registry.allocate(rank, 2 * self._half)
        (self._handle,) = registry.plan(rank, [self._block], consumers)
        self._what = f"the worker at {address}"

    def run(self, timeout_s: float) -> None:
        """The whole update."""
        self.offer(timeout_s)
        for index in range(len(self._buckets)):
            self.bucket(index, timeout_s)
        self.finish(timeout_s)

    def offer(self, timeout_s: float) -> None:
        """Hand over the buffer."""
        names = [name for bucket in self._buckets for name, _ in bucket]
        self._kit.registry.announce(self._handle, names=names, sha256="")
        self._ask(dumps(self._reduced()), timeout_s)

    def bucket(self, index: int, timeout_s: float) -> None:
        """Fill a half and say what is in it."""
        offset, metas = index % 2 * self._half, []
        for name, array in self._buckets[index]:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._block.data[offset : offset + data.size] = data
            shape = Reduce(_SIZE, (array.shape,))
            metas.append(
                {"name": name, "dtype": Global("torch", TORCH_NAMES[array.dtype]), "shape": shape, "offset": offset}
            )
            offset += _aligned(array)
        self._ask(dumps(metas), timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Take the buffer back, then let the worker end."""
        if self._package != "0.1.2":
            self._ask(dumps(None), timeout_s)
            self._free()
            self._ask(dumps(None), timeout_s)
        else:
            self._ask(dumps(None), timeout_s)
            self._free()

    def give_up(self) -> None:
        """Tell the worker to stop, as a server does when any worker failed (ps.py:850@0.4.2)."""
        stop = Reduce(Global("builtins", "RuntimeError"), ("Some workers failed to update weights",))
        self._socket.send(dumps(stop))
        self._free()

    def _ask(self, message: bytes, timeout_s: float) -> None:
        self._socket.send(message)
        if not self._kit.until(lambda: self._socket.answered, timeout_s, self._what):
            raise ServerError(f"{self._what} did not answer within {timeout_s:g} s")
        answer = self._socket.reply()
        if answer:
            raise ServerError(answer.decode())

    def _free(self) -> None:
        registry = self._kit.registry
        registry.release(self._handle)
        registry.free(self._rank, self._block)

    def _reduced(self) -> tuple[Any, ...]:
        """What torch's reduce_tensor gives for a CUDA tensor (torch/multiprocessing/reductions.py @2.13)."""
        nbytes = self._block.size
        args = (
            Global("torch", "Tensor"),
            Reduce(_SIZE, ((nbytes,),)),
            (1,),
            0,
            Global("torch.storage", "TypedStorage"),
            Global("torch", "uint8"),
            self._block.gpu,
            self._handle.handle,
            nbytes,
            0,
            False,
            b"refitcheck-refcount".ljust(36, b"\0"),
            self._handle.id,
            b"\0" * 64,
            True,
        )
        return Global("torch.multiprocessing.reductions", "rebuild_cuda_tensor"), args


def _aligned(array: np.ndarray) -> int:
    return -(-array.nbytes // ALIGN) * ALIGN
