"""Stands for bridge_model.py: the same names, no Megatron. What a rank does is told by the dtype that it is to load."""

import os
import struct
import time
from pathlib import Path

TENSORS = (("a", [1.0, 2.0]), ("b", [3.0]), ("c", []))


def prepare():
    if os.environ.get("STUB_FAILS"):
        raise ImportError("no\nmegatron")
    return "stub 1.0"


def raw(values):
    return "float32", [len(values)], struct.pack(f"<{len(values)}f", *values)


class Policy:
    def __init__(self, rank, world, store, tensor_parallel, pipeline_parallel, timeout_s):
        self.rank, self.world, self.store, self.sign = rank, world, store, 1
        Path(f"{store}.{rank}").write_text(f"{tensor_parallel} {pipeline_parallel}")

    def load(self, folder, dtype):
        if os.environ.get("STUB_LOAD") == "raises" and self.rank == 1:
            raise ValueError("cannot\nload")
        if os.environ.get("STUB_LOAD") == "dies" and self.rank == 1:
            os._exit(3)
        assert Path(folder, "model.safetensors").exists()
        return 7

    def train(self):
        self.sign = -1

    def export(self):
        for number, (name, values) in enumerate(TENSORS):
            self.meet(number)
            yield name, [self.sign * value for value in values]

    def meet(self, number):
        """A collective: over when every rank has come."""
        Path(f"{self.store}-{number}.{self.rank}").touch()
        while not all(Path(f"{self.store}-{number}.{rank}").exists() for rank in range(self.world)):
            time.sleep(0.001)
