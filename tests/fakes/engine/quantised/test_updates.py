"""When an engine derives what its kernels read."""

from __future__ import annotations

import pytest

from fakes.engine.protocol import Raised
from fakes.engine.quantised import checkpoint
from tests.fakes.engine.control.driver import Driver

SESSIONS = ("miles", "0.5.21", "0.5.23")
PLAIN = ("0.5.12.post1", "0.5.20")


class Quantised(Driver):
    def __init__(self, version: str, quantisation: str = "mxfp8") -> None:
        self._held = quantisation
        super().__init__(version, device="cuda", quantisation=quantisation)

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


@pytest.mark.parametrize("version", [*PLAIN, *SESSIONS])
def test_a_folder_derives(version):
    engine = Quantised(version)
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


def test_bfloat16_kills():
    engine = Quantised("0.5.23")
    engine.call("begin_weight_update", {})
    outcome = engine.update(Driver("0.5.23").weights(1))
    assert outcome.ending == "dropped"
    assert engine.died is not None
    assert engine.died.error == Raised(
        "ValueError",
        "Downcasting not allowed: target.dtype=torch.float8_e4m3fn, loaded_weight.dtype=torch.bfloat16",
    )
