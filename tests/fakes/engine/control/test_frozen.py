"""The HTTP process while the SIGQUIT handler holds it, and the door in front of its routes."""

import pytest

from fakes.engine.protocol import Freeze
from tests.fakes.engine.control.driver import Driver


@pytest.mark.parametrize(
    ("op", "method", "bearer"),
    [
        ("model_info", "GET", "k"),
        ("no_such_route", "GET", "k"),
        ("generate", "DELETE", "k"),
        ("model_info", "GET", None),
        ("generate", "POST", "k"),
    ],
)
def test_a_frozen_process_answers_nothing_not_even_a_refusal(op: str, method: str, bearer: str | None) -> None:
    engine = Driver("0.5.23", api_key="k")
    engine.start("resume_memory_occupation", {}, bearer="k")
    engine.advance(0.5)
    late = engine.call(op, {}, method=method, bearer=bearer, timeout=4.0)
    assert late.ending == "timeout"
    assert engine.died is None


@pytest.mark.parametrize(("version", "until"), [("0.5.23", 5.08), ("0.5.17", 5.08)])
def test_the_front_is_told_once_how_long_it_is_held(version: str, until: float) -> None:
    engine = Driver(version)
    engine.start("resume_memory_occupation", {})
    engine.advance(20.0)
    assert [effect.until for effect in engine.effects if isinstance(effect, Freeze)] == [pytest.approx(until)]
    assert engine.died_at == pytest.approx(until)


def test_without_diagnostics_there_is_no_freeze() -> None:
    engine = Driver("0.5.12.post1")
    engine.start("resume_memory_occupation", {})
    engine.advance(20.0)
    assert not [effect for effect in engine.effects if isinstance(effect, Freeze)]
    assert engine.died is not None


def test_options_needs_no_key_and_meets_no_route() -> None:
    engine = Driver(api_key="k")
    assert engine.call("generate", method="OPTIONS").status == 405
    assert engine.call("no_such_route", method="OPTIONS").status == 404


def test_a_key_that_cannot_be_compared_is_an_error_of_the_server() -> None:
    """secrets.compare_digest takes text of ASCII only (utils/auth.py:117@0.5.23)."""
    reply = Driver(api_key="k").call("model_info", method="GET", bearer="schlüssel")
    assert (reply.status, reply.body) == (500, "Internal Server Error")
    assert Driver().call("model_info", method="GET", bearer="schlüssel").status == 200
