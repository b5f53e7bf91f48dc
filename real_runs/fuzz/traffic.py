"""Generations in the background, on both sides of a comparison: streamed, so that one sees when they go on.

On a real server no time is right for all machines: a pause between two calls ends as soon as every generation has sent
another chunk, and takes long only where none can. In virtual time it is what the sequence says.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fakes.outcome import Outcome
from real_runs.client import decode
from real_runs.fuzz.draft import GO_ON_S
from real_runs.recipes import fill
from real_runs.recorder import RealPort
from real_runs.replaying import FakePort, streamed
from real_runs.sequence import Step
from real_runs.server import free_port

PATIENCE_S = 10.0
"""How long generations get to go on."""
POLL_S = 0.002


def last_chunk(outcome: Outcome) -> Outcome:
    """A stream's answer as one without a stream has it: chunks hold all tokens so far."""
    body = outcome.body
    if not isinstance(body, Mapping) or "stream" not in body:
        return outcome
    chunks = [chunk for chunk in body["stream"] if chunk != "[DONE]"]
    return msgspec.structs.replace(outcome, body=chunks[-1] if chunks else None)


def with_port(step: Step, port: Callable[[], int]) -> Step:
    """The step with a port that nobody uses in the place of `{"$port": ...}`."""
    if not isinstance(step.body, dict) or not isinstance(step.body.get("master_port"), dict):
        return step
    return msgspec.structs.replace(step, body={**step.body, "master_port": port()})


class Stream:
    """One call in a thread, read line by line. `events` counts what has come of an event stream."""

    def __init__(self, address: tuple[str, int], step: Step, body: bytes, settle: Callable[[], None]) -> None:
        self.events = 0
        self._settle = settle
        self._outcome: Outcome | None = None
        self._connection = http.client.HTTPConnection(*address, timeout=step.timeout_s)
        self._thread = threading.Thread(target=self._work, args=(step, body), daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._outcome is not None

    def result(self, timeout_s: float) -> Outcome:
        """The outcome, at most `timeout_s` seconds from now."""
        self._thread.join(timeout_s)
        self._settle()
        return self._outcome or Outcome(ending="timeout", error=f"not done after {timeout_s} s", elapsed_s=timeout_s)

    def _work(self, step: Step, body: bytes) -> None:
        began = time.monotonic()
        try:
            ended = self._read(step, body)
        except ConnectionRefusedError as error:
            ended = Outcome(ending="refused", error=str(error))
        except TimeoutError as error:
            ended = Outcome(ending="timeout", error=str(error))
        except (OSError, http.client.HTTPException) as error:
            ended = Outcome(ending="dropped", error=f"{type(error).__name__}: {error}")
        finally:
            self._connection.close()
        self._outcome = msgspec.structs.replace(ended, elapsed_s=time.monotonic() - began)

    def _read(self, step: Step, body: bytes) -> Outcome:
        self._connection.request(step.method, "/" + step.op, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        lines = []
        for line in response:
            lines.append(line)
            self.events += line.startswith(b"data: ")
        content_type = response.headers.get("content-type", "")
        if content_type.startswith("text/event-stream") and not any(b"[DONE]" in line for line in lines[-3:]):
            return Outcome(ending="dropped", error="the stream has no end")
        return last_chunk(Outcome(ending="reply", status=response.status, body=decode(content_type, b"".join(lines))))


class LivePort(RealPort):
    """A real server whose generations are watched."""

    def __init__(self, server: Any, model: Any) -> None:
        super().__init__(server, model)
        self._live: list[Stream] = []

    def request(self, step: Step) -> Outcome:
        """One call."""
        outcome: Outcome = self._prepared(step)()
        if step.op == "generate":
            self._settle()
        return outcome

    def start(self, step: Step) -> Any:
        """A generation that streams; other calls as they are."""
        if step.op != "generate" or not isinstance(step.body, dict) or not step.body.get("stream"):
            return super().start(step)
        body = msgspec.json.encode(fill(step.body, self._model, self.payloads.one, self._model.folder))
        client = self._server.client
        stream = Stream((client.host, client.port), step, body, self._settle)
        self._live.append(stream)
        return stream

    def _settle(self) -> None:
        """Let the scheduler put a finished request away, which it does a moment after the client has the answer. Two
        questions to it, one after the other, take it at least once around its loop."""
        for _ in range(2):
            self._server.client.request("GET", "server_info", timeout_s=5.0)

    def _prepared(self, step: Step) -> Any:
        return super()._prepared(with_port(step, free_port))

    def sleep(self, seconds: float) -> None:
        """Until every generation has gone on, where the sequence means that; else as long as it says."""
        self._live = [stream for stream in self._live if not stream.done]
        if seconds < GO_ON_S:
            time.sleep(seconds)
            return
        until = time.monotonic() + PATIENCE_S
        before = [(stream, stream.events) for stream in self._live]
        while time.monotonic() < until and any(not s.done and s.events == n for s, n in before):
            time.sleep(POLL_S)


class VirtualPort(FakePort):
    """A fake whose streams end as those of `LivePort` do, and which says in which state every call met it."""

    def __init__(self, world: Any, server: Any, registry: Any, model: Any) -> None:
        super().__init__(world, server, registry, model)
        self._core = server.engine.core
        self._generations: list[Any] = []
        self._mode, self._port = "", 29000
        self.states: list[str] = []

    def request(self, step: Step) -> Outcome:
        """One call."""
        self.states.append(self._state())
        outcome = super().request(step)
        if step.op == "pause_generation" and outcome.status == 200:
            self._mode = str((step.body or {}).get("mode", "abort"))
        return outcome

    def start(self, step: Step) -> Any:
        """In the background."""
        self.states.append(self._state())
        call = self._send(step)
        if step.op == "generate":
            self._generations.append(call)
        return _LastChunk(call)

    def _send(self, step: Step) -> Any:
        self._port += 1
        return super()._send(with_port(step, lambda: self._port))

    def _state(self) -> str:
        scheduler, batch = self._core.scheduler, self._core.scheduler.batch
        self._generations = [call for call in self._generations if not call.done]
        pause = self._mode if self._core.paused else "free"
        traffic = "running" if any(r.finish is None for r in batch.in_flight()) else "idle"
        if traffic == "idle" and self._generations:
            traffic = "queued" if batch.waiting else "held"
        if pause == "retract" and traffic == "running":
            traffic = "queued"  # it has not heard of the pause yet, but will before anything that comes now
        session = "open" if scheduler.updater.session is not None else "closed"
        return f"{pause} {traffic}, {session}{', released' if scheduler.memory.released() else ''}"


class _LastChunk:
    def __init__(self, call: Any) -> None:
        self._call = call

    def result(self, timeout_s: float) -> Outcome:
        """Its outcome."""
        return last_chunk(streamed(self._call, self._call.result(timeout_s)))


__all__ = ["LivePort", "VirtualPort", "last_chunk"]
