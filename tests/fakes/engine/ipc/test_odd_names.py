"""A name that Python itself trips over: int() of more digits than it takes (layers/utils/common.py:16@0.5.23)."""

from __future__ import annotations

from tests.fakes.engine.ipc.test_ranks import BUFFER, NONE, Wire


def test_a_layer_of_too_many_digits_is_told_and_leaves_the_weights_torn() -> None:
    """The worker tells whatever is raised (checkpoint_engine/worker.py:81@0.4.2)."""
    wire = Wire()
    wire.begin()
    odd = wire.weights()
    odd.named.append((f"model.layers.{'1' * 5000}.mlp.down_proj.weight", odd.named[0][1]))
    said = wire.say(0, BUFFER, odd)[1] or b""
    assert b"ValueError: Exceeds the limit" in said
    assert wire.update.torn
    wire.say(0, NONE, NONE)
    wire.say(1, BUFFER, wire.weights(), NONE, NONE)
    assert wire.engine.result(wire.call).status == 200
    assert wire.engine.died is None
