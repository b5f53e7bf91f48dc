"""What reports and results say of a lane, as data that crosses processes."""

from __future__ import annotations

from dataclasses import dataclass

from harness.lanes.base import Clock, Lane


@dataclass(frozen=True)
class LaneInfo:
    """A lane in words.

    `kind` is what its engines are (fake, sglang), `where` where they are ("in process", "http"), `tp` what the run
    uses, `versions` the engine versions that it can start, `side` whose scenarios it runs unless told otherwise.
    """

    name: str
    kind: str
    where: str
    clock: Clock
    tp: int
    versions: tuple[str, ...]
    side: str = "both"


def info_of(lane: Lane, tp: int = 0) -> LaneInfo:
    """A lane's own words; `kind`, `where`, `versions`, `default_tp` and `default_side` are optional attributes."""
    return LaneInfo(
        name=lane.name,
        kind=str(getattr(lane, "kind", "sglang")),
        where=str(getattr(lane, "where", lane.name)),
        clock=lane.clock,
        tp=tp or int(getattr(lane, "default_tp", 1)),
        versions=tuple(getattr(lane, "versions", ())),
        side=str(getattr(lane, "default_side", "both")),
    )
