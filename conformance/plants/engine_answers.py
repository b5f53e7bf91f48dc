"""Lenient engines: what the HTTP side answers is not what SGLang answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.plants.make import Apply, lenient, method

CONTROLS = "fakes.engine.control:Controls"
LENIENT = "a fake that is kinder than SGLang"


def answer(name: str, instead: Callable[[Any, Any], Any]) -> Apply:
    """`instead(controls, fields)` gives the answer of handler `name`, or None to leave it as it is."""

    def make(original: Any) -> Any:
        async def handler(self: Any, fields: Any) -> Any:
            other = instead(self, fields)
            return other if other is not None else await original(self, fields)

        return handler

    return method(f"{CONTROLS}.{name}", make)


def reply(change: Callable[[Any], Any]) -> Apply:
    """Every reply that leaves the engine goes through `change(answer)`."""

    def make(original: Any) -> Any:
        return lambda self, call_id, found: original(self, call_id, change(found))

    return method("fakes.engine.core:EngineCore._reply", make)


def _answer(status: int, body: Any = None, media: str = "json") -> Any:
    from fakes.engine.control import Answer

    return Answer(status, body, media)  # type: ignore[arg-type]  # a planted body


def _text(status: int, text: str) -> Any:
    return _answer(status, text, "text")


def _paused(controls: Any) -> bool:
    return bool(controls._tm.is_pause)


def _message(found: Any) -> str:
    return str(found.body.get("message", "")) if isinstance(found.body, dict) else ""


def _unprocessable(found: Any) -> Any:
    return _answer(422, found.body) if found.status == 400 and "validation error" in _message(found) else found


def _any_mode(found: Any) -> Any:
    taken = {"message": "Generation paused successfully.", "status": "ok"}
    return (
        _answer(200, taken)
        if "PauseGenerationReqInput" in _message(found) or "Invalid mode" in _message(found)
        else found
    )


def _any_timeout(found: Any) -> Any:
    return _text(200, "Cache flushed.") if found.status == 400 and "timeout" in str(found.body) else found


def _method_is_a_route(found: Any) -> Any:
    return _answer(404, {"detail": "Not Found"}) if found.status == 405 else found


def _refuse_while_paused(original: Any) -> Any:
    async def generate(self: Any, request: Any, emit: Any, states: Any) -> Any:
        if _paused(self):
            return _answer(503, {"error": {"message": "paused"}})
        return await original(self, request, emit, states)

    return generate


def _always(status: int, text: str) -> Callable[[Any, Any], Any]:
    return lambda controls, fields: _text(status, text)


def _when_paused(status: int, body: Any, media: str = "json") -> Callable[[Any, Any], Any]:
    return lambda controls, fields: _answer(status, body, media) if _paused(controls) else None


def _only_known_tags(controls: Any, fields: Any) -> Any:
    unknown = set(fields["tags"] or ()) - {"weights", "kv_cache", "cuda_graph"}
    return _answer(400, {"error": {"message": f"unknown tags {sorted(unknown)}"}}) if unknown else None


def _bogus_is_fine(controls: Any, fields: Any) -> Any:
    return _answer(200, {"success": True, "message": "Success."}) if fields["action"] == "bogus" else None


def _never_aborts(original: Any) -> Any:
    async def version(self: Any, fields: Any) -> Any:
        return await original(self, {**fields, "abort_all_requests": False})

    return version


def _first_label(original: Any) -> Any:
    def put(meta: Any, spans: Any, *rest: Any) -> None:
        original(meta, spans, *rest)
        meta["weight_version"] = spans[0]["version"]

    return put


def _label(get: Callable[[Any, Any], str]) -> Callable[[Any], Any]:
    """The label of every generation is `get(state, tokenizer manager)`."""

    def make(original: Any) -> Any:
        def output(self: Any, item: Any, tm: Any) -> None:
            before = len(self.outputs)
            original(self, item, tm)
            for told in self.outputs[before:]:
                told["meta_info"]["weight_version"] = get(self, tm)

        return output

    return make


def _remember_label(original: Any) -> Any:
    def init(self: Any, tm: Any, *args: Any, **named: Any) -> None:
        original(self, tm, *args, **named)
        self.first_label = tm.weight_version

    return init


def _after_death(original: Any) -> Any:
    from fakes.outcome import Outcome

    return lambda self: self.end(Outcome(ending="reply", status=200, body={}))


def _no_checksum(original: Any) -> Any:
    def handle(self: Any, *args: Any, **named: Any) -> Any:
        found = original(self, *args, **named)
        return {**found, "per_gpu_checksum": "0" * 64} if found else found

    return handle


def _zeros(controls: Any, fields: Any) -> Any:
    return None if fields["name"] == "nope" else _answer(200, [[0.0]])


def _unhealthy(original: Any) -> Any:
    async def probe(tm: Any, generator: Any) -> int:
        return 503

    return probe


FLUSH, PAUSE = "_flush_cache", "_pause"
PLANTS = (
    lenient("body-optional-422", "SESS-58", "FastAPI's default", "validation answers 422", reply(_unprocessable)),
    lenient(
        "pause-once",
        "PAUSE-51",
        LENIENT,
        "a second pause is refused",
        answer(PAUSE, _when_paused(400, {"message": "already paused"})),
    ),
    lenient("any-pause-mode", "PAUSE-52", LENIENT, "an unknown pause mode is taken", reply(_any_mode)),
    lenient(
        "paused-is-503",
        "PAUSE-56",
        LENIENT,
        "requests are refused while paused",
        method(f"{CONTROLS}.generate", _refuse_while_paused),
    ),
    lenient(
        "flush-always-refused",
        "CACHE-51",
        LENIENT,
        "no flush is granted",
        answer(FLUSH, _always(400, "Flush cache failed.\n")),
    ),
    lenient(
        "flush-always-granted",
        "CACHE-52",
        LENIENT,
        "a busy engine says that it flushed",
        answer(FLUSH, _always(200, "Cache flushed.")),
    ),
    lenient(
        "frozen-is-idle",
        "CACHE-55",
        LENIENT,
        "frozen requests do not prevent a flush",
        answer(FLUSH, _when_paused(200, "Cache flushed.", "text")),
    ),
    lenient(
        "paused-is-busy",
        "CACHE-56",
        LENIENT,
        "an abort pause prevents a flush",
        answer(FLUSH, _when_paused(400, "Flush cache failed.\n", "text")),
    ),
    lenient("any-timeout", "CACHE-62", LENIENT, "a negative timeout is taken", reply(_any_timeout)),
    lenient(
        "publication-never-aborts",
        "VER-53",
        LENIENT,
        "update_weight_version aborts nothing",
        method(f"{CONTROLS}._version", _never_aborts),
    ),
    lenient(
        "label-of-the-first-span",
        "VER-54",
        LENIENT,
        "weight_version is the first span's",
        method("fakes.engine.generation:_put_spans", _first_label),
    ),
    lenient(
        "label-of-the-beginning",
        "VER-55",
        LENIENT,
        "weight_version is the one at arrival",
        method("fakes.engine.generation:State.__init__", _remember_label),
        method("fakes.engine.generation:State.batch_output", _label(lambda state, tm: str(state.first_label))),
    ),
    lenient(
        "label-never-moves",
        "VER-56",
        LENIENT,
        "generations say default for ever",
        method("fakes.engine.generation:State.batch_output", _label(lambda state, tm: "default")),
    ),
    lenient(
        "old-route-answers",
        "VER-57",
        LENIENT,
        "get_weight_version answers 200",
        answer("_get_weight_version", lambda c, f: _answer(200, {"weight_version": "default"})),
    ),
    lenient("never-healthy", "LIVE-51", LENIENT, "health is 503", method("fakes.engine.health:probe", _unhealthy)),
    lenient(
        "paused-is-healthy",
        "LIVE-52",
        LENIENT,
        "health is 200 while paused",
        answer("_health", _when_paused(200, None, "empty")),
    ),
    lenient(
        "always-ready",
        "LIVE-53",
        LENIENT,
        "ready is 200 while paused",
        answer("_ready", lambda c, f: _answer(200, None, "empty")),
    ),
    lenient(
        "no-info-while-paused",
        "LIVE-54",
        LENIENT,
        "model_info is 503 while paused",
        answer("_model_info", _when_paused(503, {})),
    ),
    lenient("only-known-tags", "MEM-51", LENIENT, "unknown tags are refused", answer("_release", _only_known_tags)),
    lenient(
        "resume-says-something",
        "MEM-52",
        LENIENT,
        "resume answers an object",
        reply(
            lambda found: (
                _answer(200, {}) if found.status == 200 and found.body is None and found.media == "json" else found
            )
        ),
    ),
    lenient(
        "death-is-not-final",
        "ERR-51",
        LENIENT,
        "a dead engine answers",
        method("fakes.world.fleet:Ticket.refuse", _after_death),
    ),
    lenient("validation-is-422", "ERR-52", "FastAPI's default", "validation answers 422", reply(_unprocessable)),
    lenient("wrong-method-is-404", "ERR-55", LENIENT, "a wrong method is an unknown route", reply(_method_is_a_route)),
    lenient(
        "bogus-action-taken",
        "VERIF-51",
        f"{LENIENT}, D109",
        "the checker takes any action",
        answer("_check", _bogus_is_fine),
    ),
    lenient(
        "checksum-of-nothing",
        "VERIF-52",
        "lightseekorg/tokenspeed#1373",
        "the checksum is a constant",
        method("fakes.engine.checker:WeightChecker.handle", _no_checksum),
    ),
    lenient("zeros-by-name", "VERIF-53", LENIENT, "get_weights_by_name gives zeros", answer("_by_name", _zeros)),
)
