"""What generations say about the weights and the cache behind them.

A sample is one finished /generate. The truth about a prompt are the harness's facts `expected`: the tokens, and where
known the log-probabilities, that a clean engine with the weights of a seed gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.judging import Judge, When, earlier, later, wrong
from conformance.view import UPDATE_OPS, State, steps
from harness.history import Call, History
from harness.rules import Verdict, held

# nat; the rounding of a cached against an uncached prefill in bfloat16 stays below, another weight tensor does not.
ATOL = 0.02
Said = tuple[tuple[int, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Sample:
    """One finished generation: greedy tokens, their log-probabilities (empty where not asked for), and meta_info."""

    call: Call
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    cached: int
    label: str
    spans: tuple[Mapping[str, Any], ...]
    finish: str
    retractions: int
    extra_key: str

    @property
    def said(self) -> Said:
        """Tokens and log-probabilities."""
        return self.tokens, self.logprobs


def sample_of(call: Call) -> Sample | None:
    """The sample of one call; None where it is no finished single generation."""
    if call.op != "generate" or call.status != 200 or not isinstance(call.body, Mapping):
        return None
    meta = call.answer("meta_info") or {}
    finish = meta.get("finish_reason") or {}
    logprobs = meta.get("output_token_logprobs") or []
    return Sample(
        call=call,
        prompt=tuple(call.arg("input_ids") or ()),
        tokens=tuple(call.answer("output_ids") or ()),
        logprobs=tuple(float(item[0]) for item in logprobs if item and item[0] is not None),
        cached=int(meta.get("cached_tokens") or 0),
        label=str(meta.get("weight_version", "")),
        spans=tuple(meta.get("weight_versions") or ()),
        finish=str(finish.get("type", "")),
        retractions=int(meta.get("num_retractions") or 0),
        extra_key=str(call.arg("extra_key") or ""),
    )


def aborts(call: Call) -> bool:
    """Whether this call asks for the abort of requests."""
    if call.op == "pause_generation":
        return bool(call.arg("mode", "abort") == "abort")
    default = call.op == "update_weight_version"
    return call.op == "abort_request" or bool(call.arg("abort_all_requests", default))


ABORTING = ("pause_generation", "update_weight_version", "abort_request", *UPDATE_OPS)


def aborted_by_another(history: History, sample: Sample, call: Call) -> bool:
    """Whether a request was aborted, and some call other than this one asked for it."""
    if sample.finish != "abort":
        return False
    others = history.calls(ABORTING, engine=call.engine)
    return any(aborts(c) and c.id != call.id and c.overlaps(sample.call) for c in others)


def ended_by_itself(sample: Sample, call: Call) -> bool:
    """Whether a request had all its tokens by the time `call` was answered, so that nothing was left to abort."""
    wanted = (sample.call.arg("sampling_params") or {}).get("max_new_tokens")
    complete = sample.finish != "abort" and len(sample.tokens) == wanted
    return complete and sample.call.end_t <= call.end_t + 0.1


def samples(history: History, *, origin: Any = None, engine: str | None = None) -> list[Sample]:
    """All finished generations, in the order in which they left."""
    calls = history.calls("generate", origin=origin, engine=engine)
    return [sample for call in calls if (sample := sample_of(call)) is not None]


def same(a: Said, b: Said) -> bool:
    """Whether two answers come from the same weights: tokens agree over the shorter, log-probabilities within ATOL."""
    n = min(len(a[0]), len(b[0]))
    if n == 0 or a[0][:n] != b[0][:n]:
        return False
    return all(abs(x - y) <= ATOL for x, y in zip(a[1][:n], b[1][:n], strict=False))


def truths(history: History) -> dict[tuple[int, ...], dict[int, Said]]:
    """Prompt -> seed -> what a clean engine answers."""
    out: dict[tuple[int, ...], dict[int, Said]] = {}
    for note in history.facts("expected", source="harness"):
        tokens, seed = note.get("tokens"), note.get("seed")
        if tokens is None or seed is None:
            continue
        logprobs = tuple(note.get("logprobs") or ())
        out.setdefault(tuple(note.get("prompt", ())), {})[int(seed)] = (tuple(tokens), logprobs)
    return out


def seeds_of(sample: Sample, truth: Mapping[tuple[int, ...], Mapping[int, Said]]) -> frozenset[int] | None:
    """The seeds whose clean answer this sample is; None where nothing is known of the prompt."""
    known = truth.get(sample.prompt)
    if not known:
        return None
    return frozenset(seed for seed, said in known.items() if same(sample.said, said))


def around(history: History, call: Call) -> Iterator[tuple[Sample, Sample]]:
    """For each prompt: the last sample that ended before `call` left and the first that left after it ended."""
    before: dict[tuple[int, ...], Sample] = {}
    for other in earlier(history, call, "generate"):
        sample = sample_of(other)
        if sample is not None and sample.finish != "abort":
            before.setdefault(sample.prompt, sample)
    seen: set[tuple[int, ...]] = set()
    for other in later(history, call, "generate"):
        sample = sample_of(other)
        if sample is not None and sample.prompt in before and sample.prompt not in seen:
            seen.add(sample.prompt)
            yield before[sample.prompt], sample


def came_alone(history: History, sample: Sample) -> bool:
    """Whether no other request beside it, which may have been served first, has its prompt."""
    others = history.calls("generate", engine=sample.call.engine)
    return not any(c.id != sample.call.id and c.overlaps(sample.call) and _asks(c, sample.prompt) for c in others)


def _asks(call: Call, prompt: tuple[int, ...]) -> bool:
    return tuple(call.arg("input_ids") or ()) == prompt


def _pairs(when: When, ok: Callable[[Sample, Sample], bool], allowed: str, *, alone: bool = False) -> Judge:
    def judge(history: History) -> Verdict:
        exercised = 0
        for call, state in steps(history):
            if state.dead or not when(call, state):
                continue
            for before, after in around(history, call):
                if alone and not came_alone(history, after):
                    continue
                exercised += 1
                if not ok(before, after):
                    told = f"before {list(before.tokens)}, after {list(after.tokens)} (cached {after.cached})"
                    return wrong(after.call, [allowed], exercised, told)
        return held(exercised)

    return judge


def unchanged(when: When) -> Judge:
    """Around each selected call the same prompt gives the same answer."""
    return _pairs(when, lambda a, b: same(a.said, b.said), "the same tokens and log-probabilities as before the call")


def changed(when: When) -> Judge:
    """Around each selected call the same prompt gives another answer."""
    return _pairs(when, lambda a, b: not same(a.said, b.said), "other tokens or log-probabilities than before the call")


def cached_after(when: When, ok: Callable[[int], bool], allowed: str) -> Judge:
    """After each selected call, what the first sample of a known prompt says of cached tokens, if it came alone."""
    return _pairs(when, lambda _a, b: ok(b.cached), allowed, alone=True)


def truthful(when: Callable[[Sample, State], bool], seed_fact: str = "holds") -> Judge:
    """Selected samples give exactly what a clean engine gives with the weights that the scenario says it holds.

    The harness's fact `holds` {engine, seed} says which set was loaded last, whole and flushed.
    """

    def judge(history: History) -> Verdict:
        truth = truths(history)
        exercised = 0
        for call, state in steps(history):
            sample = sample_of(call)
            if sample is None or not when(sample, state):
                continue
            seed = None
            for note in history.facts(seed_fact, source="harness", engine=call.engine):
                if note.pos < call.pos:
                    seed = note.get("seed")
            known = truth.get(sample.prompt, {}).get(seed) if seed is not None else None
            if known is None:
                continue
            exercised += 1
            if not same(sample.said, known):
                return wrong(call, [f"{list(known[0])} (weights of seed {seed})"], exercised, str(list(sample.tokens)))
        return held(exercised)

    return judge
