"""Broken clients: payloads that are incomplete, for another rank, or let go too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.plants.client_calls import CONTROL, UPDATE, Send, requests
from conformance.plants.make import Apply, broken, method

TRANSFER = "harness.reference.transports.tensor:TensorTransfer"
CLIENT = "harness.reference.refit:RefitClient"
KIT = "fakes.trainer.kit:TrainerKit"
Named = list[tuple[str, Any]]


def exporting(change: Callable[[Any, int, Named], Named]) -> Apply:
    """What a rank exports goes through `change(kit, rank, named)`; an empty result leaves the original."""

    def make(original: Any) -> Any:
        def export(self: Any, rank: int, named: Named, *rest: Any, **more: Any) -> Any:
            return original(self, rank, change(self, rank, list(named)) or named, *rest, **more)

        return export

    return method(f"{KIT}.export", make)


def exported(change: Callable[[Any, int], Any]) -> Apply:
    """Every export that the client gets goes through `change(export, rank)`."""

    def make(original: Any) -> Any:
        def export(self: Any, rank: int, *args: Any, **more: Any) -> Any:
            return change(original(self, rank, *args, **more), rank)

        return export

    return method(f"{KIT}.export", make)


def posting(change: Callable[[list[Any]], list[Any]]) -> Apply:
    """The payload list of every update goes through `change`."""

    def sent(endpoint: Any, send: Send, op: str, body: Any, timeout_s: float) -> Any:
        if op == UPDATE:
            body = {**body, "serialized_named_tensors": change(list(body["serialized_named_tensors"]))}
        return send(op, body, timeout_s)

    return requests(sent)


class Kept:
    """An export of which the client believes that it released it."""

    def __init__(self, export: Any) -> None:
        self.payload = export.payload

    def release(self) -> None:
        """Nothing."""


def _never_released(export: Any, rank: int) -> Any:
    return Kept(export)


def _others_never_released(export: Any, rank: int) -> Any:
    return Kept(export) if rank else export


def _released_at_once(export: Any, rank: int) -> Any:
    kept = Kept(export)
    export.release()
    return kept


def _from_the_saver(original: Any) -> Any:
    """All but the first bucket of a rank come from memory that the trainer's memory saver mapped."""

    def export(self: Any, rank: int, named: Named, *rest: Any, **more: Any) -> Any:
        first = self.__dict__.setdefault("first", set())
        allocation = "vmm" if rank in first else "regular"
        first.add(rank)
        return original(self, rank, named, *rest, allocation=allocation, **more)

    return export


def _lagging(kit: Any, rank: int, named: Named) -> Named:
    """Every rank but the first exports what it should have exported before."""
    before = kit.__dict__.setdefault("lag", {})
    last, before[rank] = before.get(rank), named
    return last if rank and last else named


def _large_ones_lost(kit: Any, rank: int, named: Named) -> Named:
    """A tensor that is larger than a bucket: the bucket before is sent instead."""
    before = kit.__dict__.setdefault("before", {})
    large = len(named) == 1 and named[0][1].nbytes > 64 * 1024
    if not large:
        before[rank] = named
    return before.get(rank, named) if large else named


def _without_last(kit: Any, rank: int, named: Named) -> Named:
    return named[:-1]


def _without_a_norm(kit: Any, rank: int, named: Named) -> Named:
    return [(n, t) for n, t in named if n != "model.layers.1.input_layernorm.weight"]


def _without_auxiliary(kit: Any, rank: int, named: Named) -> Named:
    return [(n, t) for n, t in named if not n.endswith((".bias", "q_norm.weight", "k_norm.weight"))]


def _noise(kit: Any, rank: int, named: Named) -> Named:
    return [(n, np.asarray(t * 0 + 0.01, dtype=t.dtype)) for n, t in named]


def _one_number_off(kit: Any, rank: int, named: Named) -> Named:
    return [(n, np.append((t[:1] * 1.01).astype(t.dtype), t[1:]) if n == "model.norm.weight" else t) for n, t in named]


def _wide_names_rotated(original: Any) -> Any:
    """Mixed dtypes: the float32 tensors of a bucket are in byte order, their names in the other one."""

    def by_dtype(bucket: Named) -> list[Named]:
        groups: list[Named] = original(bucket)
        if len(groups) == 1:
            return groups
        return [_rotated(g) if g[0][1].dtype == np.float32 else g for g in groups]

    return by_dtype


def _rotated(group: Named) -> Named:
    return [(name, group[(i + 1) % len(group)][1]) for i, (name, _) in enumerate(group)]


def _any_state(original: Any) -> Any:
    return lambda self, state: original(self, state) if state else None


def _success_at_once(_original: Any) -> Any:
    def refit(self: Any, state: Any, version: str, deadline: Any) -> Any:
        from harness.sut.protocol import RefitResult

        return RefitResult(version=version)

    return refit


def _spare_ranks_leave(original: Any) -> Any:
    def run(self: Any, rank: int) -> int:
        return original(self, rank) if any(rank in e.ranks for e in self.engines) else 0

    return run


def _reversed(payloads: list[Any]) -> list[Any]:
    return payloads[::-1]


def _one_for_all(payloads: list[Any]) -> list[Any]:
    return payloads[:1] * len(payloads)


def _always_two(payloads: list[Any]) -> list[Any]:
    return (payloads * 2)[:2]


def _continue_unheard(_original: Any) -> Any:
    def resume(self: Any, engines: Any, deadline: Any) -> None:
        for engine in engines:
            engine.endpoint.start("continue_generation", {}, timeout_s=5.0)
            engine.paused = False

    return resume


def _nothing_paused(original: Any) -> Any:
    return lambda self, engines, deadline: None


PLANTS = (
    broken(
        "payloads-reversed",
        "RANK-1",
        "NVIDIA-NeMo/RL#3519, D32",
        "the payload list is in reverse order",
        posting(_reversed),
    ),
    broken(
        "success-before-the-answer",
        "ERR-2",
        "areal-project/AReaL#1444",
        "success is reported while the last call is under way",
        method(f"{CONTROL}.resume_generation", _continue_unheard),
    ),
    broken("rank-1-lags", "RANK-1", "D64", "all ranks but the first are one bucket behind", exporting(_lagging)),
    broken(
        "one-payload-for-all",
        "RANK-2",
        "sgl-project/sglang#32580",
        "rank 0's payload goes to every rank",
        posting(_one_for_all),
    ),
    broken(
        "lists-of-one-length",
        "RANK-3",
        "NovaSky-AI/SkyRL#1398",
        "every engine gets two payloads",
        posting(_always_two),
    ),
    broken(
        "spare-rank-leaves",
        "RANK-4",
        "D28",
        "a rank without an engine returns at once",
        method(f"{TRANSFER}._rank", _spare_ranks_leave),
    ),
    broken(
        "others-never-release",
        "IPC-1",
        "THUDM/slime#1731",
        "only rank 0 releases its exports",
        exported(_others_never_released),
    ),
    broken(
        "released-at-once",
        "IPC-2",
        "vllm-project/vime#170, D29",
        "exports are released before they are sent",
        exported(_released_at_once),
    ),
    broken(
        "exported-from-the-saver",
        "IPC-3",
        "THUDM/slime#2188",
        "tensors in the memory saver's regions are exported as they lie",
        method(f"{KIT}.export", _from_the_saver),
    ),
    broken("never-released", "MEM-3", "THUDM/slime#2188", "no export is released", exported(_never_released)),
    broken(
        "wide-names-rotated",
        "NAME-1",
        "NovaSky-AI/SkyRL#1816, D31",
        "float32 tensors among bfloat16 get each other's names",
        method("harness.reference.buckets:by_dtype", _wide_names_rotated),
    ),
    broken(
        "last-of-bucket-lost",
        "NAME-2",
        "NovaSky-AI/SkyRL#1471",
        "the last tensor of each bucket is left out",
        exporting(_without_last),
    ),
    broken(
        "one-norm-left-out",
        "NAME-71",
        "NovaSky-AI/SkyRL#1471",
        "one norm of one layer is never sent",
        exporting(_without_a_norm),
    ),
    broken(
        "empty-is-success",
        "NAME-2",
        "NVIDIA-NeMo/RL#3519, D63",
        "an empty state is a success",
        method(f"{CLIENT}._check", _any_state),
    ),
    broken(
        "large-tensors-lost",
        "NAME-3",
        "sgl-project/sglang#14178",
        "a tensor larger than a bucket is never sent",
        exporting(_large_ones_lost),
    ),
    broken(
        "auxiliary-lost",
        "NAME-4",
        "NVIDIA-NeMo/RL#3226",
        "biases and norms per head are left out",
        exporting(_without_auxiliary),
    ),
    broken(
        "success-at-once",
        "VERIF-1",
        "lightseekorg/tokenspeed#1373",
        "nothing is sent, and success is reported",
        method(f"{CLIENT}.refit", _success_at_once),
    ),
    broken(
        "noise-sent",
        "VERIF-1",
        "lightseekorg/tokenspeed#1373, D107 D108",
        "what is sent is not the policy's",
        exporting(_noise),
    ),
    broken(
        "one-number-off",
        "VERIF-3",
        "lightseekorg/tokenspeed#1373",
        "one number of a norm arrives one per cent larger: no answer changes enough to be told from rounding",
        exporting(_one_number_off),
    ),
    broken(
        "no-pause",
        "PART-71",
        "NVIDIA-NeMo/RL#3519, D10",
        "requests are let in between the buckets",
        method("harness.reference.control:Control.pause", _nothing_paused),
    ),
)
