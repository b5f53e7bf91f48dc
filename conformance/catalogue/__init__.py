"""The catalogue: real defects as mutants of the reference client and the fake engine, each with the rule that notices.

The planted defects of `conformance.plants` join it: those replace whole methods, these edit code where the defect was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.mutate import Mutant


def mutants() -> tuple[Mutant, ...]:
    """Every mutant, the thirteen of NVIDIA-NeMo/RL#3519 first."""
    from conformance.catalogue import (
        broadcast,
        derived,
        disks,
        engine,
        envelope,
        guards,
        lora,
        receive,
        servers,
        transport,
        workers,
    )

    return (
        *envelope.THIRTEEN,
        *transport.THIRTEEN,
        *envelope.MUTANTS,
        *transport.MUTANTS,
        *broadcast.MUTANTS,
        *guards.MUTANTS,
        *disks.MUTANTS,
        *derived.MUTANTS,
        *lora.MUTANTS,
        *receive.MUTANTS,
        *servers.MUTANTS,
        *workers.MUTANTS,
        *engine.MUTANTS,
    )
