"""Mutants of the reference client's set-up: what is refused, and what decides the transport."""

from __future__ import annotations

from conformance.catalogue.envelope import REFIT, mutant
from harness.mutate.edits import Drop, Insert, ReplaceExpr

SETUP = "harness.reference.setup:transport_of"

MUTANTS = (
    mutant(
        "kv-scales-are-dropped",
        "GUARD-1",
        f"{REFIT}, D08",
        "scales of the KV cache are taken and not sent",
        Insert('setup = {**setup, "kv_scales": None}', before="for guard in GUARDS: ..."),
        target=SETUP,
    ),
    mutant(
        "guards-are-not-asked",
        "GUARD-1",
        f"{REFIT}, D24, D68, D69",
        "what cannot work is found out at the first refit",
        Drop("for guard in GUARDS: ..."),
        target=SETUP,
    ),
    mutant(
        "size-is-not-compared",
        "GUARD-1",
        f"{REFIT}, D25",
        "a size that contradicts the engines is believed",
        Drop("if tensor_parallel_sizes != ANY: ..."),
        target=SETUP,
    ),
    mutant(
        "falls-back-to-tensor",
        "GUARD-2",
        f"{REFIT}, D25",
        "a transport that contradicts the topology becomes another one",
        Drop("if cell not in TABLE: ..."),
        ReplaceExpr("TABLE[cell]", 'TABLE.get(cell, "tensor")'),
        target=SETUP,
    ),
    mutant(
        "misspelt-keys-are-ignored",
        "GUARD-3",
        REFIT,
        "a key that nobody knows is nobody's business",
        Drop("if unknown: ..."),
        target=SETUP,
    ),
    mutant(
        "missing-keys-are-none",
        "GUARD-3",
        f"{REFIT}, D70",
        "a key that is not there counts as the usual value",
        Drop("if missing: ..."),
        Insert('setup = {"kv_scales": None, "expert_parallel_size": 1, **setup}', before="unknown = ANY"),
        target=SETUP,
    ),
)
