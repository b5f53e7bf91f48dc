"""Device memory of the trainer's GPUs: blocks that are freed, poisoned and handed out again, as a caching allocator
does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

# 0xbfa5: about -1.3 as bfloat16 and as float32. Whoever reads freed memory serves tokens that no weights explain,
# and no NaN
# that a reply could not carry.
POISON = (0xA5, 0xBF)

UNSEEN = 2
"""References to an array of which nobody holds a view: its owner's, and the one that counts."""


class Block:
    """One allocation on one GPU. `exports` are the ids that ever pointed at the present contents.

    Bytes that are gone are overwritten when somebody looks, unless somebody still holds a view of them: poison that
    nobody reads costs as much as moving the weights.
    """

    def __init__(self, id: int, gpu: int, data: np.ndarray) -> None:
        self.id = id
        self.gpu = gpu
        self.freed = False
        self.exports: list[int] = []
        self._bytes = data
        self._gone = False

    @property
    def data(self) -> np.ndarray:
        """The bytes (uint8), poisoned where their owner gave them back."""
        if self._gone:
            poison(self._bytes)
            self._gone = False
        return self._bytes

    @property
    def size(self) -> int:
        """In bytes; to ask is not to look."""
        return self._bytes.size

    def fill(self, parts: Sequence[np.ndarray]) -> None:
        """Overwrite all of it with these uint8 arrays, one behind the other."""
        np.concatenate(parts, out=self._bytes)
        self._gone = False

    def lose(self) -> None:
        """What it holds is gone from now on."""
        if sys.getrefcount(self._bytes) > UNSEEN:
            poison(self._bytes)
        else:
            self._gone = True


class DeviceMemory:
    """The caching allocator of one GPU: a freed block of fitting size is handed out again before new memory is
    taken."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self._free: list[Block] = []
        self._next = 0

    def allocate(self, nbytes: int) -> tuple[Block, bool]:
        """(a block of `nbytes` uint8, whether its memory had been used before). The exports of the former use stay
        listed until the caller has dealt with them.
        """
        for index in range(len(self._free) - 1, -1, -1):
            block = self._free[index]
            if block.size == nbytes:
                del self._free[index]
                block.freed = False
                return block, True
        self._next += 1
        return Block(self._next, self.gpu, np.empty(nbytes, dtype=np.uint8)), False

    def free(self, block: Block) -> None:
        """Give a block back; its contents are gone at once. ValueError for a second free."""
        if block.freed:
            raise ValueError(f"block {block.id} of GPU {block.gpu} is freed twice")
        block.freed = True
        block.lose()
        self._free.append(block)


def poison(data: np.ndarray) -> None:
    """Overwrite bytes with a value that no weights hold."""
    even = data.size // 2 * 2
    data[:even].view("<u2")[...] = POISON[0] | POISON[1] << 8
    data[even:] = POISON[0]
