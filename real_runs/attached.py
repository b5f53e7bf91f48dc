"""Servers that somebody else started: found by url, looked at once, cleaned and used, never started and never ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fakes.engine.profiles import PROFILES
from fakes.outcome import Outcome
from harness.errors import Unsupported, UsageError
from harness.words import quoted
from real_runs.cleaning import Cleaner
from real_runs.client import HttpClient
from real_runs.models import TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.pool import Held
from real_runs.preflight import Finding
from real_runs.server import ServerError, ServerSpec

LOOK_S = 10.0


@dataclass(frozen=True)
class About:
    """What a server says of itself."""

    url: str
    version: str
    tp: int
    model: str
    dtype: str
    model_type: str
    weight_version: str


class Attached:
    """One of them, where a `real_runs.server.Server` is expected. Its log is its own affair."""

    starts_s: tuple[float, ...] = ()

    def __init__(self, about: About, spec: ServerSpec) -> None:
        self.about, self.spec = about, spec
        self.client = client_of(about.url)
        self.log_path = Path(about.url)
        self.command: list[str] = []

    @property
    def alive(self) -> bool:
        """Whether anybody listens."""
        return listens(self.client)

    def stop(self) -> None:
        """To end it is its owner's business. Unsupported."""
        raise Unsupported(f"{self.about.url} is attached to, not started here: it is neither killed nor restarted")


class AttachedPool:
    """As much of `real_runs.pool.ServerPool` as a lane asks for, over servers that are there."""

    starts = 0

    def __init__(self, found: list[About], payloads: Callable[[], TorchPayloads], api_key: str | None = None) -> None:
        self._found, self._payloads, self._api_key = found, payloads, api_key
        self._held: dict[str, Held] = {}
        self.on_start: Callable[[Any], None] = lambda server: None

    def take(self, spec: ServerSpec, model: TinyModel, seed: int, purpose: str = "") -> Held:
        """A clean one that no engine of this scenario is yet. Unsupported where all are, ServerError for one that is
        gone or does not come clean."""
        for about in self._found:
            held = self._held.get(about.url)
            if held is None:
                server: Any = Attached(about, spec)
                cleaner = Cleaner(server, model, about.weight_version, self._payloads)
                held = self._held[about.url] = Held(server, cleaner, (spec, purpose), used=False, fresh=True)
            if not held.used:
                held.used = True
                try:
                    self.clean(held, seed)
                except BaseException:
                    held.used = False
                    raise
                return held
        raise Unsupported(f"{len(self._found)} servers are attached to, all of them are in use: give more with url=")

    def clean(self, held: Held, seed: int) -> None:
        """Reset it."""
        if not held.server.alive:
            raise ServerError(f"{held.server.log_path}: nobody listens any more")
        if not held.cleaner.reset(seed):
            raise ServerError(f"{held.server.log_path} does not come clean; its own log may say why")

    def start(self, held: Held) -> None:
        """Unsupported."""
        held.server.stop()

    def prepare(self, spec: ServerSpec) -> None:
        """Nothing is started ahead of its need."""

    def give_back(self, held: Held) -> None:
        """The scenario is over."""
        held.used = held.fresh = False

    def drop(self, held: Held) -> None:
        """It is looked at anew when it is next asked for."""
        held.used = False

    def close(self) -> None:
        """They live on."""
        self._held.clear()


def client_of(url: str) -> HttpClient:
    """UsageError for a url that is not http://HOST:PORT."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path not in ("", "/") or parts.query:
        raise UsageError(f"url {quoted(url, 100)} is not http://HOST:PORT")
    return HttpClient(port, parts.hostname)


def listens(client: HttpClient) -> bool:
    """Whether a connection can be made."""
    try:
        with socket.create_connection((client.host, client.port), timeout=LOOK_S):
            return True
    except OSError:
        return False


def look(url: str, bearer: str | None = None) -> About | Finding:
    """What a server says of itself, or the one line that says what is wrong with it."""
    client = client_of(url)

    def ask(op: str) -> Outcome:
        return client.request("GET", op, bearer=bearer, timeout_s=LOOK_S)

    server, model = ask("get_server_info"), ask("model_info")
    for said, op in ((server, "get_server_info"), (model, "model_info")):
        if not said.ok or not isinstance(said.body, dict):
            told = said.text if said.ending != "reply" else f"{said.status} {said.text}"
            return Finding(url, False, f"GET /{op}: {quoted(told, 120)}")
    try:
        return About(
            url=url.rstrip("/"),
            version=str(server.body["version"]),
            tp=int(server.body["tp_size"]),
            model=str(model.body["model_path"]),
            dtype=str(server.body["dtype"]),
            model_type=str(model.body.get("model_type", "")),
            weight_version=str(model.body["weight_version"]),
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        return Finding(url, False, f"it does not say what it is: {type(error).__name__} {quoted(error, 60)}")


def preflight(urls: list[str], bearer: str | None = None) -> tuple[list[About], list[Finding]]:
    """The servers, and everything that is wrong with them: unreachable, unknown, or not alike."""
    found: list[About] = []
    wrong: list[Finding] = []
    for url in urls:
        one = look(url, bearer)
        if isinstance(one, Finding):
            wrong.append(one)
        else:
            found.append(one)
    for about in found:
        if about.version not in PROFILES:
            wrong.append(Finding(about.url, False, f"sglang {quoted(about.version, 40)} is no version that rules know"))
        first = found[0]
        if (about.version, about.tp, about.model) != (first.version, first.tp, first.model):
            said = f"sglang {about.version} tp {about.tp} {about.model}"
            wrong.append(Finding(about.url, False, f"{quoted(said, 120)} is not what {first.url} serves"))
    return found, wrong
