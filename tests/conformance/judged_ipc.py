from __future__ import annotations

from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.judged_rank import A, B, push
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
