from __future__ import annotations

import pytest

from fakes.world import World
from tests.fakes.transport.fleet import Fleet


@pytest.fixture
def make():
    worlds = []

    def fleet(engines=1, tp=1, profile="0.5.23", **config):
        worlds.append(World(3))
        return Fleet(worlds[-1], engines, tp, profile, **config)

    yield fleet
    for world in worlds:
        world.close()
