"""A small scripted core: what World and the fronts need of an engine, before and beside the real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fakes.engine.profiles import PROFILES
from fakes.engine.protocol import (
    Broken,
    Call,
    Cancel,
    Die,
    Done,
    Effect,
    Event,
    Freeze,
    Join,
    Observed,
    Opened,
    OpenPayload,
    Raised,
    Reply,
    Tick,
    Token,
)
from fakes.engine.routes import Route, routes


def _mapping(body: Any) -> dict[str, Any]:
    if isinstance(body, bytes):
        try:
            body = json.loads(body)
        except ValueError:
            return {}
    return body if isinstance(body, dict) else {}


def _open_routes() -> dict[str, Route]:
    """An HTTP front asks a core for them."""
    paths = ("in", "hang", "die", "stream", "open", "request", "cancelled", "text", "empty", "tick_for_ever", "freeze")
    paths += ("hanging", "answer_and_freeze", "begins", "breaks")
    every = ("GET", "POST", "PUT", "DELETE")
    own = {
        f"/{name}": Route(
            path=f"/{name}", methods=every, handler=name, function=name, auth="normal", body=None, body_optional=False,
            line=1,
        )
        for name in paths
    }  # fmt: skip
    return {**routes(PROFILES["0.5.23"]), **own}


class ScriptedCore:
    """/in {s} answers after s; /hang never; /die {after}; /freeze {after, s}; /stream {n, every}; /open, /join: I/O.

    /begins opens a stream and says nothing; /breaks closes one after its first event, 1 s later.
    /hanging counts the calls that hang; /answer_and_freeze {s} answers them and freezes in the same step. Others at
    once.
    """

    routes = _open_routes()

    def __init__(self, config: Any = None, weights: Any = None, model_config: Any = None) -> None:
        self.dead = False
        self.events: list[tuple[float, Event]] = []
        self.cancelled: list[int] = []
        self.hanging: list[int] = []
        self._due: list[tuple[float, int, Callable[[], list[Effect]]]] = []
        self._n = 0
        self._io: dict[int, int] = {}

    def _at(self, when: float, make: Callable[[], list[Effect]]) -> None:
        self._n += 1
        self._due.append((when, self._n, make))
        self._due.sort(key=lambda item: item[:2])

    def next_deadline(self) -> float | None:
        return self._due[0][0] if self._due else None

    def step(self, event: Event, now: float) -> list[Effect]:
        self.events.append((now, event))
        if isinstance(event, Tick):
            due, self._due = [d for d in self._due if d[0] <= now], [d for d in self._due if d[0] > now]
            return [effect for _, _, make in due for effect in make()]
        if isinstance(event, Cancel):
            self.cancelled.append(event.id)
            self.hanging = [call for call in self.hanging if call != event.id]
            return []
        if isinstance(event, Done):
            body = {"error": event.error.type} if event.error else {"value": event.value}
            return [Reply(id=self._io.pop(event.id), status=400 if event.error else 200, body=body)]
        assert isinstance(event, Call)
        return self._call(event, now)

    def _call(self, call: Call, now: float) -> list[Effect]:
        body = _mapping(call.body)
        path = call.path
        if path == "/in":
            self._at(now + body["s"], lambda: [Reply(id=call.id, status=200, body={"after": body["s"]})])
        elif path == "/die":
            self._at(now + body["after"], lambda: [self._die()])
            return [Observed("raise", {"rank": 0, "type": "AssertionError", "message": "boom"})]
        elif path == "/freeze":
            self._at(now + body["after"] + body["s"], lambda: [self._die()])
            self._at(now + body["after"], lambda: [Freeze(now + body["after"] + body["s"])])
        elif path == "/stream":
            for i in range(body["n"]):
                self._at(now + body["every"] * (i + 1), lambda i=i: [Token(id=call.id, chunk={"i": i})])
            last = now + body["every"] * body["n"]
            self._at(last, lambda: [Reply(id=call.id, status=200, media="empty")])
        elif path == "/breaks":
            self._at(now + 1.0, lambda: [Token(id=call.id, chunk={"i": 0})])
            self._at(now + 2.0, lambda: [Broken(call.id, Raised("TypeError", "planted"))])
            return [Opened(call.id)]
        elif path == "/begins":
            return [Opened(call.id)]
        elif path == "/open":
            self._io[900 + call.id] = call.id
            return [OpenPayload(id=900 + call.id, rank=0, data=b"", load_format=None)]
        elif path == "/join":
            self._io[900 + call.id] = call.id
            group = {"master_address": "127.0.0.1", "master_port": 1, "group_rank": 1, "world_size": 2}
            return [Join(id=900 + call.id, rank=0, group_name="g", backend="gloo", **group)]
        elif path == "/tick_for_ever":
            self._poll(now, every=0.0)
        elif path == "/poll":
            self._poll(now, every=1.0)
        elif path == "/generate":
            return self._generate(call, body, now)
        elif path == "/get_weights_by_name":
            return [Reply(id=call.id, status=200, value=Raised(body["name"], "no such parameter"))]
        elif path == "/release_memory_occupation":
            self._at(now + 5.0, lambda: [self._die()])
        elif path == "/request":
            raw = call.body.decode() if isinstance(call.body, bytes) else call.body
            said = {"method": call.method, "query": call.query, "bearer": call.bearer, "body": raw}
            said["content_type"] = call.content_type
            return [Reply(id=call.id, status=201, body=said)]
        elif path == "/hanging":
            return [Reply(id=call.id, status=200, body=len(self.hanging))]
        elif path == "/hang":
            self.hanging.append(call.id)
        elif path == "/answer_and_freeze":
            self._at(now + body["s"], lambda: [self._die()])
            answers: list[Effect] = [Reply(id=held, status=200, body="at last") for held in self.hanging]
            return [*answers, Freeze(now + body["s"])]
        elif path == "/cancelled":
            return [Reply(id=call.id, status=200, body=len(self.cancelled))]
        elif path == "/text":
            return [Reply(id=call.id, status=400, body="no\n", media="text")]
        elif path == "/empty":
            return [Reply(id=call.id, status=503, media="empty")]
        else:
            return [Reply(id=call.id, status=200, body={"path": path, "body": call.body}, value=("ok", call.via))]
        return []

    def _generate(self, call: Call, body: dict[str, Any], now: float) -> list[Effect]:
        n = body["sampling_params"]["max_new_tokens"]
        if body.get("stream"):
            for i in range(n):
                self._at(now + 1.0 + i, lambda i=i: [Token(id=call.id, chunk={"output_ids": list(range(i + 1))})])
            self._at(now + n, lambda: [Reply(id=call.id, status=200, media="empty")])
        else:
            answer = {"output_ids": list(range(n)), "fields": body}
            self._at(now + n, lambda: [Reply(id=call.id, status=200, body=answer, value=answer)])
        return []

    def _poll(self, now: float, every: float) -> None:
        def again() -> list[Effect]:
            self._poll(now + every, every)
            return []

        self._at(now + every, again)

    def _die(self) -> Die:
        self.dead = True
        return Die(rank=0, error=Raised("AssertionError", "boom"))
