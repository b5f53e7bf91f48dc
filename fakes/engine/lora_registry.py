"""The tokenizer manager's half of LoRA: adapters by name, requests that use them, loads and unloads in turn.

A name is taken from the registry before its unload waits for the requests that use it; what is loaded meanwhile waits
for the same lock. The names of all adapters ever loaded are kept: a request for one that is gone loads it again from
its path, which one that came as tensors has not (lora/lora_registry.py, managers/tokenizer_control_mixin.py:634,
managers/tokenizer_manager.py:3744@0.5.23).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fakes.engine import lora_messages as lm
from fakes.engine.loop import Condition, Lock
from fakes.engine.lora_manager import FROM_TENSORS, Ref
from fakes.engine.serialized import normalize

if TYPE_CHECKING:
    from fakes.engine.tokenizer_manager import TokenizerManager

Result = dict[str, Any]
"""SGLang's LoRAUpdateOutput: success, error_message, loaded_adapters (name to path)."""


class LoraRegistry:
    """One engine's adapters as its clients name them."""

    def __init__(self, tm: TokenizerManager) -> None:
        self._tm = tm
        self._update = Lock(tm.loop)
        self._changed = Condition(tm.loop)
        self._names: dict[str, Ref] = {}
        self._used: dict[str, int] = {}
        self._ever: dict[str, Ref] = {}
        self._made = 0

    async def load(self, obj: dict[str, Any], path: str | None = None) -> Result:
        """load_lora_adapter, or with `path` None load_lora_adapter_from_tensors. AssertionError with replicas."""
        refused = self._refused()
        if refused is not None:
            return refused
        if path is None and self._tm.profile.base64 == "http400":
            try:
                obj = {**obj, "serialized_named_tensors": normalize(obj["serialized_named_tensors"])}
            except ValueError as error:
                return _failed(str(error))
        ref = Ref(self._new_id(), obj["lora_name"], path if path is not None else FROM_TENSORS, obj["pinned"])
        async with self._update:
            op = "load" if path is not None else "tensors"
            result: Result = await self._tm.communicator("update_lora_adapter")({**obj, "op": op, "ref": ref})
            if result["success"]:
                self._names[ref.name] = self._ever[ref.name] = ref
                self._used[ref.lora_id] = 0
            limit = self._tm.config.max_loaded_loras
            while limit is not None and len(self._names) > limit:
                oldest = next(name for name, known in self._names.items() if not known.pinned)
                await self._unload(oldest)
                result["loaded_adapters"].pop(oldest)
            return result

    async def unload(self, obj: dict[str, Any]) -> Result:
        """unload_lora_adapter: waits for every request that uses it."""
        refused = self._refused()
        if refused is not None:
            return refused
        async with self._update:
            if obj["lora_name"] not in self._names:
                return _failed(lm.NOT_THERE(name=obj["lora_name"], loaded=f"odict_keys({list(self._names)})"))
            return await self._unload(obj["lora_name"])

    async def acquire(self, names: Sequence[str | None]) -> list[str | None]:
        """The ids of these adapters, each counted as in use until `release`. ValueError as SGLang says it."""
        wanted = dict.fromkeys(names)
        limit = self._tm.config.max_loaded_loras
        if limit is not None and len(wanted) > limit:
            raise ValueError(lm.TOO_MANY(wanted=len(wanted), limit=limit))
        for name in wanted:
            if name in self._names:
                self._touch(name)
        for name in [name for name in wanted if name is not None and name not in self._names]:
            await self._reload(name)
        ids: list[str | None] = []
        for name in names:
            if name is not None:
                if name not in self._names:
                    raise ValueError(lm.NOT_LOADED(name=name, loaded=f"odict_keys({list(self._names)})"))
                self._touch(name)
            ids.append(None if name is None else self._names[name].lora_id)
        for lora_id in ids:
            if lora_id is not None:
                self._used[lora_id] += 1
        return ids

    def release(self, lora_id: str) -> None:
        """A request is over. Of an adapter that is gone nothing is counted: the KeyError ends a task of its own."""
        if lora_id not in self._used:
            return
        self._used[lora_id] -= 1
        self._tm.loop.spawn(self._tell(), "lora release")

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _reload(self, name: str) -> None:
        if name not in self._ever:
            raise ValueError(lm.NEVER_LOADED(name=name, known=f"dict_keys({list(self._ever)})"))
        ref = self._ever[name]
        again = {"lora_name": name, "pinned": ref.pinned}
        result = await self.load(again, ref.path)
        if not result["success"] and "already loaded" not in result["error_message"]:
            raise ValueError(lm.NOT_RELOADED(name=name, error=result["error_message"]))

    async def _unload(self, name: str) -> Result:
        ref = self._names.pop(name)
        async with self._changed:
            await self._changed.wait_for(lambda: self._used[ref.lora_id] == 0)
        del self._used[ref.lora_id]
        result: Result = await self._tm.communicator("update_lora_adapter")({"op": "unload", "ref": ref})
        return result

    def _touch(self, name: str) -> None:
        self._names[name] = self._names.pop(name)

    def _new_id(self) -> str:
        """32 hex digits, like uuid4().hex, but the same in every run."""
        self._made += 1
        text = f"lora:{self._tm.config.random_seed}:{self._made}"
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

    def _refused(self) -> Result | None:
        if not self._tm.config.enable_lora:
            return _failed(lm.DISABLED.text)
        if self._tm.config.dp_size != 1:
            version = self._tm.profile.version
            raise AssertionError(next(d.text for d in (lm.DP_12, lm.DP_17, lm.DP_22) if version in d.versions))
        return None


def _failed(text: str) -> Result:
    return {"success": False, "error_message": text, "loaded_adapters": None}
