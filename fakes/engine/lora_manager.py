"""The schedulers' half of LoRA: adapters by id on every rank, what is refused, and what a batch may hold.

A load from tensors opens the own payload of every rank; each rank then keeps a copy of its own, and rank 0 alone
answers (managers/scheduler.py:6052, lora/lora_manager.py:213@0.5.23). Adapters do not change when base weights do, and
the pool that batches read them from is not of the memory that release_memory_occupation gives back.

No server starts with LoRA on a CPU, since its buffers need pinned memory. What a load refuses was compared with that of
SGLang's LoRAManager, run by itself (0.5.12.post1, 0.5.23); the rest is read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.engine import lora_messages as lm
from fakes.engine import messages as m
from fakes.engine.crash import Crash, crash
from fakes.engine.lora_adapter import MODULES, Adapter, AdapterConfig, Refused, Sharded, normalised
from fakes.engine.protocol import Done, OpenAdapter, ReadAdapter

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler

Reply = dict[str, Any]
IO = Generator[list[Any], dict[int, Done], Reply]
FROM_TENSORS = "__tensor__"
"""The path of an adapter that came as tensors (managers/io_struct.py:2567@0.5.23)."""


@dataclass(frozen=True)
class Ref:
    """SGLang's LoRARef: an adapter by an id that no other ever has."""

    lora_id: str
    name: str
    path: str
    pinned: bool = False


class LoraManager:
    """The adapters of one engine's ranks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler
        config = scheduler.config
        self._limit = config.max_loras_per_batch
        self._max_rank = config.max_lora_rank or 0
        modules = normalised("all" if "all" in config.lora_target_modules else config.lora_target_modules)
        self._modules = frozenset(MODULES) if modules == {"all"} else frozenset(modules)
        self.refs: list[dict[str, Ref]] = [{} for _ in scheduler.ranks]
        self._adapters: list[dict[str, Adapter]] = [{} for _ in scheduler.ranks]
        self._pool: list[dict[str, Sharded]] = [{} for _ in scheduler.ranks]

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Operations by name."""
        return {"update_lora_adapter": self._handle}

    def fits(self, wanted: set[str | None]) -> bool:
        """Whether a batch may hold these adapters (None: no adapter counts too), lora_manager.py:424@0.5.23."""
        if len(wanted) > self._limit:
            return False
        refs = self.refs[0]
        pinned = sum(ref.pinned for ref in refs.values())
        if not pinned:
            return True
        inside = sum(refs[one].pinned for one in wanted if one is not None)
        return len(wanted) - inside <= self._limit - pinned

    def use(self, lora_id: str) -> list[Sharded]:
        """What each rank computes with. The first time it is copied into the pool, where a wrong shape kills."""
        out = []
        for rank, pool in enumerate(self._pool):
            if lora_id not in pool:
                adapter = self._adapters[rank].get(lora_id)
                if adapter is None:
                    raise crash(lm.NO_ADAPTER, rank)
                pool[lora_id] = adapter.shard(self._s.ranks[rank], self._modules)
            out.append(pool[lora_id])
        return out

    def digest(self, lora_id: str) -> str:
        """The content of an adapter on all ranks."""
        return "|".join(adapters[lora_id].digest for adapters in self._adapters)

    def _handle(self, obj: dict[str, Any]) -> IO | Reply:
        """One communicator for the three calls (managers/tokenizer_control_mixin.py:144@0.5.23)."""
        ref: Ref = obj["ref"]
        if obj["op"] == "unload":
            for rank in range(len(self.refs)):
                for held in (self.refs[rank], self._adapters[rank], self._pool[rank]):
                    held.pop(ref.lora_id, None)  # type: ignore[attr-defined]  # three dicts by id
            return self._reply(None)
        return self._from_disk(obj, ref) if obj["op"] == "load" else self._from_tensors(obj, ref)

    def _reply(self, error: str | None) -> Reply:
        """lora/lora_manager.py:203@0.5.23. `error` None: it is done."""
        loaded = {ref.name: ref.path for ref in self.refs[0].values()}
        return {"success": error is None, "error_message": error or "", "loaded_adapters": loaded}

    def _from_disk(self, obj: dict[str, Any], ref: Ref) -> IO:
        """What the folder says is looked at in SGLang's order: configuration, limits, tensors."""
        effect = ReadAdapter(id=self._s.next_id(), path=ref.path)
        end = (yield [effect])[effect.id]
        if end.error is not None:
            return self._reply(end.error.message)
        config, added, tensors = end.value
        answers = [self._keep(rank, ref, config, added, tensors) for rank in range(len(self.refs))]
        return self._reply(answers[0])

    def _from_tensors(self, obj: dict[str, Any], ref: Ref) -> IO:
        scheduler, load_format = self._s, obj.get("load_format")
        effects = []
        for rank in range(len(scheduler.ranks)):
            data = _payload(obj, rank)
            effects.append(OpenAdapter(id=scheduler.next_id(), rank=rank, data=data, load_format=load_format))
        results = yield effects
        for effect in effects:
            error = results[effect.id].error
            if error is not None:
                raise Crash(error.type, error.message, effect.rank)
        answers = []
        for effect in effects:
            opened = results[effect.id].value
            if isinstance(opened, Mapping):
                _check_sums(obj.get("expected_checksums"), opened, effect.rank)
            found = self._keep(effect.rank, ref, obj["config_dict"], obj.get("added_tokens_config"), opened)
            answers.append(found)
        return self._reply(answers[0])

    def _keep(
        self,
        rank: int,
        ref: Ref,
        config_dict: Mapping[str, Any],
        added: Mapping[str, Any] | None,
        tensors: Mapping[str, np.ndarray] | str,
    ) -> str | None:
        """Load on one rank; what SGLang says where it refuses, else None (lora/lora_manager.py:231,562@0.5.23)."""
        try:
            config = AdapterConfig.read(config_dict, added, self._s.model.vocab_size)
            self._validate(rank, config, ref)
            if isinstance(tensors, str):
                raise Refused(tensors)
            adapter = Adapter(config, tensors, self._s.model.layers)
        except Exception as error:
            return str(error)
        self._adapters[rank][ref.lora_id] = adapter
        self.refs[rank][ref.lora_id] = ref
        return None

    def _validate(self, rank: int, config: AdapterConfig, ref: Ref) -> None:
        """lora/lora_manager.py:320@0.5.23."""
        if config.added_tokens:
            raise Refused(lm.ADDED_TOKENS(name=ref.name))
        if config.use_dora:
            raise Refused(lm.DORA(name=ref.name))
        if any(ref.name == held.name for held in self.refs[rank].values()):
            raise Refused(lm.LOADED(name=ref.name))
        if config.r > self._max_rank or not self._supports(config):
            raise Refused(lm.INCOMPATIBLE(name=ref.name, rank=config.r))
        if ref.pinned and sum(held.pinned for held in self.refs[rank].values()) >= self._limit - 1:
            raise Refused(lm.PINNED(name=ref.name))

    def _supports(self, config: AdapterConfig) -> bool:
        wanted = normalised(config.target_modules)
        return "all" in wanted or wanted <= self._modules


def _payload(obj: dict[str, Any], rank: int) -> bytes:
    """0.5.12 has one base64 text for all ranks, and dies of what does not decode; later ones a list."""
    if "serialized_tensors" in obj:
        payload = obj["serialized_tensors"]
    elif rank < len(obj["serialized_named_tensors"]):
        payload = obj["serialized_named_tensors"][rank]
    else:
        raise crash(m.SHORT_LIST, rank)
    if isinstance(payload, bytes):
        return payload
    try:
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise Crash("binascii.Error", str(error), rank) from None


def _check_sums(expected: Mapping[str, str] | None, tensors: Mapping[str, np.ndarray], rank: int) -> None:
    """A mismatch is a RuntimeError that nobody catches (managers/tp_worker.py:231@0.5.23)."""
    if expected is None:
        return
    missing = [name for name in expected if name not in tensors]
    wrong = [n for n, want in expected.items() if n in tensors and _sha256(tensors[n]) != want]
    extra = [name for name in tensors if name not in expected]
    if missing or wrong or extra:
        raise crash(
            lm.CHECK_MISMATCH,
            rank,
            tp_rank=rank,
            expected=len(expected),
            wrong=len(wrong),
            wrong_names=wrong[:5],
            missing=len(missing),
            missing_names=missing[:5],
            extra=len(extra),
            extra_names=extra[:5],
        )


def _sha256(tensor: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest()
