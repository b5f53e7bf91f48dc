"""Finding a lane by name: an entry point of `refitcheck.lanes`, whose object is a factory `(options) -> Lane`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from harness.errors import UsageError
from harness.lanes.base import Lane
from harness.suites import load_point, named_points

GROUP = "refitcheck.lanes"


def load_lane(name: str, options: Mapping[str, Any] | None = None) -> Lane:
    """The lane, ready for `begin`. UsageError in one line when it is not installed."""
    points = named_points(GROUP)
    if name not in points:
        raise UsageError(f"no lane {name!r}; installed: {', '.join(points) or 'none'}")
    return cast(Lane, load_point(points[name])(dict(options or {})))


def refuse_options(lane: str, given: Iterable[str], known: Iterable[str]) -> None:
    """UsageError for an option that a lane does not have."""
    unknown = sorted(given)
    if unknown:
        raise UsageError(f"lane {lane} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
