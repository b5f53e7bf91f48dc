"""An exception in a scheduler process, which nobody there catches."""

from __future__ import annotations

from fakes.engine.messages import Message
from fakes.engine.protocol import Raised


class Crash(Exception):
    """The scheduler of `rank` raised: the engine dies after the profile's delay (plus `extra_delay_s`, seconds).

    `alive`: its process lives on, so that the crash diagnostics wait for its core dump, too.
    """

    def __init__(
        self, type_: str, message: str, rank: int = 0, *, extra_delay_s: float = 0.0, alive: bool = False
    ) -> None:
        super().__init__(f"{type_}: {message}")
        self.raised = Raised(type_, message)
        self.rank = rank
        self.extra_delay_s = extra_delay_s
        self.alive = alive


class TokenizerCrash(Crash):
    """An exception in the HTTP process's own receive loop: it stops at once and takes the whole tree with it."""


def crash(message: Message, rank: int = 0, **values: object) -> Crash:
    """A crash with a message of the catalogue."""
    return Crash(message.type, message(**values), rank)
