"""Exchange sequences: what is said to an engine, as data; recorded on a real one and replayed against the fake."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from packaging.specifiers import SpecifierSet

from real_runs.recipes import Entry, Recipe

Do = Literal["call", "start", "join", "sleep"]
Compare = Literal["exact", "prefix", "ending", "keys"]
Flavour = Literal["plain", "api_key", "admin_key", "both_keys", "checker_cuda"]
API_KEY, ADMIN_KEY = "key-of-the-api", "key-of-the-admin"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to do. `raw` is the exact body text instead of `body`; `label` ties a start to its join.

    How the replay compares: exact; prefix (generations whose length depends on timing: one's tokens begin the other's);
    ending (only how the call ended and its status); keys (the real object has every key of the fake one).
    """

    do: Do = "call"
    op: str = ""
    body: Any = None
    raw: str | None = None
    method: str = "POST"
    query: dict[str, str] = {}
    bearer: str | None = None
    label: str = ""
    seconds: float = 0.0
    timeout_s: float = 60.0
    compare: Compare = "exact"


class Sequence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Steps that begin on a clean engine with the weights of seed 0.

    `versions` is a PEP 440 specifier; `tp` the sizes it is meant for. `fatal`: the engine is dead afterwards.
    `taints`: a reset cannot undo it, the engine is restarted afterwards.
    """

    name: str
    about: str
    steps: list[Step]
    versions: str = ""
    tp: list[int] = msgspec.field(default_factory=lambda: [1, 2])
    fatal: bool = False
    taints: bool = False
    flavour: Flavour = "plain"

    def applies(self, version: str, tp: int, flavour: Flavour = "plain") -> bool:
        """Whether it is meant for this engine."""
        return self.flavour == flavour and tp in self.tp and SpecifierSet(self.versions).contains(version)


def call(op: str, body: Any = None, **options: Any) -> Step:
    """A POST that is waited for."""
    return Step(op=op, body=body, **options)


def get(op: str, **options: Any) -> Step:
    """A GET that is waited for."""
    return Step(op=op, method="GET", **options)


def start(label: str, op: str, body: Any = None, **options: Any) -> Step:
    """A POST in the background, joined later under `label`."""
    return Step(do="start", op=op, body=body, label=label, **options)


def join(label: str, **options: Any) -> Step:
    """Wait for the call that was started under `label`."""
    return Step(do="join", label=label, **options)


def sleep(seconds: float) -> Step:
    """Let the engine's clock advance."""
    return Step(do="sleep", seconds=seconds)


PROMPT = [7, 31, 202, 91, 14]


def generate(prompt: list[int] | None = None, n: int = 8, **more: Any) -> dict[str, Any]:
    """A greedy generation's body; end-of-sequence ignored, so that the length is known."""
    sampling = {"temperature": 0, "max_new_tokens": n, "ignore_eos": True} | more.pop("sampling", {})
    return {"input_ids": prompt or PROMPT, "sampling_params": sampling, **more}


def canary(prompt: list[int] | None = None, n: int = 8) -> Step:
    """A short generation whose tokens show the weights."""
    return call("generate", generate(prompt, n))


def long_generation(label: str, prompt: list[int] | None = None, n: int = 480, *, compare: Compare = "prefix") -> Step:
    """A generation that runs for seconds."""
    return start(label, "generate", generate(prompt, n), compare=compare)


def long_with_logprobs(compare: Compare = "prefix") -> Step:
    """The start, labelled "a", of a generation that runs for seconds and wants log-probabilities."""
    return start("a", "generate", generate(n=480, return_logprob=True), compare=compare)


def payload(
    each: Entry | None = None, *, entries: list[Entry] | None = None, format: str | None = None
) -> dict[str, Any]:
    """`{"$payload": recipe}`, as plain data."""
    return {"$payload": msgspec.to_builtins(Recipe(each=each, entries=entries or [], format=format))}


def update(
    each: Entry | None = None,
    *,
    entries: list[Entry] | None = None,
    format: str | None = None,
    load_format: str | None = None,
    step: dict[str, Any] | None = None,
    **body: Any,
) -> Step:
    """An update_weights_from_tensor; `format` wraps the tensors, the body says `load_format` (default: the same)."""
    said = load_format if load_format is not None else format
    more = {} if said is None else {"load_format": said}
    tensors = payload(each, entries=entries, format=format)
    return call("update_weights_from_tensor", {"serialized_named_tensors": tensors, **more, **body}, **(step or {}))


BEGIN = call("begin_weight_update", {})
END = call("end_weight_update", {})
FLUSH = call("flush_cache")
CONTINUE = call("continue_generation", {})
MODEL_INFO = get("model_info")


def pause(mode: str) -> Step:
    """A pause in `mode`."""
    return call("pause_generation", {"mode": mode})


def whole(seed: int) -> Entry:
    """All weights of `seed`, once per rank."""
    return Entry(seed=seed)
