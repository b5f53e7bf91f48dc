"""Whether engines answer with the weights that a refit was meant to bring them."""

from __future__ import annotations

from conformance.refits import Finding, Part
from conformance.sent import because
from conformance.tokens import samples, seeds_of, truths
from harness.history import History


def content(part: Part, history: History, *, fresh: bool = False) -> Finding | bool:
    """After a refit that succeeded, fresh prompts are answered by the refit's weights.

    False where the refit failed, or nobody asked a prompt whose clean answer is known. Only prompts of which nothing
    was cached count, so that a stale cache is not mistaken for wrong weights. What never reached the engine is named,
    where anybody recorded it. `fresh`: only prompts that this engine had never answered before the refit.
    """
    if not part.refit.ok or part.refit.seed is None:
        return False
    truth = truths(history)
    until = min((r.pos for r in history.refits() if r.pos > part.refit.pos), default=history.length)
    warm = {s.prompt for s in samples(history, engine=part.engine) if fresh and s.call.pos < part.refit.pos}
    asked = False
    for sample in samples(history, engine=part.engine):
        alone = part.refit.end_pos < sample.call.pos < sample.call.end_pos < until
        if not alone or sample.cached or sample.call.origin == "sut":
            continue
        seeds = seeds_of(sample, truth)
        if seeds is None or sample.call.incarnation != part.incarnation or sample.prompt in warm:
            continue
        asked = True
        if part.refit.seed not in seeds:
            of = f"of seeds {sorted(seeds)}" if seeds else "of no set"
            told = f"{list(sample.tokens)}, {of}{because(part, history)}"
            return f"the answer of seed {part.refit.seed}", told, str(sample.call)
    return None if asked else False
