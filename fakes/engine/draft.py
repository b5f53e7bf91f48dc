"""A draft model beside the target: an EAGLE draft of one Llama layer, on every rank.

Which calls load it is the version's affair (`roles`); what it holds never changes a token, since greedy verification
gives the target's. It shows in weights_checker, under `draft.`. It shares the target's embedding and head, and loads
only names that begin at its own layers: `layers.0.mlp.down_proj.weight`, `fc.weight` (models/llama_eagle.py:110,
speculative/base_spec_worker.py:170@0.5.23).

Read, not seen: speculative decoding needs a GPU. Acceptance is not modelled, nor is an update over IPC of a draft.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.engine import messages as m
from fakes.engine.checker import CheckerRules, WeightChecker, merged
from fakes.engine.crash import Crash, crash
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.layout import Param
from fakes.engine.loading import LoadError
from fakes.engine.weights import RankWeights

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler

PREFIX = "draft."
SHARED = ("model.embed_tokens.weight", "lm_head.weight")
_NOT_ITS_OWN = (*SHARED, "model.norm.weight", "model.layers.0.input_layernorm.weight")


def draft_config(model_config: Mapping[str, Any]) -> dict[str, Any]:
    """One layer of the target's kind."""
    return {**model_config, "num_hidden_layers": 1, "model_type": "llama"}


def draft_weights(model_config: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """A draft's tensors under the names that it loads, full shapes, float32; the same for the same seed."""
    from fakes.tiny import hf_shapes

    rng = np.random.default_rng([seed, 0xEA61E])
    hidden = int(model_config["hidden_size"])
    shapes = {n: s for n, s in hf_shapes(draft_config(model_config)).items() if n not in _NOT_ITS_OWN}
    shapes |= {"model.fc.weight": (hidden, 2 * hidden), "model.fc.bias": (hidden,)}
    return {n.removeprefix("model."): rng.normal(0, 0.1, s).astype(np.float32) for n, s in shapes.items()}


class DraftRank(RankWeights):
    """One rank's share of a draft. `target` lends it embedding and head."""

    def __init__(
        self, target: RankWeights, model_config: Mapping[str, Any], dtype: str, device: str, held: str
    ) -> None:
        super().__init__(
            draft_config(model_config), target.tp_rank, target.tp_size, dtype, device=device, quantisation=held
        )
        hidden = int(model_config["hidden_size"])
        for name in _NOT_ITS_OWN:
            self.layout.pop(name, None)
            self.params.pop(name, None)
        for name, shape in (("model.fc.weight", (hidden, 2 * hidden)), ("model.fc.bias", (hidden,))):
            self.layout[name] = Param(shape)
            self.params[name] = np.zeros(shape, dtype=self.dtype)
        self._target = target

    def load(self, named: Iterable[tuple[str, np.ndarray]]) -> list[str]:
        """Names are taken for those of its own model: a target's lie elsewhere and are skipped, a head always is."""
        mine = [(f"model.{name}", tensor) for name, tensor in named if "lm_head" not in name]
        return super().load(mine)

    def checksums(self) -> dict[str, str]:
        """Its own, and the target's of what it shares."""
        shared = {name: self._target.hash_of(name) for name in SHARED if name in self._target.params}
        return {**shared, **super().checksums()}


class Draft:
    """The draft of one engine."""

    def __init__(self, scheduler: Scheduler, rules: CheckerRules) -> None:
        config, held = scheduler.config, scheduler.config.quantisation
        self.ranks = [
            DraftRank(rank, scheduler.model_config, config.dtype, config.device, held) for rank in scheduler.ranks
        ]
        weights = draft_weights(scheduler.model_config, 0)
        if held:
            from fakes.engine.quantised import checkpoint

            weights = dict(checkpoint(weights, held))
        self._kept: list[dict[str, np.ndarray]] | None = None
        for rank in self.ranks:
            rank.load(weights.items())
            rank.finalise()
        self.checkers = [WeightChecker(rank, rules, seed=config.random_seed, role="draft") for rank in self.ranks]

    def load(self, rank: int, named: list[tuple[str, np.ndarray]], load_format: str | None) -> None:
        """What a bucket of tensors has for it. A crash for what SGLang raises: nobody catches it."""
        try:
            if load_format == "direct":
                self.ranks[rank].load_direct(named)
            elif load_format in (None, "flattened_bucket"):
                self.ranks[rank].load(named)
            else:
                raise crash(m.UNKNOWN_LOAD_FORMAT, rank, load_format=load_format)
        except LoadError as error:
            raise Crash(error.type, error.message, rank) from None

    def read(self, named: list[tuple[str, np.ndarray]]) -> None:
        """A folder: read by every rank, and finalised."""
        for rank in range(len(self.ranks)):
            self.load(rank, named, None)
        self.finalise()

    def check(
        self, rank: int, action: str, skip: Sequence[str] | None, target: dict[str, Any] | None, *, roles: bool
    ) -> dict[str, Any] | None:
        """weights_checker on one rank: with the target's answer where there is one, else its own names alone."""
        found = self.checkers[rank].handle(action, skip)
        if found is None:
            return target
        nothing: dict[str, Any] = {"checksums": {}, "parallelism_info": []}
        return merged(target or nothing, found, roles=roles)

    def finalise(self) -> None:
        """process_weights_after_loading, whether anything was loaded or not."""
        for rank in self.ranks:
            rank.finalise()

    def keep(self) -> None:
        """A copy in the CPU's memory, by a flag of the draft's own (--enable-draft-weights-cpu-backup)."""
        self._kept = [rank.snapshot() for rank in self.ranks]

    def resumed(self, poison: int) -> None:
        """Its memory is mapped again: what was kept, or nothing (zeros; garbage where `poison` is not 0)."""
        kept, self._kept = self._kept, None
        for index, rank in enumerate(self.ranks):
            if kept is not None:
                rank.restore(kept[index])
            elif poison:
                rank.poison(poison)
            else:
                rank.zero()


def checked(p: EngineProfile, obj: Mapping[str, Any], *, draft: bool) -> tuple[str, ...]:
    """The runners that weights_checker asks: the target's alone in 0.5.12 (scheduler_components/weight_updater.py:295
    @0.5.17, 427@0.5.23)."""
    chosen = obj.get("selector", "all") if p.selector else "all"
    found = ("target", "draft") if chosen == "all" else (chosen,)
    has_draft = draft and p.structs == "msgspec"
    return tuple(role for role in found if role == "target" or has_draft)


def roles(p: EngineProfile, op: str, obj: Mapping[str, Any], *, draft: bool) -> tuple[str, ...]:
    """The runners that an update loads, in order.

    From 0.5.21 (and miles) the request's selector decides, of tensors and of broadcasts; folders go to all. Before,
    tensors went to the draft and then to the target unless `disable_draft_model`, broadcasts to the target alone, so
    that a draft went stale (sgl-project/sglang#27718; scheduler_components/weight_updater.py:126,160@0.5.20,
    178,214,245@0.5.23).
    """
    found: tuple[str, ...] = ("target", "draft")
    if op == "update_weights_from_disk":
        pass
    elif p.selector:
        chosen = obj.get("selector", "all")
        found = found if chosen == "all" else (chosen,)
    elif op == "update_weights_from_distributed" or obj.get("disable_draft_model"):
        found = ("target",)
    else:
        found = ("draft", "target")
    return tuple(role for role in found if role == "target" or draft)
