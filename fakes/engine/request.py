"""One generation request inside the scheduler, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fakes.engine.crash import crash
from fakes.engine.messages import ABORTED, TOP_K_RANGE
from fakes.engine.model import TokenKV, log_softmax
from fakes.engine.penalties import NONE as NO_PENALTIES
from fakes.engine.penalties import Penalties

FORCE_STREAM_INTERVAL = 50
"""A request that does not stream reports every 50 tokens (environ.py SGLANG_FORCE_STREAM_INTERVAL@0.5.23)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters that a trainer uses. `temperature` 0 is greedy."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_new_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int | None = None
    min_p: float = 0.0
    penalties: Penalties = NO_PENALTIES
    stop_text: bool = False
    """Whether it stops at texts too; only versions that die of it get this far."""

    @property
    def greedy(self) -> bool:
        """Below 1e-6 SGLang samples with top_k 1 (sampling/sampling_params.py@0.5.23)."""
        return self.temperature < 1e-6 or self.top_k == 1


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Which log-probabilities a request wants. `start` is a prompt index, -1 for none of the prompt."""

    start: int = -1
    top: int = 0
    token_ids: tuple[int, ...] | None = None


@dataclass(slots=True)
class LogprobRow:
    """Log-probabilities of one token: its own, the `top` best as (logprob, id), and those of the ids asked for."""

    own: float | None
    token: int
    top: list[tuple[float, int]] | None
    ids: list[tuple[float, int]] | None


@dataclass(slots=True, eq=False)
class Req:
    """A request as the scheduler holds it. `kv` covers all tokens but the last; `states[i]` made the KV of token i."""

    rid: str
    prompt: list[int]
    sampling: Sampling
    stream: bool = False
    logprobs: Logprobs | None = None
    extra_key: str | None = None
    lora_id: str | None = None
    health: bool = False
    number: int = 0
    output: list[int] = field(default_factory=list)
    kv: TokenKV | None = None
    states: list[str] = field(default_factory=list)
    cached_tokens: int = 0
    retractions: int = 0
    counted_from: int = 0
    """How much of the output the penalties do not look at: what was there when it was last prefilled."""
    version_events: list[tuple[str, int]] = field(default_factory=list)
    to_finish: dict[str, Any] | None = None
    finish: dict[str, Any] | None = None
    finished_len: int | None = None
    sent: int = 0
    input_rows: list[LogprobRow] = field(default_factory=list)
    output_rows: list[LogprobRow] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """Prompt and output."""
        return self.prompt + self.output

    def logprob_start(self) -> int | None:
        """From which token on a prefill gives log-probabilities, None for none of it: behind the prompt unless told
        otherwise, so that only a retracted request's output counts (managers/scheduler.py:3260@0.5.23)."""
        wanted = self.logprobs
        if wanted is None or wanted.start >= 0:
            return None if wanted is None else wanted.start
        chosen_only = wanted.token_ids is not None and self.sampling.max_new_tokens > 0
        return None if chosen_only else len(self.prompt)

    def prefix_limit(self) -> int:
        """How many tokens may come from the cache: never the last, nor any whose log-probability is wanted
        (managers/schedule_batch.py:1766@0.5.23)."""
        limit = len(self.prompt) + len(self.output) - 1
        start = self.logprob_start()
        return max(limit if start is None else min(limit, start), 0)

    def update_finish(self, eos: frozenset[int], *, stop_first: bool = True) -> None:
        """Decide after a new token whether the request is over (managers/schedule_batch.py:2007@0.5.23).

        `stop_first`: a token that is both the last allowed one and a stop token stops, instead of being too much.
        """
        if self.finish is not None:
            return
        if self.to_finish is not None:
            self.finish, self.to_finish = self.to_finish, None
            return
        token = self.output[-1]
        full = len(self.output) >= self.sampling.max_new_tokens
        stops = not self.sampling.ignore_eos and (token in self.sampling.stop_token_ids or token in eos)
        if stops and (stop_first or not full):
            self.finish = {"type": "stop", "matched": token}
            self.finished_len = len(self.output)
        elif full:
            self.finish = {"type": "length", "length": self.sampling.max_new_tokens}
            self.finished_len = self.sampling.max_new_tokens

    def visible(self) -> list[int]:
        """The output up to where it stopped."""
        return self.output if self.finished_len is None else self.output[: self.finished_len]

    def should_output(self) -> bool:
        """Whether this step's token is reported to the tokenizer manager (output_streamer.py:452@0.5.23)."""
        return self.finish is not None or self.stream or len(self.output) % FORCE_STREAM_INTERVAL == 0

    def spans(self, current: str) -> list[dict[str, Any]]:
        """Which weight version made which output tokens (utils/weight_versions.py:63@0.5.23)."""
        return spans(self.version_events, current, len(self.visible()))


def spans(events: list[tuple[str, int]], current: str, total: int) -> list[dict[str, Any]]:
    """`events` are (old version, output tokens at the change); contiguous {version, start, end} over the output."""
    found: list[dict[str, Any]] = []
    for version, count in [*events, (current, total)]:
        end = min(count, total)
        if found and end <= found[-1]["end"]:
            continue
        if found and version == found[-1]["version"]:
            found[-1]["end"] = end
            continue
        found.append({"version": version, "start": found[-1]["end"] if found else 0, "end": end})
    return found


def aborted() -> dict[str, Any]:
    """The finish reason of a running request that was aborted."""
    return {"type": "abort", "message": ABORTED.text, "status_code": None, "err_type": None}


def choose(req: Req, logits: np.ndarray, seed: int) -> tuple[int, LogprobRow | None]:
    """The next token from float32 logits [vocab], and its log-probabilities when the request wants them.

    Greedy at temperature 0; else seeded by the engine's seed, the request's (or its number) and the position.
    """
    sampling = req.sampling
    logits = sampling.penalties.apply(logits, req.output[req.counted_from :])
    scaled = logits if sampling.greedy else _scaled(logits, sampling.temperature)
    if sampling.greedy:
        token = int(scaled.argmax())
    else:
        own = sampling.seed if sampling.seed is not None else req.number
        rng = np.random.default_rng([seed, own & 0xFFFFFFFF, len(req.output), int(sampling.seed is None)])
        token = _sample(scaled, sampling, rng)
    if req.logprobs is None:
        return token, None
    return token, row(req.logprobs, log_softmax(scaled), token)


def _scaled(logits: np.ndarray, temperature: float) -> np.ndarray:
    """A temperature beyond float32 is infinite, and all tokens equal."""
    with np.errstate(over="ignore"):
        scaled: np.ndarray = logits / np.float32(temperature)
    return scaled


def _sample(logits: np.ndarray, sampling: Sampling, rng: np.random.Generator) -> int:
    wide = logits.astype(np.float64)
    probs = np.exp(wide - wide.max())
    probs /= probs.sum()
    order = np.argsort(-probs, kind="stable")
    keep = len(order) if sampling.top_k <= 0 else min(sampling.top_k, len(order))
    if sampling.top_p < 1.0:
        keep = min(keep, int(np.searchsorted(np.cumsum(probs[order]), sampling.top_p)) + 1)
    kept = order[:keep]
    kept = kept[probs[kept] >= probs[order[0]] * sampling.min_p]
    keep = len(kept)
    weights = probs[kept] / probs[kept].sum()
    return int(kept[np.searchsorted(np.cumsum(weights), rng.random(), side="right").clip(0, keep - 1)])


def row(wanted: Logprobs, logprobs: np.ndarray, token: int) -> LogprobRow:
    """One row of log-probabilities, as wanted."""
    top = None
    if wanted.top > len(logprobs):
        raise crash(TOP_K_RANGE)
    if wanted.top > 0:
        best = np.argsort(-logprobs, kind="stable")[: wanted.top]
        top = [(float(logprobs[i]), int(i)) for i in best]
    ids = None if wanted.token_ids is None else [(float(logprobs[i]), int(i)) for i in wanted.token_ids]
    return LogprobRow(float(logprobs[token]), token, top, ids)


def eos_ids(model_config: Mapping[str, Any]) -> frozenset[int]:
    """The end-of-sequence tokens of a config.json."""
    eos = model_config.get("eos_token_id")
    if eos is None:
        return frozenset()
    return frozenset(eos) if isinstance(eos, list) else frozenset({int(eos)})
