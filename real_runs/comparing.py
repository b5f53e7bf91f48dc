"""Compares what two engines answered to the same steps: status, body and death, after a table of what cannot be equal.

Tokens are compared exactly; at bfloat16 two continuations may part where the two best logits lie within one step of a
tie (`near_tie` decides), and what follows the parting is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fakes.trace import AnyRecord, Complete, Fact, Invoke, Trainer
from real_runs.sequence import Compare, Step

# Where a value stands (the last key of its path) -> the word that both sides get. A key means the same wherever it is.
NORMAL_KEYS: Mapping[str, str] = {
    "id": "ID",
    "e2e_latency": "SECONDS",
    "response_sent_to_client_ts": "TIME",
    "startup_time": "SECONDS",
    "last_gen_throughput": "NUMBER",
    "model_path": "PATH",
    "served_model_name": "PATH",
    "tokenizer_path": "PATH",
}
# In any text: pattern -> word.
NORMAL_TEXT: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"MODEL\d|/[\w./+-]*/models/[\w.+-]+"), "PATH"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r'File "[^"]*?(?=sglang/srt/)'), 'File "'),
    (re.compile(r"(max|mean)_abs_err=\S+"), r"\1_abs_err=NUMBER"),  # against tensors that were reset to random values
)
# 16 or 64 hex digits are digests: compared by which are equal to which, since every engine may hash in its own way.
DIGEST = re.compile(r"^(?:[0-9a-f]{16}|[0-9a-f]{64})$")
# Relative and absolute tolerance of floats by dtype: the order of a sum, no more.
FLOAT_TOLERANCE: Mapping[str, float] = {"float32": 2e-4, "bfloat16": 0.08}
# After the call that was dropped by a death: a caller that is quick enough still meets the closing socket.
NO_LONGER_THERE = frozenset({"dropped", "refused"})

NearTie = Callable[[Sequence[int], int, int], bool]
"""(tokens before, one token, the other) -> whether the two were within a step of a tie."""


@dataclass(frozen=True)
class Answer:
    """How one call ended: with a status and a body, or without a reply."""

    op: str
    request: Any
    ending: str
    status: int | None
    body: Any
    compare: Compare = "exact"


@dataclass(frozen=True)
class Exchange:
    """One recorded sequence: its data, the answers in the order of the calls, and whether the process died."""

    data: dict[str, Any]
    answers: tuple[Answer, ...]
    died: bool

    @property
    def name(self) -> str:
        """The sequence's name."""
        return str(self.data["name"])


@dataclass(frozen=True)
class Difference:
    """One answer that is not the same."""

    sequence: str
    number: int
    op: str
    what: str
    real: Any
    fake: Any

    def __str__(self) -> str:
        return (
            f"{self.sequence} call {self.number} {self.op}: {self.what}\n    real {self.real!r}\n    fake {self.fake!r}"
        )


def by_sequence(records: Sequence[AnyRecord]) -> dict[str, list[AnyRecord]]:
    """The records of each sequence, its marker first, under its name; what comes before the first is left out."""
    out: dict[str, list[AnyRecord]] = {}
    current: list[AnyRecord] = []
    for record in records:
        if isinstance(record, Trainer) and record.name == "sequence":
            current = out.setdefault(str(record.data["name"]), [])
            current.clear()
        current.append(record)
    return out


def exchanges(records: Sequence[AnyRecord]) -> list[Exchange]:
    """The sequences of a recording, in order."""
    return [_exchange(found) for found in by_sequence(records).values()]


def _exchange(records: Sequence[AnyRecord]) -> Exchange:
    import msgspec

    marker = records[0]
    assert isinstance(marker, Trainer)
    steps = msgspec.convert(marker.data["steps"], list[Step])
    modes = _modes(steps)
    ends = {record.call: record for record in records if isinstance(record, Complete)}
    calls = [record for record in records if isinstance(record, Invoke)]
    answers = []
    for call, mode in zip(calls, modes, strict=True):
        end = ends[call.call]
        ending = end.error.partition(":")[0] if end.error and end.status is None else "reply"
        answers.append(Answer(call.op, call.request, ending, end.status, end.body, mode))
    died = any(
        isinstance(record, Fact) and record.name == "death" and record.data.get("dead") is True for record in records
    )
    return Exchange(marker.data, tuple(answers), died)


def _modes(steps: Sequence[Step]) -> list[Compare]:
    """How each call is compared, in the order of the calls: a join may say it for its start."""
    joined = {step.label: step.compare for step in steps if step.do == "join" and step.compare != "exact"}
    return [
        joined.get(step.label, step.compare) if step.do == "start" else step.compare
        for step in steps
        if step.do in ("call", "start")
    ]


def differences(
    real: Exchange, fake: Exchange, dtype: str = "float32", near_tie: NearTie | None = None
) -> list[Difference]:
    """What differs between two performances of one sequence; empty when nothing does."""
    found: list[Difference] = []
    if real.died != fake.died:
        found.append(Difference(real.name, 0, "", "death", real.died, fake.died))
    if len(real.answers) != len(fake.answers):
        found.append(Difference(real.name, 0, "", "number of calls", len(real.answers), len(fake.answers)))
        return found
    digests = (Digests(), Digests())
    gone = False
    for number, (one, other) in enumerate(zip(real.answers, fake.answers, strict=True), 1):
        if gone and {one.ending, other.ending} <= NO_LONGER_THERE:
            continue
        gone = gone or one.ending == "dropped"
        for what, left, right in _compare(one, other, digests, FLOAT_TOLERANCE[dtype], near_tie):
            found.append(Difference(real.name, number, one.op, what, left, right))
            break
    return found


class Digests:
    """Names digests by their first appearance, so that two engines with different hashes can be compared."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, digest: str) -> str:
        """DIGEST1, DIGEST2, ..."""
        return self._names.setdefault(digest, f"DIGEST{len(self._names) + 1}")


def normal(value: Any, digests: Digests, key: str = "") -> Any:
    """`value` with everything replaced that differs from run to run."""
    if key in NORMAL_KEYS and value is not None:
        return NORMAL_KEYS[key]
    if isinstance(value, Mapping):
        return {name: normal(item, digests, name) for name, item in value.items()}
    if isinstance(value, list):
        return [normal(item, digests) for item in value]
    if isinstance(value, str):
        if DIGEST.match(value):
            return digests.name(value)
        for pattern, word in NORMAL_TEXT:
            value = pattern.sub(word, value)
    return value


def _compare(
    real: Answer, fake: Answer, digests: tuple[Digests, Digests], tolerance: float, near_tie: NearTie | None
) -> Iterator[tuple[str, Any, Any]]:
    if real.ending != fake.ending:
        yield "ending", f"{real.ending} {real.status} {real.body}", f"{fake.ending} {fake.status} {fake.body}"
        return
    if real.status != fake.status:
        yield "status", f"{real.status} {real.body}", f"{fake.status} {fake.body}"
        return
    if real.compare == "ending":
        return
    left, right = normal(real.body, digests[0]), normal(fake.body, digests[1])
    if real.compare == "keys" and isinstance(left, dict) and isinstance(right, dict):
        left, right = {key: None for key in right if key in left}, dict.fromkeys(right)
    if real.op == "generate" and isinstance(left, dict) and isinstance(right, dict) and "output_ids" in left:
        left, right = _generation(real, left, right, near_tie)
    if real.op == "generate" and isinstance(left, dict) and isinstance(right, dict) and "stream" in left:
        left, right = _stream(left, right)
    yield from unequal(left, right, tolerance)


def _stream(left: Any, right: Any) -> tuple[Any, Any]:
    """Chunks hold all tokens so far; a server with too little CPU sends several steps as one chunk.

    Then only the chunks that the real server sent are compared, without the time stamp that the first of all has.
    """
    sent = [_length(chunk) for chunk in left["stream"]]
    kept = [chunk for chunk in right.get("stream") or [] if _length(chunk) in (None, *sent)]
    if len(sent) >= len(right.get("stream") or []) or [_length(chunk) for chunk in kept] != sent:
        return left, right
    return {"stream": [_unstamped(chunk) for chunk in left["stream"]]}, {"stream": [_unstamped(c) for c in kept]}


def _length(chunk: Any) -> int | None:
    """Tokens of a chunk; None for the end mark."""
    return len(chunk.get("output_ids") or []) if isinstance(chunk, Mapping) else None


def _unstamped(chunk: Any) -> Any:
    if not isinstance(chunk, Mapping):
        return chunk
    meta = {key: value for key, value in chunk["meta_info"].items() if key != "response_sent_to_client_ts"}
    return {**chunk, "meta_info": meta}


def _generation(real: Answer, left: Any, right: Any, near_tie: NearTie | None) -> tuple[Any, Any]:
    """Both cut to what can be compared: the common length by `prefix`, or what comes before a parting at a near-tie."""
    one, other = left.get("output_ids") or [], right.get("output_ids") or []
    if real.compare == "prefix":
        aborted = [_finish(side) == "abort" for side in (left, right)]
        if any(aborted) or len(one) != len(other):
            n = min(len(one), len(other))
            cut = {"output_ids": one[:n], "finish": _finish(left)}, {"output_ids": other[:n], "finish": _finish(right)}
            return cut
        left, right = _without_timing(left), _without_timing(right)
    if near_tie is not None and one != other:
        parted = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        prompt = (real.request or {}).get("input_ids")
        if (
            parted is not None
            and isinstance(prompt, list)
            and near_tie([*prompt, *one[:parted]], one[parted], other[parted])
        ):
            return {"output_ids": one[:parted]}, {"output_ids": other[:parted]}
    return left, right


def _finish(body: Mapping[str, Any]) -> Any:
    reason = (body.get("meta_info") or {}).get("finish_reason")
    return reason.get("type") if isinstance(reason, Mapping) else reason


def _without_timing(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what depends on the moment at which something else happened: the tokens from which a version counts."""
    meta = dict(body.get("meta_info") or {})
    spans = meta.get("weight_versions")
    if isinstance(spans, list):
        meta["weight_versions"] = [span.get("version") for span in spans]
    cached = meta.get("num_retractions")
    if cached:  # how much of a retracted request is found again depends on when it was retracted
        meta.pop("cached_tokens", None)
        meta.pop("cached_tokens_details", None)
    return {**body, "meta_info": meta}


def unequal(left: Any, right: Any, tolerance: float, path: str = "body") -> Iterator[tuple[str, Any, Any]]:
    """Where two normalised bodies differ: (path, one, other)."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if set(left) != set(right):
            yield f"{path} keys", sorted(set(left) - set(right)), sorted(set(right) - set(left))
        for key in left:
            if key in right:
                yield from unequal(left[key], right[key], tolerance, f"{path}.{key}")
    elif isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            yield f"{path} length", left, right
            return
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from unequal(one, other, tolerance, f"{path}[{index}]")
    elif isinstance(left, float) and isinstance(right, (int, float)) and not isinstance(right, bool):
        if abs(left - right) > tolerance * max(1.0, abs(left)):
            yield path, left, right
    elif left != right or type(left) is not type(right):
        yield path, left, right
