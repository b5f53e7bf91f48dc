"""What an update leaves behind: a session that is torn, a number of its own, requests that waited for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.engine import messages as m
from fakes.engine.quantised import checkpoint
from fakes.engine.request import _scaled
from tests.fakes.engine.control.driver import Driver, generate_body
from tests.fakes.engine.ipc.test_ranks import BUFFER, NONE, Wire

GROUP = {
    "master_address": "127.0.0.1", "master_port": 29500, "rank_offset": 1, "world_size": 2, "group_name": "g",
    "backend": "gloo",
}  # fmt: skip


def test_a_broadcast_that_cannot_be_loaded_is_told_whatever_is_raised() -> None:
    """int() of too many digits (layers/utils/common.py:16, model_runner_components/weight_updater.py:334@0.5.23)."""
    engine = Driver("0.5.23")
    assert engine.call("init_weights_update_group", GROUP).status == 200
    engine.call("begin_weight_update", {})
    name = f"model.layers.{'1' * 5000}.x"
    engine.broadcast = [(name, np.zeros(3, np.float32))]
    body = {"names": [name], "dtypes": ["float32"], "shapes": [[3]], "group_name": "g"}
    reply = engine.call("update_weights_from_distributed", body)
    assert reply.status == 400
    assert reply.body["message"].startswith("Failed to update parameter online: Exceeds the limit (4300 digits)")
    assert engine.died is None
    assert engine.core.scheduler.updater.torn


def test_a_broadcast_in_a_session_leaves_it_torn_until_its_end() -> None:
    engine = Driver("0.5.23")
    assert engine.call("init_weights_update_group", GROUP).status == 200
    engine.call("begin_weight_update", {})
    engine.broadcast = list(engine.weights(1).items())
    body = {
        "names": [name for name, _ in engine.broadcast],
        "dtypes": ["bfloat16"] * len(engine.broadcast),
        "shapes": [list(array.shape) for _, array in engine.broadcast],
        "group_name": "g",
    }
    assert engine.call("update_weights_from_distributed", body).status == 200
    engine.generate(1)
    assert engine.named("serve")[-1]["torn"]
    engine.call("end_weight_update", {})
    engine.generate(1, [1, 2])
    assert not engine.named("serve")[-1]["torn"]


def test_updates_of_all_kinds_are_counted_together() -> None:
    wire = Wire()
    wire.engine.call("begin_weight_update", {})
    for seed in (1, 2):
        assert wire.engine.update(seed=seed).status == 200
    wire.engine.call("end_weight_update", {})
    wire.begin()
    for rank in (0, 1):
        wire.say(rank, BUFFER, wire.weights(3), NONE, NONE)
    assert wire.engine.result(wire.call).status == 200
    numbers = [load["update"] for load in wire.engine.named("load")]
    assert numbers == [1, 1, 2, 2, 3, 3]


def test_what_waited_for_an_update_and_then_for_the_end_of_a_pause_waits_once() -> None:
    """A prompt out of the vocabulary, too, which kills when it runs."""
    engine = Driver("0.5.12.post1")
    engine.hang = {"ReadDisk"}
    update = engine.start("update_weights_from_disk", {"model_path": "/elsewhere"})
    waiting = engine.start("generate", generate_body(4, [100_000]))
    engine.start("pause_generation", {"mode": "in_place"})
    engine.hang, engine.disk["/elsewhere"] = set(), []
    engine.finish_reads()
    assert engine.result(update).status == 200
    (load,) = engine.call("get_load", method="GET").body
    assert load["num_waiting_reqs"] == 1
    assert engine.died is None
    engine.call("continue_generation", {})
    assert engine.result(waiting).ending == "dropped"


class Final(Driver):
    def weights(self, seed: int) -> dict[str, Any]:
        return checkpoint(super().weights(seed), "fp8-tensor")


@pytest.mark.parametrize(("tag", "message"), [("weights", m.RELEASED_WEIGHTS), ("kv_cache", m.RELEASED_KV)])
def test_memory_that_is_away_is_missed_before_a_matrix_that_lies_across(tag: str, message: m.Message) -> None:
    """The embedding is read, and Triton writes where a request lies in the cache, before anything is multiplied."""
    engine = Final("0.5.23", device="cuda", quantisation="fp8-tensor", enable_memory_saver=True)
    for op in ("begin_weight_update", "end_weight_update"):
        assert engine.call(op, {}).status == 200
    assert engine.core.scheduler.ranks[0].across() is not None
    engine.call("release_memory_occupation", {"tags": [tag]})
    assert engine.call("generate", generate_body(2)).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error.message == message.text


def test_an_infinite_temperature_silences_no_other_overflow() -> None:
    before = np.geterr()
    assert not _scaled(np.ones(3, np.float32), 1e300).any()
    assert np.isinf(_scaled(np.full(3, 3e38, np.float32), 1e-10)).all()
    assert np.geterr() == before
