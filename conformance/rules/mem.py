"""MEM: memory tags. Releasing adds to a set, resuming removes from it strictly, and what was released is gone."""

from __future__ import annotations

from conformance.judging import DIES, When, all_of, answered, busy, idle, op, said
from conformance.refits import Finding, Part, each_call, each_part, parts, quarantined
from conformance.rules import saver
from conformance.rules.make import engine, refit
from conformance.tokens import cached_after
from conformance.view import BUCKETS, State, state_at, tags_of
from harness.history import Call, History
from harness.rules import Verdict, held, violated

WU = "managers/scheduler_components/weight_updater.py"
release, resume = op("release_memory_occupation"), op("resume_memory_occupation")


def _known(call: Call, state: State) -> bool:
    return tags_of(call) <= state.released


def _json(call: Call, _state: State) -> bool:
    return isinstance(call.request, dict)


def _queued(mode: str) -> When:
    return lambda call, state: state.paused == mode and busy(call, state)


def _twice(call: Call, state: State) -> bool:
    return call.op == "release_memory_occupation" and bool(tags_of(call) & state.released) and idle(call, state)


def _matching_tags(call: Call, state: State, history: History) -> Finding | bool:
    if call.op != "resume_memory_occupation":
        return False
    extra = tags_of(call) - state.released
    if extra and state.session != "unknown":
        return "only tags that are released", f"{', '.join(sorted(extra))} resumed without a release", str(call)
    return None


def _nothing_while_released(call: Call, state: State, history: History) -> Finding | bool:
    if call.op not in (*BUCKETS, "begin_weight_update", "end_weight_update", "flush_cache"):
        return False
    if not history.calls("release_memory_occupation", engine=call.engine, where=lambda c: c.pos < call.pos):
        return False
    gone = {"weights"} if call.op != "flush_cache" else {"kv_cache"}
    if gone <= state.released and call.op != "flush_cache":
        return "weights resumed before anything is written to them", f"{call.op} while weights are released", str(call)
    return None


def _transport_memory_back(history: History) -> Verdict:
    """Wherever the trainer takes its memory again, no export is alive."""
    exercised = 0
    for note in history.trainer("OFFLOADED"):
        if not any(part.buckets for part in parts(history) if part.refit.pos < note.pos):
            continue
        exercised += 1
        live = int(note.get("live_exports", 0))
        if live:
            return violated(allowed=["0 live exports"], actual=f"{live}", where=str(note), exercised=exercised)
    return held(exercised)


def _memory_is_back(part: Part, history: History) -> Finding | bool:
    before = state_at(history, part.engine, part.incarnation, part.refit.pos)
    after = state_at(history, part.engine, part.incarnation, part.refit.end_pos)
    if not before.released or part.refit.ok is None or after.dead:
        return False
    if after.released and not quarantined(history, part):
        told = f"{', '.join(sorted(after.released))} still released"
        return "every tag resumed, or the engine given up", told, part.where
    return None


RULES = (
    refit(
        "MEM-1",
        "Only tags that are released are resumed: release and resume name the same set.",
        each_call(_matching_tags),
        [f"{WU}:383@0.5.23", "verl-project/verl#7289"],
        asks=["phase"],
        mend="remember per engine which tags were released, and resume exactly those, once",
    ),
    refit(
        "MEM-2",
        "Nothing is begun, sent or ended while the weights are released.",
        each_call(_nothing_while_released),
        [f"{WU}:337@0.5.23", "vllm-project/vllm#57853"],
        asks=["phase"],
        mend="resume the tag weights, and wait for its 200, before begin, buckets, end and flush",
    ),
    refit(
        "MEM-3",
        "The transport's memory is back before the trainer takes its own again.",
        _transport_memory_back,
        ["THUDM/slime#2188"],
        needs=("call", "trainer:OFFLOADED"),
        black_box="the engine does not see what its producer holds; only the trainer's records tell",
        mend=(
            "release every export and buffer of the transport before the trainer takes its memory back (its offload "
            "or onload step)"
        ),
    ),
    refit(
        "MEM-71",
        "A refit brings all released memory back, on every way out, unless it gives the engine up.",
        each_part(_memory_is_back),
        ["NVIDIA-NeMo/RL#3612", "NVIDIA-NeMo/RL#3519"],
        mend=(
            "resume the released tags in a finally that runs whatever failed, before /continue_generation; or declare "
            "the engine lost"
        ),
    ),
    engine(
        "MEM-51",
        "Release answers 200 with null on an idle engine, for unknown tags too.",
        answered(all_of(release, _json, idle), said(200, body=None)),
        [f"{WU}:337@0.5.23"],
        mend="look at release_memory_occupation: idle is all it asks; unknown tags are ignored, and the body is null",
    ),
    engine(
        "MEM-52",
        "Resuming what was released answers 200 with null.",
        answered(all_of(resume, _json, _known), said(200, body=None)),
        [f"{WU}:383@0.5.23"],
        mend="look at resume_memory_occupation: the body is null",
    ),
    engine(
        "MEM-53",
        "Resuming a tag that is not released kills the engine.",
        answered(all_of(resume, _json, lambda c, s: not _known(c, s)), DIES),
        [f"{WU}:383@0.5.23", "verl-project/verl#7289"],
        mend="look at the set of offloaded tags: removing one that is not in it raises in the scheduler",
    ),
    engine(
        "MEM-54",
        "Releasing while a request runs kills the engine.",
        answered(all_of(release, lambda c, s: s.paused == "", busy), DIES),
        [f"{WU}:337@0.5.23"],
        mend="look at the assert in release_memory_occupation: it wants an idle scheduler",
    ),
    engine(
        "MEM-55",
        "Without a memory saver a second release is answered 200 and changes nothing.",
        answered(_twice, said(200, body=None)),
        [f"{WU}:337@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the adapter without a memory saver: its pause does nothing, a second time too",
    ),
    engine(
        "MEM-56",
        "The session does not look at memory tags: begin and end are taken while weights are released.",
        answered(
            all_of(op("begin_weight_update", "end_weight_update"), lambda c, s: "weights" in s.released),
            said(200, "Success"),
        ),
        [f"{WU}:309@0.5.23", "observed 0.5.23 on CPU"],
        versions=">=0.5.21",
        mend="look at the session's checks: none looks at memory tags",
    ),
    engine(
        "MEM-57",
        "Releasing under a retract pause with requests in the queue is allowed.",
        answered(all_of(release, _queued("retract")), said(200, body=None)),
        ["managers/scheduler.py:5011@0.5.21"],
        versions=">=0.5.21",
        mend="look at the assert in release_memory_occupation: since 0.5.21 a queue under a pause does not count",
    ),
    engine(
        "MEM-58",
        "Releasing under a retract pause with requests in the queue kills the engine.",
        answered(all_of(release, _queued("retract")), DIES),
        ["managers/scheduler_components/weight_updater.py:212@0.5.20"],
        versions="<0.5.21 || miles",
        mend="look at the assert in release_memory_occupation: before 0.5.21 the queue counts",
    ),
    engine(
        "MEM-59",
        "Releasing kv_cache drops the prefix cache.",
        cached_after(
            lambda c, s: c.op == "release_memory_occupation" and "kv_cache" in tags_of(c) and c.ok,
            lambda cached: cached == 0,
            "cached_tokens 0",
        ),
        [f"{WU}:337@0.5.23"],
        mend="look at the release of kv_cache: it flushes the cache first",
    ),
    *saver.RULES,
)
