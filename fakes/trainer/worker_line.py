"""A trainer rank's line to the checkpoint-engine worker of one engine rank: a buffer on its GPU, a socket, messages.

The messages are those of checkpoint_engine/ps.py:723@0.4.2, pickles of what torch would give. Each is answered before
the next may be sent: an empty answer is good, a text the traceback of what failed. Nothing is read of what comes but
that text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.tiny import TORCH_NAMES
from fakes.trainer.pickling import Global, Reduce, dumps
from fakes.trainer.registry import Consumer, gpu_uuid

if TYPE_CHECKING:
    from fakes.trainer.kit import TrainerKit

ALIGN = 256
_SIZE = Global("torch", "Size")


def aligned(nbytes: int) -> int:
    """The room that a tensor of so many bytes takes in a buffer."""
    return -(-nbytes // ALIGN) * ALIGN


class WorkerLine:
    """Rank `rank` at `address`, with a buffer of `nbytes`. The kit records every fill, message and answer.

    `uuid` is the id of its device, by which a worker finds the address. OSError for an address that is taken.
    """

    def __init__(
        self, kit: TrainerKit, rank: int, address: str, nbytes: int, consumers: Sequence[Consumer] = ()
    ) -> None:
        self.address = address
        self.uuid = f"GPU-{gpu_uuid(rank)}"
        self._kit, self._rank = kit, rank
        self._socket = kit.ipc.bind(address)
        self._block = kit.registry.allocate(rank, nbytes)
        (self._handle,) = kit.registry.plan(rank, [self._block], consumers)
        self._offered = self._freed = False
        self._note("ipc_line", uuid=self.uuid, gpu=rank, consumers=[list(consumer) for consumer in consumers])

    def offer(self, names: Sequence[str]) -> None:
        """Hand over the buffer, in which these tensors will lie."""
        self._offered = True
        self._kit.registry.announce(self._handle, names=list(names), sha256="")
        self._ask("buffer", self._reduced())

    def fill(self, offset: int, named: Sequence[tuple[str, np.ndarray]]) -> list[dict[str, Any]]:
        """Copy tensors into the buffer from `offset` on; what a worker is to be told of them."""
        metas = []
        for name, array in named:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._note("ipc_fill", start=offset, end=offset + data.size)
            self._block.data[offset : offset + data.size] = data
            metas.append({"name": name, "dtype": array.dtype, "shape": array.shape, "offset": offset})
            offset += aligned(data.size)
        return metas

    def tell(self, metas: Sequence[Mapping[str, Any]]) -> None:
        """A bucket is in the buffer."""
        sizes = [int(np.prod(meta["shape"], dtype=int)) * meta["dtype"].itemsize for meta in metas]
        about = [
            {**meta, "dtype": Global("torch", TORCH_NAMES[meta["dtype"]]), "shape": Reduce(_SIZE, (meta["shape"],))}
            for meta in metas
        ]
        spans = [[meta["offset"], meta["offset"] + size] for meta, size in zip(metas, sizes, strict=True)]
        self._ask("weights", about, spans=spans, names=[meta["name"] for meta in metas])

    def end(self) -> None:
        """Once to take the buffer back, once more to let the worker finish."""
        self._ask("none", None)

    def stop(self, why: str) -> bool:
        """End the worker with an error. False while it owes an answer: no message can be sent then."""
        if self._socket.owed:
            return False
        self._ask("stop", Reduce(Global("builtins", "RuntimeError"), (why,)))
        return True

    @property
    def answered(self) -> bool:
        """Whether `reply()` has something."""
        return self._socket.answered

    def reply(self) -> str:
        """The answer to the last message: "" or a traceback. LookupError while there is none."""
        text = self._socket.reply().decode()
        self._note("ipc_reply", good=not text)
        return text

    def free(self) -> None:
        """The buffer may be used again. A second call does nothing."""
        if not self._freed:
            self._freed = True
            if self._offered:
                self._kit.registry.release(self._handle)
            self._kit.registry.free(self._rank, self._block)
            self._note("ipc_free")

    def _ask(self, kind: str, value: Any, **about: Any) -> None:
        self._note("ipc_ask", kind=kind, **about)
        self._socket.send(dumps(value))

    def _note(self, name: str, **data: Any) -> None:
        self._kit.record(name, self._rank, {"address": self.address, **data})

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
