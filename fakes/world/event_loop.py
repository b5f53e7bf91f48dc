"""asyncio in virtual time: a loop whose idle moments are the world's, and a way to await calls on any loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from fakes.world.baton import Baton, DeadlockError

if TYPE_CHECKING:
    from fakes.world.fleet import Ticket

T = TypeVar("T")


class WorldEventLoop(asyncio.BaseEventLoop):
    """An asyncio loop of one participant. Its time is the world's; where others poll sockets it hands the baton back.

    It has no sockets, no subprocesses and no signals. `run_in_executor` runs the function as a participant.
    """

    def __init__(self, baton: Baton) -> None:
        super().__init__()
        self._baton = baton
        self._selector = self
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds."""
        return self._baton.now

    def select(self, timeout: float | None) -> list[Any]:
        """What `_run_once` asks its selector: wait until a callback is ready or `timeout` virtual seconds are over."""
        if timeout is None or timeout > 0:
            until = None if timeout is None else self._baton.now + timeout
            names = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self)))
            # `_ready` is the base loop's queue of callbacks, which the type stubs do not show.
            self._baton.block(lambda: bool(self._ready), until, f"asyncio ({names})")  # type: ignore[attr-defined]  # asyncio keeps it so
        return []

    # The stubs have a variadic type here that this signature cannot name; the arguments are the same.
    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run `func(*args)` as a participant; the executor is ignored."""
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                self.call_soon_threadsafe(_settle, future, None, error)
            else:
                self.call_soon_threadsafe(_settle, future, result, None)

        self._baton.spawn(work, name=getattr(func, "__name__", "executor"))
        return future

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run(baton: Baton, coroutine: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time."""
    with asyncio.Runner(loop_factory=lambda: WorldEventLoop(baton)) as runner:
        return runner.run(coroutine)


async def changed(baton: Baton, ticket: Ticket, seen: int) -> None:
    """Wait until `ticket` has more than `seen` chunks or has ended. Cancelling closes the call.

    On a `WorldEventLoop` other tasks and timers go on meanwhile. On any other loop virtual time passes only while
    that loop has nothing else to do; its own timers stay real.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    ticket.on_change(lambda t: _wake(loop, future, t, seen))
    if not isinstance(loop, WorldEventLoop):
        _Pump.of(loop, baton).add(ticket, future, seen)
    try:
        await future
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None], ticket: Ticket, seen: int) -> None:
    if not future.done() and not loop.is_closed() and (ticket.done or len(ticket.chunks) > seen):
        loop.call_soon_threadsafe(_settle, future, None, None)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class _Pump:
    """Lets the world run whenever a loop that knows nothing of it is idle."""

    _ATTRIBUTE = "_refitcheck_pump"

    def __init__(self, loop: asyncio.AbstractEventLoop, baton: Baton) -> None:
        self._loop = loop
        self._baton = baton
        self._waiting: list[tuple[Ticket, asyncio.Future[None], int]] = []
        self._armed = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, baton: Baton) -> _Pump:
        pump = getattr(loop, cls._ATTRIBUTE, None)
        if not isinstance(pump, _Pump) or pump._baton is not baton:
            pump = cls(loop, baton)
            setattr(loop, cls._ATTRIBUTE, pump)
        return pump

    def add(self, ticket: Ticket, future: asyncio.Future[None], seen: int) -> None:
        self._waiting.append((ticket, future, seen))
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]
        if not self._waiting:
            self._armed = False
            return
        if not getattr(self._loop, "_ready", ()):
            self._run_world()
        self._loop.call_soon(self._turn)

    def _run_world(self) -> None:
        waiting = list(self._waiting)
        names = ", ".join(ticket.what for ticket, _, _ in waiting)
        try:
            self._baton.block(lambda: any(t.done or len(t.chunks) > n for t, _, n in waiting), None, names)
        except DeadlockError as error:
            for _, future, _ in waiting:
                _settle(future, None, error)
