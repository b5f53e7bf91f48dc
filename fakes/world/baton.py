"""Participants under one baton, and the time that passes only when all of them are blocked.

Exactly one participant runs. It hands the baton back whenever it blocks (an engine call, a sleep, a barrier, a lock);
the seed picks the next among those that can go on. Nobody can go on: time jumps to the earliest deadline.
No deadline is left: that is a `Deadlock`, raised as `DeadlockError` in everybody who is stuck.

The thread that made the world (the test, as a rule) is the participant "main". Any other thread that no `spawn` made
is a guest: it runs beside the others, and time passes only when it is blocked, too, in here or anywhere (`guests`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from fakes.world.guests import LOOKS, SLICE_S, at_rest

PATIENCE_S = 3 * 3600.0
"""Virtual seconds in which nobody could go on, after which an engine that ticks for ever counts as a deadlock."""


class Waiting(msgspec.Struct, frozen=True):
    """One participant and what it waits for."""

    who: str
    what: str


class Deadlock(msgspec.Struct, frozen=True):
    """Nobody could go on and no deadline was left. `t` in virtual seconds; `ended`: who died of an error before."""

    t: float
    waiting: tuple[Waiting, ...]
    ended: tuple[str, ...] = ()

    def __str__(self) -> str:
        waits = "; ".join(f"{w.who} waits for {w.what}" for w in self.waiting)
        ended = f" (ended before: {'; '.join(self.ended)})" if self.ended else ""
        return f"deadlock at t={self.t:.3f}: {waits}{ended}"


class DeadlockError(BaseException):
    """Raised in a participant that would have waited for ever. A BaseException: no retry loop may swallow it."""

    def __init__(self, deadlock: Deadlock) -> None:
        super().__init__(str(deadlock))
        self.deadlock = deadlock


class WorldClosed(BaseException):
    """The world ended while this participant was still waiting."""


class WorldBroken(RuntimeError):
    """A fake raised an exception of its own: a harness error, never a result."""


class _Wait:
    __slots__ = ("deadline", "ready", "what")

    def __init__(self, ready: Callable[[], bool] | None, deadline: float | None, what: str) -> None:
        self.ready = ready
        self.deadline = deadline
        self.what = what


class Participant:
    """One thread under the baton. `result` and `error` are set when `done`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.ident: int | None = None
        self.native: int | None = None
        self.host: threading.Thread | None = None  # a guest's own
        self._go = threading.Semaphore(0)
        self._wait: _Wait | None = None
        self._fate: BaseException | None = None
        self._parked = False  # waits for its turn: never run yet, or blocked
        self._chosen = False

    def __repr__(self) -> str:
        state = "done" if self.done else (f"waits for {self._wait.what}" if self._wait else "runs")
        return f"<Participant {self.name}: {state}>"

    def value(self) -> Any:
        """What the function returned; raises what it raised. RuntimeError before it is done."""
        if self.error is not None:
            raise self.error
        if not self.done:
            raise RuntimeError(f"{self.name} is not done")
        return self.result


class Baton:
    """The schedule. `deadlock` is the last one; `broken` is set for ever when a fake raised, whoever caught it.

    A subclass says what else happens in time: `_pump()` and `_next_event()`."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.seed = seed
        self.deadlock: Deadlock | None = None
        self.broken: WorldBroken | None = None
        self._rng = random.Random(seed)
        self._main = Participant("main")
        self._main.ident, self._main.native = threading.get_ident(), threading.get_native_id()
        self._participants: list[Participant] = [self._main]
        self._guests: dict[int, Participant] = {}
        self._state = threading.RLock()  # of what guests touch while others run
        self._turn = threading.Lock()  # one waits for rest, not all
        self._by_thread: dict[int, Participant] = {}
        self._ended: list[str] = []
        self._closed = False
        self._idle_since = 0.0

    # What a subclass adds to time.

    def _pump(self) -> None:
        """Let everything happen that is due at `now`."""

    def _next_event(self) -> float | None:
        """When the next thing happens that no participant waits for by itself."""
        return None

    # Participants.

    def spawn(self, fn: Callable[..., Any], *args: Any, name: str = "") -> Participant:
        """Run `fn(*args)` as a new participant, from the next hand-over on. Names are made unique."""
        if self._closed:
            raise WorldClosed("the world is closed")
        participant = Participant(self._unique(name or getattr(fn, "__name__", "participant")))
        participant._parked = True

        def body() -> None:
            participant.ident, participant.native = threading.get_ident(), threading.get_native_id()
            participant._go.acquire()
            participant._chosen = False
            self._by_thread[participant.ident] = participant
            try:
                if participant._fate is not None:
                    raise participant._fate
                participant.result = fn(*args)
            except BaseException as error:
                participant.error = error
                if not isinstance(error, WorldClosed):
                    self._ended.append(f"{participant.name} with {type(error).__name__}: {error}")
            finally:
                with self._state:
                    participant.done = True
                    self._participants.remove(participant)
                    self._by_thread.pop(threading.get_ident(), None)
                self._hand_over()

        participant.thread = threading.Thread(target=body, name=f"world:{participant.name}", daemon=True)
        with self._state:
            self._participants.append(participant)
        participant.thread.start()
        return participant

    def me(self) -> Participant:
        """The participant that runs now; a guest, for a thread that neither made the world nor was made by it."""
        ident = threading.get_ident()
        if ident == self._main.ident:
            return self._main
        known = self._by_thread.get(ident) or self._guests.get(ident)
        if known is not None:
            return known
        with self._state:
            guest = self._guests[ident] = Participant(self._unique(threading.current_thread().name))
            guest.ident, guest.native = ident, threading.get_native_id()
            guest.host = threading.current_thread()
            self._main._go.release()  # it looks about, if it waits: from now on it waits for rest, too
        return guest

    def _unique(self, base: str) -> str:
        with self._state:
            taken = {p.name for p in (*self._participants, *self._guests.values())}
        unique, n = base, 1
        while unique in taken:
            n += 1
            unique = f"{base}#{n}"
        return unique

    def block(self, ready: Callable[[], bool], deadline: float | None, what: str) -> bool:
        """Hand the baton back until `ready()` or `deadline` (virtual seconds, absolute; None = no end). True: ready.

        Raises `DeadlockError` when nobody can go on any more, `WorldClosed` after `close`.
        """
        me = self.me()
        if self._closed and me._fate is None:
            raise WorldClosed("the world is closed")
        with self._state:
            me._wait, me._parked = _Wait(ready, deadline, what), True
            if me not in self._participants:
                self._participants.append(me)
        try:
            if not self._has_guests() or me.thread is not None:
                self._hand_over(me)
                while not me._chosen and (me.thread is not None or not self._has_guests()):
                    me._go.acquire()
            if not me._chosen:
                self._wait_beside(me)
        finally:
            with self._state:
                me._wait, me._parked, me._chosen = None, False, False
                if me.thread is None and me is not self._main:
                    self._participants.remove(me)
        if me._fate is not None:
            fate, me._fate = me._fate, None
            raise fate
        return ready()

    def _hand_over(self, me: Participant | None = None, *, beside: bool = False) -> None:
        """Choose who goes on, and let it go. `beside`: whoever runs is at rest, so that time may pass."""
        with self._state:
            chosen = self._choose(me, beside)
            if chosen is None:
                return
            chosen._parked, chosen._chosen = False, True
        if chosen is not me:
            chosen._go.release()

    def held(self) -> AbstractContextManager[Any]:
        """While it is held no time passes and no other thread changes an engine. Nothing may block in it."""
        return self._state

    # Guests, and main beside them.

    def _has_guests(self) -> bool:
        if self._guests:
            with self._state:
                self._guests = {i: guest for i, guest in self._guests.items() if guest.host and guest.host.is_alive()}
        return bool(self._guests)

    def _wait_beside(self, me: Participant) -> None:
        """Nobody has the baton for certain where there are guests: one that waits looks whether all are at rest."""
        looks = 0
        while not me._chosen:
            if self._closed:
                raise WorldClosed("the world is closed")
            if not self._turn.acquire(blocking=False):
                me._go.acquire(timeout=LOOKS * SLICE_S)
                continue
            try:
                looks += 1
                if not at_rest(self._parked_threads()) and (looks < LOOKS or self._runs(me)):
                    continue
                with self._state:
                    if not me._chosen:
                        looks = 0
                        self._hand_over(me, beside=True)
            finally:
                self._turn.release()
        with self._state:
            others = [p for p in self._participants if p is not me and p.thread is None and p._parked]
        if others:
            others[0]._go.release()  # it looks from now on

    def _runs(self, me: Participant | None) -> bool:
        """Whether a thread of the world's own runs, which will hand over."""
        with self._state:
            return any(p is not me and p.thread is not None and not p._parked for p in self._participants)

    def _parked_threads(self) -> set[int]:
        with self._state:
            return {p.native for p in self._participants if p._parked and p.native is not None}

    def yield_(self, what: str = "its turn") -> None:
        """Hand the baton back once."""
        self.block(lambda: True, self.now, what)

    def sleep(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        until = self.now + max(0.0, seconds)
        self.block(lambda: self.now >= until, until, f"sleep until t={until:.3f}")

    def join(self, *participants: Participant, timeout_s: float | None = None) -> Deadlock | None:
        """Wait until these (all, when none is named) are done or `timeout_s` is over.

        Returns the deadlock, if that is how it ended; errors stay in the participants.
        """
        mine = self.me()
        waited = participants or tuple(p for p in self._participants if p is not mine and p.thread is not None)
        until = None if timeout_s is None else self.now + timeout_s
        names = ", ".join(p.name for p in waited)
        found: Deadlock | None = None
        while not all(p.done for p in waited):
            try:
                if not self.block(lambda: all(p.done for p in waited), until, f"the end of {names}"):
                    break
            except DeadlockError as error:
                if found is not None:
                    break
                found = error.deadlock
        return found

    def close(self) -> None:
        """End every participant that still waits (`WorldClosed` is raised in it) and refuse everything later."""
        if self._closed:
            return
        self._closed = True
        me = self.me()
        for participant in list(self._participants):
            if participant is me or participant is self._main:
                continue
            participant._fate = WorldClosed("the world is closed")
            participant._parked, participant._chosen = False, True
            participant._go.release()
            if participant.thread is None:
                continue
            # The participant unwinds and hands the baton to main. Real seconds: only one that never ends costs them.
            self._main._go.acquire(timeout=5.0)
        for participant in list(self._participants):
            if participant.thread is not None and participant is not me:
                participant.thread.join(timeout=0.1)

    # The choice.

    def _choose(self, me: Participant | None, beside: bool) -> Participant | None:
        """Who goes on; None where one runs beside that will hand over.

        Never raises: what breaks in here is raised in main, or in `me` where main is elsewhere.
        """
        if self._closed:
            return self._main
        hears = self._main if self._main._parked or me is None else me
        try:
            return self._choose_next(me, beside)
        except Exception as error:
            broken = WorldBroken(f"{type(error).__name__}: {error}")
            broken.__cause__ = error
            self.broken = self.broken or broken
            hears._fate = broken
        except BaseException as error:
            # An interrupt or a test's time limit: as it is.
            hears._fate = error
        return hears

    def _choose_next(self, me: Participant | None, beside: bool) -> Participant | None:
        participants = self._participants
        while True:
            self._pump()
            now = self.now
            able = [p for p in participants if _able(p, now)]
            if able:
                self._idle_since = now
                return able[0] if len(able) == 1 else self._rng.choice(able)
            if self._guests and not beside and self._runs(me):
                return None
            self._advance(participants)

    def _advance(self, participants: list[Participant]) -> None:
        """Move `now` to the earliest deadline, or raise a deadlock in everybody."""
        deadlines = [p._wait.deadline for p in participants if p._wait is not None and p._wait.deadline is not None]
        event = self._next_event()
        if not deadlines and (event is None or event - self._idle_since > PATIENCE_S):
            stuck = tuple(Waiting(p.name, p._wait.what) for p in participants if p._wait is not None)
            self.deadlock = Deadlock(self.now, stuck, tuple(self._ended))
            for participant in participants:
                if participant._wait is not None:
                    participant._fate = DeadlockError(self.deadlock)
            self._idle_since = self.now
            self._on_deadlock(self.deadlock)
            return
        if event is not None:
            deadlines.append(event)
        self.now = max(self.now, min(deadlines))

    def _on_deadlock(self, deadlock: Deadlock) -> None:
        """A hook for the trace."""


def _able(participant: Participant, now: float) -> bool:
    if not participant._parked:
        return False
    wait = participant._wait
    if wait is None or participant._fate is not None:
        return True  # spawned and never run yet, or about to raise
    if wait.deadline is not None and wait.deadline <= now:
        return True
    return wait.ready is None or wait.ready()
