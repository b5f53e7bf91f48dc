"""Faults as data: which call of the client, before or after its effect, and what happens to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, cast, get_args

import msgspec

from harness.errors import UsageError

When = Literal["before", "after"]
Action = Literal["status400", "status500", "success_false", "drop", "hang", "delay", "die"]

_TEXT = re.compile(
    r"(?P<engine>[\w*.-]+):(?P<op>[\w/.-]+)#(?P<nth>\d+):(?P<when>\w+):(?P<action>\w+)(?:=(?P<seconds>[\d.]+))?"
)


class Fault(msgspec.Struct, frozen=True):
    """What happens to the `nth` call (from 1) of the client to `engine` ("*": each engine) and `op`.

    before: the engine never sees the call (delay: sees it later). after: the engine acts, and then the caller sees the
    fault instead of the answer. `seconds` belongs to delay, in seconds of the lane's clock.
    """

    engine: str
    op: str
    nth: int
    when: When
    action: Action
    seconds: float = 0.0

    def matches(self, engine: str, op: str, nth: int) -> bool:
        """Whether it is meant for this call."""
        return self.nth == nth and self.op == op and self.engine in (engine, "*")

    def __str__(self) -> str:
        """`e0:begin_weight_update#1:before:status500`; delay adds `=2.5`."""
        tail = f"={self.seconds:g}" if self.action == "delay" else ""
        return f"{self.engine}:{self.op}#{self.nth}:{self.when}:{self.action}{tail}"


def parse_fault(text: str) -> Fault:
    """The inverse of `str(fault)`. UsageError in one line when it is none."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"fault {text!r} is not of the form engine:op#nth:before|after:action, as e0:flush_cache#1:before:drop"
        )
    when, action, seconds = match["when"], match["action"], match["seconds"]
    if when not in get_args(When):
        raise UsageError(f"fault {text!r}: {when!r} is neither before nor after")
    if action not in get_args(Action):
        raise UsageError(f"fault {text!r}: unknown action {action!r}; one of {', '.join(get_args(Action))}")
    if (seconds is not None) != (action == "delay"):
        raise UsageError(f"fault {text!r}: delay=<seconds>, and only delay, takes a number")
    if int(match["nth"]) < 1:
        raise UsageError(f"fault {text!r}: calls are counted from 1")
    try:
        value = float(seconds or 0)
    except ValueError:
        raise UsageError(f"fault {text!r}: {seconds!r} is not a number of seconds") from None
    return Fault(match["engine"], match["op"], int(match["nth"]), cast(When, when), cast(Action, action), value)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Several faults joined by ","."""
    return tuple(parse_fault(part) for part in text.split(",") if part.strip())


def faults_text(faults: Iterable[Fault]) -> str:
    """Several faults joined by ",": what `--fault` takes."""
    return ",".join(map(str, faults))
