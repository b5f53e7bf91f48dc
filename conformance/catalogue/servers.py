"""Mutants of the reference client's update over IPC: which socket, when the buffer is used again, and who is let go."""

from __future__ import annotations

from conformance.catalogue.envelope import mutant
from harness.mutate.edits import Drop, Replace, ReplaceExpr

TRANSFER = "harness.reference.transports.ipc:IpcTransfer"
SERVERS = "a parameter server that is not checkpoint-engine's"

MUTANTS = (
    mutant(
        "a-device-left-out",
        "IPC-77",
        SERVERS,
        "the last rank of an engine gets no handle",
        ReplaceExpr(
            "{self.lines[rank].uuid: self.lines[rank].address for rank in e.ranks}",
            "{self.lines[rank].uuid: self.lines[rank].address for rank in e.ranks[:1]}",
        ),
        target=f"{TRANSFER}.run",
    ),
    mutant(
        "ids-of-another-device",
        "IPC-77",
        SERVERS,
        "ids are dealt in reverse",
        ReplaceExpr(
            "{self.lines[rank].uuid: self.lines[rank].address for rank in e.ranks}",
            "{self.lines[a].uuid: self.lines[b].address for a, b in zip(e.ranks, reversed(e.ranks))}",
        ),
        target=f"{TRANSFER}.run",
    ),
    mutant(
        "filled-before-the-answer",
        "IPC-76",
        SERVERS,
        "the half that was told of is filled with what comes next",
        Replace(
            "return ANY",
            "return lambda line: (line.tell(line.fill(0, named)), line.fill(0, [(n, a * 0) for n, a in named]))[0]",
        ),
        target=f"{TRANSFER}._telling",
    ),
    mutant(
        "freed-before-the-answer",
        "IPC-76",
        SERVERS,
        "the buffer goes when the last bucket was told of",
        Replace("self._hear(rank, line)", "line.free()\nself._hear(rank, line)"),
        target=f"{TRANSFER}._together",
    ),
    mutant(
        "begun-and-ended",
        "IPC-78",
        "a finaliser that is not idempotent",
        "an update over IPC is begun and ended",
        ReplaceExpr("name in FINALISING", "name == 'disk'"),
        target="harness.reference.adapter:ReferenceSut.setup",
    ),
    mutant(
        "nobody-is-told-to-stop",
        "IPC-79",
        SERVERS,
        "a refit that fails leaves its workers waiting",
        Drop("line.stop(ANY)"),
        target=f"{TRANSFER}._rank",
    ),
    mutant(
        "a-worker-that-failed-is-not-heard",
        "VERIF-1",
        SERVERS,
        "what a worker answers is not read",
        Drop("if answer: ..."),
        target=f"{TRANSFER}._hear",
    ),
)
