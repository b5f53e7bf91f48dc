"""What trainers use of `engine.tokenizer_manager`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fakes.fronts.caller import Caller, FlushCacheReqOutput, flushed, pair
from fakes.fronts.lora_object import LoRAUpdateOutput, updated
from fakes.fronts.requests import fields_of


class TokenizerManager:
    """Coroutines that take a request struct, or a mapping of its fields.

    Source: managers/tokenizer_manager.py and managers/tokenizer_control_mixin.py@0.5.23.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def pause_generation(self, obj: Any) -> None:
        """`mode`: abort, retract or in_place."""
        await self._caller.wait("pause_generation", fields_of(obj))

    async def continue_generation(self, obj: Any) -> None:
        """`torch_empty_cache`."""
        await self._caller.wait("continue_generation", fields_of(obj))

    async def update_weights_from_tensor(self, obj: Any, request: Any = None) -> tuple[bool, str]:
        """(success, message)."""
        return pair(await self._caller.wait("update_weights_from_tensor", fields_of(obj)))

    async def update_weights_from_distributed(self, obj: Any, request: Any = None) -> tuple[bool, str]:
        """(success, message)."""
        return pair(await self._caller.wait("update_weights_from_distributed", fields_of(obj)))

    async def update_weights_from_disk(self, obj: Any, request: Any = None) -> Any:
        """(success, message, num_paused_requests)."""
        return await self._caller.wait("update_weights_from_disk", fields_of(obj))

    async def begin_weight_update(self, obj: Any, request: Any = None) -> tuple[bool, str]:
        """(success, message); 0.5.21 and later, and miles."""
        return pair(await self._caller.wait("begin_weight_update", fields_of(obj)))

    async def end_weight_update(self, obj: Any = None, request: Any = None) -> tuple[bool, str]:
        """(success, message); 0.5.21 and later, and miles."""
        return pair(await self._caller.wait("end_weight_update", fields_of(obj)))

    async def init_weights_update_group(self, obj: Any, request: Any = None) -> tuple[bool, str]:
        """(success, message)."""
        return pair(await self._caller.wait("init_weights_update_group", fields_of(obj)))

    async def destroy_weights_update_group(self, obj: Any, request: Any = None) -> tuple[bool, str]:
        """(success, message)."""
        return pair(await self._caller.wait("destroy_weights_update_group", fields_of(obj)))

    async def load_lora_adapter(self, obj: Any, request: Any = None) -> LoRAUpdateOutput:
        """From a folder."""
        return updated(await self._caller.wait("load_lora_adapter", fields_of(obj)))

    async def load_lora_adapter_from_tensors(self, obj: Any, request: Any = None) -> LoRAUpdateOutput:
        """`serialized_named_tensors` has one payload for each rank; 0.5.12 one `serialized_tensors` for all."""
        return updated(await self._caller.wait("load_lora_adapter_from_tensors", fields_of(obj)))

    async def unload_lora_adapter(self, obj: Any, request: Any = None) -> LoRAUpdateOutput:
        """Waits for the requests that use it."""
        return updated(await self._caller.wait("unload_lora_adapter", fields_of(obj)))

    async def release_memory_occupation(self, obj: Any, request: Any = None) -> None:
        """`tags`."""
        await self._caller.wait("release_memory_occupation", fields_of(obj))

    async def resume_memory_occupation(self, obj: Any, request: Any = None) -> None:
        """`tags`."""
        await self._caller.wait("resume_memory_occupation", fields_of(obj))

    async def get_weights_by_name(self, obj: Any, request: Any = None) -> Any:
        """The parameter as nested lists of float."""
        return await self._caller.wait("get_weights_by_name", fields_of(obj))

    async def flush_cache(self, timeout_s: float | None = None) -> FlushCacheReqOutput:
        """Success, or why not."""
        return flushed(await self._caller.wait("flush_cache", {"timeout_s": timeout_s}))

    def abort_request(self, rid: str = "", abort_all: bool = False) -> None:
        """Sent, not waited for."""
        self._caller.submit("abort_request", {"rid": rid, "abort_all": abort_all})

    async def generate_request(self, obj: Any, request: Any = None) -> AsyncIterator[Any]:
        """One answer, or a chunk per step when `stream` is set."""
        fields = fields_of(obj)
        if fields.get("stream"):
            async for chunk in self._caller.astream(fields):
                yield chunk
        else:
            yield await self._caller.wait("generate", fields)
