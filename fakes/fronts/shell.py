"""What every front does with the core's effects: keep the facts, perform the I/O, end the calls, note the death.

A shell has no clock and no socket: its owner gives it `now` and `later`, and learns of replies through the methods
of each `OpenCall`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fakes.engine.protocol import (
    Barrier,
    Block,
    Broken,
    Call,
    Cancel,
    Die,
    Done,
    Effect,
    Event,
    Freeze,
    IpcClose,
    IpcTurn,
    Join,
    Leave,
    Observed,
    OpenAdapter,
    Opened,
    OpenPayload,
    Raised,
    ReadAdapter,
    ReadDisk,
    Recv,
    Reply,
    Tick,
    Token,
)
from fakes.trace import Fact, TraceWriter

if TYPE_CHECKING:
    from fakes.fronts.io import Performer
    from fakes.transport.peers import Transport


class Core(Protocol):
    """What a shell needs of `fakes.engine.core.EngineCore`."""

    @property
    def dead(self) -> bool:
        """Whether it gave its `Die`."""
        ...

    def step(self, event: Event, now: float) -> list[Effect]:
        """What follows from one event at `now`, in the owner's seconds."""
        ...

    def next_deadline(self) -> float | None:
        """When a `Tick` is due; None while nothing but an event can change anything."""
        ...


class OpenCall(Protocol):
    """One call that has no end yet."""

    def reply(self, reply: Reply) -> None:
        """The engine's last word."""
        ...

    def token(self, chunk: Any) -> None:
        """One streamed chunk."""
        ...

    def opened(self) -> None:
        """A stream has begun, though nothing of it has come yet."""
        ...

    def cut(self, why: str) -> None:
        """The engine, which lives on, closed the connection amid a stream."""
        ...

    def drop(self, why: str) -> None:
        """The engine died first."""
        ...


Later = Callable[[float, Callable[[], None]], None]
"""Run a function after so many seconds of the owner's clock."""

MAX_TICKS = 1000


class Shell:
    """One engine process: its core, its open calls and what it said of itself.

    `dead` is None or the `Die` that ended it. `blocked` maps a rank to the I/O effect that its scheduler waits for.
    """

    def __init__(
        self,
        core: Core,
        *,
        name: str,
        incarnation: int,
        now: Callable[[], float],
        later: Later,
        io: Performer,
        transport: Transport,
        trace: TraceWriter | None = None,
        after_step: Callable[[], None] | None = None,
    ) -> None:
        self.core = core
        self.name = name
        self.incarnation = incarnation
        self.dead: Die | None = None
        self.on_die: Callable[[Die], None] | None = None
        self.on_fact: Callable[[str, dict[str, Any]], None] | None = None
        self.on_freeze: Callable[[float], None] | None = None
        self.open: dict[int, OpenCall] = {}
        self.blocked: dict[int, str] = {}
        self._now = now
        self._later = later
        self._io = io
        self._transport = transport
        self._trace = trace
        self._after_step = after_step

    def call(self, call: Call, opened: OpenCall) -> None:
        """Hand a call to the core. The owner refuses it when the shell is dead."""
        self.open[call.id] = opened
        self.feed(call)

    def cancel(self, call_id: int) -> None:
        """The caller of `call_id` went away: nobody hears its end, and the core is told."""
        if self.open.pop(call_id, None) is not None:
            self.feed(Cancel(call_id))

    def feed(self, event: Event) -> None:
        """One step of the core and everything that follows from it. Nothing happens to a dead engine."""
        if self.dead is None:
            for effect in self.core.step(event, self._now()):
                _HANDLERS[type(effect)](self, effect)
            if self._after_step is not None:
                self._after_step()

    def deadline(self) -> float | None:
        """When a tick is due."""
        return None if self.dead is not None else self.core.next_deadline()

    def tick(self) -> bool:
        """Let the core do what is due now. True when something was due."""
        ticked = False
        for _ in range(MAX_TICKS):
            due = self.deadline()
            if due is None or due > self._now():
                return ticked
            ticked = True
            self.feed(Tick())
        raise RuntimeError(f"engine {self.name} asks for a tick at t={self._now():.6f} for ever")

    def kill(self, why: str = "SIGKILL") -> None:
        """The process is killed from outside, as `kill -9` does: no delay, no farewell."""
        if self.dead is None:
            self._die(Die(rank=-1, error=Raised("SIGKILL", why)))

    def fact(self, name: str, data: dict[str, Any]) -> None:
        """Write a fact of source core."""
        if self.on_fact is not None:
            self.on_fact(name, data)
        if self._trace is not None:
            record = Fact(
                engine=self.name, incarnation=self.incarnation, t=self._now(), source="core", name=name, data=data
            )
            self._trace.write(record)

    def _reply(self, effect: Reply) -> None:
        opened = self.open.pop(effect.id, None)
        if opened is not None:
            opened.reply(effect)

    def _token(self, effect: Token) -> None:
        opened = self.open.get(effect.id)
        if opened is not None:
            opened.token(effect.chunk)

    def _opened(self, effect: Opened) -> None:
        opened = self.open.get(effect.id)
        if opened is not None:
            opened.opened()

    def _broken(self, effect: Broken) -> None:
        opened = self.open.pop(effect.id, None)
        if opened is not None:
            opened.cut(CUT)

    def _die(self, effect: Die) -> None:
        self.dead = effect
        self.fact("die", {"rank": effect.rank, "type": effect.error.type, "message": effect.error.message})
        self._transport.left(self.name, self.incarnation)
        dropped, self.open = self.open, {}
        if self.on_die is not None:
            self.on_die(effect)
        for opened in dropped.values():
            opened.drop(DROPPED)

    def _observed(self, effect: Observed) -> None:
        self.fact(effect.name, effect.data)

    def _barrier(self, effect: Barrier) -> None:
        self.fact("barrier", {"op": effect.op})

    def _freeze(self, effect: Freeze) -> None:
        if self.on_freeze is not None:
            self.on_freeze(effect.until)

    def _block(self, effect: Block) -> None:
        self.blocked.setdefault(effect.rank, f"effect {effect.id}")

    def _local(self, effect: OpenPayload | ReadDisk) -> None:
        self._blocked_by(effect, getattr(effect, "rank", 0))
        self._io.perform(effect, self._finisher(effect, getattr(effect, "rank", 0)), self._later)

    def _ipc(self, effect: IpcTurn) -> None:
        self._blocked_by(effect, effect.rank)
        self._io.ipc(effect, self._finisher(effect, effect.rank), self._later)

    def _ipc_close(self, effect: IpcClose) -> None:
        self._io.ipc_close(effect)

    def _peers(self, effect: Join | Recv) -> None:
        if isinstance(effect, Recv) and not effect.waits:
            self._transport.recv((self.name, self.incarnation), effect, lambda done: None, self._later)
            return
        self._blocked_by(effect, effect.rank)
        finish = self._finisher(effect, effect.rank)
        if isinstance(effect, Join):
            self._transport.join((self.name, self.incarnation), effect, finish, self._later)
        else:
            self._transport.recv((self.name, self.incarnation), effect, finish, self._later)

    def _leave(self, effect: Leave) -> None:
        self._transport.leave((self.name, self.incarnation), effect)

    def _blocked_by(self, effect: OpenPayload | ReadDisk | IpcTurn | Join | Recv, rank: int) -> None:
        group = getattr(effect, "group_name", None) or getattr(effect, "address", None)
        self.blocked[rank] = f"{type(effect).__name__}({group})" if group else type(effect).__name__

    def _finisher(self, effect: OpenPayload | ReadDisk | IpcTurn | Join | Recv, rank: int) -> Callable[[Done], None]:
        def finish(done: Done) -> None:
            self.blocked.pop(rank, None)
            self.feed(done)

        return finish


DROPPED = "Remote end closed connection without response"
CUT = "peer closed connection without sending complete message body (incomplete chunked read)"
REFUSED = "Connection refused"

_HANDLERS: dict[type, Callable[[Shell, Any], None]] = {
    Reply: Shell._reply,
    Opened: Shell._opened,
    Broken: Shell._broken,
    Token: Shell._token,
    Die: Shell._die,
    Observed: Shell._observed,
    Barrier: Shell._barrier,
    Block: Shell._block,
    Freeze: Shell._freeze,
    OpenPayload: Shell._local,
    ReadDisk: Shell._local,
    OpenAdapter: Shell._local,
    ReadAdapter: Shell._local,
    IpcTurn: Shell._ipc,
    IpcClose: Shell._ipc_close,
    Join: Shell._peers,
    Leave: Shell._leave,
    Recv: Shell._peers,
}
