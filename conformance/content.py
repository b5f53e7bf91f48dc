"""Whether engines answer with the weights that a refit was meant to bring them."""

from __future__ import annotations

from conformance.refits import Finding, Part
from conformance.tokens import samples, seeds_of, truths
from harness.history import History


def content(part: Part, history: History) -> Finding | bool:
    """After a refit that succeeded, fresh prompts are answered by the refit's weights.

    False where the refit failed, or nobody asked a prompt whose clean answer is known. Only prompts of which nothing
    was cached count, so that a stale cache is not mistaken for wrong weights.
    """
    if not part.refit.ok or part.refit.seed is None:
        return False
    truth = truths(history)
    until = min((r.pos for r in history.refits() if r.pos > part.refit.pos), default=history.length)
    asked = False
    for sample in samples(history, engine=part.engine):
        if not part.refit.end_pos < sample.call.pos < until or sample.cached or sample.call.origin == "sut":
            continue
        seeds = seeds_of(sample, truth)
        if seeds is None or sample.call.incarnation != part.incarnation:
            continue
        asked = True
        if part.refit.seed not in seeds:
            told = f"{list(sample.tokens)}, of seeds {sorted(seeds)}" if seeds else f"{list(sample.tokens)}, of no set"
            return f"the answer of seed {part.refit.seed}", told, str(sample.call)
    return None if asked else False
