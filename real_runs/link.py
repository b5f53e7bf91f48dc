"""Calls to a real server, as the gate's loop wants them: submit, wait, cancel, kill, on the real clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fakes.outcome import Outcome
from harness.passage import Request
from real_runs.client import Exchange
from real_runs.server import Server

# A call that its caller does not cancel may take this long: longer than any deadline of a scenario.
LONGEST_CALL_S = 900.0


class HttpReply:
    """One HTTP call under way in a thread of its own."""

    def __init__(self, exchange: Exchange, on_done: Callable[[Outcome], None] | None) -> None:
        self._exchange, self._on_done = exchange, on_done
        self._outcome: Outcome | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        outcome = self._exchange.run()
        self._outcome = outcome
        self._ended.set()
        if self._on_done is not None and not self._exchange.cancelled:
            self._on_done(outcome)

    @property
    def done(self) -> bool:
        """Whether its end is known."""
        return self._ended.is_set()

    def wait(self, timeout_s: float) -> Outcome:
        """Its end, at most `timeout_s` seconds from now (then ending "timeout")."""
        if self._ended.wait(timeout_s) and self._outcome is not None:
            return self._outcome
        return Outcome(ending="timeout", error=f"no answer within {timeout_s:g} s", elapsed_s=timeout_s)

    def cancel(self) -> None:
        """Close the connection."""
        self._exchange.cancel()


class HttpLink:
    """The way to one real server; it follows the server into its next incarnations."""

    def __init__(self, server: Server, now: Callable[[], float]) -> None:
        self._server, self._now = server, now

    def submit(self, request: Request, on_done: Callable[[Outcome], None] | None = None) -> HttpReply:
        """Send it; `on_done` runs in the call's thread."""
        raw = request.body if isinstance(request.body, bytes) else None
        exchange = self._server.client.exchange(
            request.method,
            request.op,
            None if raw is not None else request.body,
            raw=raw,
            query=request.query,
            bearer=request.bearer,
            timeout_s=LONGEST_CALL_S,
        )
        return HttpReply(exchange, on_done)

    def kill(self) -> None:
        """End the whole process group."""
        self._server.stop()

    def now(self) -> float:
        """Seconds of the lane's clock."""
        return self._now()

    def sleep(self, seconds: float) -> None:
        """Real seconds."""
        time.sleep(seconds)

    def spawn(self, work: Callable[[], None]) -> Callable[[], None]:
        """A thread; the returned function joins it and raises what it raised."""
        raised: list[BaseException] = []

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()

        def join() -> None:
            thread.join()
            if raised:
                raise raised[0]

        return join
