"""A deterministic event loop for the tokenizer manager: coroutines, no clock, no thread.

SGLang's tokenizer manager is asyncio code, and what a trainer observes depends on asyncio's exact rules: who is woken
first, what a lock does while its owner waits, that a writer in the queue holds back new readers. These rules are kept
here, over virtual time: `Loop.run(now)` runs everything that can run at `now`, `Loop.next_deadline()` says when the
next sleeper is due.

Rules taken over from asyncio (CPython 3.11 Lib/asyncio/locks.py, tasks.py) and from SGLang
(srt/utils/aio_rwlock.py@0.5.23): a lock is fair (first come, first served); a condition's waiters re-acquire its lock
after a wake-up; the RW lock makes readers wait while a writer is active or queued.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Cancelled(BaseException):
    """Thrown into a coroutine whose task was cancelled."""


class Future(Generic[T]):
    """A value that is not there yet. Awaiting it suspends the task until `set_result`, `set_exception` or `cancel`."""

    __slots__ = ("_callbacks", "_error", "_loop", "_value", "done")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def set_result(self, value: T) -> None:
        """Finish with a value; a future that is done keeps its first end."""
        self._finish(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Finish with an exception, raised in whoever awaits."""
        self._finish(None, error)

    def cancel(self) -> bool:
        """Finish with `Cancelled`; False when it is done already."""
        if self.done:
            return False
        self._finish(None, Cancelled())
        return True

    @property
    def cancelled(self) -> bool:
        """Whether it ended by `cancel`."""
        return isinstance(self._error, Cancelled)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        if self.done:
            return
        self.done, self._value, self._error = True, value, error
        self._loop.ready.extend(self._callbacks)

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Call back from the loop once done."""
        (self._loop.ready if self.done else self._callbacks).append(callback)

    def result(self) -> T:
        """The value, or raises the exception that it ended with."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]  # set by whoever finished it

    def __await__(self) -> Generator[Future[Any], None, T]:
        if not self.done:
            yield self
        return self.result()


class Task(Future[T]):
    """A running coroutine. Its result is the coroutine's return value."""

    __slots__ = ("_cancel", "_coro", "_waits_on", "name")

    def __init__(self, loop: Loop, coro: Coroutine[Any, Any, T], name: str) -> None:
        super().__init__(loop)
        self._coro = coro
        self.name = name
        self._waits_on: Future[Any] | None = None
        self._cancel = False

    def cancel(self) -> bool:
        """Raise `Cancelled` in the coroutine: where it waits, or else where it waits next."""
        if self.done:
            return False
        if self._waits_on is None or not self._waits_on.cancel():
            self._cancel = True
        return True

    def close(self) -> None:
        """End it without a result: nobody will ever step it again."""
        self.done = True
        self._coro.close()

    def _step(self) -> None:
        if self.done:
            return
        self._waits_on = None
        try:
            if self._cancel:
                self._cancel = False
                future = self._coro.throw(Cancelled())
            else:
                future = self._coro.send(None)
        except StopIteration as stop:
            self.set_result(stop.value)
        except (Exception, Cancelled) as error:
            self.set_exception(error)
        else:
            self._waits_on = future
            future.add_callback(self._step)
            if self._cancel and future.cancel():
                self._cancel = False


class Loop:
    """Ready callbacks in order, and sleepers by deadline (ties in the order in which they went to sleep)."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], None]] = deque()
        self.now = 0.0
        self._timers: list[tuple[float, int, Future[None]]] = []
        self._order = 0

    def spawn(self, coro: Coroutine[Any, Any, T], name: str = "") -> Task[T]:
        """Start a coroutine; it first runs at the next `run`."""
        task: Task[T] = Task(self, coro, name)
        self.ready.append(task._step)
        return task

    def future(self) -> Future[Any]:
        """A new future of this loop."""
        return Future(self)

    def sleep(self, seconds: float) -> Future[None]:
        """A future that is done `seconds` of virtual time from now."""
        future: Future[None] = Future(self)
        self._order += 1
        heapq.heappush(self._timers, (self.now + seconds, self._order, future))
        return future

    def run(self, now: float) -> bool:
        """Run all that can run at `now`; says whether anything did."""
        self.now = max(self.now, now)
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            heapq.heappop(timers)[2].set_result(None)
        ready = self.ready
        ran = bool(ready)
        while ready:
            ready.popleft()()
        return ran

    def next_deadline(self) -> float | None:
        """When the next sleeper is due, or None."""
        return self._timers[0][0] if self._timers else None


class Event:
    """A flag to wait for."""

    __slots__ = ("_loop", "_set", "_waiters")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._set = False
        self._waiters: list[Future[None]] = []

    def set(self) -> None:
        """Wake all who wait; they go on even if the flag is lowered before they do."""
        self._set = True
        for waiter in self._waiters:
            waiter.set_result(None)
        self._waiters = []

    def clear(self) -> None:
        """Lower the flag."""
        self._set = False

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._set

    async def wait(self) -> None:
        """Return once the flag was raised."""
        if not self._set:
            waiter: Future[None] = Future(self._loop)
            self._waiters.append(waiter)
            await waiter


class Lock:
    """A fair mutex, `async with lock:`."""

    __slots__ = ("_loop", "_waiters", "locked")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.locked = False
        self._waiters: deque[Future[None]] = deque()

    async def acquire(self) -> None:
        """Take the lock, after everyone who asked before."""
        if not self.locked and all(waiter.cancelled for waiter in self._waiters):
            self.locked = True
            return
        waiter: Future[None] = Future(self._loop)
        self._waiters.append(waiter)
        try:
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        except Cancelled:
            if not self.locked:
                self._wake()
            raise
        self.locked = True

    def release(self) -> None:
        """Give it back; the first waiter is next."""
        self.locked = False
        self._wake()

    def _wake(self) -> None:
        if self._waiters:
            self._waiters[0].set_result(None)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *exc: object) -> None:
        self.release()


class Condition:
    """A lock with a waiting room, `async with cond:`."""

    __slots__ = ("_lock", "_loop", "_waiters")

    def __init__(self, loop: Loop, lock: Lock | None = None) -> None:
        self._loop = loop
        self._lock = lock if lock is not None else Lock(loop)
        self._waiters: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *exc: object) -> None:
        self._lock.release()

    async def wait(self) -> None:
        """Let go of the lock until notified; holds it again on return, also after a cancellation."""
        self._lock.release()
        waiter: Future[None] = Future(self._loop)
        self._waiters.append(waiter)
        closed = False
        try:
            await waiter
        except GeneratorExit:  # its task was closed: nobody will step it to take the lock
            closed = True
            raise
        finally:
            self._waiters.remove(waiter)
            if not closed:
                await self._reacquire()

    async def _reacquire(self) -> None:
        cancelled = False
        while True:
            try:
                await self._lock.acquire()
                break
            except Cancelled:
                cancelled = True
        if cancelled:
            raise Cancelled

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until the predicate holds; it is tested with the lock held."""
        while not predicate():
            await self.wait()

    def notify_all(self) -> None:
        """Wake all who wait; each goes on when it has the lock."""
        for waiter in self._waiters:
            waiter.set_result(None)


class RWLock:
    """Writer-preferring: readers wait while a writer is active or queued (srt/utils/aio_rwlock.py@0.5.23)."""

    def __init__(self, loop: Loop) -> None:
        self._lock = Lock(loop)
        self._cond = Condition(loop, self._lock)
        self.readers = 0
        self.writer_active = False
        self.waiting_writers = 0

    async def acquire_reader(self) -> None:
        """Take a share of the lock."""
        async with self._lock:
            while self.writer_active or self.waiting_writers > 0:
                await self._cond.wait()
            self.readers += 1

    async def release_reader(self) -> None:
        """Give a share back; the last one wakes everybody."""
        async with self._lock:
            self.readers -= 1
            if self.readers == 0:
                self._cond.notify_all()

    async def acquire_writer(self) -> None:
        """Take the whole lock; while waiting, new readers are held back."""
        async with self._lock:
            self.waiting_writers += 1
            try:
                while self.writer_active or self.readers > 0:
                    await self._cond.wait()
                self.writer_active = True
            finally:
                self.waiting_writers -= 1

    async def release_writer(self) -> None:
        """Give the whole lock back and wake everybody."""
        async with self._lock:
            self.writer_active = False
            self._cond.notify_all()

    async def is_locked(self) -> bool:
        """Whether a writer or any reader holds it."""
        async with self._lock:
            return self.writer_active or self.readers > 0

    @property
    def reader(self) -> _Reader:
        """`async with lock.reader:`."""
        return _Reader(self)

    @property
    def writer(self) -> _Writer:
        """`async with lock.writer:`."""
        return _Writer(self)


class _Reader:
    __slots__ = ("_lock",)

    def __init__(self, lock: RWLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        await self._lock.acquire_reader()

    async def __aexit__(self, *exc: object) -> None:
        await self._lock.release_reader()


class _Writer:
    __slots__ = ("_lock",)

    def __init__(self, lock: RWLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        await self._lock.acquire_writer()

    async def __aexit__(self, *exc: object) -> None:
        await self._lock.release_writer()
