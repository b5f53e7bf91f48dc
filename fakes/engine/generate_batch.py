"""One /generate body as the prompts that it holds: SGLang's normalize_batch_and_arguments.

Source: managers/io_struct.py:406-860@0.5.23, the same since 0.5.12.post1 as far as it goes here. What SGLang says
itself is a ValueError (400). A list that is too short or of the wrong kind is met only when a prompt is cut out of
the batch: an IndexError, AttributeError or TypeError of Python's own, which HTTP shows as a bare 500.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fakes.engine import messages as m
from fakes.engine.request import Logprobs


@dataclass(slots=True)
class Item:
    """One prompt of a request."""

    rid: str | None
    prompt: list[int] | None
    text: str | None
    sampling: dict[str, Any]
    logprobs: Logprobs | None
    extra_key: str | None
    lora: str | None = None
    lora_id: str | None = None


MOST_ANSWERS = 10_000
"""To a call. A bound of the fake's own: SGLang would try, and be away for as long as it takes."""


@dataclass(slots=True)
class GenerateRequest:
    """A checked body: its prompts, whether the reply is a list, and whether it streams. `refusal` is what it is refused
    with once it has its turn, "" for nothing."""

    items: list[Item]
    single: bool
    stream: bool
    n: int
    refusal: str = ""


def build(body: Mapping[str, Any]) -> GenerateRequest:
    """Split a body into its prompts."""
    ids, text = body.get("input_ids"), body.get("text")
    if ids is None and text is None:
        raise ValueError(m.NO_INPUT.text)
    if text is not None:
        batch, count = not isinstance(text, str), len(text)
    elif not ids:
        raise ValueError(m.EMPTY_INPUT.text)
    else:
        batch, count = not isinstance(ids[0], int), len(ids)
    n = _samples(body.get("sampling_params"))
    single = not batch and n == 1
    if not batch:
        ids, text, count = ids and [ids], text and [text], 1
    if ids and not all(ids):
        raise ValueError(m.EMPTY_INPUT.text)
    if count * n > MOST_ANSWERS:
        raise ValueError(f"the fake gives at most {MOST_ANSWERS} answers to a call; this one asks for {count * n}")
    each = _Each(body, count, n, single=single)
    rids, sampling, keys = each.rids(), each.of("sampling_params"), each.of("extra_key")
    wanted, starts, tops = (each.logprob(name) for name in ("return_logprob", "logprob_start_len", "top_logprobs_num"))
    chosen, adapters = each.token_ids(), each.adapters()
    items = [
        Item(
            rids[i],
            ids[i] if ids else None,
            text[i] if text else None,
            dict(sampling[i] or {}),
            _logprobs(starts[i], tops[i], chosen[i]) if wanted[i] else None,
            keys[i],
            adapters[i],
        )
        for i in range(count)
    ]
    return GenerateRequest(items, single, bool(body.get("stream", False)), n)


def _samples(sampling: Any) -> int:
    """How many answers to each prompt (io_struct.py:531@0.5.23)."""
    if not isinstance(sampling, list):
        return int((sampling or {}).get("n") or 1)
    counts = [params.get("n", 1) for params in sampling]
    if counts.count(counts[0]) != len(counts):
        raise ValueError(m.UNEQUAL_N.text)
    return int(counts[0] or 1)


def _logprobs(start: Any, top: Any, token_ids: Any) -> Logprobs:
    return Logprobs(-1 if start is None else int(start), int(top or 0), tuple(token_ids) if token_ids else None)


class _Each:
    """The fields of a body, one value per prompt. `count` prompts, `n` answers to each."""

    def __init__(self, body: Mapping[str, Any], count: int, n: int, *, single: bool) -> None:
        self._body, self._count, self._n, self._single = body, count, n, single

    def of(self, name: str) -> list[Any]:
        """A list is the list, anything else is for all (io_struct.py:740@0.5.23)."""
        value = self._body.get(name)
        if not isinstance(value, list):
            return [value] * self._count
        if self._single:
            raise AttributeError("'list' object has no attribute 'get'")
        return value

    def logprob(self, name: str) -> list[Any]:
        """As `of`, but no list with several answers (io_struct.py:771@0.5.23)."""
        value = self._body.get(name)
        if isinstance(value, list):
            if self._n > 1:
                raise ValueError(m.LIST_WITH_N(name=name))
            return [value] if self._single else value
        return [value] * self._count

    def token_ids(self) -> list[Any]:
        """One list for all prompts, or a list of lists (io_struct.py:802@0.5.23)."""
        value = self._body.get("token_ids_logprob")
        if not value:
            return [None] * self._count
        if not isinstance(value, list):
            return [[value]] * self._count
        if not isinstance(value[0], list):
            return [value] * self._count
        if self._n > 1:
            raise ValueError(m.LIST_WITH_N(name="token_ids_logprob"))
        return value

    def adapters(self) -> list[Any]:
        """One name for all prompts, or a list of names (io_struct.py:635@0.5.23)."""
        value = self._body.get("lora_path")
        if isinstance(value, list) and not self._single:
            return value
        return [value or None] * self._count

    def rids(self) -> list[Any]:
        """io_struct.py:749, 384@0.5.23."""
        rid = self._body.get("rid")
        if isinstance(rid, list) and not self._single and len(rid) != self._count:
            raise ValueError(m.RIDS_MISMATCH.text)
        twice = [r for r in dict.fromkeys(rid) if rid.count(r) > 1] if isinstance(rid, list) else []
        if twice:
            raise ValueError(m.DUPLICATE_RIDS(rids=twice))
        if isinstance(rid, str) and not self._single:
            return [f"{rid}_{i}" for i in range(self._count)]
        return rid if isinstance(rid, list) and not self._single else [rid] * self._count
