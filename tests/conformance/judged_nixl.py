"""Histories of receivers: IPC-71 to IPC-75, RANK-71, RANK-72, NAME-72 to NAME-74."""

from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape

A, B, PROMPT = [1, 1], [2, 2], (5, 6)


def read(tape: Tape, bucket: int, *names: str, tp_rank: int = 0, region: int = 1, incarnation: int = 0) -> None:
    agent = f"e0-{tp_rank}"
    tape.trainer("nixl_transfer", agent=agent, peer="t", op="READ", regions=[region], bytes=64)
    about = {"engine": "e0", "incarnation": incarnation, "tp_rank": tp_rank, "agent": agent}
    tape.trainer("batch", **about, bucket=bucket, names=list(names))


def export(tape: Tape, sha: str, *names: str, tp_rank: int = 0) -> None:
    tape.trainer("export", sha256=sha, consumers=[["e0", tp_rank]], names=list(names))


def buffers(*, late: bool, tokens: list[int] = B) -> Tape:
    """Two buckets into one buffer; `b` of the first is exported before or after the second is read."""
    tape = Tape()
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    with tape.refit(seed=1):
        read(tape, 0, "a", "b")
        export(tape, "p0", "a")
        if not late:
            export(tape, "p1", "b")
        read(tape, 2, "c")
        if late:
            export(tape, "p1", "b")
        tape.bucket(("p1",))
    tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


holds("IPC-71")(lambda: buffers(late=False))
breaks("IPC-71", "b of bucket 0 was exported after")(lambda: buffers(late=True))
breaks("IPC-71", "[9, 9]")(lambda: buffers(late=False, tokens=[9, 9]))


@leaves_open("IPC-71")
def buffers_used_once() -> Tape:
    tape = Tape()
    with tape.refit():
        read(tape, 0, "a")
        export(tape, "p0", "a")
        tape.bucket(("p0",))
    return tape


def two_lives(*, batch: int = 1, error: str = "", fault: str = "", second: int = 1) -> Tape:
    tape = Tape()
    for index, life in ((1, 0), (2, second)):
        with tape.refit(index, error=error if index == 2 else ""):
            tape.trainer("receiver", engine="e0", incarnation=life, tp_rank=0, device=0, sees=[0])
            read(tape, 0, "a", incarnation=life and batch)
            tape.bucket(incarnation=life, fault=fault if index == 2 else "")
    return tape


holds("IPC-72")(lambda: two_lives())
holds("IPC-72")(lambda: two_lives(error="dropped", fault="before:drop"))
breaks("IPC-72", "a batch of incarnation 0")(lambda: two_lives(batch=0))
breaks("IPC-72", "e0.0 is gone")(lambda: two_lives(error="e0.0 is gone"))
leaves_open("IPC-72")(lambda: two_lives(second=0, batch=0))


def sized(*statuses: str) -> Tape:
    tape = Tape()
    with tape.refit():
        read(tape, 0, "a")
        for status in statuses:
            tape.trainer("nixl_error", agent="e0-0", status=status, said="length mismatch at index 0")
    return tape


holds("IPC-73")(lambda: sized())
holds("IPC-73")(lambda: sized("NIXL_ERR_BACKEND"))
breaks("IPC-73", "length mismatch at index 0")(lambda: sized("NIXL_ERR_INVALID_PARAM"))


@leaves_open("IPC-73")
def nothing_read() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    return tape


def offline(*, error: str = "connect: NIXL_ERR_BACKEND", paused: bool = False, index: int = 1) -> Tape:
    tape = Tape()
    tape.fact("no_network", engine="", index=index)
    with tape.refit(1, error=error):
        tape.sut("model_info", method="GET")
        if paused:
            tape.sut("pause_generation", {"mode": "retract"})
    return tape


holds("IPC-74")(lambda: offline())
breaks("IPC-74", "after POST /pause_generation")(lambda: offline(paused=True))
breaks("IPC-74", "the client reported success")(lambda: offline(error=""))
breaks("IPC-74", "something went wrong")(lambda: offline(error="something went wrong"))
leaves_open("IPC-74")(lambda: offline(index=7))


def registered(*freed: int, life: int = 0, closing: bool = True) -> Tape:
    tape = Tape()
    tape.trainer("nixl_agent", agent="e0-0", process="e0.0")
    tape.trainer("nixl_register", agent="e0-0", regions=[1, 2])
    tape.bucket(incarnation=life)
    if closing:
        tape.fact("closing", engine="")
    if freed:
        tape.trainer("nixl_deregister", agent="e0-0", regions=list(freed))
    return tape


holds("IPC-75")(lambda: registered(1, 2))
holds("IPC-75")(lambda: registered(life=1))
breaks("IPC-75", "left 1 regions")(lambda: registered(1))
breaks("IPC-75", "left 2 regions")(lambda: registered())
leaves_open("IPC-75")(lambda: registered(closing=False))


@breaks("IPC-75", "left 1 regions")
def a_second_agent_of_the_name() -> Tape:
    tape = registered(1, 2)
    tape.trainer("nixl_agent", agent="e0-0", process="e0.0")
    tape.trainer("nixl_register", agent="e0-0", regions=[1])
    return tape


def ranks(cuts: tuple[tuple[str, ...], ...], other: tuple[str, ...], *, error: str = "", tokens: list[int] = B) -> Tape:
    """Rank 0 has its batches cut as told, rank 1 all in one; payload 1 of the only call carries `other`."""
    tape = Tape(tp=2)
    tape.expect(0, A, PROMPT)
    tape.expect(1, B, PROMPT)
    with tape.refit(seed=1, error=error):
        for bucket, names in enumerate(cuts):
            read(tape, bucket, *names)
        read(tape, 0, "a", "b", tp_rank=1)
        export(tape, "p0", "a", "b")
        export(tape, "p1", *other, tp_rank=1)
        tape.bucket(("p0", "p1"))
    tape.gen(tokens, prompt=PROMPT, origin="traffic")
    return tape


holds("RANK-71")(lambda: ranks((("a",), ("b",)), ("a", "b")))
breaks("RANK-71", "payload[1]: b, a")(lambda: ranks((("a",), ("b",)), ("b", "a")))
breaks("RANK-71", "diverged")(lambda: ranks((("a",), ("b",)), ("a", "b"), error="diverged"))
breaks("RANK-71", "[9, 9]")(lambda: ranks((("a",), ("b",)), ("a", "b"), tokens=[9, 9]))
leaves_open("RANK-71")(lambda: ranks((("a", "b"),), ("b", "a")))


def device(number: int, sees: list[int]) -> Tape:
    tape = Tape(tp=2)
    tape.fact("engine", source="harness", tp=2, gpus=sees)
    with tape.refit():
        tape.trainer("receiver", engine="e0", incarnation=0, tp_rank=1, device=number, sees=sees)
    return tape


holds("RANK-72")(lambda: device(1, [4, 5]))
breaks("RANK-72", "cuda:5 for tp rank 1")(lambda: device(5, [4, 5]))
breaks("RANK-72", "cuda:0 for tp rank 1")(lambda: device(0, [4, 5]))
leaves_open("RANK-72")(lambda: device(1, [0, 1]))


def streams(kind: str, *, error: str = "BadState", label: bool = False) -> Tape:
    tape = Tape()
    tape.fact("spoiled", engine="", index=1, kind=kind)
    with tape.refit(1, error=error):
        tape.bucket(request={"weight_version": "1"} if label else {})
    return tape


holds("NAME-72")(lambda: streams("nothing"))
breaks("NAME-72", "the client reported success")(lambda: streams("nothing", error=""))
breaks("NAME-72", "carried version 1")(lambda: streams("nothing", label=True))
leaves_open("NAME-72")(lambda: streams("uneven", error=""))
for _kind in ("uneven", "renamed", "retyped"):
    holds("NAME-73")(lambda kind=_kind: streams(kind))
    breaks("NAME-73", "the client reported success")(lambda kind=_kind: streams(kind, error=""))
    breaks("NAME-73", "carried version 1")(lambda kind=_kind: streams(kind, label=True))
leaves_open("NAME-73")(lambda: streams("nothing", error=""))


def walks(*by_refit: int) -> Tape:
    tape = Tape()
    for index, count in enumerate(by_refit):
        with tape.refit(index):
            for rank in (0, 1):
                for _ in range(count if rank else 1):
                    tape.trainer("walk", rank, tensors=3)
    return tape


holds("NAME-74")(lambda: walks(1, 1))
breaks("NAME-74", "rank 1 walked it 2 times")(lambda: walks(1, 2))
leaves_open("NAME-74")(lambda: Tape())
