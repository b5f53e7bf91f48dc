"""What a refit client has to know about the engine's version before it calls anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.versions import version_matches

PauseMode = Literal["abort", "retract"]


@dataclass(frozen=True)
class EngineProfile:
    """The three version questions of the tensor path.

    `sessions`: begin and end exist. `end_can_be_asked`: an end without a session is answered with 400
    (managers/scheduler_components/weight_updater.py:304@v0.5.21); the miles branch asserts and dies.
    `retract_can_flush`: a flush under a retract pause ignores the queue (managers/scheduler.py:5011@v0.5.21);
    before that a queued request makes it answer 400 until somebody continues, so only an abort pause can be flushed.
    """

    sessions: bool
    end_can_be_asked: bool
    retract_can_flush: bool

    @classmethod
    def of(cls, version: str) -> EngineProfile:
        """The profile of an SGLang version ("0.5.23") or of "miles"."""
        since_21 = version_matches(version, ">=0.5.21")
        return cls(
            sessions=version_matches(version, ">=0.5.21 || miles"),
            end_can_be_asked=since_21,
            retract_can_flush=since_21,
        )

    @property
    def pause_mode(self) -> PauseMode:
        """The gentlest mode under which this engine can still be flushed while requests wait."""
        return "retract" if self.retract_can_flush else "abort"
