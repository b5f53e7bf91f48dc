"""Mutants of the reference client's adapters: when a name is used, how many are kept, what is sent with one."""

from __future__ import annotations

from conformance.catalogue.envelope import mutant
from harness.mutate.edits import Insert, Replace, ReplaceExpr

CLIENT = "harness.reference.lora:LoraClient"
POST = "harness.reference.lora:AdapterTransfer._post"
AREAL = "areal-project/AReaL#1385"

MUTANTS = (
    mutant(
        "named-before-every-engine-has-it",
        "LORA-1",
        AREAL,
        "requests name the new adapter while some engine refuses it",
        Insert("self.serving = name", before="self._load(...)"),
        target=f"{CLIENT}.refit",
    ),
    mutant(
        "given-back-while-it-is-named",
        "LORA-1",
        AREAL,
        "the adapter that requests name is unloaded, too",
        ReplaceExpr("names[:-KEPT]", "list(names)"),
        target=f"{CLIENT}.refit",
    ),
    mutant(
        "four-adapters-are-kept",
        "LORA-2",
        AREAL,
        "more adapters stay than requests may name",
        ReplaceExpr("names[:-KEPT]", "names[:-4]"),
        target=f"{CLIENT}.refit",
    ),
    mutant(
        "load-without-a-look-at-its-status",
        "LORA-4",
        AREAL,
        "what an engine says to a load is not read",
        Replace("if not outcome.ok: ...", "pass"),
        target=POST,
    ),
    mutant(
        "alpha-of-one",
        "LORA-5",
        "an adapter_config.json that is made up anew",
        "the adapter is scaled otherwise than in training",
        ReplaceExpr("dict(self.config)", "{**self.config, 'lora_alpha': 1}"),
        target=POST,
    ),
)
