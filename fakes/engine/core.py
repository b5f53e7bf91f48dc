"""The engine core: tokenizer manager, scheduler, and the channel between them, without any I/O.

`step(event, now)` takes what happened and gives back what follows; `next_deadline()` says when to come back. Virtual
seconds throughout. A scheduler that raised is dead at once, but the engine lives on for the profile's delay: at first
the
HTTP process still answers what needs no scheduler, then its SIGQUIT handler sleeps on the event loop and nothing
answers
(seen: /model_info hangs), then the whole tree is gone (`Die`) and every later event is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from fakes.engine import messages as m
from fakes.engine.auth import decide
from fakes.engine.control import (
    Answer,
    Controls,
    error_response,
    internal_error,
    not_found,
    stream_error,
    unauthorised,
    wrong_method,
)
from fakes.engine.crash import Crash, TokenizerCrash
from fakes.engine.generate_batch import GenerateRequest, build
from fakes.engine.generate_contract import Refused, check_contract
from fakes.engine.generate_features import refusal, refuse_at_once
from fakes.engine.generate_schema import check_schema
from fakes.engine.generation import Generator, State
from fakes.engine.json_body import Unreadable, decode_json, is_json
from fakes.engine.loop import Cancelled, Loop, Task
from fakes.engine.profiles import profile as profile_of
from fakes.engine.protocol import (
    Broken,
    Call,
    Cancel,
    Die,
    Done,
    Effect,
    EngineConfig,
    Event,
    Freeze,
    Observed,
    Opened,
    Raised,
    Reply,
    Token,
)
from fakes.engine.requests import LITERALS, Struct, structs
from fakes.engine.routes import Route, routes
from fakes.engine.scheduler import Scheduler
from fakes.engine.tokenizer_manager import TokenizerManager
from fakes.engine.validation import NULL, Invalid, flush_timeout, missing_body, parse


class EngineCore:
    """One engine of one version.

    weights: HF names to arrays, full shapes. model_config: the model's config.json.
    """

    def __init__(self, config: EngineConfig, weights: Mapping[str, np.ndarray], model_config: dict[str, Any]) -> None:
        self.config = config
        self.profile = profile_of(config.profile)
        self._effects: list[Effect] = []
        self._next_id = 0
        self._loop = Loop()
        self._routes: dict[str, Route] = routes(self.profile)
        self._vocab_size = int(model_config["vocab_size"])
        self._structs: dict[str, Struct] = structs(self.profile)
        self._open: dict[int, Task[Any]] = {}
        self._gone: set[int] = set()
        self._states: dict[int, dict[str, State]] = {}
        self._streams: set[int] = set()
        self._opened: set[int] = set()
        self._crash: Crash | None = None
        self._crashed_at = 0.0
        self._froze = False
        self.dead = False
        self.scheduler = Scheduler(
            config,
            self.profile,
            weights,
            model_config,
            send=self._to_tokenizer,
            emit=self._effects.append,
            next_id=self._new_id,
        )
        self._tm = TokenizerManager(
            config, self.profile, self._loop, send=self._to_scheduler, emit=self._effects.append
        )
        self._tm.load_snapshot = lambda: self.scheduler.load.snapshot
        generator = Generator(
            self._tm,
            context_len=int(model_config["max_position_embeddings"]),
            max_req_len=config.max_total_tokens,
        )
        self._controls = Controls(self._tm, generator, model_config)

    @property
    def paused(self) -> bool:
        """Whether new generations are held back, in any mode."""
        return self._tm.is_pause

    def step(self, event: Event, now: float) -> list[Effect]:
        """What follows from `event` at `now` (virtual seconds, never before the last one)."""
        if self.dead:
            return []
        self._loop.now = max(self._loop.now, now)
        if isinstance(event, Call):
            if not self._frozen(now):  # nobody reads the socket any more
                self._call(event)
        elif isinstance(event, Done):
            self.scheduler.done(event)
        elif isinstance(event, Cancel):
            self._cancel(event.id)
        self._pump(now)
        effects, self._effects[:] = list(self._effects), []
        return effects

    def next_deadline(self) -> float | None:
        """When a `Tick` is due, or None while nothing happens by itself."""
        if self.dead:
            return None
        times: list[float | None] = []
        if self._crash is not None:
            times.append(self._dies_at() if self._froze else self._frozen_at())
        if not self._frozen(self._loop.now):
            times.append(self._loop.next_deadline())
        if self._crash is None:
            times.append(self.scheduler.next_deadline())
        return min((t for t in times if t is not None), default=None)

    @property
    def released_tags(self) -> list[str]:
        """Memory tags that are released now."""
        return self.scheduler.memory.released()

    def state_id(self) -> str:
        """16 hex digits of the content of all parameters of all ranks."""
        return self.scheduler.state_id()

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _to_tokenizer(self, op: str, payload: Any) -> None:
        """What the tokenizer manager's receive loop raises ends its process (print_exception_wrapper,
        managers/tokenizer_manager.py:4034@0.5.23)."""
        try:
            self._tm.receive(op, payload)
        except TokenizerCrash:
            raise
        except Exception as error:
            raise TokenizerCrash(type(error).__name__, str(error), alive=True) from error

    def _to_scheduler(self, op: str, obj: dict[str, Any]) -> None:
        self.scheduler.inbox.append((op, obj))

    def _pump(self, now: float) -> None:
        """Run both machines until neither has anything to do at `now`."""
        loop, scheduler = self._loop, self.scheduler
        while True:
            if self._crash is not None and now >= self._dies_at():
                self._bury()
                self._effects.append(Die(rank=self._crash.rank, error=self._crash.raised))
                return
            if self._frozen(now):
                self._freeze()
            ran = not self._frozen(now) and loop.run(now)
            if self._crash is None:
                try:
                    ran = scheduler.run(now) or ran
                except Exception as error:
                    self._crash, self._crashed_at = _as_crash(error), now
                    raised = self._crash.raised
                    scheduler.observe("raise", rank=self._crash.rank, type=raised.type, message=raised.message)
                    ran = True
            if not ran and not loop.ready:
                return
            if self._frozen(now):
                self._freeze()
                return

    def _freeze(self) -> None:
        if not self._froze:
            self._froze = True
            self._effects.append(Freeze(self._dies_at()))

    def _bury(self) -> None:
        """The process tree is gone, with everything that was under way in it."""
        self.dead = True
        for task in list(self._open.values()):
            task.close()
        self._open.clear()

    def _dies_at(self) -> float:
        assert self._crash is not None
        wait = self.profile.coredump_wait_s if self._crash.alive else 0.0
        return self._frozen_at() + self.profile.freeze_s + wait

    def _frozen_at(self) -> float:
        """When the HTTP process stops: at the signal, or at once when it is the one that crashed."""
        assert self._crash is not None
        signal = 0.0 if isinstance(self._crash, TokenizerCrash) else self.profile.signal_delay_s
        return self._crashed_at + signal + self._crash.extra_delay_s

    def _frozen(self, now: float) -> bool:
        """Whether the SIGQUIT handler holds the HTTP process."""
        return self._crash is not None and now >= self._frozen_at()

    def _cancel(self, call_id: int) -> None:
        """SGLang looks for a client that went away in generations only; control calls go on."""
        task = self._open.get(call_id)
        if task is None:
            return
        self._gone.add(call_id)
        if call_id in self._states:
            self._controls.disconnect(task, self._states[call_id], stream=call_id in self._streams)

    def _call(self, call: Call) -> None:
        try:
            answer = self._route(call)
        except Invalid as invalid:
            answer = Answer(400, invalid.body)
        except Refused as refused:
            answer = Answer(400, refused.body)
        except Unreadable:
            answer = error_response(m.UNREADABLE_BODY.text, 400)
        except ValueError as refused:
            raised = Raised("ValueError", str(refused))
            answer = Answer(400, {"error": {"message": str(refused)}}, value=raised)
        except Exception as broken:  # a body that Python itself trips over: Starlette answers for the endpoint
            answer = internal_error(broken)
        if answer is not None:
            self._reply(call.id, answer)

    def _reply(self, call_id: int, answer: Answer) -> None:
        streams = call_id in self._opened
        self._opened.discard(call_id)
        if call_id in self._gone:
            self._gone.discard(call_id)
            return
        if streams and answer.status != 200:  # Starlette raises it on, and uvicorn can but close the connection
            self._effects.append(Broken(call_id, answer.value))
            return
        if self.profile.structs == "dataclass" and not _encodable(answer.body):
            answer = internal_error(TypeError("str is not valid UTF-8: surrogates not allowed"))
        self._effects.append(
            Reply(id=call_id, status=answer.status, body=answer.body, media=answer.media, value=answer.value)
        )

    def _route(self, call: Call) -> Answer | None:
        """Answer at once what never reaches a handler; else start the handler and return None."""
        route = self._routes.get(call.path)
        if call.via == "engine":
            return self._engine_call(call)
        decision = decide(self.profile, self.config, self._routes, call.method, call.path, call.bearer)
        if decision != "allowed":
            return unauthorised(decision)
        if route is None:
            slashes = call.path.rstrip("/") in self._routes  # nothing but slashes too many
            return Answer(307, None, "empty") if slashes else not_found()
        if call.method not in route.methods:
            return wrong_method()
        if route.handler == "flush_cache":
            return self._started(call, route.handler, {"timeout": flush_timeout(route, call.method, call.query)})
        if route.body is None:
            return self._started(call, route.handler, None)
        body = call.body
        if isinstance(body, bytes | bytearray):
            raw = bytes(body)
            body = decode_json(self.profile, route, call.method, raw) if is_json(call.content_type) else raw or None
            if body is None and raw:
                body = NULL
        if route.handler == "generate":
            return self._generate(call, route, body)
        fields = parse(self.profile, route, call.method, self._structs[route.body], body)
        if fields is None:
            fields = {f.name: f.default for f in self._structs[route.body].fields}
        return self._started(call, route.handler, fields)

    def _engine_call(self, call: Call) -> Answer | None:
        """A call of `sglang.Engine`: the fields of the request struct, unchecked; unknown ones are a TypeError."""
        route = self._routes.get(call.path)
        given = dict(call.body or {})
        if route is None:
            name = call.path.lstrip("/")
            return Answer(404, None, value=Raised("AttributeError", f"'Engine' object has no attribute '{name}'"))
        if route.handler == "generate":
            return self._generating(call, self._build(given), stream=bool(given.get("stream")))
        if route.handler == "flush_cache":
            return self._started(call, route.handler, {"timeout": float(given.get("timeout_s") or 0.0)})
        if route.body is None:
            return self._started(call, route.handler, None)
        struct = self._structs[route.body]
        known = {f.name: f.default for f in struct.fields}
        for name in given:
            if name not in known:
                return Answer(500, None, value=Raised("TypeError", f"Unexpected keyword argument '{name}'"))
        mode = given.get("mode", "abort")  # of a pause: nothing else has one
        if self.profile.structs == "dataclass" and mode not in LITERALS["mode"]:
            return Answer(500, None, value=Raised("ValueError", m.BAD_MODE(mode=mode)))
        return self._started(call, route.handler, {**known, **given})

    def _generate(self, call: Call, route: Route, body: Any) -> Answer | None:
        if body is None:
            raise Invalid(route, call.method, [missing_body()])
        fields = check_schema(self.profile, route, call.method, None if body is NULL else body)
        if self.profile.generate_gate:
            check_contract(self.profile, body)
        if fields.get("stream"):
            self._opened.add(call.id)
            self._effects.append(Opened(call.id))
            try:
                request = self._build(fields)
            except ValueError as refused:
                self._effects.append(Token(id=call.id, chunk=stream_error(self.profile, str(refused))))
                return Answer(200, None, "empty")
            return self._generating(call, request, stream=True)
        return self._generating(call, self._build(fields), stream=False)

    def _build(self, fields: Mapping[str, Any]) -> GenerateRequest:
        """ValueError for what is refused before the request waits for a pause."""
        request = build(fields)
        refuse_at_once(self.profile, fields)
        request.refusal = refusal(self.profile, fields, self._vocab_size, lora=self.config.enable_lora)
        return request

    def _generating(self, call: Call, request: Any, *, stream: bool) -> Answer | None:
        states: dict[str, State] = {}
        self._states[call.id] = states
        if stream:
            self._streams.add(call.id)

        def emit(chunk: Any) -> None:
            self._effects.append(Token(id=call.id, chunk=chunk))

        self._spawn(call.id, self._controls.generate(request, emit if stream else None, states))
        return None

    def _started(self, call: Call, handler: str, fields: Any) -> Answer | None:
        self._spawn(call.id, self._controls.handlers[handler](fields))
        return None

    def _spawn(self, call_id: int, coro: Any) -> None:
        task: Task[Answer] = self._loop.spawn(coro)
        self._open[call_id] = task

        def finished() -> None:
            self._open.pop(call_id, None)
            self._states.pop(call_id, None)
            self._streams.discard(call_id)
            try:
                answer = task.result()
            except (Exception, Cancelled) as error:
                answer = internal_error(error)
            self._reply(call_id, answer)

        task.add_callback(finished)


def _encodable(body: Any) -> bool:
    """Whether a response can be written: up to 0.5.12 a lone surrogate of the request gets as far as this."""
    try:
        msgspec.json.encode(body)
    except UnicodeEncodeError:
        return False
    return True


def _as_crash(error: Exception) -> Crash:
    """What a scheduler raised. An exception that nobody foresaw kills it like any other: SGLang catches none."""
    return error if isinstance(error, Crash) else Crash(type(error).__name__, str(error))


__all__ = ["EngineCore", "Observed"]
