"""What a /generate body asks for that the engine was not started for, or that its vocabulary has not: 400, ValueErrors.

An engine here is a text model with a prefix cache, one replica, no sessions; asking for more is refused with SGLang's
words and never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fakes.engine import messages as m
from fakes.engine.engine_profile import EngineProfile


def refuse_at_once(p: EngineProfile, body: Mapping[str, Any]) -> None:
    """ValueError before the pause is looked at (managers/tokenizer_manager.py:905@0.5.23)."""
    if body.get("max_thinking_tokens") is not None and p.version in m.THINKING_OFF.versions:
        raise ValueError(m.THINKING_OFF.text)
    rank = body.get("routed_dp_rank")
    if rank:
        raise ValueError(m.DP_RANK(rank=rank))


def refusal(p: EngineProfile, body: Mapping[str, Any], vocab_size: int, *, lora: bool = False) -> str:
    """What is refused once the request has its turn, "" when nothing is: the first of SGLang's checks that fails
    (managers/tokenizer_manager.py:3723, 1108, 1513, 1383@0.5.23; managers/scheduler.py:3100@0.5.23)."""
    wanted = body.get("lora_path")
    if wanted and not lora:
        adapter = wanted if isinstance(wanted, str) else next((name for name in wanted if name), None)
        return m.LORA_OFF(adapter=adapter)
    sampling = body.get("sampling_params")
    for params in sampling if isinstance(sampling, list) else [sampling]:
        for token in (params or {}).get("logit_bias") or ():
            if not 0 <= int(token) < vocab_size:
                return m.BAD_BIAS(last=vocab_size - 1, token=token)
    if body.get("input_embeds") is not None:
        return m.EMBEDS_OFF.text
    if p.version in m.OUT_OF_VOCABULARY.versions:
        for token in _flat(body.get("token_ids_logprob")):
            if not 0 <= token < vocab_size:
                return m.OUT_OF_VOCABULARY(token=token, limit=vocab_size)
    if _any(body.get("return_hidden_states")):
        return (m.HIDDEN_OFF if p.version in m.HIDDEN_OFF.versions else m.HIDDEN_OFF_12).text
    if _any(body.get("custom_logit_processor")):
        return m.PROCESSOR_OFF.text
    sessions = body.get("session_params")
    for session in sessions if isinstance(sessions, list) else [sessions]:
        if session and session.get("id") is not None:
            return m.SESSION_UNKNOWN(session=session["id"])
    return ""


def _any(value: Any) -> bool:
    return any(value) if isinstance(value, list) else bool(value)


def _flat(value: Any) -> list[int]:
    if not value:
        return []
    return [token for row in value for token in row] if isinstance(value[0], list) else list(value)
