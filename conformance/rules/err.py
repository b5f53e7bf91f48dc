"""ERR: how an engine says no, how it dies, and that a client hears both."""

from __future__ import annotations

from conformance.judging import DIES, answered, every, later, op, said, wrong
from conformance.pushes import push_answered, push_unchanged
from conformance.refits import Finding, Part, each_part, fleet_parts, got, reported
from conformance.rules.make import engine, refit
from conformance.view import BUCKET, BUCKETS, SESSION_OPS, UPDATE_OPS, State, acted, cargo, died
from harness.history import Call, History
from harness.rules import Verdict, held

HS = "entrypoints/http_server.py"
CRITICAL = (
    "begin_weight_update",
    *BUCKETS,
    "end_weight_update",
    "flush_cache",
    "pause_generation",
    "resume_memory_occupation",
)


def _death_is_final(history: History) -> Verdict:
    exercised = 0
    for call in history.calls_:
        if call.fault or not call.error.startswith("dropped"):
            continue
        after = [c for c in later(history, call) if not c.fault]
        if not after:
            continue
        exercised += 1
        for other in after:
            if not died(other):
                return wrong(other, ["connection refused: the engine is gone"], exercised)
    return held(exercised)


def _failure_is_heard(part: Part, history: History) -> Finding | bool:
    failed = [c for c in part.calls if c.op in CRITICAL and not c.ok and c.outcome != "open"]
    failed = [
        c for c in failed if c.op != "flush_cache" or not any(x.ok for x in part.op("flush_cache") if x.pos > c.pos)
    ]
    failed = [c for c in failed if not _made_good(part, c)]
    if not failed:
        return False
    first = failed[0]
    if part.refit.ok:
        return (
            f"a failed refit that says {first.message[:80]!r}",
            f"{reported(part.refit)}, though {got(first)}",
            str(first),
        )
    told = first.message.strip()
    bad = [c for c in history.during(part.refit).calls(origin="sut") if not c.ok]
    own = [c for c in bad if c.pos <= first.pos or c.end_pos <= first.end_pos]  # what failed before it is told instead
    if first.status is not None and told and own == [first] and told not in part.refit.error:
        return f"an error that says {told[:80]!r}", f"{reported(part.refit)}, when {got(first)}", str(first)
    return None


def _made_good(part: Part, call: Call) -> bool:
    """A begin that was refused because a session was open, and was then done again; an end that found none open, which
    is what it wanted, before another begin (which, where it failed, is the failure to be told; whether its session was
    ended is SESS-1's); a bucket that was refused, and the very same one taken later in the refit.

    An update writes values over values and keeps no count: where a refused one was loaded in part, the same bytes sent
    again write every name of it. Silence and a 5xx are no refusals: that one may still be loading (LIVE-2).
    """
    later = [c for c in part.calls if c.pos > call.end_pos]
    if call.op == "begin_weight_update":
        return any(acted(c) for c in later if c.op == call.op)
    if call.op in BUCKETS:
        refused = call.outcome == "fail" and call.status is not None and call.status < 500
        return refused and bool(cargo(call)) and any(c.ok and c.request == call.request for c in later)
    tidied = call.op == "end_weight_update" and "no weight-update session" in call.message
    return tidied and any(c.op == "begin_weight_update" and c.outcome != "open" for c in later)


def _needs_a_tokenizer(call: Call, state: State) -> bool:
    """In this suite engines run with --skip-tokenizer-init."""
    sampling = call.request.get("sampling_params") if isinstance(call.request, dict) else None
    return call.op == "generate" and bool((sampling or {}).get("min_new_tokens")) and not state.dead


LASTING = (*UPDATE_OPS, *SESSION_OPS)


def _all_answered(part: Part, history: History) -> Finding | bool:
    """What a success speaks of is over: its calls have ended, and none of it follows."""
    if not part.refit.ok:
        return False
    until = min((r.pos for r in history.refits() if r.pos > part.refit.pos), default=history.length)
    calls = history.calls((*LASTING, "continue_generation"), origin="sut", engine=part.engine)
    for call in calls:
        if part.refit.pos < call.pos < part.refit.end_pos < call.end_pos:
            return "success when every call of the refit has ended", f"{call.op} was still under way", str(call)
        if part.refit.end_pos < call.pos < until and call.op in LASTING:
            return "success when nothing of the refit is left to send", f"{call.op} was sent after it", str(call)
    return None if any(part.refit.pos < call.pos < part.refit.end_pos for call in calls) else False


RULES = (
    refit(
        "ERR-1",
        "A call that failed, by status, by success false or by silence, fails the refit, and the error says why.",
        each_part(_failure_is_heard),
        ["managers/io_struct.py:2050@0.5.23", "areal-project/AReaL#1444"],
        follows=["LIVE-2"],
        mend=(
            "check status and success of every answer, treat time-outs as failures, raise what the engine said; a "
            "bucket refused with 400 may be sent again unchanged"
        ),
    ),
    refit(
        "ERR-2",
        "A refit that reports success is over: none of its calls is under way, and no bucket follows.",
        each_part(_all_answered, over=fleet_parts),
        ["managers/tokenizer_control_mixin.py:452@0.5.23", "areal-project/AReaL#1444"],
        mend=(
            "await every future of the refit before it returns, also those of other engines after one failed; start "
            "none afterwards"
        ),
    ),
    engine(
        "ERR-51",
        "A dead engine answers nothing more: the connection drops, then every call is refused.",
        _death_is_final,
        ["managers/tokenizer_manager.py:4072@0.5.23", "managers/scheduler.py:6372@0.5.23"],
        mend="look at what follows a scheduler's exception: the process tree is killed, no route answers a 500",
    ),
    engine(
        "ERR-52",
        "A body that does not fit is refused with 400 (not 422).",
        answered(
            lambda c, s: c.op == BUCKET and isinstance(c.request, dict) and "serialized_named_tensors" not in c.request,
            said(400),
        ),
        [f"{HS}:635@0.5.23"],
        mend="look at the handler of validation errors: it answers 400 in place of 422",
    ),
    engine(
        "ERR-53",
        "A payload that is not base64 is refused at the door and changes nothing, not even the session.",
        every(
            push_answered("not-base64", said(400, contains="Expected base64-encoded bytes")),
            push_unchanged("not-base64"),
        ),
        ["managers/io_struct.py:1699@0.5.17", f"{HS}:635@0.5.23"],
        versions=">=0.5.17 || miles",
        mend="look at the request's decoding of payloads: base64 is checked in the HTTP process, since 0.5.17",
    ),
    engine(
        "ERR-54",
        "A payload that is not base64 kills the engine.",
        push_answered("not-base64", DIES),
        ["managers/tp_worker.py:163@0.5.12.post1"],
        versions="<0.5.17,!=miles",
        mend="look at the worker's decoding of payloads: before 0.5.17 a bad one raises in the scheduler",
    ),
    engine(
        "ERR-55",
        "An unknown route answers 404, a wrong method 405.",
        every(
            answered(op("no_such_route"), said(404, body={"detail": "Not Found"})),
            answered(
                lambda c, s: c.op == "pause_generation" and c.method == "GET",
                said(405, body={"detail": "Method Not Allowed"}),
            ),
        ),
        [f"{HS}:578@0.5.23"],
        mend="look at the route table and its methods",
    ),
    engine(
        "ERR-56",
        "A payload that is no pickle kills the engine.",
        push_answered("not-a-pickle", DIES),
        ["utils/common.py:3060@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the unpickler: what is no pickle raises in the scheduler",
    ),
    engine(
        "ERR-57",
        "A payload that names a forbidden global kills the engine, and nothing is executed.",
        push_answered("forbidden-global", DIES),
        ["utils/common.py:3144@0.5.23", "utils/common.py:2276@0.5.12.post1"],
        mend="look at the restricted unpickler's list of allowed globals: it must refuse before anything is called",
    ),
    engine(
        "ERR-58",
        "An unknown load_format kills the engine.",
        push_answered("unknown-load-format", DIES),
        ["model_executor/model_runner_components/weight_updater.py:380@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the branch over load_format: its last else raises in the scheduler",
    ),
    engine(
        "ERR-59",
        "A load_format that does not fit the payload kills the engine.",
        push_answered("wrong-load-format", DIES),
        ["weight_sync/tensor_bucket.py:19@0.5.23", "observed 0.5.21 on a GPU"],
        mend="look at the branch over load_format: the payload's type is not checked before it is used",
    ),
    engine(
        "ERR-60",
        "An empty payload list kills the engine.",
        push_answered("empty-list", DIES),
        ["managers/tp_worker.py:200@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the worker's indexing of the payload list: an empty one is an IndexError",
    ),
    engine(
        "ERR-61",
        "A request that needs a tokenizer, of an engine that has none, is refused with 400 and harms nobody.",
        every(
            answered(_needs_a_tokenizer, said(400)),
            answered(lambda c, s: c.op == "model_info", said(200)),
        ),
        ["sampling/sampling_params.py:306@0.5.17", "observed 0.5.23 on CPU"],
        versions=">=0.5.17 || miles",
        mend="look at the check of sampling parameters that need a tokenizer: in the HTTP process, since 0.5.17",
    ),
    engine(
        "ERR-62",
        "A request that needs a tokenizer kills an engine that has none.",
        answered(_needs_a_tokenizer, DIES),
        ["sampling/penaltylib/min_new_tokens.py:31@0.5.12.post1", "observed 0.5.12.post1 on CPU"],
        versions="<0.5.17,!=miles",
        mend="look at the penalizer: before 0.5.17 it takes the tokenizer for granted, in the scheduler",
    ),
)
