"""SESS: the weight-update session. It has no owner, no timeout and no abort: only `end` closes it."""

from __future__ import annotations

from conformance.judging import DIES, all_of, answered, every, op, said, session
from conformance.refits import SESSIONS, Finding, Part, each_part, quarantined
from conformance.rules.make import engine, refit
from conformance.tokens import changed, unchanged
from conformance.view import BUCKET, BUCKETS, SESSION_OPS, State, acted, flushes
from harness.history import Call, History

WU = "managers/scheduler_components/weight_updater.py"
OUTSIDE = "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()"
ALREADY = "a weight-update session is already open; call end_weight_update() first"
NOT_OPEN = "no weight-update session is open; call begin_weight_update() first"

bucket = op(BUCKET)
begin = op("begin_weight_update")
end = op("end_weight_update")
closed, is_open = session("closed"), session("open")


def _empty_session(call: Call, state: State) -> bool:
    return call.op == "end_weight_update" and state.session == "open" and not state.loaded and call.ok


def _buckets_inside(part: Part, history: History) -> Finding | bool:
    if not part.buckets:
        return False
    inside = False
    for call in part.calls:
        if call.op in SESSION_OPS and acted(call) is not False:
            inside = call.op == "begin_weight_update"
        elif call.op in BUCKETS and not inside:
            return "a bucket only between begin and end", "a bucket outside a session", str(call)
    if inside and part.refit.ok:
        return "end after the last bucket", "the refit succeeded and never ended its session", str(part.calls[-1])
    return None


def _once_per_refit(part: Part, history: History) -> Finding | bool:
    if not part.refit.ok or not part.buckets or sum(1 for r in history.refits() if r.ok) < 2:
        return False
    begun = [c for c in part.op("begin_weight_update") if acted(c)]
    if len(begun) != 1:
        return "one begin_weight_update per refit and engine", f"{len(begun)} of them", str(part.calls[0])
    ended = [c for c in part.op("end_weight_update") if acted(c) and c.pos > begun[0].pos]
    if len(ended) != 1:
        return "one end_weight_update per refit and engine", f"{len(ended)} of them", str(part.calls[-1])
    return None


def _begins_again(part: Part, history: History) -> Finding | bool:
    failed_before = [r for r in history.refits() if r.index < part.refit.index and r.ok is False]
    if not failed_before or any(c.fault for c in history.during(part.refit).calls_):
        return False
    if part.refit.ok is False and not quarantined(history, part):
        refused = [c for c in part.op("begin_weight_update") if not c.ok]
        where = str(refused[-1] if refused else part.calls[-1])
        return "the next fault-free refit succeeds", part.refit.error[:160] or "it failed", where
    return None


def _end_of_what(part: Part, history: History) -> Finding | bool:
    """What the client may believe: a begin that was not clearly refused may have opened, a confirmed end has closed."""
    ends = part.op("end_weight_update")
    if not ends:
        return False
    may_be_open = _left_open(part, history)
    for call in part.calls:
        refused = call.outcome == "fail" and (call.status is None or call.status < 500)
        if call.op == "begin_weight_update":
            may_be_open = may_be_open or not refused or ALREADY in call.message
        elif call.op == "end_weight_update":
            if not may_be_open:
                return "an end only where a session may be open", "an end of nothing", str(call)
            may_be_open = not call.ok and not refused
    return None


def _left_open(part: Part, history: History) -> bool:
    """Whether the client may believe that what it began before on this engine is still open.

    Also where that was with an incarnation that died meanwhile: at the same url another one may answer, and no call of
    the client has told it so.
    """
    calls = history.calls(SESSION_OPS, engine=part.engine)
    before = [
        c
        for c in calls
        if (c.pos < part.refit.pos and c.incarnation == part.incarnation)
        or (c.pos < part.calls[0].pos and c.incarnation < part.incarnation)
    ]
    return bool(before) and not (before[-1].op == "end_weight_update" and before[-1].ok)


RULES = (
    refit(
        "SESS-1",
        "Buckets are sent only inside an open weight-update session, and the session is ended after the last bucket.",
        each_part(_buckets_inside),
        [f"{WU}:234@0.5.23", "NVIDIA-NeMo/RL#3519"],
        versions=SESSIONS,
        mend=(
            "post /begin_weight_update before the first bucket, and /end_weight_update once the last bucket was "
            "answered, in a finally of their own"
        ),
    ),
    refit(
        "SESS-3",
        "After a failed refit every engine that was not given up can begin the next one.",
        each_part(_begins_again),
        [f"{WU}:309@0.5.23", "vllm-project/vllm#39212"],
        versions=SESSIONS,
        follows=["RANK-1"],
        mend=(
            "in the handler of a failed refit post /end_weight_update; where a begin answers 400 'already open', end "
            "that session and begin again"
        ),
    ),
    refit(
        "SESS-4",
        "One begin and one end per refit and engine, around all buckets, refit after refit: end finalises layouts.",
        each_part(_once_per_refit),
        [f"{WU}:323@0.5.23", "sgl-project/sglang#40587"],
        versions=SESSIONS,
        follows=["ERR-1", "SESS-1"],
        mend=(
            "begin and end once per refit and engine, outside the loop over buckets; no begin or end per bucket, per "
            "dtype or per rank"
        ),
    ),
    refit(
        "SESS-71",
        "An end is sent only where a session may be open: not after a begin that was refused, and not twice.",
        each_part(_end_of_what),
        [f"{WU}:323@0.5.23", "NVIDIA-NeMo/RL#3612"],
        versions=SESSIONS,
        mend=(
            "keep a flag that a 200 of /begin_weight_update, or its silence, sets and the end clears; post the end "
            "only while it is set"
        ),
    ),
    engine(
        "SESS-51",
        "An update outside a session is refused and changes nothing.",
        every(
            answered(all_of(bucket, closed), said(400, OUTSIDE), said(400, contains="validation error")),
            unchanged(all_of(bucket, closed)),
        ),
        [f"{WU}:234@0.5.23", f"{WU}:219@0.5.21"],
        versions=">=0.5.21",
        mend=(
            "look at the session check of the weight updater: it stands before any payload is opened, and refuses "
            "without touching weights"
        ),
    ),
    engine(
        "SESS-52",
        "A second begin is refused and the open session stays open.",
        every(
            answered(all_of(begin, is_open), said(400, ALREADY)),
            answered(all_of(bucket, is_open), said(200), said(400, contains="validation error")),
        ),
        [f"{WU}:309@0.5.23"],
        versions=">=0.5.21",
        mend="look at begin_weight_update: an open session is refused with 400, and neither closed nor begun anew",
    ),
    engine(
        "SESS-53",
        "An end without a begin is refused.",
        answered(all_of(end, closed), said(400, NOT_OPEN)),
        [f"{WU}:323@0.5.23"],
        versions=">=0.5.21",
        mend="look at end_weight_update: without an open session it answers 400 before anything is finalised",
    ),
    engine(
        "SESS-54",
        "There are no session routes before 0.5.21, and an update is taken without one.",
        every(
            answered(op("begin_weight_update", "end_weight_update"), said(404, body={"detail": "Not Found"})),
            answered(all_of(bucket, lambda c, s: not (flushes(c) and s.running)), said(200)),
        ),
        ["entrypoints/http_server.py:1395@0.5.20"],
        versions="<0.5.21,!=miles",
        mend="look at the route table: before 0.5.21 no session routes exist, and an update must not ask for one",
    ),
    engine(
        "SESS-55",
        "The asserting build dies of an update outside a session, of a second begin and of an end without begin.",
        answered(
            lambda c, s: (
                (c.op in (BUCKET, "end_weight_update") and s.session == "closed")
                or (c.op == "begin_weight_update" and s.session == "open")
            ),
            DIES,
        ),
        ["managers/scheduler_components/weight_updater.py:254@3003d70f"],
        versions="miles",
        mend=(
            "look at the asserts of the weight updater: they raise in the scheduler, so the process dies and does not "
            "answer 400"
        ),
    ),
    engine(
        "SESS-56",
        "A bucket is visible at once: generation inside an open session already runs on it.",
        changed(lambda c, s: c.op == BUCKET and s.session == "open" and c.ok),
        [f"{WU}:252@0.5.23", "observed 0.5.21 on a GPU"],
        versions=">=0.5.21 || miles",
        mend=(
            "look at where a bucket is loaded: into the live parameters at once, not into a copy that the end swaps in"
        ),
    ),
    engine(
        "SESS-57",
        "A session in which nothing was sent is begun and ended with 200 and changes no dense weights.",
        every(answered(all_of(op("begin_weight_update"), closed), said(200, "Success")), unchanged(_empty_session)),
        [f"{WU}:323@0.5.23", "model_loader/loader.py:1079@0.5.23"],
        versions=">=0.5.21 || miles",
        mend=(
            "look at what the end derives: of dense layers nothing, so an empty session leaves their weights bit by bit"
        ),
    ),
    engine(
        "SESS-58",
        "Begin and end need a JSON body: without one they answer 400, not 422, and leave the session as it is.",
        answered(
            lambda c, s: (
                c.op in ("begin_weight_update", "end_weight_update") and c.method == "POST" and c.request is None
            ),
            said(400, contains="Field required"),
        ),
        ["entrypoints/http_server.py:635@0.5.23", "entrypoints/http_server.py:1458@0.5.23"],
        versions=">=0.5.21 || miles",
        mend="look at the routes' body parsing: a missing JSON body goes through the handler that turns 422 into 400",
    ),
)
