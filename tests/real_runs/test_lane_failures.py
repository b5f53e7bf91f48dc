"""The real lane where something cannot work: one line each, a harness error or the caller's."""

import json

import pytest

from harness.errors import HarnessError, UsageError
from harness.lanes.base import Expected
from real_runs import sglang_cpu
from real_runs.env import EnvError, EnvUsage
from real_runs.expectations import Expectations
from real_runs.models import TinyModel
from real_runs.server import ServerError
from real_runs.sglang_cpu import SglangCpuLane
from tests.real_runs.scripted_lane import SPEC, ScriptedServer, begun
from tests.real_runs.scripted_lane import lane_fixture as lane_fixture  # fixtures are found by name
from tests.real_runs.scripted_lane import scripted_fixture as scripted_fixture


def test_a_wrong_lane_option_is_a_usage_error():
    with pytest.raises(UsageError, match="lane sglang-cpu has no option speed; it has evidence, quiet, "):
        SglangCpuLane({"speed": "1"})


def test_a_server_that_does_not_start_is_a_harness_error(lane):
    ScriptedServer.broken_start = True
    begun(lane)

    with pytest.raises(HarnessError, match="it does not start"):
        lane.engine(SPEC)


def test_an_environment_that_cannot_be_made_is_a_harness_error(lane, monkeypatch):
    def fail(version, **options):
        raise EnvError("no network")

    monkeypatch.setattr(sglang_cpu.environments, "make", fail)
    begun(lane)
    with pytest.raises(HarnessError, match="no network"):
        lane.engine(SPEC)


def test_what_the_caller_can_mend_ends_the_run(lane, monkeypatch):
    def fail(version, **options):
        raise EnvUsage("the disk is full")

    monkeypatch.setattr(sglang_cpu.environments, "make", fail)
    begun(lane)
    with pytest.raises(UsageError, match="the disk is full"):
        lane.engine(SPEC)


def test_an_environment_that_cannot_be_made_is_not_tried_for_every_scenario(lane, monkeypatch):
    tried = []

    def fail(version, **options):
        tried.append(version)
        raise EnvError("no network")

    monkeypatch.setattr(sglang_cpu.environments, "make", fail)
    for _ in range(3):
        begun(lane)
        with pytest.raises(HarnessError, match="no network"):
            lane.engine(SPEC)
        lane.finish()
    assert len(tried) == 1


def test_a_server_that_never_starts_is_given_up(lane, monkeypatch):
    started = []
    monkeypatch.setattr(ScriptedServer, "start", lambda self: started.append(1) or fail_to_start())
    for _ in range(4):
        begun(lane)
        with pytest.raises(HarnessError, match="it does not start"):
            lane.engine(SPEC)
        lane.finish()
    assert len(started) == sglang_cpu.TRIES


def fail_to_start():
    raise ServerError("it does not start")


def test_a_server_that_starts_at_the_second_try_is_not_given_up(lane):
    for broken in (True, False, True, False):
        ScriptedServer.broken_start = broken
        begun(lane)
        if broken:
            with pytest.raises(HarnessError, match="it does not start"):
                lane.engine(SPEC)
        else:
            lane.engine(SPEC).kill()
        lane.finish()


def test_a_cache_that_cannot_be_written_is_a_usage_error(lane, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "file"))
    begun(lane)
    with pytest.raises(UsageError, match=r"file.*set REFITCHECK_CACHE to another folder"):
        lane.engine(SPEC)


def test_an_engine_between_scenarios_is_a_harness_error(lane):
    with pytest.raises(HarnessError, match="between scenarios"):
        lane.engine(SPEC)


def test_two_runs_keep_each_others_expectations(tmp_path):
    model = TinyModel()
    one, other = (Expectations("k", model, lambda s, p, n: Expected((s, *p)), tmp_path) for _ in range(2))
    one.get(1, [5], 2)
    other.get(2, [6], 2)
    one.save()
    other.save()

    (path,) = tmp_path.glob("*.json")
    assert len(json.loads(path.read_text())) == 2


def test_a_broken_file_of_expectations_is_no_expectation(tmp_path):
    made = Expectations("k", TinyModel(), lambda s, p, n: Expected((7,)), tmp_path)
    made.get(1, [5], 1)
    made.save()
    (path,) = tmp_path.glob("*.json")
    path.write_text("{")

    assert Expectations("k", TinyModel(), lambda s, p, n: Expected((8,)), tmp_path).get(1, [5], 1) == Expected((8,))
