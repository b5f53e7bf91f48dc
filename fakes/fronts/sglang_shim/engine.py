"""SGLang's Engine object over a server: of this process's own, or one whose address the environment gives.

`REFITCHECK_SGLANG_ENGINES` is a list of urls, taken in turn by the engines that a driver makes: gated endpoints, so
that every call of an in-process driver is recorded and may meet a fault. An engine that dies takes the calling process
with it, as SGLang's does (entrypoints/engine.py:1190@0.5.23).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

from fakes.fronts import sglang_shim
from fakes.fronts.caller import FlushCacheReqOutput, kill_this_process_tree
from fakes.fronts.lora_object import LoRAUpdateOutput, updated
from fakes.fronts.requests import fields_of, generate_fields
from fakes.fronts.sglang_shim.serializer import MultiprocessingSerializer

ENGINES_VARIABLE = "REFITCHECK_SGLANG_ENGINES"
_taken = itertools.count()


class Engine:
    """Keyword arguments are ServerArgs'. Calls give SGLang's tuples and have no timeout, as SGLang's."""

    def __init__(self, **kwargs: Any) -> None:
        import importlib

        self.server_args = kwargs.pop("server_args", None)
        if self.server_args is None:
            self.server_args = importlib.import_module("sglang.srt.server_args").ServerArgs(**kwargs)
        self._server: Any = None
        self.url = self._found() or self._started()
        self.tokenizer_manager = TokenizerManager(self.url)
        if not sglang_shim.has_session_calls():
            self.begin_weight_update = self.end_weight_update = None  # type: ignore[assignment, method-assign]

    def _found(self) -> str:
        urls = [url for url in os.environ.get(ENGINES_VARIABLE, "").split(",") if url]
        return urls[next(_taken) % len(urls)] if urls else ""

    def _started(self) -> str:
        from fakes.fronts.process import ServerProcess
        from fakes.fronts.sglang_shim.launching import command_line

        self._server = ServerProcess(command_line(self.server_args))
        return str(self._server.url)

    def generate(self, prompt: Any = None, sampling_params: Any = None, input_ids: Any = None, **more: Any) -> Any:
        """The answer as a dict."""
        return _answer(_post(self.url, "generate", generate_fields(prompt, sampling_params, input_ids, more)))

    async def async_generate(
        self, prompt: Any = None, sampling_params: Any = None, input_ids: Any = None, **more: Any
    ) -> Any:
        """The same, awaited."""
        return _answer(await _apost(self.url, "generate", generate_fields(prompt, sampling_params, input_ids, more)))

    def update_weights_from_tensor(
        self, named_tensors: Any, load_format: str | None = None, flush_cache: bool = True
    ) -> tuple[bool, str]:
        """(success, message). For flattened_bucket one payload per tp_rank, else [(name, tensor)]."""
        payloads = list(named_tensors)
        if load_format != "flattened_bucket":
            payloads = [MultiprocessingSerializer.serialize(payloads) for _ in range(self.server_args.tp_size)]
        fields = {"serialized_named_tensors": payloads, "load_format": load_format, "flush_cache": flush_cache}
        return _pair(_post(self.url, "update_weights_from_tensor", fields))

    def update_weights_from_disk(self, model_path: str, load_format: str | None = None) -> tuple[bool, str]:
        """(success, message)."""
        return _pair(
            _post(self.url, "update_weights_from_disk", {"model_path": model_path, "load_format": load_format})
        )

    def begin_weight_update(self, selector: str = "all") -> tuple[bool, str]:
        """(success, message); 0.5.21 and later."""
        return _pair(_post(self.url, "begin_weight_update", {"selector": selector}))

    def end_weight_update(self) -> tuple[bool, str]:
        """(success, message); 0.5.21 and later."""
        return _pair(_post(self.url, "end_weight_update", {}))

    def flush_cache(self) -> FlushCacheReqOutput:
        """Success, or why not."""
        reply = _post(self.url, "flush_cache", {})
        return FlushCacheReqOutput(reply.status_code == 200, reply.text)

    def release_memory_occupation(self, tags: list[str] | None = None) -> None:
        """None is all."""
        _answer(_post(self.url, "release_memory_occupation", {"tags": tags}))

    def resume_memory_occupation(self, tags: list[str] | None = None) -> None:
        """A tag that was not released kills the engine."""
        _answer(_post(self.url, "resume_memory_occupation", {"tags": tags}))

    def shutdown(self) -> None:
        """End a server of one's own."""
        if self._server is not None:
            self._server.stop()


class TokenizerManager:
    """Coroutines that take a request struct; each is the route of that name."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __getattr__(self, name: str) -> Any:
        if name not in _CALLS:
            if not name.startswith("__"):
                sglang_shim.lacking(f"tokenizer_manager.{name}")
            raise AttributeError(f"refitcheck's shim of SGLang {sglang_shim.version()} lacks tokenizer_manager.{name}")
        if name in _SESSION and not sglang_shim.has_session_calls():
            raise AttributeError(f"'TokenizerManager' object has no attribute '{name}'")

        async def call(obj: Any = None, request: Any = None) -> Any:
            reply = await _apost(self._url, name, fields_of(obj))
            if name in _NOTHING:
                return _answer(reply)
            if name in _LORA:
                return _updated(reply)
            if name == "flush_cache":
                return FlushCacheReqOutput(reply.status_code == 200, reply.text)
            return _pair(reply)

        return call


_SESSION = ("begin_weight_update", "end_weight_update")
_NOTHING = (
    "pause_generation",
    "continue_generation",
    "release_memory_occupation",
    "resume_memory_occupation",
    "get_weights_by_name",
)
_LORA = ("load_lora_adapter", "load_lora_adapter_from_tensors", "unload_lora_adapter")
_CALLS = (
    *_SESSION,
    *_NOTHING,
    *_LORA,
    "flush_cache",
    "update_weights_from_tensor",
    "update_weights_from_distributed",
    "update_weights_from_disk",
    "init_weights_update_group",
    "destroy_weights_update_group",
)


def _post(url: str, op: str, fields: Mapping[str, Any]) -> Any:
    import httpx

    try:
        return httpx.post(f"{url}/{op}", json=_json(fields), timeout=None)
    except httpx.TransportError:
        kill_this_process_tree()


async def _apost(url: str, op: str, fields: Mapping[str, Any]) -> Any:
    import httpx

    try:
        async with httpx.AsyncClient(timeout=None) as client:
            return await client.post(f"{url}/{op}", json=_json(fields))
    except httpx.TransportError:
        kill_this_process_tree()


def _json(value: Any) -> Any:
    import base64

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: _json(inner) for name, inner in value.items()}
    return [_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _pair(reply: Any) -> tuple[bool, str]:
    """(success, message); what the server would not take at all is a RuntimeError."""
    try:
        body = reply.json()
        return bool(body["success"]), str(body["message"])
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(f"{reply.status_code} {reply.text}") from None


def _updated(reply: Any) -> LoRAUpdateOutput:
    """A load's or an unload's result; what the server would not take at all is a RuntimeError."""
    try:
        return updated(reply.json())
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(f"{reply.status_code} {reply.text}") from None


def _answer(reply: Any) -> Any:
    """The body; a status other than 200 is what the tokenizer manager raised."""
    if reply.status_code != 200:
        raise ValueError(reply.text)
    return reply.json() if reply.content else None
