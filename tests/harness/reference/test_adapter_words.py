"""The reference client as a system under test: options, rollouts, what it says that it can, its refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.errors import Unsupported
from harness.reference.adapter import TRANSPORTS, ReferenceSut, checkpoint_engine, distributed
from harness.reference.errors import BadSetup, BadState
from tests.harness.reference.fleet import UPDATE, Rig, client, failing, state

META = {"meta_info": {"weight_version": "v7"}, "output_ids": [4, 5]}


def test_before_setup_nothing_runs() -> None:
    sut = ReferenceSut()
    with pytest.raises(BadState, match=r"^refit before set_weights$"):
        sut.refit(1)
    sut.set_weights(state(), "v")
    with pytest.raises(RuntimeError, match=r"^setup has not been called$"):
        sut.refit(1)
    assert sut.reported_version() is None
    sut.close()


def test_a_lane_without_a_trainer_kit_is_not_supported() -> None:
    with pytest.raises(Unsupported, match=r"^the lane has no trainer kit, so nothing can be exported$"):
        ReferenceSut().setup(replace(Rig().fleet, trainer=None))


def test_a_rollout_asks_each_engine_in_turn_for_greedy_tokens() -> None:
    rig = Rig(engines=3)
    sut = client(rig)
    for engine in rig.e:
        engine.answers["generate"] = META
    assert [sut.rollout([1, 2], 3) for _ in range(4)] == [{"tokens": [4, 5], "version": "v7"}] * 4
    sampling = {"temperature": 0, "max_new_tokens": 3, "ignore_eos": True}
    assert rig.e[0].log[-1] == ("generate", {"input_ids": [1, 2], "sampling_params": sampling})
    assert rig.order == ["e1:generate", "e2:generate", "e0:generate", "e1:generate"]


@pytest.mark.parametrize("name", ["", "sleep", "TRAIN"])
def test_phases_have_names(name: str) -> None:
    with pytest.raises(ValueError, match=f"^phase must be train or rollout, not '{name}'$"):
        client(Rig()).phase(name)


def test_the_rollout_phase_does_nothing() -> None:
    rig = Rig()
    client(rig).phase("rollout")
    assert rig.e[0].log == []


def test_what_it_says_that_it_can() -> None:
    before = ReferenceSut().capabilities()
    assert (before.transports, before.policy, before.pause_mode, before.ranks) == (
        frozenset(TRANSPORTS),
        "resume",
        "retract",
        1,
    )
    assert before.optional == {"buckets", "phase", "quantisation", "reported_version", "rollout", "setup"}
    after = client(Rig("0.5.20", spare=2), policy="terminal", transport="tensor").capabilities()
    assert (after.transports, after.policy, after.pause_mode, after.ranks) == (
        frozenset({"tensor"}),
        "terminal",
        "abort",
        3,
    )
    assert distributed().capabilities().transports == frozenset({"distributed"})
    assert checkpoint_engine().capabilities().transports == frozenset({"checkpoint-engine"})


@pytest.mark.parametrize(("given", "mode"), [(None, "retract"), ("abort", "abort"), ("retract", "retract")])
def test_the_pause_mode_is_the_one_given_or_the_gentlest(given: Any, mode: str) -> None:
    rig = Rig()
    client(rig, pause_mode=given).refit(100)
    assert ("pause_generation", {"mode": mode}) in rig.e[0].log


def test_policy_and_transport_may_come_with_the_fleet() -> None:
    rig = Rig()
    rig.fleet = replace(rig.fleet, options={"policy": "terminal", "transport": "tensor"})
    assert client(rig).capabilities().policy == "terminal"
    assert client(rig, policy="resume").capabilities().policy == "resume"
    rig.fleet = replace(rig.fleet, options={"policy": "x"})
    with pytest.raises(ValueError, match=r"^policy must be resume, quarantine, terminal, not 'x'$"):
        client(rig)
    rig.fleet = replace(rig.fleet, options={"transport": "x"})
    known = "tensor or distributed or checkpoint-engine or disk or ipc or lora"
    with pytest.raises(ValueError, match=f"^transport must be {known}, not 'x'$"):
        client(rig)
    for name in ("tensor", "checkpoint-engine", "disk"):
        rig.fleet = replace(rig.fleet, options={"transport": name})
        assert client(rig)._client.transport.name == name  # type: ignore[union-attr]


SETUP = {
    "colocated": True,
    "trainer": "megatron",
    "transport": "auto",
    "nodes_per_engine": 1,
    "tensor_parallel_size": 2,
    "data_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "expert_parallel_size": 1,
    "pause_mode": "abort",
    "kv_scales": None,
    "quantisation": {"scheme": "bf16"},
}


def test_a_setup_decides_transport_and_pause_mode_before_the_scenario_does() -> None:
    rig = Rig(engines=2, tp=2)
    rig.fleet = replace(rig.fleet, options={"setup": {**SETUP, "transport": "disk"}, "transport": "tensor"})
    for given in ("", "disk"):
        sut = client(rig, transport=given)
        assert sut._client.transport.name == "disk"  # type: ignore[union-attr]
        assert sut.capabilities().pause_mode == "abort"
    with pytest.raises(BadSetup, match=r"^the client has transport tensor, and the setup asks for disk$"):
        client(rig, transport="tensor")


def test_a_setup_is_held_against_every_engine() -> None:
    for odd in (0, 1):
        rig = Rig(engines=2, tp=2)
        rig.e[odd].tp = 4
        rig.fleet = replace(rig.fleet, options={"setup": SETUP})
        with pytest.raises(BadSetup, match="contradicts the engines, which have 2, 4"):
            client(rig)


@pytest.mark.parametrize(
    ("lacks", "raised"), [(NotImplementedError("no groups"), Unsupported), (OSError("no groups"), OSError)]
)
def test_only_a_lane_without_groups_is_not_supported(lacks: Exception, raised: type[Exception]) -> None:
    class Kit:
        ranks = 1

        @property
        def groups(self) -> Any:
            raise lacks

    sut = ReferenceSut(transport="distributed")
    with pytest.raises(raised, match=r"^no groups$"):
        sut.setup(replace(Rig().fleet, trainer=Kit()))
    sut.set_weights(state(), "v")
    with pytest.raises(RuntimeError, match=r"^setup has not been called$"):
        sut.refit(1)
    sut.close()


def test_closing_closes_the_client_once() -> None:
    sut = client(Rig())
    closed: list[int] = []
    sut._client.close = lambda: closed.append(1)  # type: ignore[union-attr, method-assign]
    sut.close()
    assert closed == [1]


def test_one_update_call_word_by_word() -> None:
    rig = Rig()
    client(rig).refit(100)
    (first, *_, last) = [body for op, body in rig.e[0].log if op == UPDATE]
    assert {key: value for key, value in first.items() if key != "serialized_named_tensors"} == {
        "load_format": "flattened_bucket",
        "flush_cache": False,
    }
    assert last["weight_version"] == "v1"


def test_an_export_that_is_not_the_state_is_told_and_its_last_call_is_never_made() -> None:
    rig = Rig()
    rig.kit.skip = {"w0", "w1", "w2", "w3"}
    _, error = failing(rig, expect=BadState)
    assert str(error) == "transfer: the export is not the state: w0, w1, w2 of 4"
    assert UPDATE not in rig.e[0].ops
    more = Rig()
    stream = more.kit.stream
    more.kit.stream = lambda rank, given, timeout_s: stream(rank, {**given, "extra": given["w0"]}, timeout_s)
    _, error = failing(more, expect=BadState)
    assert str(error) == "transfer: the export is not the state: extra of 1"
    assert not [body for op, body in more.e[0].log if op == UPDATE and "weight_version" in body]
