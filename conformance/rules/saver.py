"""MEM with a memory saver: released memory is unmapped. What it held is gone, and touching it kills the engine."""

from __future__ import annotations

from conformance.judging import DIES, Judge, all_of, answered, every, op, said, wrong
from conformance.pushes import push_answered, push_gives
from conformance.rules.make import engine
from conformance.tokens import same, samples, seeds_of, truths
from conformance.view import UPDATE_OPS, State, acted, died, steps, tags_of
from harness.history import Call, History
from harness.rules import Verdict, held

WU = "managers/scheduler_components/weight_updater.py"
GPU = "observed 0.5.21 on a GPU"
RESUME, RELEASE = "resume_memory_occupation", "release_memory_occupation"


def _released_before(call: Call, state: State) -> bool:
    return bool(tags_of(call) & state.released)


def _brings_weights(call: Call, _state: State) -> bool:
    return call.op == RESUME and call.ok and "weights" in tags_of(call)


def _gone_until_sent(history: History) -> Verdict:
    """Between a resume of the weights and the next update, no prompt is answered by a whole set."""
    truth = truths(history)
    exercised = 0
    for call, state in steps(history):
        if not _brings_weights(call, state) or not acted(call):
            continue
        following = [c.pos for c in history.calls(UPDATE_OPS, engine=call.engine) if c.pos > call.pos]
        until = min(following, default=history.length)
        for sample in samples(history, engine=call.engine):
            if not call.end_pos < sample.call.pos < until or sample.cached or sample.prompt not in truth:
                continue
            exercised += 1
            if found := seeds_of(sample, truth):
                told = f"{list(sample.tokens)}, of seeds {sorted(found)}"
                return wrong(sample.call, ["the answer of no whole set"], exercised, told)
    return held(exercised)


def _kept(history: History) -> Verdict:
    """After a resume of the weights prompts are answered as the scenario's last whole set would (fact `holds`)."""
    truth = truths(history)
    exercised = 0
    for call, state in steps(history):
        if not _brings_weights(call, state):
            continue
        loaded = [n for n in history.facts("holds", source="harness", engine=call.engine) if n.pos < call.pos]
        for sample in samples(history, engine=call.engine):
            if sample.call.pos < call.end_pos or sample.cached or not loaded or sample.prompt not in truth:
                continue
            seed = int(loaded[-1].get("seed"))
            exercised += 1
            if not same(sample.said, truth[sample.prompt].get(seed, ((), ()))):
                told = f"{list(sample.tokens)}, of seeds {sorted(seeds_of(sample, truth) or ())}"
                return wrong(sample.call, [f"the answer of seed {seed}"], exercised, told)
    return held(exercised)


def _dies_of_serving(history: History) -> Verdict:
    """A request that a scheduler gets while the pool or the weights are unmapped is the last one."""
    exercised = 0
    for call, state in steps(history):
        if call.op != "generate" or state.paused or state.dead or not state.released & {"kv_cache", "weights"}:
            continue
        exercised += 1
        if not died(call):
            return wrong(call, [DIES.text], exercised)
    return held(exercised)


def _waits_and_is_clean(history: History) -> Verdict:
    """A request that arrives under a pause while the pool is away is served after continue, from an empty cache."""
    truth = truths(history)
    exercised = 0
    for call, state in steps(history):
        if call.op != "generate" or not state.paused or "kv_cache" not in state.released:
            continue
        exercised += 1
        sample = next((s for s in samples(history, engine=call.engine) if s.call.id == call.id), None)
        if sample is None:
            return wrong(call, ["an answer after continue_generation"], exercised)
        if sample.cached or seeds_of(sample, truth) == frozenset():
            told = f"cached_tokens {sample.cached}, {list(sample.tokens)}"
            return wrong(call, ["cached_tokens 0, the answer of a clean engine"], exercised, told)
    return held(exercised)


def _with_saver(text: str) -> str:
    return f"With a memory saver, {text}"


_second_release: Judge = answered(all_of(op(RELEASE), _released_before), DIES)

RULES = (
    engine(
        "MEM-60",
        _with_saver("weights that were released come back without their content: no answer is that of a whole set."),
        _gone_until_sent,
        [f"{WU}:383@0.5.23", "sgl-project/sglang#6367", GPU],
        mend="look at the resume of weights: fresh memory, filled by the next update alone",
    ),
    engine(
        "MEM-61",
        _with_saver("weights of which a CPU copy is kept come back as they were."),
        _kept,
        [f"{WU}:383@0.5.23", GPU],
        mend="look at enable_weights_cpu_backup: the saver must restore the copy at resume",
    ),
    engine(
        "MEM-62",
        _with_saver("only a complete set makes resumed weights whole: half a set is a success, and leaves a mixture."),
        every(
            push_answered("resumed-half", said(200)),
            push_gives("resumed-half"),
            push_answered("resumed-whole", said(200)),
            push_gives("resumed-whole"),
        ),
        [f"{WU}:383@0.5.23", "sgl-project/sglang#6367", GPU],
        mend="look at the resume of weights and at the load: no one checks that a whole set came",
    ),
    engine(
        "MEM-63",
        _with_saver("an update while the weights are released kills the engine."),
        answered(all_of(op(*UPDATE_OPS), lambda c, s: "weights" in s.released), DIES),
        [f"{WU}:234@0.5.23", "vllm-project/vllm#57853", GPU],
        mend="look at the load into released weights: their pages are unmapped, which kills",
    ),
    engine(
        "MEM-64",
        _with_saver("releasing a tag that is released kills the engine."),
        _second_release,
        [f"{WU}:337@0.5.23", GPU],
        mend="look at the saver's state of a tag: pausing a paused one is an error that kills",
    ),
    engine(
        "MEM-65",
        _with_saver("a request that is let in while the KV pool or the weights are released kills the engine."),
        _dies_of_serving,
        ["NVIDIA-NeMo/RL#3612", GPU],
        mend="look at the admission of requests: nothing but the pause keeps them from unmapped memory",
    ),
    engine(
        "MEM-66",
        _with_saver("a request that arrives under a pause waits until the pool is back, and finds an empty cache."),
        _waits_and_is_clean,
        [f"{WU}:337@0.5.23", GPU],
        mend="look at resume under a pause: the queue waits for continue, with a cache that the release emptied",
    ),
)
