"""Giving back what was acquired, in reverse order, on every way out."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Guards:
    """Like ExitStack, but the error that came first is the one that is raised: later ones become its notes.

    `give_back()` is called on success too: what a refit acquires it gives back either way. One that fails never keeps
    the others from running, whatever it raises (KeyboardInterrupt as well).
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._held: list[tuple[str, Callable[[], None]]] = []

    def hold(self, name: str, give_back: Callable[[], None]) -> None:
        """Call before acquiring: what was acquired in part has to be given back, too."""
        self._held.append((name, give_back))

    def __enter__(self) -> Guards:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.error = error
        while self._held:
            name, give_back = self._held.pop()
            try:
                give_back()
            except BaseException as later:
                if self.error is None:
                    self.error = later
                else:
                    self.error.add_note(f"afterwards, {name}: {type(later).__name__}: {later}")
        if self.error is not None and self.error is not error:
            raise self.error
