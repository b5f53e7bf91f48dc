"""The tiny model that a real server serves: one folder per shape, dtype and seed, written once into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fakes.tiny import read_model, tiny_config, tiny_weights, write_model
from harness.errors import UsageError
from real_runs.env import cache_dir


@dataclass(frozen=True)
class TinyModel:
    """A shape of the tiny model at one tensor-parallel size; what recipes are made from."""

    shape: str = "llama"
    tied: bool = False
    dtype: str = "bfloat16"
    tp: int = 1
    _weights: dict[int, dict[str, np.ndarray]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        return tiny_config(self.shape, self.tied, self.dtype)

    def weights(self, seed: int) -> dict[str, np.ndarray]:
        """HF names and full tensors of `seed`, in the model's dtype."""
        if seed not in self._weights:
            self._weights[seed] = tiny_weights(self.config, seed)
        return self._weights[seed]

    def digest(self, seed: int) -> str:
        """A short hash of names and bytes: a recording is good only for the weights it was made with."""
        whole = hashlib.sha256()
        for name, array in sorted(self.weights(seed).items()):
            whole.update(name.encode() + str(array.shape).encode() + array.tobytes())
        return whole.hexdigest()[:12]

    def folder(self, seed: int) -> str:
        """The path of its Hugging Face folder, made when it is not there yet."""
        name = f"{self.shape}{'-tied' if self.tied else ''}-{self.dtype}-{seed}-{self.digest(seed)}"
        target = cache_dir() / "models" / name
        if not (target / "config.json").exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=target.parent))
            write_model(temporary, self.config, self.weights(seed))
            try:
                os.rename(temporary, target)
            except OSError:  # another run was faster
                shutil.rmtree(temporary, ignore_errors=True)
        return str(target)


@dataclass(frozen=True)
class FolderModel(TinyModel):
    """A Hugging Face folder: its own weights are those of seed 0, other seeds are random ones of the same shapes.

    UsageError for a folder that cannot be served: see `fakes.tiny.read_model`.
    """

    source: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json, in the dtype that is served."""
        return self._read()[0] | {"torch_dtype": self.dtype}

    def weights(self, seed: int) -> dict[str, np.ndarray]:
        """HF names and full tensors."""
        if seed == 0 and 0 not in self._weights:
            self._weights[0] = self._read()[1]
        return super().weights(seed)

    def folder(self, seed: int) -> str:
        """The folder itself for its own weights."""
        return self.source if seed == 0 else super().folder(seed)

    def _read(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        try:
            return read_model(self.source)
        except (OSError, ValueError) as error:
            raise UsageError(f"model {self.source}: {error}") from None
