"""CACHE: when a flush is granted, and that no token is served from KV of older weights."""

from __future__ import annotations

import itertools

from conformance.content import content
from conformance.judging import DIES, When, all_of, answered, every, said, wrong
from conformance.judging import busy as _busy
from conformance.judging import idle as _idle
from conformance.refits import Finding, Part, each_call, each_part, got, met_by_traffic, parts, reported
from conformance.rules.make import engine, refit
from conformance.tokens import Said, cached_after, came_alone, same, samples, seeds_of, truths
from conformance.view import BUCKET, BUCKETS, State, flushes, steps
from harness.history import Call, History
from harness.rules import Verdict, held, violated
from harness.versions import version_matches

SCH = "managers/scheduler.py"
FLUSHED, REFUSED = "Cache flushed.", "Flush cache failed."
NOT_IDLE = "Timed out waiting for idle state."
NOT_FLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache."
)
IGNORES_QUEUE = ">=0.5.21"


def _plain_flush(call: Call, _state: State) -> bool:
    return call.op == "flush_cache" and not float(call.arg("?timeout", 0) or 0)


def _in(mode: str) -> When:
    return lambda _call, state: state.paused == mode


def _held_while(mode: str) -> When:
    """A request that a scheduler has, held by a pause of this mode."""
    return lambda call, state: state.paused == mode and _busy(call, state)


def _plain_taken(call: Call, _state: State) -> bool:
    return call.op == BUCKET and call.ok and not flushes(call)


def _flushing_taken(call: Call, _state: State) -> bool:
    return call.op == BUCKET and call.ok and flushes(call)


def _flushed(call: Call, _state: State) -> bool:
    return call.op == "flush_cache" and call.ok


def _stale_is_neither(history: History) -> Verdict:
    """After an update without flush a cached prompt is answered as no clean engine would."""
    truth = truths(history)
    exercised = 0
    for sample in samples(history):
        known = truth.get(sample.prompt)
        updates = [c for c in history.calls(BUCKET, engine=sample.call.engine) if c.before(sample.call) and c.ok]
        if not sample.cached or not known or not updates or flushes(updates[-1]):
            continue
        flushed = [c for c in history.calls("flush_cache", engine=sample.call.engine) if updates[-1].pos < c.pos]
        if any(c.ok and c.before(sample.call) for c in flushed):
            continue
        exercised += 1
        if seeds_of(sample, truth):
            return wrong(sample.call, ["the answer of no clean engine"], exercised, str(list(sample.tokens)))
    return held(exercised)


def _clean_after_flush(history: History) -> Verdict:
    """A prompt that was cached is answered with nothing cached, and cleanly, after a flushing update."""
    truth = truths(history)
    exercised = 0
    for call, state in steps(history):
        if not _flushing_taken(call, state) or call.arg("serialized_named_tensors") is None:
            continue
        before = {s.prompt for s in samples(history, engine=call.engine) if s.call.before(call)}
        for sample in samples(history, engine=call.engine):
            if sample.prompt not in before or not call.before(sample.call):
                continue
            before.discard(sample.prompt)
            if not came_alone(history, sample):
                continue
            exercised += 1
            if sample.cached or seeds_of(sample, truth) == frozenset():
                told = f"cached_tokens {sample.cached}, {list(sample.tokens)}"
                return wrong(sample.call, ["cached_tokens 0, the answer of a clean engine"], exercised, told)
    return held(exercised)


# -- what a client must do ---------------------------------------------------------------------------------------


LEAST_WAIT_S = 0.05
ROUNDING_S = 1e-3  # of sums of floats, and of real clocks
FIRST_POLLS, POLLS_PER_S = 6, 4  # a wait that doubles from 0.05 s to a second stays far below


def _waits(part: Part, history: History) -> Finding | bool:
    flushes_ = part.op("flush_cache")
    refused = [c for c in flushes_ if c.status == 400]
    if not refused:
        return False
    for first, second in itertools.pairwise(flushes_):
        if first.status == 400 and second.t - first.end_t < LEAST_WAIT_S - ROUNDING_S:
            gap = f"{second.t - first.end_t:.3f} s between two polls"
            return f"a wait of at least {LEAST_WAIT_S:g} s before the next /flush_cache", gap, str(second)
    elapsed = flushes_[-1].t - flushes_[0].t
    most = int(POLLS_PER_S * elapsed) + FIRST_POLLS
    if len(flushes_) > most:
        bound = f"{most} polls of /flush_cache in {elapsed:.2f} s: {FIRST_POLLS} and {POLLS_PER_S} more each second"
        return f"at most {bound}", f"{len(flushes_)} polls in {elapsed:.2f} s", str(flushes_[-1])
    if not flushes_[-1].ok:
        if part.buckets:
            return "no bucket where no flush is granted", "a bucket", str(part.buckets[0])
        patience = min(1.0, 0.1 * float(part.refit.data.get("deadline_s", 60.0)))
        if part.refit.ok is False and _only_refused(part, history) and flushes_[-1].end_t - refused[0].t < patience:
            told = f"given up {flushes_[-1].end_t - refused[0].t:.3f} s after the first refusal"
            return f"asked again for {patience:g} s at least", told, str(flushes_[-1])
        if part.refit.ok or refused[-1].message.strip() not in part.refit.error:
            told = f"{reported(part.refit)}, when {got(refused[-1])}"
            return f"a failure that says {refused[-1].message.strip()!r}", told, part.where
    return None


def _only_refused(part: Part, history: History) -> bool:
    """Whether nothing went wrong in this refit, on any engine, but flushes that were refused."""
    failed = [c for c in history.during(part.refit).calls(origin="sut") if not c.ok]
    return all(c.op == "flush_cache" and c.status == 400 for c in failed)


def _no_flush_on_busy(call: Call, state: State, history: History) -> Finding | bool:
    if call.op not in BUCKETS:
        return False
    started = {c.id: c for c in history.calls("generate", engine=call.engine)}
    on_engine = [i for i in state.running if i not in state.waiting and i in started]
    kv_gone = "kv_cache" in state.released
    if not on_engine and not kv_gone:
        return None if met_by_traffic(history, call) else False
    if not flushes(call):
        return None
    if kv_gone:
        return "no flushing update while kv_cache is released", "flush_cache true", str(call)
    relaxed = version_matches(history.header.engine_version, IGNORES_QUEUE)
    if state.paused == "in_place" or (state.paused == "retract" and not relaxed):
        held_back = f"flush_cache true, {len(on_engine)} requests held by the pause ({state.paused})"
        return "no flushing update on an engine that is not idle", held_back, str(call)
    return None


def _no_stale_kv(history: History) -> Verdict:
    """Where fresh prompts are answered wrongly too, an answer from an empty cache says nothing of the cache."""
    truth = truths(history)
    wrong_weights = {
        (p.refit.index, p.engine) for p in parts(history) if isinstance(content(p, history, fresh=True), tuple)
    }
    refits = history.refits()
    exercised = 0
    for number, refit_ in enumerate(refits):
        if not refit_.ok:
            continue
        until = refits[number + 1].pos if number + 1 < len(refits) else history.length
        for engine_name in history.engines():
            all_ = list(samples(history, engine=engine_name))
            warmed = {(s.prompt, s.extra_key) for s in all_ if s.call.end_pos < refit_.end_pos}
            for sample in all_:
                key = (sample.prompt, sample.extra_key)
                if key not in warmed or not refit_.end_pos < sample.call.pos < sample.call.end_pos < until:
                    continue
                warmed.discard(key)
                if not sample.cached and (refit_.index, engine_name) in wrong_weights:
                    continue
                exercised += 1
                seed = -1 if refit_.seed is None else refit_.seed
                clean: Said | None = truth.get(sample.prompt, {}).get(seed)
                stale = bool(sample.cached) if clean is None else not same(sample.said, clean)
                if stale:
                    return violated(
                        allowed=["the answer of a clean engine", "another cache namespace"],
                        actual=f"cached_tokens {sample.cached}, {list(sample.tokens)}",
                        where=f"{sample.call}, first request for this prompt after refit {refit_.index}",
                        exercised=exercised,
                    )
    return held(exercised)


RULES = (
    refit(
        "CACHE-1",
        "A flush refused as not idle is asked again after a wait, at a bounded rate; "
        "if it is never granted nothing is sent and the error says what the engine said.",
        each_part(_waits),
        [f"{SCH}:4808@0.5.20", "THUDM/slime#1953", "sgl-project/sglang#14062"],
        speaks_of=["flush_cache"],
        mend=(
            "after the pause ask /flush_cache in a loop while it answers 400, with a wait that doubles from 0.05 s to "
            "1 s; give up with its message, before any bucket"
        ),
    ),
    refit(
        "CACHE-3",
        "No update with flush_cache true goes to an engine that holds requests, or whose kv_cache is released.",
        each_call(_no_flush_on_busy),
        ["managers/scheduler_components/weight_updater.py:122@0.5.21", "areal-project/AReaL#140"],
        mend=(
            "send buckets with flush_cache false, and ask for one /flush_cache of its own while the engine is paused "
            "and idle"
        ),
    ),
    refit(
        "CACHE-4",
        "After a refit no token is served from KV that older weights computed.",
        _no_stale_kv,
        ["PrimeIntellect-ai/prime-rl#1650", "InternLM/lmdeploy#4917", "radixark/miles#2783"],
        mend=(
            "after the pause, and before continue, post /flush_cache until it answers 200 (or give each version an "
            "extra_key of its own)"
        ),
    ),
    engine(
        "CACHE-5",
        "A flush that was answered 200 has dropped the content: no prompt that was warm before reports cached tokens.",
        cached_after(_flushed, lambda cached: cached == 0, "cached_tokens 0"),
        ["sgl-project/sglang#39562", f"{SCH}:5337@0.5.23"],
        mend="look at flush_cache: tree cache, token pools and pending results are all reset before the 200",
    ),
    engine(
        "CACHE-51",
        "An idle engine grants a flush, by GET and by POST.",
        answered(all_of(_plain_flush, _idle), said(200, contains=FLUSHED)),
        ["entrypoints/http_server.py:1025@0.5.23"],
        mend="look at the flush's idle check and at the route's methods: GET and POST both reach it",
    ),
    engine(
        "CACHE-52",
        "A flush is refused while a request runs.",
        answered(all_of(_plain_flush, lambda c, s: s.paused == "", _busy), said(400, REFUSED)),
        [f"{SCH}:5337@0.5.23"],
        mend="look at the flush's idle check: a running batch refuses it",
    ),
    engine(
        "CACHE-53",
        "Paused by retract, the requests in the queue do not prevent a flush.",
        answered(all_of(_plain_flush, _held_while("retract")), said(200, contains=FLUSHED)),
        [f"{SCH}:5011@0.5.21", f"{SCH}:5337@0.5.23"],
        versions=IGNORES_QUEUE,
        mend="look at the idle check under a pause: since 0.5.21 the waiting queue does not count",
    ),
    engine(
        "CACHE-54",
        "Paused by retract, the requests in the queue prevent a flush.",
        answered(all_of(_plain_flush, _held_while("retract")), said(400, REFUSED)),
        [f"{SCH}:4808@0.5.20"],
        versions="<0.5.21 || miles",
        mend="look at the idle check: before 0.5.21 the waiting queue counts, also under a retract pause",
    ),
    engine(
        "CACHE-55",
        "Paused in_place, the frozen requests prevent a flush.",
        answered(all_of(_plain_flush, _held_while("in_place")), said(400, REFUSED)),
        [f"{SCH}:5337@0.5.23"],
        mend="look at the idle check: a batch that in_place froze still counts as running",
    ),
    engine(
        "CACHE-56",
        "Paused by abort nothing runs, and a flush is granted.",
        answered(all_of(_plain_flush, _in("abort")), said(200, contains=FLUSHED)),
        [f"{SCH}:5337@0.5.23"],
        mend="look at abort: once it is answered neither batch nor queue holds a request",
    ),
    engine(
        "CACHE-57",
        "An update without flush keeps the cache: the same prompt reports cached tokens, and is answered neither as "
        "before nor as a clean engine would.",
        every(
            cached_after(_plain_taken, lambda cached: cached > 0, "cached_tokens above 0"),
            _stale_is_neither,
        ),
        ["managers/scheduler_components/weight_updater.py:120@0.5.23", "observed 0.5.23 on CPU, 0.5.21 on a GPU"],
        mend=(
            "look at the update's flush_cache flag: false must leave the prefix cache, and so serve KV of the old "
            "weights"
        ),
    ),
    engine(
        "CACHE-58",
        "An update with flush (the default) drops the cache: nothing is reported as cached, and answers are clean.",
        _clean_after_flush,
        ["managers/io_struct.py:2027@0.5.23", "managers/scheduler_components/weight_updater.py:120@0.5.23"],
        mend="look at flush_cache after an update: its default is true, and the prefix cache is empty at the answer",
    ),
    engine(
        "CACHE-59",
        "An update whose flush is refused answers 400, with the weights in.",
        answered(all_of(lambda c, s: c.op == BUCKET and flushes(c), _held_while("in_place")), said(400, NOT_FLUSHED)),
        ["managers/scheduler_components/weight_updater.py:120@0.5.22"],
        versions=">=0.5.22",
        mend=(
            "look at the updater's flush after the load: since 0.5.22 a refused one is an answer (400), with the "
            "weights in"
        ),
    ),
    engine(
        "CACHE-60",
        "An update whose flush is refused kills the engine.",
        answered(all_of(lambda c, s: c.op == BUCKET and flushes(c), _held_while("in_place")), DIES),
        ["managers/scheduler_components/weight_updater.py:122@0.5.21", "areal-project/AReaL#140"],
        versions="<0.5.22 || miles",
        mend="look at the updater's flush after the load: before 0.5.22 it is an assert, which ends the scheduler",
    ),
    engine(
        "CACHE-61",
        "A flush with a timeout waits for real idleness and says that it waited in vain.",
        answered(
            all_of(lambda c, s: c.op == "flush_cache" and float(c.arg("?timeout", 0) or 0) > 0, _busy),
            said(400, NOT_IDLE),
        ),
        ["managers/scheduler_components/flush_wrapper.py:35@0.5.17", f"{SCH}:3212@0.5.12.post1"],
        mend=(
            "look at the flush's waiting loop: it polls for idleness until the timeout, then answers 400 with its own "
            "message"
        ),
    ),
    engine(
        "CACHE-62",
        "A flush with a negative timeout is refused.",
        answered(lambda c, s: c.op == "flush_cache" and float(c.arg("?timeout", 0) or 0) < 0, said(400)),
        ["entrypoints/http_server.py:1025@0.5.23"],
        mend="look at the route's query check: a timeout below 0 is refused before the scheduler hears of it",
    ),
)
