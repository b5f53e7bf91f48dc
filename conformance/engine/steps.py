"""What engine-side scenarios do again and again: know the truth, push under a name, wait until something runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fakes.outcome import Outcome
from harness.bench import CANARY_TOKENS, Bench, answer_of, generation
from harness.lanes.base import EngineHandle, Pending

NOT_RUN = "not yet: the real lane has not run it"
VALIDATED = "validated: 0.5.23 2026-11-30"
VALIDATED_ON_12 = "validated: 0.5.12.post1 2026-11-30"
VALIDATED_ON_20 = "validated: 0.5.20 2026-11-30"
VALIDATED_ON_21 = "validated: 0.5.21 2026-11-30"
BUCKET = "update_weights_from_tensor"
LONG = 400  # tokens: runs long enough to be met by what follows, and fits the tiny model's 512 positions
# The same on a CPU at tp 2, where a token takes 12 to 15 ms (3 ms at tp 1): the rest would only be waited for.
LONG_AT_TP2_ON_CPU = 160
Named = Mapping[str, np.ndarray]


def know(bench: Bench, engine: EngineHandle, *labels: str, seeds: Sequence[int] = (0, 1)) -> None:
    """Record what a clean engine with the weights of each seed answers to the prompts of `labels`.

    Where the lane has no model of its own the engine itself is loaded clean, asked, and brought back to its first seed.
    """
    missing = [seed for seed in seeds for label in labels if not _known(bench, engine, label, seed)]
    for seed in sorted(set(missing)):
        load(bench, engine, seed)
        for label in labels:
            outcome = engine.call("generate", generation(bench.prompt(label), CANARY_TOKENS))
            answer = answer_of(outcome)
            _note(bench, engine, label, seed, answer["tokens"], answer["logprobs"])
    if missing:
        load(bench, engine, engine.spec.seed)
    bench.note("holds", engine, seed=engine.spec.seed)


def _known(bench: Bench, engine: EngineHandle, label: str, seed: int) -> bool:
    clean = bench.lane.expected(engine.spec, seed, bench.prompt(label), CANARY_TOKENS)
    if clean is None:
        return False
    _note(bench, engine, label, seed, clean.tokens, clean.logprobs)
    return True


def _note(bench: Bench, engine: EngineHandle, label: str, seed: int, tokens: Any, logprobs: Any) -> None:
    told = {"tokens": list(tokens or ()), "logprobs": None if logprobs is None else list(logprobs)}
    bench.note("expected", engine, canary=0, label=label, seed=seed, prompt=bench.prompt(label), **told)


def ask(bench: Bench, engine: EngineHandle, label: str, **body: Any) -> Outcome:
    """The canary prompt of `label`, greedily, with log-probabilities."""
    return engine.call("generate", generation(bench.prompt(label), CANARY_TOKENS, **body), origin="traffic")


def load(bench: Bench, engine: EngineHandle, seed: int, **fields: Any) -> Outcome:
    """A whole clean update, and the note that the engine holds it."""
    outcome = bench.load(engine, seed, **fields)
    if outcome.ok:
        bench.note("holds", engine, seed=seed)
    return outcome


def begin(bench: Bench, engine: EngineHandle) -> None:
    """Open a session where the version has one."""
    if bench.has_sessions:
        engine.call("begin_weight_update", {})


def end(bench: Bench, engine: EngineHandle) -> None:
    """Close it."""
    if bench.has_sessions:
        engine.call("end_weight_update", {})


def bucket(
    bench: Bench,
    engine: EngineHandle,
    weights: int | Named | Sequence[Named],
    load_format: str | None = "flattened_bucket",
    **fields: Any,
) -> Outcome:
    """One update call, in whatever session is open."""
    payloads = bench.payloads(engine, weights, load_format)
    return send(engine, payloads, load_format, **fields)


def send(engine: EngineHandle, payloads: Sequence[str], load_format: str | None, **fields: Any) -> Outcome:
    """One update call with these payloads."""
    body = {"serialized_named_tensors": list(payloads), "load_format": load_format, **fields}
    return engine.call(BUCKET, body)


def push(
    bench: Bench,
    engine: EngineHandle,
    kind: str,
    weights: Named | Sequence[Named] | None = None,
    load_format: str | None = "flattened_bucket",
    *,
    seeds: Sequence[int] = (),
    payloads: Sequence[str] | None = None,
    note: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Outcome:
    """One update in a session of its own, under the name that the judges know it by."""
    begin(bench, engine)
    if payloads is None:
        assert weights is not None
        payloads = bench.payloads(engine, weights, load_format)
    bench.note("push", engine, kind=kind, seeds=list(seeds), **(note or {}))
    outcome = send(engine, payloads, load_format, **fields)
    if outcome.ending == "reply":
        end(bench, engine)
    return outcome


def running(bench: Bench, engine: EngineHandle, label: str = "long", n: int = 0) -> Pending:
    """A generation of `n` tokens (0: for long enough) that is under way when this returns.

    Without log-probabilities: a CPU engine of 0.5.12 does not survive a retract pause of one that wants them.
    """
    slow = bench.lane.name == "sglang-cpu" and engine.spec.tp > 1
    n = n or (LONG_AT_TP2_ON_CPU if slow else LONG)
    pending = bench.traffic(engine, label, n=n, return_logprob=False)
    engine.sleep(0.1)
    return pending


def device_names(weights: Named, tp: int, rank: int) -> dict[str, np.ndarray]:
    """The same weights under the device's own names, as rank `rank` of `tp` holds them (load_format direct)."""

    def rows(name: str) -> np.ndarray:
        return np.split(weights[name], tp, axis=0)[rank]

    out: dict[str, np.ndarray] = {}
    for name in weights:
        if ".q_proj." in name:
            parts = [rows(name.replace(".q_proj.", f".{p}_proj.")) for p in "qkv"]
            out[name.replace(".q_proj.", ".qkv_proj.")] = np.concatenate(parts)
        elif ".gate_proj." in name:
            parts = [rows(name), rows(name.replace(".gate_proj.", ".up_proj."))]
            out[name.replace(".gate_proj.", ".gate_up_proj.")] = np.concatenate(parts)
        elif any(part in name for part in (".k_proj.", ".v_proj.", ".up_proj.")):
            continue
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            out[name] = np.ascontiguousarray(np.split(weights[name], tp, axis=1)[rank])
        elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
            out[name] = rows(name)
        else:
            out[name] = weights[name]
    return out
