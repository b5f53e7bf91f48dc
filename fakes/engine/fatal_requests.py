"""Requests that a version cannot serve and does not refuse: they kill its scheduler.

Two causes, both in 0.5.12.post1 alone. Without a tokenizer (every engine here runs with --skip-tokenizer-init) the
penalizer of `min_new_tokens` and the search for stop texts meet a None. And the log-probabilities of a prompt go
through pinned memory, which torch has not on a CPU; a request that was retracted counts its own output as prompt, so
that there any log-probabilities at all do not survive a retract pause.
"""

from __future__ import annotations

from collections.abc import Sequence

from fakes.engine import messages as m
from fakes.engine.crash import crash
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.request import Req


def check_prefill(profile: EngineProfile, device: str, reqs: Sequence[Req]) -> None:
    """Raises `Crash` when a prefill of these requests is the scheduler's end."""
    if profile.needs_tokenizer == "die" and any(req.sampling.min_new_tokens > 0 for req in reqs):
        raise crash(m.NO_TOKENIZER)
    if profile.pins_input_logprobs and device == "cpu" and any(map(_wants_input_logprobs, reqs)):
        raise crash(m.NO_PINNED_MEMORY)


def check_token(req: Req) -> None:
    """Raises `Crash` when a token that did not end the request is looked up in stop texts."""
    if req.finish is None and req.sampling.stop_text:
        raise crash(m.NO_DECODER)


def _wants_input_logprobs(req: Req) -> bool:
    """managers/scheduler.py:2164-2177, managers/schedule_batch.py:1335-1343@0.5.12.post1."""
    start = req.logprob_start()
    return start is not None and start < len(req.tokens)
