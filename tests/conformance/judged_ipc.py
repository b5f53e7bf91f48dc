from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_rank import PROMPT, A, B, push, truth
from tests.conformance.tape import Tape


def exported(*, opens: int = 1, own: bool = True, released: str = "after", error: str = "") -> Tape:
    tape = Tape()
    with tape.refit(error=error):
        tape.trainer("export", export=1, sha256="p0", consumers=[["e0", 0]])
        update = tape.start("update_weights_from_tensor", {"serialized_named_tensors": ["p0"]}, origin="sut")
        for _ in range(opens):
            tape.trainer("open", export=1, engine="e0", tp_rank=0 if own else 1, own=own)
        if released == "during":
            tape.trainer("release", export=1)
            tape.trainer("free", export=1, exports=[1])
        tape.finish(update)
        if released == "after":
            tape.trainer("release", export=1)
            tape.trainer("free", export=1, exports=[1])
    if released == "later":
        tape.trainer("release", export=1)
    return tape


@holds("IPC-1", "IPC-2")
def accounted() -> Tape:
    return exported()


@breaks("IPC-1", "never released")
def released_after_the_refit() -> Tape:
    return exported(released="later")


@breaks("IPC-1", "opened 2 times")
def opened_twice() -> Tape:
    return exported(opens=2)


@breaks("IPC-1", "opened by e0 tp rank 1")
def opened_by_another_rank() -> Tape:
    return exported(own=False)


@breaks("IPC-2", "before t=")
def freed_too_early() -> Tape:
    return exported(released="during")


@leaves_open("IPC-1", "IPC-2")
def no_exports() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    return tape


def allocated(*refused: str) -> Tape:
    tape = exported()
    for kind in refused:
        tape.trainer("export_refused", 1, gpu=1, allocation=kind, names=["a", "b"])
    return tape


holds("IPC-3")(lambda: allocated())
breaks("IPC-3", "rank 1 exported 2 tensors from 'vmm' memory")(lambda: allocated("vmm"))
leaves_open("IPC-3")(no_exports)

holds("IPC-52")(lambda: push("used-again", 200, B, (1,)))
breaks("IPC-52", "of seeds [0]")(lambda: push("used-again", 200, A, (1,)))
breaks("IPC-52", "of seeds []")(lambda: push("used-again", 200, [9, 9], (1,)))
breaks("IPC-52", "dropped")(lambda: push("used-again", None, None))


IPC_UPDATE = "update_weights_from_ipc"


def over_ipc(
    kind: str,
    status: int | None,
    message: str = "IPC weight update completed successfully",
    seeds: tuple[int, ...] = (),
    before: list[int] | None = None,
    tokens: list[int] | None = None,
) -> Tape:
    tape = Tape()
    truth(tape)
    if before is not None:
        tape.gen(before, prompt=PROMPT)
    tape.fact("push", kind=kind, seeds=list(seeds))
    if status is None:
        tape.call(IPC_UPDATE, {}, None, error="timeout")
    else:
        tape.message(IPC_UPDATE, status, message, {})
    if tokens is not None:
        tape.gen(tokens, prompt=PROMPT)
    return tape


@holds("IPC-53")
def a_set_over_sockets() -> Tape:
    return over_ipc("ipc-whole", 200, seeds=(1,), tokens=B)


@breaks("IPC-53", "timeout")
def a_set_that_nobody_takes() -> Tape:
    return over_ipc("ipc-whole", None, seeds=(1,))


@breaks("IPC-53", "of seeds [0]")
def a_set_that_is_not_in() -> Tape:
    return over_ipc("ipc-whole", 200, seeds=(1,), tokens=A)


NOT_FOUND = "Device UUID GPU-0 not found in zmq_handles: ['GPU-1']"


@holds("IPC-54")
def another_id() -> Tape:
    return over_ipc("ipc-other-id", 400, NOT_FOUND, before=A, tokens=A)


@breaks("IPC-54", "200")
def another_id_is_taken() -> Tape:
    return over_ipc("ipc-other-id", 200)


@breaks("IPC-54", "before [1, 1], after [2, 2]")
def another_id_is_refused_and_loaded() -> Tape:
    return over_ipc("ipc-other-id", 400, NOT_FOUND, before=A, tokens=B)


@holds("IPC-55")
def a_load_that_fails_is_told() -> Tape:
    return over_ipc("ipc-load-fails", 400, "Some workers failed to update weights")


@breaks("IPC-55", "200")
def a_load_that_fails_is_not_told() -> Tape:
    return over_ipc("ipc-load-fails", 200)


NO_PACKAGE = "IPC weight update failed: ImportError checkpoint-engine is not installed. Please install it with: pip"


@holds("IPC-56")
def no_package() -> Tape:
    return over_ipc("ipc-no-package", 400, NO_PACKAGE, before=A, tokens=A)


@breaks("IPC-56", "200")
def no_package_and_a_success() -> Tape:
    return over_ipc("ipc-no-package", 200)


@breaks("IPC-56", "before [1, 1], after [2, 2]")
def no_package_and_a_change() -> Tape:
    return over_ipc("ipc-no-package", 400, NO_PACKAGE, before=A, tokens=B)


def inside_ipc(status: int, ended: int) -> Tape:
    tape = over_ipc("ipc-inside", status)
    tape.fact("asked", kind="end-after-ipc")
    tape.call("end_weight_update", {}, ended)
    return tape


@holds("IPC-57")
def a_session_that_stays_open() -> Tape:
    return inside_ipc(200, 200)


@breaks("IPC-57", "400")
def refused_in_a_session() -> Tape:
    return inside_ipc(400, 200)


@breaks("IPC-57", "400")
def a_session_that_is_closed() -> Tape:
    return inside_ipc(200, 400)


UPDATE_IPC = "update_weights_from_ipc"


def served(
    *,
    early: str = "",
    ids: tuple[str, ...] = ("GPU-0", "GPU-1"),
    session: bool = False,
    fails: str = "",
    gpus: tuple[int, ...] = (0, 1),
) -> Tape:
    """Two lines of two halves, three buckets: fills, messages and answers."""
    tape = Tape(tp=2)
    tape.fact("engine", tp=2, gpus=[0, 1])
    error = {"error": "it broke"} if fails else {}
    with tape.refit(1, **error):
        for rank, gpu in enumerate(gpus):
            tape.trainer("ipc_line", rank=rank, address=f"a{rank}", uuid=f"GPU-{gpu}", gpu=gpu)
        if session:
            tape.sut("begin_weight_update", {})
        call = tape.start(UPDATE_IPC, {"zmq_handles": {uuid: f"a{n}" for n, uuid in enumerate(ids)}}, origin="sut")
        for rank in (0, 1):
            line(tape, rank, early=early if rank else "", fails=fails if rank else "")
        tape.finish(call, 400 if fails else 200)
    return tape


def line(tape: Tape, rank: int, *, early: str, fails: str) -> None:
    def asked(kind: str, spans: object = (), *, answered: bool = True) -> None:
        tape.trainer("ipc_ask", rank=rank, address=f"a{rank}", kind=kind, spans=spans)
        if answered:
            tape.trainer("ipc_reply", rank=rank, address=f"a{rank}", good=True)

    asked("buffer")
    for start in (0, 100, 0):
        tape.trainer("ipc_fill", rank=rank, address=f"a{rank}", start=start, end=start + 50)
        asked("weights", [[start, start + 50]], answered=False)
        if early == "fill":
            tape.trainer("ipc_fill", rank=rank, address=f"a{rank}", start=start + 10, end=start + 20)
        if early == "free":
            tape.trainer("ipc_free", rank=rank, address=f"a{rank}")
        if fails == "unanswered":
            return
        tape.trainer("ipc_reply", rank=rank, address=f"a{rank}", good=not fails)
        if fails:
            if fails == "told":
                asked("stop", answered=False)
            return
    asked("none")
    tape.trainer("ipc_free", rank=rank, address=f"a{rank}")
    asked("none")


@holds("IPC-76", "IPC-77", "IPC-78")
def well_served() -> Tape:
    return served()


@leaves_open("IPC-76", "IPC-77", "IPC-78", "IPC-79")
def no_server() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket()
    return tape


@breaks("IPC-76", "bytes 10 to 20 were filled again")
def filled_too_early() -> Tape:
    return served(early="fill")


@breaks("IPC-76", "freed while the worker had it")
def freed_while_it_is_read() -> Tape:
    return served(early="free")


@breaks("IPC-77", "1 handles")
def a_device_is_missing() -> Tape:
    return served(ids=("GPU-0",))


@breaks("IPC-77", "the socket beside GPU-0")
def ids_turned_round() -> Tape:
    return served(ids=("GPU-1", "GPU-0"))


@breaks("IPC-77", "devices [0, 5]")
def another_device() -> Tape:
    return served(ids=("GPU-0", "GPU-5"), gpus=(0, 5))


@breaks("IPC-77", "nobody bound")
def a_socket_of_nobody() -> Tape:
    tape = Tape(tp=1)
    with tape.refit(1):
        tape.trainer("ipc_line", rank=0, address="a0", uuid="GPU-0", gpu=0)
        tape.sut(UPDATE_IPC, {"zmq_handles": {"GPU-0": "b0"}})
    return tape


@breaks("IPC-78", "begin_weight_update")
def served_in_a_session() -> Tape:
    return served(session=True)


@holds("IPC-79")
def told_to_stop() -> Tape:
    return served(fails="told")


@holds("IPC-79")
def a_worker_that_never_answered_cannot_be_told() -> Tape:
    return served(fails="unanswered")


@breaks("IPC-79", "the worker at a1 had answered and was told nothing more")
def left_waiting() -> Tape:
    return served(fails="silent")
