"""When an engine derives what its kernels read."""

from __future__ import annotations

import pytest

from fakes.engine.protocol import Raised
from fakes.engine.quantised import checkpoint
from tests.fakes.engine.control.driver import Driver, generate_body

SESSIONS = ("miles", "0.5.21", "0.5.23")
PLAIN = ("0.5.12.post1", "0.5.20")


class Quantised(Driver):
    def __init__(self, version: str, quantisation: str = "mxfp8") -> None:
        self._held = quantisation
        super().__init__(version, shape="qwen3", device="cuda", quantisation=quantisation)

    def weights(self, seed):
        return checkpoint(super().weights(seed), self._held)

    def wanted(self, seed):
        made = Quantised(self.config.profile, self._held)
        made.core.scheduler.ranks[0].load(self.weights(seed).items())
        made.core.scheduler.ranks[0].finalise()
        return made.state()

    def state(self):
        return self.core.scheduler.state_id()


@pytest.mark.parametrize("quantisation", ["fp8", "mxfp8", "mxfp8-trtllm"])
@pytest.mark.parametrize("version", SESSIONS)
def test_the_end_of_a_session_derives(version, quantisation):
    engine = Quantised(version, quantisation)
    engine.call("begin_weight_update", {})
    assert engine.update(seed=1, load_format=None).status == 200
    between = engine.state()
    assert engine.call("end_weight_update", {}).status == 200
    assert engine.state() == engine.wanted(1)
    assert (between == engine.state()) is (quantisation == "fp8")


@pytest.mark.parametrize("version", PLAIN)
def test_without_sessions_an_update_derives_nothing(version):
    engine = Quantised(version)
    assert engine.update(seed=1).status == 200
    assert engine.state() != engine.wanted(1)


@pytest.mark.parametrize("quantisation", ["mxfp8", "mxfp8-trtllm"])
@pytest.mark.parametrize("version", [*PLAIN, *SESSIONS])
def test_a_folder_derives(version, quantisation):
    """Once: what is shuffled in place would be shuffled again."""
    engine = Quantised(version, quantisation)
    engine.disk["/q"] = list(engine.weights(1).items())
    assert engine.call("update_weights_from_disk", {"model_path": "/q"}).status == 200
    assert engine.state() == engine.wanted(1)


def test_a_session_for_drafts_derives_nothing_of_the_target():
    engine = Quantised("0.5.23", "mxfp8-trtllm")
    before = engine.state()
    for op, body in (("begin_weight_update", {"selector": "draft"}), ("end_weight_update", {})):
        assert engine.call(op, body).status == 200
    assert engine.state() == before


def test_every_session_derives_again():
    engine = Quantised("0.5.23", "mxfp8-trtllm")
    before = engine.state()
    for op in ("begin_weight_update", "end_weight_update"):
        assert engine.call(op, {}).status == 200
    assert engine.state() != before


def test_bfloat16_is_cast_without_a_word():
    engine = Quantised("0.5.23")
    engine.call("begin_weight_update", {})
    assert engine.update(Driver("0.5.23", shape="qwen3").weights(1)).status == 200
    assert engine.state() != engine.wanted(1)


@pytest.mark.parametrize("version", SESSIONS)
def test_an_empty_session_transposes_again_and_the_next_step_dies(version):
    engine = Quantised(version, "fp8-tensor")
    for op in ("begin_weight_update", "end_weight_update"):
        assert engine.call(op, {}).status == 200
    assert engine.call("generate", generate_body(2, [5, 6, 7])).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (3x64 and 128x64)")


@pytest.mark.parametrize("version", SESSIONS)
def test_an_empty_session_quantises_again_and_dies(version):
    engine = Quantised(version, "fp8-online")
    assert engine.generate(2)
    engine.call("begin_weight_update", {})
    assert engine.call("end_weight_update", {}).ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised("AssertionError", "`x` is not contiguous")
