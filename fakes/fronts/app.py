"""The FastAPI application of one engine: SGLang's routes, middleware and documents, every answer the core's own.

FastAPI does what belongs to HTTP alone (matching, 405 with Allow, redirects of slashes, CORS, /docs). A request that
meets a route goes to the core as it came; keys are checked before, for unknown paths too, as SGLang's outermost
middleware does (entrypoints/http_server.py:494-507,2892@0.5.23).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from fakes.engine.auth import Decision
from fakes.engine.control import unauthorised
from fakes.engine.engine_profile import EngineProfile
from fakes.engine.routes import Route
from fakes.fronts import openapi
from fakes.fronts.log import tell
from fakes.fronts.unmodelled import unmodelled

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Answer = Callable[["Request"], Awaitable[Application]]
Decide = Callable[[str, str, str | None], Decision]


def application(profile: EngineProfile, routes: Mapping[str, Route], answer: Answer, decide: Decide) -> FastAPI:
    """`answer` says who answers a matched request; `decide(method, path, bearer)` who may come in."""
    from fastapi import FastAPI, Request, Response
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.responses import JSONResponse

    class Handed(Response):
        media_type = "application/json"  # and no JSONResponse: so SGLang's /generate documents a string

        answerer: Application

        async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
            await self.answerer(scope, receive, send)

    async def endpoint(request: Request) -> Response:
        response = Handed()
        response.answerer = await answer(request)
        return response

    # FastAPI looks annotations up in the module, which does not import it.
    endpoint.__annotations__ = {"request": Request, "return": Response}
    app = FastAPI(**_quiet(FastAPI))
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_credentials=True, allow_methods=["*"], allow_headers=["*"]
    )
    app.add_middleware(_Keys, decide=decide)
    for route in routes.values():
        app.add_api_route(
            route.path,
            endpoint,
            methods=list(route.methods),
            name=route.function,
            response_class=Handed if route.handler == "generate" else JSONResponse,
            response_model=None,
            openapi_extra=openapi.operation(route),
        )
    _document(app, profile)
    _tell_what_is_missing(app, profile)
    return app


def _document(app: FastAPI, profile: EngineProfile) -> None:
    """/openapi.json of the tables, made when it is first asked for."""
    from fastapi.openapi.utils import get_openapi

    made: dict[str, Any] = {}

    def document() -> dict[str, Any]:
        if not made:
            with warnings.catch_warnings():  # of one operation id for both methods of a route: SGLang's own
                warnings.simplefilter("ignore")
                frame = get_openapi(title=app.title, version=app.version, routes=app.routes)
            made.update(openapi.document(profile, frame))
        return made

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way of making one's own


def _tell_what_is_missing(app: FastAPI, profile: EngineProfile) -> None:
    """A 404 for what SGLang would answer must not be taken for SGLang's."""
    missing, default = unmodelled(profile.version), app.router.default

    async def not_found(scope: Message, receive: Receive, send: Send) -> None:
        why = missing.get(scope["path"])
        if why is not None:
            text = f"{scope['method']} {scope['path']}: SGLang {profile.version} answers this, the fake does not: {why}"
            tell(f"refitcheck: {text}")
        await default(scope, receive, send)

    app.router.default = not_found


def _quiet(kind: type) -> dict[str, Any]:
    """Newer FastAPI traces every request by itself; SGLang turns that off, too (observability/trace.py:276@0.5.23)."""
    if "telemetry" not in inspect.signature(kind).parameters:
        return {}
    return {"telemetry": {"tracing": False, "metrics": False, "logs": False}}


class _Keys:
    """Refuses before anything is read or matched; its answers carry no CORS headers, as SGLang's."""

    def __init__(self, app: Application, decide: Decide) -> None:
        self._app, self._decide = app, decide

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        from fastapi.responses import JSONResponse, PlainTextResponse

        if scope["type"] != "http":
            raise RuntimeError(f"this server speaks HTTP only, not {scope['type']}")
        decision = self._decide(scope["method"], scope["path"], bearer(scope["headers"]))
        if decision == "allowed":
            await self._app(scope, receive, send)
            return
        said = unauthorised(decision)
        response = (PlainTextResponse if said.media == "text" else JSONResponse)(said.body, said.status)
        await response(scope, receive, send)


def bearer(headers: list[tuple[bytes, bytes]]) -> str | None:
    """What follows "Bearer " in the Authorization header."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1")
    return None
