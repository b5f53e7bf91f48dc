"""Ways in which weights travel from trainer ranks to engines, each behind the same four questions of the envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.reference.deadline import Deadline
from harness.reference.engines import Engine


class Transport(Protocol):
    """What the envelope asks of a way to send weights. `name` is how markers call it."""

    name: str

    def world_size(self, engines: Sequence[Engine]) -> int:
        """The ranks that take part when these engines do."""
        ...

    def connect(self, engines: Sequence[Engine], deadline: Deadline) -> bool:
        """Before anything is paused. True when what was there did not fit these engines and was made anew."""
        ...

    def send(self, engines: Sequence[Engine], deadline: Deadline, state: Mapping[str, Any], version: str) -> int:
        """Inside pause and session: everything, once. Returns the number of update calls per engine."""
        ...

    def confirm(self, engines: Sequence[Engine], deadline: Deadline) -> None:
        """After a refit in which all went well, when these engines run again: what only a running engine can show."""
        ...

    def close(self, engines: Sequence[Engine]) -> None:
        """Leave nothing behind, here and on these engines. Raises nothing for what an engine answers."""
        ...
