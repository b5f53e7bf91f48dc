"""Mutants that no rule notices yet: known gaps of the rules, kept where they can be run and closed one by one.

`refitcheck mutate --catalogue conformance/catalogue/open.py ID` runs one. A test says when a rule has begun to notice.
"""

from __future__ import annotations

from conformance.catalogue.envelope import CONTROL, NIXL, REFIT, after_transfer, mutant
from conformance.catalogue.transport import TRANSFER
from harness.mutate.edits import At, Drop, Move, Replace, ReplaceExpr

mutants = (
    mutant(
        "onload-outside-its-guard",
        "MEM-71",
        f"{REFIT}, D05",
        "needs a fleet: the onload of one engine fails, the KV pool of the other stays released",
        Move('guards.hold("onload_kv", ...)', after="control.onload_weights(...)"),
    ),
    mutant(
        "flush-after-the-buckets",
        "CACHE-1",
        f"{NIXL}, D11",
        "what a flush has to prove is asked when everything was sent",
        Drop("control.flush(...)"),
        after_transfer("control.flush(engines, deadline)"),
    ),
    mutant(
        "flush-once",
        "CACHE-1",
        "THUDM/slime#1953",
        "the first refusal of a flush is an error",
        Replace("if self.clock.now() + wait_s > until: ...", "raise_failed('flush', busy, NeverIdle)"),
        target=f"{CONTROL}.flush",
    ),
    mutant(
        "dead-engine-pinned",
        "PART-1",
        f"{REFIT}, D36; NVIDIA-NeMo/RL#3944",
        "what was known of a replaced engine is believed of the new one",
        ReplaceExpr("known is None or known.incarnation != endpoint.incarnation", "known is None"),
        target="harness.reference.engines:Roster.__call__",
    ),
    mutant(
        "update-flushes",
        "CACHE-3",
        "areal-project/AReaL#140",
        "every bucket asks for a flush, on an engine that may hold requests",
        ReplaceExpr("False", "True"),
        At("harness.reference.refit:RefitClient._envelope", Drop("control.flush(...)")),
        target=f"{TRANSFER}._post",
    ),
)
