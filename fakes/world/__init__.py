"""The clock, the event queue, the seed and all engines of a fleet: virtual time for everything in process."""

from fakes.world.baton import Deadlock, DeadlockError, Participant, Waiting, WorldBroken, WorldClosed
from fakes.world.fleet import Ticket, WorldEngine
from fakes.world.meet import Barrier, Group, Lock, MeetTimeout
from fakes.world.world import World, WorldClock

__all__ = [
    "Barrier",
    "Deadlock",
    "DeadlockError",
    "Group",
    "Lock",
    "MeetTimeout",
    "Participant",
    "Ticket",
    "Waiting",
    "World",
    "WorldBroken",
    "WorldClock",
    "WorldClosed",
    "WorldEngine",
]
