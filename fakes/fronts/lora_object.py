"""LoRA adapters of SGLang's Engine object (entrypoints/engine.py:1743-1829@0.5.23, 1100@0.5.12.post1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fakes.fronts.tensors import serialise_adapter

if TYPE_CHECKING:
    from fakes.fronts.caller import Caller
    from fakes.world.fleet import WorldEngine
    from fakes.world.world import World


class LoRAUpdateOutput(msgspec.Struct):
    """What loads and unloads return (managers/io_struct.py:2572@0.5.23); a refusal is no exception."""

    success: bool
    error_message: str | None = None
    loaded_adapters: dict[str, str] | None = None


def updated(value: Mapping[str, Any]) -> LoRAUpdateOutput:
    """The core's answer as SGLang's struct."""
    return LoRAUpdateOutput(value["success"], value["error_message"], value["loaded_adapters"])


class LoraCalls:
    """The part of an Engine that loads and unloads adapters."""

    world: World
    engine: WorldEngine
    _caller: Caller

    def load_lora_adapter(self, lora_name: str, lora_path: str, pinned: bool = False) -> LoRAUpdateOutput:
        """From a folder."""
        fields = {"lora_name": lora_name, "lora_path": lora_path, "pinned": pinned}
        return updated(self._caller.sync("load_lora_adapter", fields))

    def load_lora_adapter_from_tensors(
        self, lora_name: str, tensors: Any, config_dict: Mapping[str, Any], load_format: str | None = None
    ) -> LoRAUpdateOutput:
        """`tensors`: PEFT names to tensors; for flattened_bucket payloads, one per tp_rank (0.5.12: one)."""
        config = self.engine.config
        one = config.profile == "0.5.12.post1"
        if load_format == "flattened_bucket":
            payloads = tensors if one else list(tensors)
        else:
            made = serialise_adapter(self.world, tensors, config.tp_size)
            payloads = made[0] if one else made
        fields: dict[str, Any] = {"lora_name": lora_name, "config_dict": dict(config_dict), "load_format": load_format}
        fields["serialized_tensors" if one else "serialized_named_tensors"] = payloads
        return updated(self._caller.sync("load_lora_adapter_from_tensors", fields))

    def unload_lora_adapter(self, lora_name: str) -> LoRAUpdateOutput:
        """Waits for the requests that use it."""
        return updated(self._caller.sync("unload_lora_adapter", {"lora_name": lora_name}))

    async def async_load_lora_adapter(self, lora_name: str, lora_path: str, pinned: bool = False) -> LoRAUpdateOutput:
        """The same on an event loop."""
        fields = {"lora_name": lora_name, "lora_path": lora_path, "pinned": pinned}
        return updated(await self._caller.wait("load_lora_adapter", fields))

    async def async_unload_lora_adapter(self, lora_name: str) -> LoRAUpdateOutput:
        """The same on an event loop."""
        return updated(await self._caller.wait("unload_lora_adapter", {"lora_name": lora_name}))
