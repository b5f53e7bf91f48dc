"""/weights_checker on one rank: snapshot, reset_tensors, compare, checksum.

Source: sglang/srt/utils/weight_checker.py @0.5.23. On a machine without CUDA compare fails in every version, and
checksum up to 0.5.22, because they call Tensor.cuda(); `cuda=True` is a GPU, or a CPU where that call was made the
identity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fakes.engine.loading import torch_size
from fakes.engine.weights import RankWeights
from fakes.tiny import TORCH_NAMES

NO_CUDA = "Torch not compiled with CUDA enabled"


class CheckError(Exception):
    """What the manager catches and answers as 400: `message` is str(exception), `type` its class."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


@dataclass(frozen=True)
class CheckerRules:
    """What differs by version and device.

    cuda: whether Tensor.cuda() works. checksum_needs_cuda: up to 0.5.22. consumes_snapshot: a successful compare
    drops it. long_mismatch: with num_exceed, expect and actual. checksum: False where a version has no such action.
    role: whether parallelism_info is a list that names roles (0.5.21 and later, miles). per_gpu_checksum: not in
    0.5.12.post1.
    """

    cuda: bool = False
    checksum_needs_cuda: bool = False
    consumes_snapshot: bool = True
    long_mismatch: bool = True
    role: bool = True
    per_gpu_checksum: bool = True


class WeightChecker:
    """One rank's checker; it outlives updates and keeps one snapshot."""

    def __init__(self, weights: RankWeights, rules: CheckerRules, *, seed: int = 0, role: str = "target") -> None:
        self.weights = weights
        self._role = role
        self.rules = rules
        self._snapshot: dict[str, np.ndarray] | None = None
        self._rng = np.random.default_rng([seed, weights.tp_rank, 0xC4EC])

    def handle(
        self, action: str, skip_tensor_list: Sequence[str] | None = None, *, allow_quant_error: bool = False
    ) -> dict[str, Any] | None:
        """The ChecksumInfo of a checksum, None for the other actions. CheckError for what ends in a 400."""
        skip = tuple(skip_tensor_list or ())
        if action == "snapshot":
            self._snapshot = self.weights.snapshot()
        elif action == "reset_tensors":
            self._reset(skip)
        elif action == "compare":
            self._compare(skip)
        elif action == "checksum":
            return self._checksum(skip)
        else:
            raise CheckError("Exception", f"Unsupported action={action!r}")
        return None

    def _reset(self, skip: tuple[str, ...]) -> None:
        for name, param in self.weights.params.items():
            if not _skipped(name, skip):
                self.weights.fill(name, self._rng.random(param.shape, dtype=np.float32))

    def _compare(self, skip: tuple[str, ...]) -> None:
        if self._snapshot is None:
            raise CheckError("AssertionError", "")
        if not self.rules.cuda:
            raise CheckError("AssertionError", NO_CUDA)
        errors = [
            self._mismatch(name, expected, self.weights.params[name])
            for name, expected in self._snapshot.items()
            if not _skipped(name, skip) and not _equal(expected, self.weights.params[name])
        ]
        if errors:
            raise CheckError("Exception", "check tensor equality failed:\n" + "\n".join(errors))
        if self.rules.consumes_snapshot:
            self._snapshot = None

    def _mismatch(self, name: str, expected: np.ndarray, actual: np.ndarray) -> str:
        with np.errstate(all="ignore"):
            diff = np.abs(actual.astype(np.float32) - expected.astype(np.float32))
        worst, mean = float(diff.max()), float(diff.sum(dtype=np.float32)) / diff.size
        text = f"name={name} max_abs_err={worst} mean_abs_err={mean} "
        if not self.rules.long_mismatch:
            return text
        shape = f"(shape={tuple(expected.shape)} dtype=torch.{TORCH_NAMES[expected.dtype]})"
        return f"{text}num_exceed={int((~(diff <= 0)).sum())} expect=raw{shape} actual=raw{shape} "

    def _checksum(self, skip: tuple[str, ...]) -> dict[str, Any]:
        if self.rules.checksum_needs_cuda and not self.rules.cuda:
            raise CheckError("AssertionError", NO_CUDA)
        sums = {name: found for name, found in self.weights.checksums().items() if not _skipped(name, skip)}
        out: dict[str, Any] = {"checksums": sums}
        if self.rules.per_gpu_checksum:
            out["per_gpu_checksum"] = overall_checksum(sums)
        out["parallelism_info"] = self._placement()
        return out

    def _placement(self) -> dict[str, Any] | list[dict[str, Any]]:
        rank, size = self.weights.tp_rank, self.weights.tp_size
        placement = {
            "tp_rank": rank,
            "tp_size": size,
            "dp_rank": 0,
            "dp_size": 1,
            "pp_rank": 0,
            "pp_size": 1,
            "rank": rank,
            "size": size,
        }
        return [{"role": self._role, **placement}] if self.rules.role else placement


def merged(target: dict[str, Any], draft: dict[str, Any], *, roles: bool) -> dict[str, Any]:
    """A rank's answer for target and draft together; from 0.5.21 the placement of both, before that of the target
    (scheduler_components/weight_updater.py:63@0.5.20, 49@0.5.23)."""
    sums = {**target["checksums"], **{f"draft.{name}": found for name, found in draft["checksums"].items()}}
    where = target["parallelism_info"]
    return {
        "checksums": sums,
        "per_gpu_checksum": overall_checksum(sums),
        "parallelism_info": [*where, *draft["parallelism_info"]] if roles else where,
    }


def overall_checksum(checksums: Mapping[str, str]) -> str:
    """sha256 over the sorted names and hashes of one rank."""
    digest = hashlib.sha256()
    for name in sorted(checksums):
        digest.update(name.encode())
        digest.update(checksums[name].encode())
    return digest.hexdigest()


def engine_checksum(per_gpu: Sequence[str]) -> str:
    """sha256 over the ranks' checksums in reply order (tokenizer_control_mixin.py:896 @0.5.23)."""
    return hashlib.sha256("".join(per_gpu).encode()).hexdigest()


def _skipped(name: str, skip: tuple[str, ...]) -> bool:
    return any(pattern in name for pattern in skip)


def _equal(expected: np.ndarray, actual: np.ndarray) -> bool:
    if expected.shape != actual.shape:
        raise CheckError("AssertionError", f"{torch_size(expected.shape)} {torch_size(actual.shape)}")
    with np.errstate(all="ignore"):
        return bool(np.all(np.abs(actual.astype(np.float32) - expected.astype(np.float32)) == 0))
