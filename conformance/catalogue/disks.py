"""Mutants of the reference client's disk path: when a folder is there, and when it goes."""

from __future__ import annotations

from conformance.catalogue.engine import code
from conformance.catalogue.envelope import mutant
from harness.mutate.edits import Drop, Insert, ReplaceExpr

TRANSPORT = "harness.reference.transports.disk:DiskTransport"

MUTANTS = (
    mutant(
        "folder-goes-with-a-failure",
        "DISK-1",
        "sgl-project/sglang#7930",
        "an engine that did not answer may still be reading",
        Insert("readers.clear()", before="self._forget(ANY, ANY)"),
        target=f"{TRANSPORT}.send",
    ),
    mutant(
        "answer-taken-for-that-of-all-ranks",
        "DISK-1",
        "a folder that is removed when the call returns",
        "at tp 2 the folder goes when rank 0 has read it",
        ReplaceExpr("len(e.ranks) == 1", "True"),
        target="harness.reference.transports.disk:_alone",
    ),
    mutant(
        "flush-taken-for-a-proof",
        "DISK-1",
        "a folder that is removed when the call returns",
        "a flush, which rank 0 answers alone, is to show that all ranks have read",
        ReplaceExpr('"generate"', '"flush_cache"'),
        target=f"{TRANSPORT}.confirm",
    ),
    code(
        "all-ranks-take-what-rank-0-read",
        "DISK-57",
        "the answer to a disk update is that of all ranks",
        "fakes.engine.weight_update:WeightUpdater._disk",
        Insert(
            "for weights in scheduler.ranks[1:]:\n    weights.load(end.value)\nscheduler.late._queues.clear()",
            before="scheduler.ranks[0].finalise()",
        ),
    ),
    code(
        "rank-0-reads-alone",
        "DISK-51",
        "the other ranks never hear of a disk update",
        "fakes.engine.weight_update:WeightUpdater._disk",
        Drop("scheduler.late.told(ANY, ANY, ANY)"),
    ),
    mutant(
        "told-before-it-is-there",
        "DISK-2",
        "a folder that is read while it is written",
        "engines are told of a folder that is published afterwards",
        ReplaceExpr("folder.publish()", "folder.path"),
        Insert("folder.publish()", after="answers = ANY"),
        target=f"{TRANSPORT}.send",
    ),
    mutant(
        "same-folder-again",
        "DISK-3",
        "a folder that is written over",
        "the folder's name does not move with the refit",
        Drop("self._refits += 1"),
        target=f"{TRANSPORT}.send",
    ),
    mutant(
        "sessions-for-disks-too",
        "DISK-4",
        "a finaliser that is not idempotent",
        "a disk update is begun and ended",
        ReplaceExpr("name in FINALISING", "False"),
        target="harness.reference.adapter:ReferenceSut.setup",
    ),
)
