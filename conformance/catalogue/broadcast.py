"""Mutants of the reference client's broadcast path: the group, what is sent in it, the lock around it."""

from __future__ import annotations

from conformance.catalogue.envelope import CLIENT, FLEET, REFIT, mutant
from harness.mutate.edits import At, Drop, Insert, Replace, ReplaceExpr

MODULE = "harness.reference.transports.distributed"
TRANSPORT = f"{MODULE}:DistributedTransport"
TRANSFER = f"{MODULE}:Transfer"
SIDE = "harness.reference.transports.side_group"
LEASE = "harness.reference.lease:held"

MUTANTS = (
    mutant(
        "strided-views-are-broadcast",
        "COLL-10",
        f"{REFIT}, D42",
        "a view of transposed memory is sent as it lies: the engines agree with each other, not with the trainer",
        ReplaceExpr("np.ascontiguousarray(tensor)", "tensor"),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "contiguous-copies-are-dropped",
        "COLL-10",
        f"{REFIT}, D43",
        "a copy is made for the broadcast and forgotten while it is under way",
        Replace("tensors = ANY", "tensors = (np.ascontiguousarray(tensor) for _, tensor in parcel.named)"),
        target=f"{TRANSFER}._post",
    ),
    mutant(
        "default-group-stays-bound",
        "COLL-4",
        "NVIDIA-NeMo/RL#3189, D44",
        "the new group is split from the trainer's own, of which one rank takes part",
        ReplaceExpr("unbound(self.trainer.groups.default)", "unbound(None)"),
        target=f"{TRANSPORT}._init",
    ),
    mutant(
        "default-group-left-unbound",
        "COLL-4",
        f"{REFIT}, D44",
        "the default group loses its device for good",
        ReplaceExpr("bound", "None", nth=1),
        target=f"{SIDE}:unbound",
    ),
    mutant(
        "cumem-after-the-first-group",
        "COLL-12",
        f"{REFIT}, D47",
        "NCCL has read its environment when it is set",
        Drop("choose_cumem(...)"),
        At(f"{TRANSPORT}._init", Insert("choose_cumem(self.trainer.groups.env)", before="self._settle(...)")),
        target=f"{TRANSPORT}.__init__",
    ),
    mutant(
        "cumem-for-everybody",
        "COLL-12",
        f"{REFIT}, D48",
        "the environment is changed for colocated engines, too",
        Insert("DistributedTransport(fleet.trainer, fleet.clock, 1)", before='if name == "tensor": ...'),
        target="harness.reference.adapter:ReferenceSut._transport_of",
    ),
    mutant(
        "cumem-the-other-way",
        "COLL-12",
        "NVIDIA-NeMo/RL#3612, D49",
        "trainer and engines allocate in different ways",
        ReplaceExpr("ENGINES_CUMEM", '"1"'),
        target=f"{SIDE}:choose_cumem",
    ),
    mutant(
        "uncertain-group-is-kept",
        "COLL-9",
        f"{FLEET}, D17",
        "a group that was not confirmed by all is not aborted",
        Drop("self._abandon()"),
        target=f"{TRANSPORT}._parted",
    ),
    mutant(
        "old-layout-is-kept",
        "COLL-14",
        f"{REFIT}, D35",
        "every new layout leaves a group behind on the trainer",
        Drop("self._abandon()"),
        target=f"{TRANSPORT}.connect",
    ),
    mutant(
        "no-destroy-before-reconnect",
        "COLL-2",
        f"{FLEET}, D55",
        "engines still have the group of an earlier trainer",
        Drop("self._destroy(...)"),
        target=f"{TRANSPORT}.connect",
    ),
    mutant(
        "ready-before-the-group-is",
        "COLL-13",
        f"{FLEET}, D56",
        "GROUP_READY is written when the engines have told their names",
        Insert(
            "self.markers.group_ready(self.transport.world_size(self._engines), [e.name for e in self._engines])",
            before="if self.transport.connect(...) or new: ...",
        ),
        target=f"{CLIENT}._connect",
    ),
    mutant(
        "ranks-without-a-broadcast-leave",
        "COLL-5",
        f"{REFIT}, D28, D59",
        "trainer ranks other than the source take part in no collective",
        Insert("if rank != 0:\n    return 0", before="meeting = ANY"),
        target=f"{TRANSFER}._rank",
    ),
    mutant(
        "lock-without-a-deadline",
        "COLL-11",
        f"{FLEET}, D50",
        "a lock that somebody else holds is waited for without end",
        Drop("if clock.now() + POLL_S > until: ..."),
        target=LEASE,
    ),
    mutant(
        "lock-kept-by-a-failure",
        "COLL-11",
        "radixark/miles#1967, D50",
        "a refit that fails keeps the lock",
        Replace("try: ...\nfinally: ...", "yield\nlock.release(owner)"),
        target=LEASE,
    ),
    mutant(
        "refusal-behind-a-wait",
        "COLL-9",
        f"{FLEET}, D53",
        "what one engine said is heard when the other's time is over",
        ReplaceExpr("any_refused(waits)", "False"),
        target=f"{TRANSPORT}.broadcast",
    ),
    mutant(
        "door-closed-too-early",
        "COLL-9",
        "found by fault exploration",
        "an engine on its way finds nobody listening, and knocks for half an hour",
        Drop("if not joined: ..."),
        target=f"{TRANSPORT}._init",
    ),
    mutant(
        "engines-wait-for-each-other",
        "COLL-9",
        f"found by fault exploration; {FLEET}, D55",
        "the trainer leaves, and one engine's rank waits for another's that has refused",
        ReplaceExpr("[e for e in engines or [e for e, _ in waits] if not e.lost]", "[]"),
        target=f"{TRANSPORT}._parted",
    ),
    mutant(
        "broadcast-for-ever",
        "COLL-7",
        f"{FLEET}, D38, D54",
        "a broadcast that nobody takes is waited for without end",
        ReplaceExpr(
            "group.wait(sent, timeout_s, unless=lambda: any_refused(waits))",
            "group.wait(sent, unless=lambda: any_refused(waits))",
        ),
        target=f"{TRANSPORT}.broadcast",
    ),
    mutant(
        "world-without-the-trainer",
        "COLL-3",
        "vllm-project/vime#329",
        "the world size counts the engines alone",
        ReplaceExpr("1 + sum(e.endpoint.tp for e in engines)", "sum(e.endpoint.tp for e in engines)"),
        target=f"{TRANSPORT}.world_size",
    ),
    mutant(
        "engines-from-rank-zero",
        "COLL-3",
        "sgl-project/sglang#19255",
        "the engines take the ranks from 0 on, which is the source's",
        ReplaceExpr("1", "0", nth=0),
        target=f"{TRANSPORT}._invite",
    ),
    mutant(
        "same-offset-for-all",
        "COLL-3",
        "vllm-project/vime#329",
        "two engines have the same ranks",
        Drop("offset += ANY"),
        target=f"{TRANSPORT}._invite",
    ),
    mutant(
        "one-dtype-for-all",
        "COLL-1",
        "NovaSky-AI/SkyRL#1816",
        "dtypes are announced as float32, whatever is sent",
        ReplaceExpr("[str(tensor.dtype) for _, tensor in named]", '["float32" for _ in named]'),
        target=f"{MODULE}:announcement",
    ),
)
