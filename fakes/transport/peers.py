"""Who answers a scheduler that joins a weight-update group or receives from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fakes.engine.protocol import Done, Join, Leave, Recv

Process = tuple[str, int]
"""An engine's name and incarnation."""

Later = Callable[[float, Callable[[], None]], None]

RENDEZVOUS_S = 1800.0
"""torch's default_pg_timeout, which SGLang passes on (utils/common.py:2859@0.5.23, init_custom_process_group)."""


class Transport(Protocol):
    """Brings joiners and receivers together. `finish` is called exactly once per effect, at once or through `later`;
    until then the scheduler rank is blocked."""

    def join(self, process: Process, effect: Join, finish: Callable[[Done], None], later: Later) -> None:
        """Meet the other members; Done without a value, or the error of the rendezvous."""
        ...

    def recv(self, process: Process, effect: Recv, finish: Callable[[Done], None], later: Later) -> None:
        """Take part in the broadcasts from group rank 0; Done.value is `list[(name, ndarray)]`."""
        ...

    def leave(self, process: Process, effect: Leave) -> None:
        """This rank destroyed its side of a group: its peers will hear of it."""
        ...

    def left(self, engine: str, incarnation: int) -> None:
        """The process of this engine is gone: its peers will hear of it."""
        ...
