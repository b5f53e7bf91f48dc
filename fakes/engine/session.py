"""The weight-update session, and whether the weights are known to be whole."""

from __future__ import annotations

from collections.abc import Iterable


class Session:
    """An open weight-update session: the selector of its begin, and whether anything was loaded in it."""

    def __init__(self, selector: str) -> None:
        self.selector = selector
        self.loaded = False


class Wholeness:
    """Whether the weights are known to be a mixture: after a failed load or a resume, until every name was sent
    again."""

    def __init__(self, hf_names: Iterable[str], device_names: Iterable[str]) -> None:
        self._hf, self._device = frozenset(hf_names), frozenset(device_names)
        self._seen: set[str] | None = None

    @property
    def broken(self) -> bool:
        """Some names were not sent since the weights broke."""
        return self._seen is not None

    def break_(self) -> None:
        """From now on nothing is known to be whole."""
        self._seen = set()

    def sent(self, names: Iterable[str]) -> None:
        """These names were loaded."""
        if self._seen is None:
            return
        self._seen.update(names)
        if self._seen >= self._hf or self._seen >= self._device:
            self._seen = None
