"""How long a refit may take in real seconds before it is a hang: `--hang-timeout` beyond a deadline of the lane's."""

from contextlib import contextmanager

import pytest

from harness import bench
from harness.frameworks import running
from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit

SUT = "tests.harness.frameworks.drivers:Works"


@pytest.mark.parametrize(
    ("clock", "scale", "limit"), [("scaled", 0.1, 8.0), ("real", None, 62.0), ("virtual", None, 2.0)]
)
def test_the_deadline_counts_in_the_lane_s_seconds(monkeypatch, clock, scale, limit):
    seen = []

    @contextmanager
    def watched(seconds, who):
        if "refit" in who.rpartition(":")[2]:
            seen.append(seconds)
        yield

    monkeypatch.setattr(bench, "watched", watched)
    runner = Runner(Settings(suts=(SUT,), tp=1, side="refit", scenarios=(running.SCENARIO,), hang_timeout=2.0))
    try:
        runner.lane.clock = clock
        if scale is not None:
            runner.lane.time_scale = scale
        runner.execute(Unit(running.SCENARIO, "0.5.23", 1, SUT))
    finally:
        runner.close()
    assert seen[0] == pytest.approx(limit)
