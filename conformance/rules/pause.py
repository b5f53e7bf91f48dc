"""PAUSE: three modes, each with its own fate of running and new requests; the client undoes what it paused."""

from __future__ import annotations

from collections.abc import Callable

from conformance.judging import Judge, all_of, answered, every, op, said, wrong
from conformance.refits import Finding, Part, each_call, each_part, parts, set_aside
from conformance.rules.make import engine, refit
from conformance.tokens import Sample, aborted_by_another, ended_by_itself, sample_of
from conformance.view import SESSION_OPS, UPDATE_OPS, State, died, state_at, steps
from harness.history import Call, History
from harness.rules import Verdict, held, violated

TM = "managers/tokenizer_manager.py"
PAUSED_BODY = {"message": "Generation paused successfully.", "status": "ok"}
CONTINUED_BODY = {"message": "Generation continued successfully.", "status": "ok"}
MODES = ("abort", "retract", "in_place")
pause, resume = op("pause_generation"), op("continue_generation")
Fate = Callable[[History, Call, Sample], bool]


def _fates(mode: str, ok: Fate, allowed: str) -> Judge:
    """Judge each request that was running when a pause of `mode` left, and met no other pause."""

    def judge(history: History) -> Verdict:
        by_id = {call.id: call for call in history.calls_}
        exercised = 0
        for call, state in steps(history):
            if call.op != "pause_generation" or call.arg("mode", "abort") != mode or not call.ok or state.paused:
                continue
            for request in sorted(state.running):
                running = by_id[request]
                sample = sample_of(running)
                if running.outcome == "open" or died(running) or (running.end_pos < call.end_pos and mode != "abort"):
                    continue
                pauses = history.calls("pause_generation", engine=call.engine)
                if any(c.id != call.id and c.overlaps(running) for c in pauses):
                    continue
                if sample and (ended_by_itself(sample, call) or aborted_by_another(history, sample, call)):
                    continue
                exercised += 1
                told = _fate_wrong(history, call, running, sample, ok)
                if told:
                    return wrong(running, [allowed], exercised, told)
        return held(exercised)

    return judge


def _fate_wrong(history: History, call: Call, running: Call, sample: Sample | None, ok: Fate) -> str:
    if sample is None:
        return f"{running.status} {running.message[:80]}"
    return "" if ok(history, call, sample) else f"finish {sample.finish!r}, {sample.retractions} retractions, {running}"


def _aborted(_history: History, call: Call, sample: Sample) -> bool:
    return sample.finish == "abort" and sample.call.end_pos < call.end_pos


def _continues(history: History, call: Call, sample: Sample) -> bool:
    nexts = [c for c in history.calls("continue_generation", engine=call.engine) if c.pos > call.end_pos]
    return bool(nexts) and sample.call.end_pos > nexts[0].pos and sample.finish != "abort"


def _retracted(history: History, call: Call, sample: Sample) -> bool:
    return _continues(history, call, sample) and sample.retractions >= 1


def _frozen(history: History, call: Call, sample: Sample) -> bool:
    return _continues(history, call, sample) and sample.retractions == 0


def _new_requests_wait(history: History) -> Verdict:
    exercised = 0
    for call, state in steps(history):
        if call.op != "generate" or state.paused not in MODES or call.outcome == "open" or died(call):
            continue
        if call.error.startswith("timeout"):
            exercised += 1
            continue
        nexts = [c for c in history.calls("continue_generation", engine=call.engine) if c.pos > call.pos]
        exercised += 1
        if not nexts or call.end_pos < nexts[0].pos:
            return wrong(call, ["no answer before continue_generation"], exercised)
    return held(exercised)


def _waits_for_the_frozen(call: Call, state: State) -> bool:
    """An abort asks until no request is left, and those that in_place has frozen cannot end."""
    return call.arg("mode", "abort") == "abort" and state.paused == "in_place" and bool(state.running - state.waiting)


def _both_answered(history: History) -> Verdict:
    known = all_of(
        pause,
        lambda c, s: c.arg("mode", "abort") in MODES and isinstance(c.request, dict),
        lambda c, s: not _waits_for_the_frozen(c, s),
    )
    twice = all_of(known, lambda c, s: s.paused in MODES)
    idle_continue = all_of(resume, lambda c, s: s.paused == "" and isinstance(c.request, dict))
    return every(
        answered(known, said(200, body=PAUSED_BODY)),
        answered(twice, said(200, body=PAUSED_BODY)),
        answered(all_of(resume, lambda c, s: isinstance(c.request, dict)), said(200, body=CONTINUED_BODY)),
        answered(idle_continue, said(200, body=CONTINUED_BODY)),
    )(history)


def _restored(history: History) -> Verdict:
    exercised = 0
    for part in parts(history):
        paused = part.op("pause_generation")
        if not paused or part.refit.ok is None:
            continue
        before = state_at(history, part.engine, part.incarnation, part.refit.pos)
        after = state_at(history, part.engine, part.incarnation, part.refit.end_pos)
        if after.dead or set_aside(history, part):
            continue
        exercised += part.refit.ok is False
        tried = [c for c in part.op("continue_generation") if c.pos > paused[-1].pos]
        if after.paused and after.paused != before.paused and not tried:
            return violated(
                allowed=[f"paused as before the refit ({before.paused or 'running'})", "given up or held, and said so"],
                actual=f"left paused ({after.paused}), no continue_generation after {paused[-1]}",
                where=part.where,
                exercised=max(exercised, 1),
            )
    return held(exercised)


def _confirmed(part: Part, history: History) -> Finding | bool:
    failed = [c for c in part.op("continue_generation") if not c.ok]
    if not failed:
        return False
    after = state_at(history, part.engine, part.incarnation, part.refit.end_pos)
    spent = part.refit.end_t - part.refit.t >= 0.9 * float(part.refit.data.get("deadline_s", 60.0))
    if any(c.ok for c in part.op("continue_generation") if c.pos > failed[-1].pos) or after.dead or spent:
        return None
    if set_aside(history, part):
        return None
    return "continue_generation again until it is confirmed", f"given up after {failed[-1].message!r}", str(failed[-1])


def _traffic_survives(part: Part, history: History) -> Finding | bool:
    pauses = part.op("pause_generation")
    modes = sorted({str(c.arg("mode", "abort")) for c in pauses})
    if not pauses or not part.buckets:
        return False
    met = False
    for call in history.calls("generate", engine=part.engine):
        if call.origin == "sut" or call.end_pos < part.refit.pos or call.pos > part.refit.end_pos or died(call):
            continue
        sample = sample_of(call)
        met = True
        if call.outcome == "open" or call.error.startswith("timeout"):
            continue
        if "abort" in modes and call.end_pos < pauses[-1].end_pos:
            continue
        if sample is None or sample.finish == "abort":
            told = "aborted" if sample is not None else call.message[:80]
            return f"the fate that pause mode {'/'.join(modes)} declares", told, str(call)
    return None if met else False


def _after_updates(call: Call, state: State, history: History) -> Finding | bool:
    if call.op != "continue_generation":
        return False
    updates = list(history.calls((*UPDATE_OPS, "end_weight_update"), origin="sut", engine=call.engine))
    if not any(c.pos < call.pos for c in updates):
        return False
    for update in updates:
        if update.pos < call.pos < update.end_pos:
            return "continue only after every update call has ended", f"{update.op} still under way", str(call)
    if state.session == "open" and state.loaded and not _end_was_tried(call, history):
        return "end_weight_update, then continue", "the session is open, with buckets in it", str(call)
    return None


def _end_was_tried(call: Call, history: History) -> bool:
    """Since the last begin; an end that failed is another rule's business."""
    calls = history.calls(SESSION_OPS, engine=call.engine, incarnation=call.incarnation)
    before = [c for c in calls if c.pos < call.pos]
    return bool(before) and before[-1].op == "end_weight_update"


def _after_tags(call: Call, state: State, history: History) -> Finding | bool:
    if call.op != "continue_generation":
        return False
    if not history.calls("release_memory_occupation", engine=call.engine, where=lambda c: c.pos < call.pos):
        return False
    if state.released:
        return "continue with every memory tag resumed", f"{', '.join(sorted(state.released))} released", str(call)
    return None


RULES = (
    refit(
        "PAUSE-1",
        "Every engine that a refit paused runs again after it, on every way out, also when only some were paused.",
        _restored,
        [f"{TM}:2267@0.5.23", "NVIDIA-NeMo/RL#3612", "OpenRLHF/OpenRLHF#1262"],
        speaks_of=["pause_generation"],
        mend=(
            "enter the try whose finally posts /continue_generation before the first pause, and continue each engine "
            "on its own, whatever the others answered"
        ),
    ),
    refit(
        "PAUSE-2",
        "A continue that was not confirmed is repeated until it is.",
        each_part(_confirmed),
        ["PrimeIntellect-ai/prime-rl#2759"],
        speaks_of=["continue_generation"],
        mend=(
            "post /continue_generation in a loop with a short wait until it answers 200 or the engine is given up; it "
            "does no harm twice"
        ),
    ),
    refit(
        "PAUSE-3",
        "A refit does with requests what its pause mode says: retract and in_place abort none, abort no later one.",
        each_part(_traffic_survives),
        ["managers/scheduler.py:5817@0.5.23", "radixark/miles#2589"],
        speaks_of=["pause_generation"],
        mend=(
            "send the declared mode with /pause_generation, post no /abort_request beside it, and update with "
            "abort_all_requests left false"
        ),
    ),
    refit(
        "PAUSE-5",
        "Generation is continued only after every update call has ended, and with it the session: end finalises.",
        each_call(_after_updates),
        [
            "managers/scheduler_components/weight_updater.py:323@0.5.23",
            "areal-project/AReaL#1444",
            "OpenRLHF/OpenRLHF#1262",
        ],
        speaks_of=["continue_generation"],
        mend=(
            "order per engine: the last bucket's answer, then /end_weight_update and its answer, then "
            "/continue_generation"
        ),
    ),
    refit(
        "PAUSE-6",
        "Generation is continued only after every released memory tag is back.",
        each_call(_after_tags),
        ["NVIDIA-NeMo/RL#3612"],
        asks=["phase"],
        speaks_of=["continue_generation"],
        mend=(
            "post /resume_memory_occupation for every tag that was released, wait for its 200, and only then "
            "/continue_generation"
        ),
    ),
    engine(
        "PAUSE-51",
        "Pause and continue answer 200, in every mode, twice, and without a pause before.",
        _both_answered,
        ["entrypoints/http_server.py:1831@0.5.23", "entrypoints/http_server.py:1844@0.5.23"],
        mend="look at the pause and continue handlers: both are idempotent and answer 200 whatever the state was",
    ),
    engine(
        "PAUSE-52",
        "An unknown pause mode is refused with 400.",
        answered(lambda c, s: c.op == "pause_generation" and c.arg("mode", "abort") not in MODES, said(400)),
        ["managers/io_struct.py:1927@0.5.23", "managers/io_struct.py:1353@0.5.12.post1"],
        mend="look at the request's type: mode is one of abort, in_place, retract, and validation answers 400",
    ),
    engine(
        "PAUSE-53",
        "abort: every running request ends with finish reason abort before the pause is answered.",
        _fates("abort", _aborted, "finish reason abort, before the pause is answered"),
        [f"{TM}:2267@0.5.23"],
        mend=(
            "look at pause_generation in the tokenizer manager: it aborts, and waits for the aborted, before it answers"
        ),
    ),
    engine(
        "PAUSE-54",
        "retract: running requests are queued again and end only after continue, retracted once or more, not aborted.",
        _fates("retract", _retracted, "ends after continue, num_retractions >= 1"),
        ["managers/scheduler.py:5817@0.5.23"],
        mend=(
            "look at the scheduler's retract: running requests go back to the waiting queue, count a retraction, and "
            "are computed anew"
        ),
    ),
    engine(
        "PAUSE-55",
        "in_place: running requests freeze and end only after continue, neither retracted nor aborted.",
        _fates("in_place", _frozen, "ends after continue, num_retractions 0"),
        ["managers/scheduler.py:5817@0.5.23"],
        mend="look at the scheduler's in_place pause: the batch stays as it is and goes on at continue",
    ),
    engine(
        "PAUSE-56",
        "A request that arrives while paused is never refused: it waits for continue.",
        _new_requests_wait,
        [f"{TM}:939@0.5.23"],
        mend="look at generate_request: it waits on the pause condition before a request goes to the scheduler",
    ),
)
