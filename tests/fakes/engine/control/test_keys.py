"""What is decided of a key, before any answer is made of it."""

from __future__ import annotations

import pytest

from fakes.engine.auth import decide
from fakes.engine.profiles import PROFILES
from fakes.engine.protocol import EngineConfig, Reply
from fakes.engine.routes import routes
from tests.fakes.engine.control.driver import Driver


@pytest.mark.parametrize(
    ("key", "bearer", "decision"),
    [
        ("k", "k", "allowed"),
        ("k", "x", "unauthorised"),
        ("k", None, "unauthorised"),
        ("k", "", "unauthorised"),
        ("k", "\u00e9", "broken"),
        ("\u00e9", "k", "broken"),
        ("\u00e9", "\u00e9", "broken"),
    ],
)
def test_a_key_is_compared_as_ascii(key: str, bearer: str | None, decision: str) -> None:
    """utils/auth.py:53-117@0.5.23; secrets.compare_digest takes no text beyond ASCII."""
    profile = PROFILES["0.5.23"]
    config = EngineConfig(profile="0.5.23", model_path="m", api_key=key)
    assert decide(profile, config, routes(profile), "POST", "/generate", bearer) == decision


def test_the_500_is_plain_text() -> None:
    engine = Driver("0.5.23", api_key="k")
    engine.call("model_info", method="GET", bearer="\u00e9")
    assert [effect.media for effect in engine.effects if isinstance(effect, Reply)] == ["text"]
