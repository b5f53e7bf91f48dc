"""LOCK: generations hold a reader lock for life, updates want the writer lock, and a pause lets them past it."""

from __future__ import annotations

from conformance.judging import wrong
from conformance.refits import Finding, Part, each_part, got, reported
from conformance.rules.make import engine, refit
from conformance.view import UPDATE_OPS, steps
from harness.history import History
from harness.rules import Verdict, held

TCM = "managers/tokenizer_control_mixin.py"
WRITERS = (*UPDATE_OPS, "begin_weight_update", "end_weight_update")
LOCKLESS = ("flush_cache", "weights_checker", "get_weights_by_name", "model_info", "server_info", "abort_request")


def _waits_for_readers(history: History) -> Verdict:
    by_id = {call.id: call for call in history.calls_}
    exercised = 0
    for call, state in steps(history):
        if call.op not in WRITERS or state.paused or not call.ok or call.arg("abort_all_requests"):
            continue
        for request in sorted(state.running):
            exercised += 1
            if by_id[request].end_pos > call.end_pos:
                return wrong(call, ["no answer before the running generations end"], exercised, f"{by_id[request]}")
    return held(exercised)


def _passes_when_paused(history: History) -> Verdict:
    by_id = {call.id: call for call in history.calls_}
    exercised = 0
    for call, state in steps(history):
        if call.op not in WRITERS or state.paused not in ("retract", "in_place"):
            continue
        if not state.running - state.waiting:
            continue
        exercised += 1
        if call.outcome == "open" or call.error.startswith("timeout"):
            return wrong(call, ["an answer while requests are held by the pause"], exercised, "none")
        ended = [by_id[r] for r in state.running if by_id[r].end_pos < call.end_pos]
        if call.ok and ended:
            return wrong(call, ["an answer before the held requests go on"], exercised, str(ended[0]))
    return held(exercised)


def _writer_first(history: History) -> Verdict:
    """A generation that arrives while an update waits for the lock is served after the update."""
    exercised = 0
    for call, state in steps(history):
        if call.op not in UPDATE_OPS or state.paused or not call.ok:
            continue
        for late in history.calls("generate", engine=call.engine):
            first_in = [r for r in state.running if r != late.id]
            if not first_in or not call.pos < late.pos < call.end_pos or late.outcome == "open":
                continue
            exercised += 1
            if late.end_pos < call.end_pos:
                return wrong(late, ["an answer after the waiting update's"], exercised, f"answered before {call}")
    return held(exercised)


def _lockless(history: History) -> Verdict:
    exercised = 0
    for writer, state in steps(history):
        if writer.op not in WRITERS or state.paused or not state.running:
            continue
        for call in history.calls(LOCKLESS, engine=writer.engine):
            if not writer.pos < call.pos < writer.end_pos or call.fault:
                continue
            exercised += 1
            if call.status is None or call.end_pos > writer.end_pos:
                return wrong(call, ["an answer while an update waits for the lock"], exercised)
    return held(exercised)


def _bounded(part: Part, history: History) -> Finding | bool:
    silent = [c for c in part.calls if c.outcome == "open" or c.error.startswith("timeout")]
    if not silent:
        return False
    deadline = float(part.refit.data.get("deadline_s", 60.0))
    for call in silent:
        if call.end_t > part.refit.t + deadline + 1.0:
            end = "was never given up" if call.outcome == "open" else f"was given up after {call.end_t - call.t:.1f} s"
            told = f"{call.method} /{call.op} to {call.engine} {end}; {reported(part.refit)}"
            return f"given up within the refit's {deadline:g} s", told, str(call)
    if part.refit.ok and silent[-1].op in WRITERS:
        return "a refit that failed", f"{reported(part.refit)}, though {got(silent[-1])}", str(silent[-1])
    return None


RULES = (
    refit(
        "LOCK-2",
        "Every call has a deadline: an update that waits for the lock for ever ends the refit at its deadline.",
        each_part(_bounded),
        [f"{TCM}:563@0.5.23", "sgl-project/sglang#22754"],
        follows=["LIVE-2", "ERR-1"],
        mend="give every call a time-out out of what is left of the refit's deadline, and raise when it runs out",
    ),
    engine(
        "LOCK-51",
        "An engine that is not paused lets running generations end before an update, a begin or an end is answered.",
        _waits_for_readers,
        [f"{TCM}:470@0.5.23", "utils/aio_rwlock.py:4@0.5.23"],
        mend="look at the writer lock around updates, begin and end: a generation holds the reader side to its end",
    ),
    engine(
        "LOCK-52",
        "A paused engine takes an update at once, whatever its held requests.",
        _passes_when_paused,
        [f"{TCM}:470@0.5.23"],
        mend="look at the branch for a paused engine: it takes an update without the writer lock",
    ),
    engine(
        "LOCK-53",
        "The lock prefers writers: a generation that arrives while an update waits is served after it.",
        _writer_first,
        ["utils/aio_rwlock.py:4@0.5.23"],
        mend="look at the lock's acquire_reader: it waits while a writer waits",
    ),
    engine(
        "LOCK-54",
        "Flush, checker, get_weights_by_name and the info routes take no lock.",
        _lockless,
        [f"{TCM}:896@0.5.23", "entrypoints/http_server.py:1025@0.5.23"],
        mend="look at which handlers take the lock: flush, checker, reads and infos must not",
    ),
)
