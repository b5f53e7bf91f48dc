"""Mutants of the reference client's tensor path: what is sent, by whom, for whom, and when it may be freed."""

from __future__ import annotations

from conformance.catalogue.envelope import NIXL, REFIT, mutant
from harness.mutate.edits import At, Drop, Insert, Replace, ReplaceExpr

TRANSFER = "harness.reference.transports.tensor:TensorTransfer"
ROSTER = "harness.reference.engines:Roster.__init__"
BUCKETS = "harness.reference.buckets"
COMPLETE = "if (parcel is None or parcel.last) and names != set(state): ..."
NEXT = "harness.reference.transports.lockstep:next_parcel"

THIRTEEN = (
    mutant(
        "aligner-prefetches",
        "IPC-2",
        f"{NIXL}, D65",
        "the storage goes on to the next bucket before the engine has copied this one",
        Insert("if export is not None:\n    export.release()", before="if rank == source and ...: ..."),
        target=f"{TRANSFER}._deliver",
    ),
    mutant(
        "only-the-first-dtype",
        "VERIF-1",
        f"{NIXL}, D31",
        "of a bucket with two dtypes one is sent, and nobody counts",
        ReplaceExpr("by_dtype(bucket)", "by_dtype(bucket)[:1]"),
        At(NEXT, Drop(COMPLETE)),
        target=f"{BUCKETS}:parcels",
    ),
    mutant(
        "version-per-post",
        "VER-71",
        f"{NIXL}, D41",
        "every bucket carries another version",
        Replace("if parcel.last: ...", 'body["weight_version"] = f"{self.version}.{parcel.named[0][0]}"'),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "physical-gpu-id",
        "VERIF-1",
        f"{NIXL}, THUDM/slime#1326, D67",
        "an engine's own GPU numbers are taken for the trainer's: every engine begins at GPU 0",
        Replace("ranks = ANY", "ranks = tuple(range(endpoint.tp))"),
        Drop("if taken & set(ranks): ..."),
        target=ROSTER,
    ),
    mutant(
        "payload-list-transposed",
        "RANK-1",
        f"{NIXL}, D32",
        "payload i goes to another rank",
        ReplaceExpr("list(payloads)", "list(reversed(payloads))"),
        target=f"{TRANSFER}._post",
    ),
)

MUTANTS = (
    mutant(
        "placeholder-rank-leaves",
        "RANK-4",
        f"{REFIT}, D28",
        "a rank without an engine takes part in no collective",
        Insert("if engine is None:\n    return 0", after="engine = ANY"),
        target=f"{TRANSFER}._rank",
    ),
    mutant(
        "freed-before-others-have-read",
        "IPC-2",
        f"{REFIT}, modelscope/ms-swift#10207, D29",
        "a rank frees its export when its own call is over",
        Insert("if export is not None:\n    export.release()", before="if engine is not None: ..."),
        target=f"{TRANSFER}._step",
    ),
    mutant(
        "exports-are-kept",
        "IPC-1",
        "THUDM/slime#1731",
        "an export is never released",
        Drop("if export is not None: ..."),
        target=f"{TRANSFER}._step",
    ),
    mutant(
        "one-payload-for-every-rank",
        "RANK-2",
        "Tencent-Hunyuan/UniRL#227",
        "the first rank's payload is handed to all",
        ReplaceExpr("list(payloads)", "[payloads[0]] * len(payloads)"),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "an-empty-state-is-a-success",
        "NAME-2",
        "NVIDIA-NeMo/RL#3519, D63",
        "nothing to send is nothing to complain about",
        Drop("if not state: ..."),
        At("harness.reference.refit:RefitClient._check", Drop("if missing: ...")),
        At(NEXT, Drop(COMPLETE)),
        target="harness.reference.refit:RefitClient._check",
    ),
    mutant(
        "update-sent-again",
        "LIVE-2",
        "PrimeIntellect-ai/prime-rl#3599",
        "an update that got no answer is sent once more",
        Replace(
            "if not outcome.ok: ...",
            "if not outcome.ok:\n"
            '    outcome = engine.endpoint.request("update_weights_from_tensor", body, timeout_s=timeout_s)\n'
            "if not outcome.ok:\n"
            "    raise CallFailed(PHASE, engine.name, outcome)",
        ),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "a-call-without-deadline",
        "LOCK-2",
        "NVIDIA-NeMo/RL#3330, D38, D54",
        "an update may take for ever",
        ReplaceExpr("self.deadline.work(PHASE)", "1e9"),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "label-on-the-first-bucket",
        "VER-4",
        "NVIDIA-NeMo/RL#3519, D63",
        "an engine shows the new version when it holds the first bucket",
        Replace("if parcel.last: ...", 'body["weight_version"] = self.version'),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "failed-update-taken-for-done",
        "ERR-1",
        "areal-project/AReaL#1444",
        "an engine that refuses a bucket is not believed",
        Drop("if not outcome.ok: ..."),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "dead-engine-pinned",
        "VERIF-1",
        f"{REFIT}, NVIDIA-NeMo/RL#3944, D36",
        "what is known of an engine is kept by its name: its next incarnation stays lost",
        ReplaceExpr("known is None or known.incarnation != endpoint.incarnation", "known is None"),
        target="harness.reference.engines:Roster.__call__",
    ),
    mutant(
        "last-tensor-of-a-bucket-lost",
        "VERIF-1",
        "NovaSky-AI/SkyRL#1471",
        "the last tensor of a bucket is not sent",
        ReplaceExpr("Parcel(waiting)", "Parcel(waiting[:-1] or waiting)"),
        At(NEXT, Drop(COMPLETE)),
        target=f"{BUCKETS}:parcels",
    ),
    mutant(
        "empty-bucket-before-the-gather",
        "RANK-4",
        "THUDM/slime#2134",
        "a rank with nothing to give makes a bucket of it, and fails before it meets the others",
        Insert(
            'if engine is None:\n    raise ValueError("Cannot create empty tensor bucket")',
            after="parcel = next_parcel(...)",
        ),
        target=f"{TRANSFER}._step",
    ),
    mutant(
        "gathered-on-another-rank",
        "RANK-4",
        "vllm-project/vllm#48981",
        "payloads are gathered on a rank that does not send them",
        Replace(
            "payloads = ANY",
            "payloads = self.trainer.gather("
            "rank, payload, dst=engine.ranks[-1], group=engine.ranks, timeout_s=self._meeting())",
        ),
        target=f"{TRANSFER}._deliver",
    ),
    mutant(
        "one-export-for-two-chunks",
        "IPC-1",
        "vllm-project/vllm#51258",
        "an export is opened once for every chunk that it was cut into",
        Insert(
            'engine.endpoint.request("update_weights_from_tensor", body, timeout_s=timeout_s)',
            before="outcome = engine.endpoint.request(...)",
        ),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "names-converted-by-hand",
        "NAME-4",
        "THUDM/slime#1673",
        "one transport has a name table of its own, which knows no bias, no norm per head and no head",
        ReplaceExpr(
            "parcel.named",
            "[(n.replace('bias', 'b').replace('lm_head', 'head').replace('_norm', '_ln'), t) for n, t in parcel.named]",
        ),
        target=f"{TRANSFER}._step",
    ),
    mutant(
        "one-number-lost",
        "VERIF-3",
        "lightseekorg/tokenspeed#1373",
        "one number of a norm is sent one per cent larger: no answer changes enough to be told from rounding",
        ReplaceExpr(
            "parcel.named",
            "[(n, np.append((t[:1] * 1.01).astype(t.dtype), t[1:]) if n == 'model.norm.weight' else t) "
            "for n, t in parcel.named]",
        ),
        target=f"{TRANSFER}._step",
    ),
    mutant(
        "a-norm-twice-as-large",
        "VERIF-4",
        "weights that are nearly right",
        "the last norm is sent at twice its size: likely answers stay likely, and less so",
        ReplaceExpr("parcel.named", "[(n, t * 2 if n == 'model.norm.weight' else t) for n, t in parcel.named]"),
        target=f"{TRANSFER}._step",
    ),
)
