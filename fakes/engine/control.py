"""Every operation as a client sees it: HTTP status and body, or what `sglang.Engine` returns in process.

One coroutine per route, over the tokenizer manager. What it raises in SGLang becomes a bare 500 over HTTP, unless the
endpoint catches it (contract, section 1.2); in process it is raised at the caller, here a `Raised` value.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from fakes.engine import health, info, load
from fakes.engine import messages as m
from fakes.engine.auth import Decision
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.generate_batch import GenerateRequest
from fakes.engine.generation import Aborted, Generator, RequestAborted, State
from fakes.engine.loop import Task
from fakes.engine.profiles import ORDER
from fakes.engine.protocol import Raised
from fakes.engine.server_info import server_info
from fakes.engine.tokenizer_manager import TokenizerManager

Media = Literal["json", "text", "empty"]


class Answer(msgspec.Struct):
    """The end of one call. `value` is the in-process return value."""

    status: int = 200
    body: Any = None
    media: Media = "json"
    value: Any = None


Handler = Callable[[Any], Coroutine[Any, Any, Answer]]


def std(success: bool, message: str) -> Answer:
    """200 or 400 with {"success", "message"}."""
    return Answer(200 if success else 400, {"success": success, "message": message}, value=(success, message))


def error(text: str, status: int = 400) -> Answer:
    """SGLang's `_create_error_response`."""
    return Answer(status, {"error": {"message": text}})


def error_response(text: str, status: int) -> Answer:
    """An HTTPException as SGLang shows it, an ErrorResponse (entrypoints/http_server.py:578@0.5.23)."""
    body = {"object": "error", "message": text, "type": str(status), "param": None, "code": status}
    return Answer(status, body)


def internal_error(raised: BaseException) -> Answer:
    """Starlette's answer to an exception that the endpoint does not catch."""
    return Answer(500, m.INTERNAL_ERROR.text, "text", Raised(type(raised).__name__, str(raised)))


def stream_error(p: EngineProfile, text: str, status: int = 400) -> dict[str, Any]:
    """The event of a stream that is refused (entrypoints/http_server.py:716@0.5.12.post1, 894@0.5.17)."""
    kind = {"type": "invalid_request_error", "code": status, "retryable": False}
    return {"error": {"message": text, **({} if p.version == ORDER[0] else kind)}}


def not_found() -> Answer:
    """No such route."""
    return Answer(404, {"detail": "Not Found"})


def wrong_method() -> Answer:
    """The route exists, for another method."""
    return Answer(405, {"detail": "Method Not Allowed"})


def unauthorised(decision: Decision) -> Answer:
    """The key is missing, wrong, or one that SGLang cannot compare."""
    if decision == "broken":
        return Answer(500, m.INTERNAL_ERROR.text, "text")
    return Answer(401, {"error": "Unauthorized"})


def lora(result: dict[str, Any]) -> Answer:
    """LoRAUpdateOutput, 200 or 400 (entrypoints/http_server.py:1652@0.5.23)."""
    body = {"rid": None, "http_worker_ipc": None, **result}
    return Answer(200 if result["success"] else 400, body, value=body)


def _error_400(raised: Exception) -> Answer:
    answer = error(str(raised))
    answer.value = Raised(type(raised).__name__, str(raised))
    return answer


def _version_400(raised: Exception) -> Answer:
    answer = std(False, m.VERSION_FAILED(error=raised))
    answer.value = Raised(type(raised).__name__, str(raised))
    return answer


_CATCHING: dict[str, Callable[[Exception], Answer]] = {
    **dict.fromkeys(
        (
            "release_memory_occupation",
            "resume_memory_occupation",
            "get_weights_by_name",
            "abort_request",
            "slow_down",
        ),
        _error_400,
    ),
    "update_weight_version": _version_400,
}
"""Endpoints that catch what the HTTP process raises; the others leave it to Starlette, a bare 500 (contract, 1.2)."""


def _catching(handler: Handler, refuse: Callable[[Exception], Answer]) -> Handler:
    async def handle(fields: Any) -> Answer:
        try:
            return await handler(fields)
        except Exception as raised:
            return refuse(raised)

    return handle


class Controls:
    """Handlers by name. Each takes the checked fields of the request."""

    def __init__(self, tm: TokenizerManager, generator: Generator, model_config: dict[str, Any]) -> None:
        self._tm = tm
        self._generator = generator
        self._model_config = model_config
        self._context_len = int(model_config["max_position_embeddings"])
        self.handlers: dict[str, Handler] = {
            "health": self._health,
            "health_generate": self._health_generate,
            "ready": self._ready,
            "ping": self._ping,
            "root": self._root,
            "model_info": self._model_info,
            "server_info": self._server_info,
            "get_weight_version": self._get_weight_version,
            "get_load": self._get_load,
            "flush_cache": self._flush_cache,
            "pause_generation": self._pause,
            "continue_generation": self._continue,
            "begin_weight_update": self._begin,
            "end_weight_update": self._end,
            "update_weights_from_tensor": self._tensor,
            "update_weights_from_distributed": self._distributed,
            "update_weights_from_ipc": self._ipc,
            "update_weights_from_disk": self._disk,
            "init_weights_update_group": self._init_group,
            "destroy_weights_update_group": self._destroy_group,
            "update_weight_version": self._version,
            "get_weights_by_name": self._by_name,
            "release_memory_occupation": self._release,
            "resume_memory_occupation": self._resume,
            "weights_checker": self._check,
            "slow_down": self._slow_down,
            "load_lora_adapter": self._load_lora,
            "load_lora_adapter_from_tensors": self._load_lora_tensors,
            "unload_lora_adapter": self._unload_lora,
            "abort_request": self._abort,
        }
        for name, refuse in _CATCHING.items():
            self.handlers[name] = _catching(self.handlers[name], refuse)

    async def generate(
        self, request: GenerateRequest, emit: Callable[[Any], None] | None, states: dict[str, State]
    ) -> Answer:
        """A generation: the object, the list, or the end of a stream (whose chunks went to `emit`)."""
        try:
            value = await self._generator.run(request, emit, states)
        except ValueError as refused:
            early = isinstance(refused, RequestAborted)
            raised = Raised("RequestAbortedError" if early else "ValueError", str(refused))
            status = RequestAborted.status if early else 400
            if emit is None:
                answer = error(str(refused), status)
                answer.value = raised
                return answer
            emit(stream_error(self._tm.profile, str(refused), status))
            return Answer(200, None, "empty", raised)
        except Aborted as aborted:
            text = str(aborted)
            if aborted.status == 400:
                return error(text)
            return error_response(text, aborted.status)
        return Answer(200, value, "empty" if emit is not None else "json", value)

    def disconnect(self, task: Task[Answer], states: dict[str, State], *, stream: bool) -> None:
        """The client of a generation went away. A stream is cancelled at once, anything else notices within 4 s."""
        if stream:
            task.cancel()
            self._tm.loop.spawn(self._generator.abort_later(states), "abort")
        else:
            self._generator.disconnect(states)

    async def _health(self, fields: Any) -> Answer:
        if not self._tm.config.health_generation:
            return Answer(200, None, "empty")
        return await self._health_generate(fields)

    async def _health_generate(self, fields: Any) -> Answer:
        return Answer(await health.probe(self._tm, self._generator), None, "empty")

    async def _ready(self, fields: Any) -> Answer:
        return Answer(health.ready(self._tm), None, "empty")

    async def _ping(self, fields: Any) -> Answer:
        return Answer(health.ping(self._tm), None, "empty")

    async def _root(self, fields: Any) -> Answer:
        return Answer(200, "SGLang is running")

    async def _model_info(self, fields: Any) -> Answer:
        body = info.model_info(self._tm, self._model_config)
        return Answer(200, body, value=body)

    async def _server_info(self, fields: Any) -> Answer:
        body = server_info(self._tm, await self._tm.server_info(), self._context_len)
        return Answer(200, body, value=body)

    async def _get_weight_version(self, fields: Any) -> Answer:
        return error_response(m.WEIGHT_VERSION_DEPRECATED.text, 404)

    async def _get_load(self, fields: Any) -> Answer:
        body = load.answer(await self._tm.get_load(), self._tm.loop.now)
        return Answer(200, body, value=body)

    async def _flush_cache(self, fields: Any) -> Answer:
        reply = await self._tm.flush_cache(fields["timeout"])
        text = m.FLUSHED.text if reply["success"] else reply["message"] or m.FLUSH_FAILED.text
        return Answer(200 if reply["success"] else 400, text, "text", reply)

    async def _pause(self, fields: Any) -> Answer:
        await self._tm.pause_generation(fields["mode"])
        return Answer(200, {"message": m.PAUSED.text, "status": "ok"})

    async def _continue(self, fields: Any) -> Answer:
        await self._tm.continue_generation(fields["torch_empty_cache"])
        return Answer(200, {"message": m.CONTINUED.text, "status": "ok"})

    async def _begin(self, fields: Any) -> Answer:
        return std(*await self._tm.begin_weight_update(fields))

    async def _end(self, fields: Any) -> Answer:
        return std(*await self._tm.end_weight_update(fields))

    async def _tensor(self, fields: Any) -> Answer:
        return std(*await self._tm.update_weights_from_tensor(fields))

    async def _distributed(self, fields: Any) -> Answer:
        return std(*await self._tm.update_weights_from_distributed(fields))

    async def _ipc(self, fields: Any) -> Answer:
        return std(*await self._tm.update_weights_from_ipc(fields))

    async def _disk(self, fields: Any) -> Answer:
        success, message, paused = await self._tm.update_weights_from_disk(fields)
        body = {"success": success, "message": message, "num_paused_requests": paused}
        return Answer(200 if success else 400, body, value=(success, message, paused))

    async def _init_group(self, fields: Any) -> Answer:
        return std(*await self._tm.init_weights_update_group(fields))

    async def _destroy_group(self, fields: Any) -> Answer:
        return std(*await self._tm.destroy_weights_update_group(fields))

    async def _version(self, fields: Any) -> Answer:
        if fields["abort_all_requests"]:
            self._tm.abort_request(abort_all=True)
        await self._tm.update_weight_version(fields)
        version = fields["new_version"]
        return Answer(200, {"success": True, "message": m.VERSION_SET(version=version), "new_version": version})

    async def _by_name(self, fields: Any) -> Answer:
        found = await self._tm.get_weights_by_name(fields)
        return error(m.GET_BY_NAME_FAILED.text) if found is None else Answer(200, found, value=found)

    async def _release(self, fields: Any) -> Answer:
        await self._tm.release_memory_occupation(fields)
        return Answer(200, None)

    async def _resume(self, fields: Any) -> Answer:
        await self._tm.resume_memory_occupation(fields)
        return Answer(200, None)

    async def _load_lora(self, fields: Any) -> Answer:
        return lora(await self._tm.lora.load(fields, fields["lora_path"]))

    async def _load_lora_tensors(self, fields: Any) -> Answer:
        return lora(await self._tm.lora.load(fields))

    async def _unload_lora(self, fields: Any) -> Answer:
        return lora(await self._tm.lora.unload(fields))

    async def _slow_down(self, fields: Any) -> Answer:
        await self._tm.slow_down(fields)
        return Answer(200, None)

    async def _check(self, fields: Any) -> Answer:
        success, message, ranks, total = await self._tm.weights_checker(fields)
        body: dict[str, Any] = {"success": success, "message": message}
        if ranks is not None:
            body["ranks"] = ranks
        if total is not None:
            body["per_engine_checksum"] = total
        return Answer(200 if success else 400, body, value=(success, message, ranks, total))

    async def _abort(self, fields: Any) -> Answer:
        self._tm.abort_request(fields["rid"], fields["abort_all"])
        return Answer(200, None, "empty")
