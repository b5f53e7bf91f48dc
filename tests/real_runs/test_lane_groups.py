"""The real lane's side of weight-update groups: real gloo, servers are scripted here."""

import numpy as np
import pytest

from fakes.trace import Trainer
from harness.errors import HarnessError
from real_runs import sglang_cpu
from real_runs.sglang_gpu import SglangGpuLane
from tests.real_runs.scripted_lane import begun
from tests.real_runs.scripted_lane import lane_fixture as lane_fixture  # fixtures are found by name
from tests.real_runs.scripted_lane import scripted_fixture as scripted_fixture


class NoPeers:
    """In place of the process that real groups are forked from."""

    made = 0
    started = closed = False

    def __init__(self):
        NoPeers.made += 1

    def start(self):
        self.started = True

    def close(self):
        self.closed = True


@pytest.fixture(name="peers")
def peers_fixture(monkeypatch):
    NoPeers.made = 0
    monkeypatch.setattr("fakes.transport.gloo_groups.Peers", NoPeers)


def test_a_group_of_one_is_real(lane):
    writer = begun(lane)
    groups = lane.groups()
    with_nobody = groups.open("weights", 1)
    assert with_nobody.join(300.0)
    assert with_nobody.wait([with_nobody.broadcast(np.zeros(3, dtype=np.float32))], 300.0)
    groups.close()

    assert [r.name for r in writer.records if isinstance(r, Trainer)] == [
        "group_open",
        "group_join",
        "group_joined",
        "broadcast",
        "broadcasts_waited",
        "group_closed",
    ]


def test_the_kit_and_the_scenario_share_what_groups_are_forked_from(lane, peers):
    lane.expect({"groups"})
    begun(lane)

    assert lane.peers.started
    assert lane.trainer(1).groups.peers is lane.groups().peers is lane.peers
    assert NoPeers.made == 1


def test_it_is_not_started_for_a_scenario_without_groups_and_ends_with_the_lane(lane, peers):
    lane.expect({"something"})
    assert NoPeers.made == 0
    first = lane.peers
    lane.close()

    assert first.closed
    assert lane.peers is not first


def test_groups_belong_to_a_scenario(lane):
    with pytest.raises(HarnessError, match="between scenarios"):
        lane.groups()


def test_engines_on_gpus_have_none(peers, monkeypatch, tmp_path):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    made = SglangGpuLane({"quiet": "1"})
    made.expect({"groups"})
    made.close()

    assert (sglang_cpu.SglangCpuLane.provides, made.provides, NoPeers.made) == ({"groups"}, frozenset(), 0)
