"""Rule judgements as checks (written with the harness's runner)."""

from __future__ import annotations

from typing import Any


def host(described: dict[str, Any], only: frozenset[str] = frozenset()) -> Any:
    """The checks of a run of rules."""
    raise NotImplementedError
