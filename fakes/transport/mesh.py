"""One process group in virtual time: broadcasts from rank 0, matched in the order in which each rank posts them.

Nothing here waits: a rank that has to is told later. What the two backends do differently is what torch 2.13's do:

gloo   sends down a binomial tree, so a rank hands on only what it was given, and nobody waits for ranks outside its own
       branch. A buffer that is too short aborts the receiving process (gloo/transport/tcp/pair.cc:456), one that is too
       long is filled in part. A tensor that is not contiguous is sent as its memory lies.
nccl   is all or nothing. Sizes that differ are undefined; here nobody gets anything. A tensor that is not contiguous is
       refused. The memory of a tensor that its owner dropped before the kernel ran may be somebody else's by then.
       Read, never run: there is no GPU behind it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fakes.engine.protocol import Raised

ABORT = "SIGABRT"
"""`Raised.type` of what ends the receiving process instead of raising in it."""

# 0xbfa5: about -1.3 as bfloat16 and as float32, so that tokens from it are those of no weights, without a NaN.
POISON = (0xA5, 0xBF)

_PAIR = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc"
CLOSED = (
    _PAIR + ":553] Connection closed by peer [127.0.0.1]:{port}. This is typically caused by a remote worker crashing. "
    "Check the logs of the remote worker before reporting an error. GLHF! 🏖️"
)
TOO_SHORT = (
    "[enforce fail at " + _PAIR[1:] + ":456] op.preamble.length <= op.nbytes. {sent} vs {room}. Received data size "
    "doesn't match expected size. Is there a distributed collective mismatch in your code?"
)
REMOTE_GONE = (
    "NCCL error: remote process exited or there was a network error. ncclRemoteError: A call failed possibly due to a "
    "network error or a remote process exiting prematurely."
)

Finish = Callable[["list[np.ndarray] | Raised"], None]
Buffer = Callable[[], np.ndarray]
"""What a receiver's buffer holds, when it is looked at."""


def poison(count: int) -> np.ndarray:
    """`count` bytes that belong to somebody else."""
    return np.resize(np.array(POISON, dtype=np.uint8), count)


class Sent:
    """One broadcast of rank 0. It is over when `done`, or when `error` is set; until then its memory may be read."""

    def __init__(self, number: int, array: np.ndarray, backend: str) -> None:
        self.number = number
        self.nbytes = array.nbytes
        self.done = False
        self.error: Raised | None = None
        self.dropped = False
        self._data: np.ndarray | None = None
        self._lent = False
        self.readers = 0
        self._kept = array if backend != "nccl" else None
        self._weak = weakref.ref(array)

    def data(self) -> np.ndarray:
        """Its bytes from the moment on at which the first receiver takes them; uint8, read-only, the same for all.

        Until the sender has waited they are the sender's own memory: it may not change that before, and a receiver that
        has all that it waits for reads them in the same instant. So most of the time nothing is copied.
        """
        if self._data is None:
            array = self._kept if self._kept is not None else self._weak()
            self.dropped = array is None
            self._data = poison(self.nbytes) if array is None else raw_bytes(array)
            self._lent = array is not None and np.may_share_memory(array, self._data)
            self._data.flags.writeable = False
            self._kept = None
        return self._data

    def settle(self) -> None:
        """The sender has waited: its memory is its own again, so who still needs the bytes gets a copy."""
        if self._lent and self.readers and self._data is not None:
            self._data = self._data.copy()
            self._lent = False


def raw_bytes(array: np.ndarray) -> np.ndarray:
    """As many bytes as the tensor has, from its first element on, whatever its strides say; a view where it can be."""
    if array.flags.c_contiguous or any(step <= 0 for step in array.strides):
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    line = np.lib.stride_tricks.as_strided(array, shape=(array.size,), strides=(array.itemsize,))
    return line.view(np.uint8)


@dataclass(eq=False)
class _Receive:
    """One call of a receiver: several buffers, which it waits for together."""

    finish: Finish
    buffers: list[Buffer | None]
    open: int
    read: list[Sent] = field(default_factory=list)

    def done(self, place: int, buffer: Buffer) -> None:
        if self.open > 0:
            self.buffers[place] = buffer
            self.open -= 1
            if not self.open:
                self._end([b() for b in self.buffers if b is not None])

    def fail(self, error: Raised) -> None:
        if self.open > 0:
            self.open = -1
            self._end(error)

    def _end(self, outcome: list[np.ndarray] | Raised) -> None:
        for sent in self.read:
            sent.readers -= 1
        self.finish(outcome)


@dataclass(eq=False)
class _Slot:
    """One buffer of one receiver in one broadcast."""

    receive: _Receive
    place: int
    nbytes: int
    buffer: Buffer | None = None
    over: bool = False

    def complete(self) -> None:
        if not self.over and self.buffer is not None:
            self.over = True
            self.receive.done(self.place, self.buffer)

    def fail(self, error: Raised) -> None:
        if not self.over:
            self.over = True
            self.receive.fail(error)


@dataclass(eq=False)
class _Broadcast:
    sent: Sent | None = None
    slots: dict[int, _Slot] = field(default_factory=dict)
    served: set[int] = field(default_factory=set)


class Mesh:
    """A group that has formed: `size` ranks, of which 0 is the source of every broadcast."""

    def __init__(self, name: str, backend: str, size: int, port: int = 0) -> None:
        self.name = name
        self.backend = backend
        self.size = size
        self.gone: set[int] = set()
        self._port = port
        self._next = [0] * size
        self._broadcasts: dict[int, _Broadcast] = {}

    def send(self, array: np.ndarray) -> Sent:
        """Rank 0 posts one broadcast. ValueError for what the backend refuses."""
        if self.backend == "nccl" and not array.flags.c_contiguous:
            raise ValueError("Tensors must be contiguous")
        sent = Sent(self._take(0), array, self.backend)
        found = self._broadcasts.setdefault(sent.number, _Broadcast())
        found.sent = sent
        self._advance(sent.number, found)
        return sent

    def receive(self, rank: int, sizes: Sequence[int], finish: Finish) -> None:
        """`rank` posts buffers of these sizes in bytes; `finish` gets them filled, or the error."""
        receive = _Receive(finish, [None] * len(sizes), len(sizes))
        if not sizes:
            finish([])
        for place, nbytes in enumerate(sizes):
            number = self._take(rank)
            found = self._broadcasts.setdefault(number, _Broadcast())
            found.slots[rank] = _Slot(receive, place, nbytes)
            self._advance(number, found)

    def leave(self, rank: int) -> None:
        """The connections of `rank` are closed: who waits for it hears of it."""
        if rank in self.gone:
            return
        self.gone.add(rank)
        for number, found in list(self._broadcasts.items()):
            slot = found.slots.get(rank)
            if slot is not None:
                slot.over = True
            self._advance(number, found)

    def waited_for(self, sent: Sent) -> list[int]:
        """The ranks that have not taken this broadcast."""
        found = self._broadcasts.get(sent.number)
        return [] if found is None else [rank for rank in range(1, self.size) if rank not in found.served]

    def _take(self, rank: int) -> int:
        number = self._next[rank]
        self._next[rank] = number + 1
        return number

    def _advance(self, number: int, found: _Broadcast) -> None:
        self._serve(found)
        self._fail(found)
        self._complete(found)
        everybody = found.sent is not None and len(found.slots) == self.size - 1
        if everybody and (found.sent.done or found.sent.error) and all(s.over for s in found.slots.values()):  # type: ignore[union-attr]
            self._broadcasts.pop(number, None)

    def _serve(self, found: _Broadcast) -> None:
        if found.sent is None or 0 in self.gone:
            return
        if self.backend == "nccl":
            wrong = any(slot.nbytes != found.sent.nbytes for slot in found.slots.values())
            if len(found.slots) < self.size - 1 or wrong or self.gone:
                return
        for rank in sorted(set(found.slots) - found.served):
            parent = self._parent(rank)
            if rank in self.gone or (parent != 0 and parent not in found.served):
                continue
            found.served.add(rank)
            self._fill(found.slots[rank], found.sent)

    def _fill(self, slot: _Slot, sent: Sent) -> None:
        data = sent.data()
        if slot.nbytes < data.nbytes:
            slot.fail(Raised(ABORT, TOO_SHORT.format(sent=data.nbytes, room=slot.nbytes)))
        elif slot.nbytes > data.nbytes:
            longer = np.concatenate([data, poison(slot.nbytes - data.nbytes)])
            slot.buffer = lambda: longer
        else:
            slot.buffer = sent.data
            sent.readers += 1
            slot.receive.read.append(sent)

    def _complete(self, found: _Broadcast) -> None:
        for rank in found.served:
            if all(child in found.served for child in self._children(rank)):
                found.slots[rank].complete()
        sent = found.sent
        if sent is not None and sent.error is None and all(child in found.served for child in self._children(0)):
            sent.done = True

    def _fail(self, found: _Broadcast) -> None:
        """Who waits for a rank that is gone: to be given something by it, or to hand something on to it."""
        if not self.gone:
            return
        error = self._gone()
        lost = self.gone - found.served
        for rank, slot in found.slots.items():
            fed = rank in found.served
            if self.backend == "nccl":
                if not fed:
                    slot.fail(error)
            elif (not fed and self._parent(rank) in self.gone) or (fed and lost & set(self._children(rank))):
                slot.fail(error)
        sent = found.sent
        if sent is not None and not sent.done:
            wanted = set(range(1, self.size)) if self.backend == "nccl" else set(self._children(0))
            if 0 in self.gone or lost & wanted:
                sent.error = error

    def _gone(self) -> Raised:
        if self.backend == "nccl":
            return Raised("DistBackendError", REMOTE_GONE)
        return Raised("RuntimeError", CLOSED.format(port=self._port))

    def _parent(self, rank: int) -> int:
        return rank ^ (1 << (rank.bit_length() - 1)) if self.backend != "nccl" else 0

    def _children(self, rank: int) -> list[int]:
        if self.backend == "nccl":
            return list(range(1, self.size)) if rank == 0 else []
        out, step = [], 1 << rank.bit_length()
        while rank + step < self.size:
            out.append(rank + step)
            step <<= 1
        return out


def describe(value: Any) -> str:
    """Ranks as a person reads them: `rank 3`, `ranks 1, 2, 5`."""
    ranks = list(value)
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
