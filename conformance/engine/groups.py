"""Playing the trainer of a weight-update group: make it, announce, broadcast, and go away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fakes.outcome import Outcome
from harness.bench import Bench
from harness.lanes.base import EngineHandle, Pending

INIT, DESTROY = "init_weights_update_group", "destroy_weights_update_group"
UPDATE = "update_weights_from_distributed"
NAME = "conformance"
PATIENCE_S = 20.0  # for what comes at once: a real server, or a join of two real processes, may take a while
SHORT_S = 2.0  # for what never comes

Named = Mapping[str, np.ndarray]


def invite(group: Any, engines: Sequence[EngineHandle], **more: Any) -> list[Pending]:
    """Tell every engine to join; each is under way when this returns."""
    out = []
    offset = 1
    for e in engines:
        body = {
            "master_address": group.address,
            "master_port": group.port,
            "rank_offset": offset,
            "world_size": group.world_size,
            "group_name": group.name,
            "backend": group.backend,
            **more,
        }
        out.append(e.start(INIT, body, origin="probe", timeout_s=PATIENCE_S))
        offset += e.spec.tp
    return out


@contextmanager
def grouped(bench: Bench, engines: Sequence[EngineHandle], name: str = NAME) -> Iterator[Any]:
    """A group with all ranks of these engines; None where it did not come about. Destroyed on both sides afterwards."""
    groups = bench.groups
    group = groups.open(name, 1 + sum(e.spec.tp for e in engines))
    try:
        invited = invite(group, engines)
        formed = _formed(group)
        answers = [call.result(PATIENCE_S) for call in invited]
        yield group if formed and all(outcome.ok for outcome in answers) else None
    finally:
        group.close()
        groups.close()
        for e in engines:
            if e.alive:
                e.call(DESTROY, {"group_name": name}, timeout_s=PATIENCE_S)


def _formed(group: Any) -> bool:
    try:
        return bool(group.join(PATIENCE_S))
    except (TimeoutError, RuntimeError):
        return False


def announced(named: Named, **more: Any) -> dict[str, Any]:
    """The body of an update that these tensors follow."""
    return {
        "names": list(named),
        "dtypes": [str(tensor.dtype) for tensor in named.values()],
        "shapes": [list(tensor.shape) for tensor in named.values()],
        "group_name": NAME,
        **more,
    }


def flat(named: Named) -> np.ndarray:
    """All tensors in one buffer of bytes, as a flattened bucket has them."""
    return np.concatenate([np.ascontiguousarray(tensor).reshape(-1).view(np.uint8) for tensor in named.values()])


def broadcast(
    bench: Bench, group: Any, tensors: Sequence[np.ndarray], kind: str, timeout_s: float = PATIENCE_S
) -> bool:
    """Broadcast and wait; whether everybody took it. Noted as `broadcast` {kind, taken}."""
    taken = False
    try:
        taken = bool(group.wait([group.broadcast(np.ascontiguousarray(t)) for t in tensors], timeout_s))
    except (TimeoutError, RuntimeError) as error:
        bench.note("broadcast_failed", kind=kind, error=" ".join(str(error).split())[:200])
    bench.note("broadcast", kind=kind, taken=taken)
    return taken


def bring(
    bench: Bench,
    group: Any,
    engine: EngineHandle,
    kind: str,
    named: Named,
    *,
    seeds: Sequence[int] = (),
    wait_s: float = PATIENCE_S,
    **fields: Any,
) -> Outcome:
    """One announced update of `engine` and the broadcasts for it, under the name that the judges know it by.

    `wait_s` is for the broadcasts; short where they are expected to be left alone.
    """
    bench.note("push", engine, kind=kind, seeds=list(seeds))
    update = engine.start(UPDATE, announced(named, **fields), origin="probe", timeout_s=PATIENCE_S)
    bucket = fields.get("load_format") == "flattened_bucket"
    broadcast(bench, group, [flat(named)] if bucket else list(named.values()), kind, wait_s)
    return update.result(PATIENCE_S)
