"""What reports and results say of a lane, as data that crosses processes."""

from __future__ import annotations

from dataclasses import dataclass

from harness.lanes.base import Clock, Lane


@dataclass(frozen=True)
class LaneInfo:
    """A lane in words.

    `kind` is what its engines are (fake, sglang), `where` where they are ("in process", "http"), `tp` what the run
    uses, `versions` the engine versions that it can start, `side` whose scenarios it runs unless told otherwise,
    `scale` the real seconds of one of its seconds.
    """

    name: str
    kind: str
    where: str
    clock: Clock
    tp: int
    versions: tuple[str, ...]
    side: str = "both"
    scale: float = 1.0

    @property
    def clock_told(self) -> str:
        """`scaled, 1 s of yours counts as 10 s (--lane-option time_scale=0.1)`, or `virtual`."""
        if self.clock != "scaled":
            return self.clock
        return f"scaled, 1 s of yours counts as {1 / self.scale:g} s (--lane-option time_scale={self.scale:g})"


def info_of(lane: Lane, tp: int = 0) -> LaneInfo:
    """A lane's own words. Optional attributes: kind, where, versions, default_tp, default_side and time_scale."""
    return LaneInfo(
        name=lane.name,
        kind=str(getattr(lane, "kind", "sglang")),
        where=str(getattr(lane, "where", lane.name)),
        clock=lane.clock,
        tp=tp or int(getattr(lane, "default_tp", 1)),
        versions=tuple(getattr(lane, "versions", ())),
        side=str(getattr(lane, "default_side", "both")),
        scale=float(getattr(lane, "time_scale", 1.0)),
    )
