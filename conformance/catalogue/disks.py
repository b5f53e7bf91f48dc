"""Mutants of the reference client's disk path: when a folder is there, and when it goes."""

from __future__ import annotations

from conformance.catalogue.envelope import mutant
from harness.mutate.edits import Drop, Insert, ReplaceExpr

TRANSPORT = "harness.reference.transports.disk:DiskTransport"

MUTANTS = (
    mutant(
        "folder-goes-with-a-failure",
        "DISK-1",
        "sgl-project/sglang#7930",
        "an engine that did not answer may still be reading",
        Insert("readers.clear()", before="self._clean(answers)"),
        target=f"{TRANSPORT}.send",
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
        ReplaceExpr('name == "disk"', "False"),
        target="harness.reference.adapter:ReferenceSut.setup",
    ),
)
