"""Device memory of the trainer's GPUs: blocks that are freed, poisoned and handed out again, as a caching allocator
does."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# 0xbfa5: about -1.3 as bfloat16 and as float32. Whoever reads freed memory serves tokens that no weights explain,
# and no NaN
# that a reply could not carry.
POISON = (0xA5, 0xBF)


@dataclass(eq=False)
class Block:
    """One allocation on one GPU. `exports` are the ids that ever pointed at the present contents."""

    id: int
    gpu: int
    data: np.ndarray
    freed: bool = False
    exports: list[int] = field(default_factory=list)


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
            if block.data.size == nbytes:
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
        poison(block.data)
        self._free.append(block)

    @property
    def in_use(self) -> int:
        """Blocks handed out so far and not in the free list."""
        return self._next - len(self._free)


def poison(data: np.ndarray) -> None:
    """Overwrite bytes with a value that no weights hold."""
    even = data.size // 2 * 2
    data[:even].view("<u2")[...] = POISON[0] | POISON[1] << 8
    data[even:] = POISON[0]
