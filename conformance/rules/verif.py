"""VERIF: proof of a transfer is content, and the proof must see every tensor."""

from __future__ import annotations

import numpy as np

from conformance.content import content
from conformance.gate import LIMIT, scored
from conformance.judging import answered, every, said, wrong
from conformance.pushes import after, push_answered, pushed
from conformance.refits import Finding, Part, each_part, fleet_parts
from conformance.rules.make import engine, refit
from conformance.tokens import same, sample_of, truths
from conformance.view import steps, tp
from harness.history import Call, History
from harness.rules import Verdict, held

CHECKER = "utils/weight_checker.py"


def _round_trip(part: Part, history: History) -> Finding | bool:
    """Success means content, and the canary would have seen the old weights."""
    if not part.refit.ok:
        return False
    if not _can_tell(history, part.refit.seed):
        return False
    return content(part, history)


def _read_back(part: Part, history: History) -> Finding | bool:
    """Fact `stored` {tensor, seed, rows}: what the policy has under a name; the call after it asks the engine."""
    if not part.refit.ok or part.refit.seed is None:
        return False
    until = min((r.pos for r in history.refits() if r.pos > part.refit.pos), default=history.length)
    asked = False
    for call in history.calls("get_weights_by_name", engine=part.engine):
        if not part.refit.end_pos < call.pos < until or call.incarnation != part.incarnation or not call.ok:
            continue
        notes = [n for n in history.facts("stored", source="harness", engine=part.engine) if n.pos < call.pos]
        if not notes or notes[-1].get("seed") != part.refit.seed or notes[-1].get("tensor") != call.arg("name"):
            continue
        asked = True
        wanted = np.asarray(notes[-1].get("rows"), dtype=np.float32)
        try:
            got = np.asarray(call.body, dtype=np.float32)
        except (TypeError, ValueError):
            return f"values of shape {wanted.shape}", f"no numbers for {call.arg('name')}", str(call)
        if got.shape != wanted.shape:
            return f"values of shape {wanted.shape}", f"{got.shape} of {call.arg('name')}", str(call)
        other = np.argwhere(got != wanted)
        if len(other):
            at = tuple(int(i) for i in other[0])
            place = f"{call.arg('name')}{list(at)}"
            return f"{place} = {wanted[at]:.6g}, the policy's", f"{got[at]:.6g}, and {len(other) - 1} more", str(call)
    return None if asked else False


def _through_the_gate(history: History) -> Verdict:
    """Every answer that the trainer scored after a refit: token_mult_prob_error below the limit."""
    exercised = 0
    for _, sample, error in scored(history):
        exercised += 1
        if error >= LIMIT:
            told = f"token_mult_prob_error {error:.4f}" + (f", {sample.cached} tokens cached" if sample.cached else "")
            return wrong(sample.call, [f"below {LIMIT}"], exercised, told)
    return held(exercised)


def _can_tell(history: History, seed: int | None) -> bool:
    """Negative control: for some prompt another seed's clean answer is known and differs."""
    for known in truths(history).values():
        if seed in known and any(not same(known[seed], said_) for other, said_ in known.items() if other != seed):
            return True
    return False


def _sees_every_tensor(history: History) -> Verdict:
    """Each push of kind `omitted` lacks one tensor {tensor}; its canary must differ from the clean answer of `seed`."""
    truth = truths(history)
    exercised = 0
    for note, call in pushed(history, "omitted"):
        following = after(history, call.engine, call.end_pos)
        until = following[0].pos if following else history.length
        seed = int(note.get("seed"))
        found = [
            sample
            for other in history.calls("generate", engine=call.engine)
            if call.end_pos < other.pos < until and (sample := sample_of(other)) is not None
        ]
        known = [(s, truth[s.prompt][seed]) for s in found if seed in truth.get(s.prompt, {})]
        if not known:
            continue
        exercised += 1
        if all(same(s.said, clean) for s, clean in known):
            allowed = f"another answer without {note.get('tensor')}"
            return wrong(known[0][0].call, [allowed], exercised, "the answer of the complete set")
    return held(exercised)


def _checksums(call: Call) -> tuple[str, ...]:
    ranks = call.answer("ranks") or []
    return tuple(str(rank.get("per_gpu_checksum")) for rank in ranks)


def _checksum_follows_content(history: History) -> Verdict:
    """One checksum per rank; equal weights give equal checksums, other weights other ones (fact `holds` {seed})."""
    seen: dict[tuple[str, int], tuple[str, ...]] = {}
    for call, _ in steps(history):
        if call.op != "weights_checker" or call.arg("action", "checksum") != "checksum":
            continue
        held_by = [n for n in history.facts("holds", source="harness", engine=call.engine) if n.pos < call.pos]
        if not held_by:
            continue
        sums = _checksums(call)
        if not call.ok or len(sums) != tp(history, call.engine) or "None" in sums:
            return wrong(call, [f"200 with {tp(history, call.engine)} checksums"], 1)
        key = (call.engine, int(held_by[-1].get("seed")))
        before = seen.setdefault(key, sums)
        if before != sums:
            return wrong(call, ["the checksum of the same weights before"], len(seen), str(sums))
    for (engine_a, seed_a), sums_a in seen.items():
        for (engine_b, seed_b), sums_b in seen.items():
            if engine_a == engine_b and seed_a != seed_b and sums_a == sums_b:
                return held(0) if len(seen) < 2 else _same_sums(history, seed_a, seed_b)
    return held(len(seen) if len(seen) > 1 else 0)


def _same_sums(history: History, a: int, b: int) -> Verdict:
    call = history.calls("weights_checker")[-1]
    return wrong(call, ["other weights, another checksum"], 2, f"seeds {a} and {b} have the same")


def _reads_by_name(history: History) -> Verdict:
    exercised = 0
    for call, _ in steps(history):
        if call.op != "get_weights_by_name":
            continue
        expected = [n for n in history.facts("by_name", source="harness", engine=call.engine) if n.pos < call.pos]
        if not expected:
            continue
        exercised += 1
        note = expected[-1]
        if note.get("first") is None:
            if call.status != 400 or call.message != "Get parameter by name failed":
                return wrong(call, ["400 'Get parameter by name failed'"], exercised)
            continue
        row = call.body[0] if isinstance(call.body, list) and call.body else None
        first = row[0] if isinstance(row, list) and row else row
        if call.status != 200 or not isinstance(first, int | float) or abs(first - float(note.get("first"))) > 1e-6:
            return wrong(call, [f"200, beginning with {note.get('first')}"], exercised, f"{call.status} {first}")
    return held(exercised)


RULES = (
    refit(
        "VERIF-1",
        "A refit that reports success has put exactly the policy's weights into every engine.",
        each_part(_round_trip, over=fleet_parts),
        ["lightseekorg/tokenspeed#1373"],
        follows=["NAME-71"],
        mend=(
            "compare after a refit: weights_checker's checksum, or get_weights_by_name beside the policy; then look "
            "at bucket cutting and at the state sent"
        ),
    ),
    engine(
        "VERIF-2",
        "The proof covers what the stream carries: any one tensor left out, norms and biases too, changes an answer.",
        every(push_answered("omitted", said(200)), _sees_every_tensor),
        ["sgl-project/sglang#37557"],
        mend="look at the canaries: a tensor that no answer depends on must get a prompt, or a read, that shows it",
    ),
    refit(
        "VERIF-3",
        "After a refit that reports success every tensor that an engine gives by name is the policy's, value by value.",
        each_part(_read_back, over=fleet_parts),
        ["models/llama.py:799@0.5.23", "lightseekorg/tokenspeed#1373"],
        follows=["NAME-71", "VERIF-1"],
        echoes=["VERIF-1"],
        mend=(
            "read the named tensor with get_weights_by_name and compare it with the policy's: a cast, a stale copy or "
            "a wrong slice shows there"
        ),
    ),
    refit(
        "VERIF-4",
        f"After a refit the trainer and the engine agree on how likely an answer was: token_mult_prob_error < {LIMIT}.",
        _through_the_gate,
        ["NVIDIA-NeMo/RL#3612", "sgl-project/sglang#14178"],
        follows=["NAME-71", "VERIF-1", "DERIV-1", "DERIV-2"],
        echoes=["VERIF-1", "CACHE-4"],
        mend=(
            "look at what else is broken first: stale KV (flush), stale scales, a missing tensor or ranks of "
            "different updates raise this error"
        ),
    ),
    engine(
        "VERIF-51",
        "An unknown action of the checker is refused, and the engine lives.",
        answered(
            lambda c, s: c.op == "weights_checker" and c.arg("action") == "bogus",
            said(400, "Unsupported action='bogus'"),
        ),
        [f"{CHECKER}:149@0.5.23"],
        mend="look at the checker's actions: an unknown one is an answer of 400",
    ),
    engine(
        "VERIF-52",
        "The checksum has one entry per rank and follows the content.",
        _checksum_follows_content,
        ["managers/tokenizer_control_mixin.py:896@0.5.23", "observed 0.5.23 on CPU"],
        versions=">=0.5.23",
        mend="look at the checker's checksum: computed on every rank, gathered, and of the content alone",
    ),
    engine(
        "VERIF-53",
        "get_weights_by_name reads llama weights by their checkpoint names; an unknown name answers 400.",
        _reads_by_name,
        ["entrypoints/http_server.py:1559@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at the model's get_weights_by_name: fused names map back to those of the checkpoint",
    ),
)
