"""The gate of RL trainers: how far the engine's log-probabilities are from the trainer's own, after a refit.

A scenario asks, lets the trainer's model score what was said, and notes it: fact `scored` {seed, prompt, tokens,
logprobs}, right behind the answer that it speaks of.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.tokens import Sample, samples
from harness.history import History, Note
from harness.scoring import mult_prob_error

LIMIT = 1.05
"""What NeMo-RL's functional tests take for broken."""


def scored(history: History) -> Iterator[tuple[Note, Sample, float]]:
    """Every answer that was scored under the weights of the last refit, which succeeded; with its error."""
    said = samples(history)
    for note in history.facts("scored", source="harness"):
        refits = [r for r in history.refits() if r.end_pos < note.pos]
        if not refits or not refits[-1].ok or refits[-1].seed != note.get("seed"):
            continue
        mine = [
            s
            for s in said
            if s.call.engine == note.engine and s.call.end_pos < note.pos and s.prompt == tuple(note.get("prompt"))
        ]
        if mine and mine[-1].tokens == tuple(note.get("tokens")) and mine[-1].logprobs:
            yield note, mine[-1], mult_prob_error(mine[-1].logprobs, note.get("logprobs"))
