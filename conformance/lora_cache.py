"""Whose prefixes a prefix cache gives to whom, where requests use adapters."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judging import wrong
from conformance.tokens import Sample, sample_of, samples
from harness.history import Call, History
from harness.rules import Verdict, held

LOOKS = frozenset({"model_info", "get_model_info", "server_info", "get_server_info"})
"""Calls that leave a cache as it is. A load is none: it may push out another adapter, and what was cached for it."""


def adapter_of(call: Call) -> str:
    """The adapter that a request names, "" for none."""
    named = call.arg("lora_path")
    return named if isinstance(named, str) else ""


def apart(history: History) -> Verdict:
    """A prompt is found in the cache by requests of the same adapter, and by these alone.

    Speaks of incarnations that served a request under an adapter. Nothing cached is wrong only where the cache must
    have kept the prompt (`_kept`).
    """
    exercised = 0
    for those in _incarnations(history):
        for sample in those:
            if _kept(history, sample, those):
                right, ok = "cached tokens", sample.cached > 0
            elif _foreign(history, sample, those):
                right, ok = "no cached tokens: another adapter made them", not sample.cached
            else:
                continue
            exercised += 1
            if not ok:
                return wrong(sample.call, [right], exercised, f"{sample.cached} cached tokens")
    return held(exercised)


def _incarnations(history: History) -> Iterator[list[Sample]]:
    found: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples(history):
        found.setdefault((sample.call.engine, sample.call.incarnation), []).append(sample)
    return (those for those in found.values() if any(adapter_of(sample.call) for sample in those))


def _whole(sample: Sample) -> bool:
    """Whether its tokens are known, and were prefilled once and to an end: they lay in the cache afterwards."""
    ended = sample.finish in ("length", "stop") and not sample.call.fault
    return ended and bool(sample.prompt) and not sample.retractions


def _kept(history: History, sample: Sample, those: list[Sample]) -> bool:
    """Whether the prompt lies in the cache for this adapter, whatever the engine's options are.

    A whole request of the same adapter had it, and since then there was nothing but whole requests for this very
    prompt: nothing flushed, aborted or retracted, and nothing that asked for room. That the
    engine caches prompts of this length at all is known from another request that found this one.
    """
    if not _whole(sample) or not any(other.cached for other in those if other.prompt == sample.prompt):
        return False
    mine = (adapter_of(sample.call), sample.extra_key)
    for other in reversed([other for other in those if other.call.end_pos < sample.call.pos]):
        if other.prompt != sample.prompt or not _whole(other):
            return False
        if (adapter_of(other.call), other.extra_key) == mine:
            return not any(_disturbs(call, sample) for call in _between(history, other.call, sample.call))
    return False


def _between(history: History, first: Call, last: Call) -> Iterator[Call]:
    """What the incarnation had to do after `first` had left and before `last` ended, these two aside."""
    for call in history.calls(engine=last.engine, incarnation=last.incarnation):
        over = call.outcome != "open" and call.end_pos < first.pos
        if not over and call.pos < last.end_pos and call.id not in (first.id, last.id):
            yield call


def _disturbs(call: Call, sample: Sample) -> bool:
    if call.op in LOOKS:
        return False
    other = sample_of(call)
    return other is None or other.prompt != sample.prompt or not _whole(other)


def _foreign(history: History, sample: Sample, those: list[Sample]) -> bool:
    """Whether requests of other adapters alone can have left any of the prompt in the cache, and one of them did."""
    if sample.retractions or sample.call.fault:
        return False
    name = adapter_of(sample.call)
    for call in history.calls("generate", engine=sample.call.engine, incarnation=sample.call.incarnation):
        if call.id != sample.call.id and call.pos < sample.call.end_pos and _may_share(call, name, sample.prompt):
            return False
    return any(
        other.prompt == sample.prompt and _whole(other) and other.call.end_pos < sample.call.pos for other in those
    )


def _may_share(call: Call, name: str, prompt: tuple[int, ...]) -> bool:
    """Whether a request of this adapter has, or may have, the beginning of the prompt; batches and texts may."""
    named, ids = call.arg("lora_path"), call.arg("input_ids")
    if isinstance(named, list | tuple):
        return True
    if (named or "") != name:
        return False
    return not ids or not isinstance(ids, list | tuple) or not isinstance(ids[0], int) or tuple(ids[:1]) == prompt[:1]
