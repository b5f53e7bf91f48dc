"""Mutants of the reference client's checkpoint-engine path: senders, receivers, the aligner, what is posted."""

from __future__ import annotations

from conformance.catalogue.envelope import NIXL, mutant
from harness.mutate.edits import At, Body, Drop, Insert, Replace, ReplaceExpr

ENGINE = "harness.reference.transports.checkpoint_engine"
TRANSPORT = f"{ENGINE}:CheckpointEngineTransport"
TRANSFER = f"{ENGINE}:Transfer"
ALIGNED = "harness.reference.transports.aligning:aligned"
STREAMING = "harness.reference.transports.streaming"
RESTART = "NVIDIA-NeMo/RL#3944"

MUTANTS = (
    mutant(
        "ranks-that-are-not-empty-are-asked",
        "IPC-71",
        f"{NIXL}, D65",
        "the aligner hears every rank in every round: what is left of a batch lies in a buffer that is used again",
        ReplaceExpr("not waiting[rank] and not ended[rank]", "not ended[rank]"),
        ReplaceExpr("list(batch.named)", "[*waiting[rank], *batch.named]"),
        At(
            f"{TRANSPORT}._sender",
            ReplaceExpr("self.bucket_bytes * (4 - rank % 2) // 4", "self.bucket_bytes // (1 + rank % 2)"),
        ),
        target=ALIGNED,
    ),
    mutant(
        "send-buffer-filled-before-it-was-read",
        "IPC-71",
        NIXL,
        "a sender does not wait for its reader",
        Drop("self._await(...)"),
        target=f"{STREAMING}:Sender._flush",
    ),
    mutant(
        "receivers-known-by-name",
        "IPC-72",
        f"{RESTART}, D73",
        "agents are cached by the name of an engine: its next incarnation is fed through the dead one's",
        ReplaceExpr("(e.name, e.incarnation)", "(e.name, 0)"),
        target=f"{TRANSPORT}.connect",
    ),
    mutant(
        "receivers-round-their-size",
        "IPC-73",
        f"{NIXL}, D77",
        "the receiving side computes its bucket size by itself",
        ReplaceExpr("self.bucket_bytes", "self.bucket_bytes // 1000 * 1000"),
        target=f"{TRANSPORT}._receiver",
    ),
    mutant(
        "backend-without-its-words",
        "IPC-74",
        f"{NIXL}, D80",
        "that an agent did not come up is said without why",
        Replace("raise StreamFailed(...) from error", 'raise StreamFailed("connect failed") from error'),
        target=f"{TRANSPORT}.connect",
    ),
    mutant(
        "buffers-stay-registered",
        "IPC-75",
        RESTART,
        "a side that is closed forgets its peer and not its memory",
        Drop("self.agent.deregister_memory(...)"),
        target=f"{STREAMING}:Side.close",
    ),
    mutant(
        "ranks-are-permuted",
        "RANK-1",
        f"{NIXL}, D64",
        "what was received for one rank is posted for another",
        ReplaceExpr("zip(receivers, part, strict=True)", "zip(reversed(receivers), reversed(part), strict=True)"),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "longer-batches-are-not-cut",
        "RANK-71",
        f"{NIXL}, D64",
        "every rank gives out all that it has: ranks whose buckets end elsewhere carry other tensors",
        ReplaceExpr("named[:count]", "named[:]"),
        ReplaceExpr("named[count:]", "named[:0]"),
        At("harness.reference.transports.aligning:_same", Body("return")),
        target=ALIGNED,
    ),
    mutant(
        "device-by-physical-number",
        "RANK-72",
        f"{NIXL}, THUDM/slime#1326, D67",
        "a device is named by its physical number",
        ReplaceExpr("list(sees).index(gpu)", "gpu"),
        target=f"{ENGINE}:local_index",
    ),
    mutant(
        "a-rank-without-a-receiver-leaves",
        "RANK-4",
        f"{NIXL}, D59",
        "a trainer rank that feeds nobody does not walk the export",
        Insert("if rank not in self.senders:\n    return 0", before="stream = ANY"),
        target=f"{TRANSFER}._give",
    ),
    mutant(
        "nothing-received-is-fine",
        "NAME-72",
        f"{NIXL}, D63",
        "streams that bring no tensor are a success, and the version is reported",
        Drop("self._complete(names)", nth=1),
        target=f"{TRANSFER}._take",
    ),
    mutant(
        "a-stream-may-end-early",
        "NAME-73",
        f"{NIXL}, D78",
        "the refit ends with the shortest stream",
        Drop("_all_ended(waiting)"),
        At(f"{TRANSFER}._complete", Body("return")),
        target=ALIGNED,
    ),
    mutant(
        "names-of-the-first-rank",
        "NAME-73",
        f"{NIXL}, D78",
        "the other ranks' names and dtypes are taken for the first one's",
        Drop("_same(ranks)"),
        target=ALIGNED,
    ),
    mutant(
        "label-before-all-has-come",
        "NAME-73",
        f"{NIXL}, D63, D78",
        "an engine is told the new version when a stream has ended early",
        ReplaceExpr("all(ended) and not any(waiting)", "any(ended)"),
        At(f"{TRANSFER}._take", Drop("if group.last: ...")),
        target=ALIGNED,
    ),
    mutant(
        "sizes-gathered-first",
        "NAME-74",
        f"{NIXL}, D72",
        "the whole export is gathered for its metadata before the first bucket",
        Insert("list(self.trainer.stream(rank, self.state, self.deadline.meeting(PHASE)))", before="stream = ANY"),
        target=f"{TRANSFER}._give",
    ),
    mutant(
        "one-dtype-of-a-group",
        "NAME-1",
        f"{NIXL}, D31",
        "of a group with two dtypes the first is posted",
        ReplaceExpr(
            "list(zip(*(by_dtype(named) for named in group.ranks), strict=True))",
            "list(zip(*(by_dtype(named) for named in group.ranks), strict=True))[:1]",
        ),
        target=f"{TRANSFER}._take",
    ),
    mutant(
        "version-per-received-group",
        "VER-71",
        f"{NIXL}, D41",
        "every post has a version of its own",
        Replace("if last: ...", 'body["weight_version"] = f"{self.version}.{part[0][0][0]}"'),
        target=f"{TRANSFER}._post",
    ),
)
