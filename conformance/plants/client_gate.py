"""Broken clients that only numbers show: everything arrives, and not all of it is of this refit."""

from __future__ import annotations

from typing import Any

from conformance.plants.client_content import exporting
from conformance.plants.make import broken

Named = list[tuple[str, Any]]


def of_the_refit_before(kit: Any, rank: int, named: Named) -> Named:
    """Every rank but the first sends what each of its tensors was in the refit before."""
    older: dict[tuple[int, str], list[Any]] = kit.__dict__.setdefault("older", {})
    for name, tensor in named:
        older.setdefault((rank, name), []).append(tensor)
    return [(name, older[rank, name][-2:][0] if rank else tensor) for name, tensor in named]


PLANTS = (
    broken(
        "ranks-of-different-updates",
        "VERIF-4",
        "shards of different versions behind one label",
        "all ranks but the first send the weights of the refit before",
        exporting(of_the_refit_before),
    ),
)
