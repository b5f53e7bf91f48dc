"""The reference client as a system under test: options, markers, states that are refused, rollouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.errors import Unsupported
from harness.reference.adapter import ReferenceSut
from harness.reference.errors import BadState, BrokenGather, CallFailed
from tests.harness.reference.fleet import BEGIN, END, UPDATE, Rig, client, failing, state


@pytest.mark.parametrize(("version", "mode"), [("0.5.20", "abort"), ("miles", "abort"), ("0.5.21", "retract")])
def test_the_default_pause_mode_is_one_under_which_that_version_can_be_flushed(version, mode):
    rig = Rig(version)
    sut = client(rig)
    sut.refit(100)
    assert dict(rig.e[0].log)["pause_generation"] == {"mode": mode}
    assert sut.capabilities().pause_mode == mode


def test_in_place_is_refused_at_construction():
    with pytest.raises(ValueError, match="unsafe for weight refit"):
        ReferenceSut(pause_mode="in_place")


@pytest.mark.parametrize("bad", [{"pause_mode": "x"}, {"policy": "x"}, {"bucket_bytes": 0}])
def test_a_wrong_option_is_refused_at_construction(bad):
    with pytest.raises(ValueError):
        ReferenceSut(**bad)


def test_the_markers_of_a_success():
    rig = Rig(engines=2, tp=2)
    client(rig).refit(100)
    assert rig.names() == ["REFIT_START", "GROUP_READY", "OFFLOADED", "REFIT_SUCCESS"]
    assert rig.marker("GROUP_READY") == {"world_size": 4, "engines": 2, "names": ["e0", "e1"]}
    assert rig.marker("REFIT_START") == {"transfer": "tensor", "index": 1, "version": "v1"}


def test_the_group_is_not_ready_while_an_engine_has_not_answered():
    rig = Rig(engines=2)
    rig.e[1].script["model_info", 1] = "500 before"
    failing(rig)
    assert "GROUP_READY" not in rig.names()
    assert rig.marker("REFIT_FAILURE")["phase"] == "connect"


def test_it_connects_once_per_incarnation():
    rig = Rig()
    sut = client(rig)
    sut.refit(100)
    sut.refit(100)
    assert rig.e[0].ops.count("model_info") == 1
    assert rig.names().count("GROUP_READY") == 1
    rig.e[0].incarnation = 1
    sut.refit(100)
    assert rig.e[0].ops.count("model_info") == 2


def test_an_empty_state_is_an_error_before_anything_is_sent():
    rig = Rig()
    sut = client(rig)
    sut.set_weights({}, "v1")
    with pytest.raises(BadState, match="empty"):
        sut.refit(100)
    assert rig.order == []


def test_a_state_that_lacks_what_an_earlier_one_had_is_an_error_before_anything_is_sent():
    rig = Rig()
    sut = client(rig)
    sut.refit(100)
    before = list(rig.order)
    smaller = state()
    del smaller["bias"]
    sut.set_weights(smaller, "v2")
    with pytest.raises(BadState, match="bias"):
        sut.refit(100)
    assert rig.order == before
    assert sut.reported_version() == "v1"


def test_an_export_that_leaves_something_out_fails_before_the_last_call_is_sent():
    rig = Rig()
    sut = client(rig)
    rig.kit.skip = {"w2"}
    with pytest.raises(BadState, match="w2"):
        sut.refit(100)
    assert rig.e[0].label == "default"
    assert rig.e[0].paused
    assert rig.kit.live == []


@pytest.mark.parametrize("bad", [0, -1, float("nan")])
def test_a_deadline_is_above_zero(bad):
    with pytest.raises(ValueError):
        client(Rig()).refit(bad)


def test_refits_without_setup_or_weights_say_so():
    with pytest.raises(BadState, match="set_weights"):
        ReferenceSut().refit(1)
    sut = ReferenceSut()
    sut.set_weights({"w": np.zeros(1)}, "v1")
    with pytest.raises(RuntimeError, match="setup"):
        sut.refit(1)


def test_a_missing_payload_of_a_rank_fails_everywhere_and_nothing_is_posted():
    rig = Rig(tp=2)
    sut = client(rig)
    rig.kit.silent = {1}
    with pytest.raises(BrokenGather, match="rank 1"):
        sut.refit(100)
    assert UPDATE not in rig.e[0].ops
    assert rig.kit.live == []
    assert not rig.e[0].paused


@pytest.mark.parametrize(
    ("op", "phase"),
    [
        ("pause_generation", "pause"),
        ("flush_cache", "flush"),
        (BEGIN, "begin"),
        (UPDATE, "transfer"),
        (END, "end"),
    ],
)
def test_the_failure_marker_names_the_phase(op, phase):
    rig = Rig()
    rig.e[0].script[op, 1] = "500 before"
    failing(rig)
    assert rig.marker("REFIT_FAILURE")["phase"] == phase
    assert rig.marker("REFIT_FAILURE")["error_type"] == "CallFailed"


def test_a_lane_without_a_trainer_kit_is_unsupported():
    rig = Rig()
    with pytest.raises(Unsupported, match="trainer kit"):
        ReferenceSut().setup(replace(rig.fleet, trainer=None))


def test_the_policy_of_the_fleet_is_taken_unless_one_was_given():
    rig = Rig()
    rig.fleet = replace(rig.fleet, options={"policy": "terminal"})
    assert client(rig).capabilities().policy == "terminal"
    assert client(rig, policy="quarantine").capabilities().policy == "quarantine"


@pytest.mark.parametrize(
    ("meta", "version"),
    [
        ({"weight_version": "v2"}, "v2"),
        ({"weight_version": "v3", "weight_versions": [{"version": "v1"}, {"version": "v2"}]}, "v2"),
    ],
)
def test_a_rollout_is_labelled_by_the_engine_not_by_the_policy(meta, version):
    rig = Rig()
    sut = client(rig)
    rig.e[0].answers["generate"] = {"output_ids": [5, 6], "meta_info": meta}
    assert sut.rollout([1, 2], 2) == {"tokens": [5, 6], "version": version}


def test_a_rollout_that_fails_says_so():
    rig = Rig()
    rig.e[0].script["generate", 1] = "500 before"
    with pytest.raises(CallFailed, match="rollout failed on e0"):
        client(rig).rollout([1], 1)
