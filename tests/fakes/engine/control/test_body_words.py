"""What a 400 quotes of a field that does not fit, and rows of log-probabilities at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.engine.crash import Crash
from fakes.engine.profiles import PROFILES
from fakes.engine.request import Logprobs, Req, Sampling, choose, row
from fakes.engine.requests import Field, Struct
from fakes.engine.routes import routes
from fakes.engine.validation import Invalid, parse


def refusals(kind: Any, value: Any) -> list[str]:
    p = PROFILES["0.5.23"]
    with pytest.raises(Invalid) as invalid:
        parse(p, routes(p)["/pause_generation"], "POST", Struct("T", (Field("x", kind),)), {"x": value})
    return [error["msg"] for error in invalid.value.errors]


def test_a_span_that_is_none_is_told_by_the_name_of_its_struct() -> None:
    """utils/weight_versions.py:17@0.5.23: pydantic tries the struct first, then the dict."""
    assert refusals("spans?", [{"version": "1", "start": 0}]) == [
        "Input should be an instance of T",
        "Input should be an instance of WeightVersionSpan",
        "Field required",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("***", "Value error, Expected base64-encoded bytes"),
        ("QUJ", "Value error, Expected base64-encoded bytes"),
        ("é", "Value error, string argument should contain only ASCII characters"),
    ],
)
def test_a_text_that_is_no_base64_is_told_why(text: str, words: str) -> None:
    """utils/msgspec_utils.py:22@0.5.23 rewords binascii.Error, and nothing else."""
    assert words in refusals("base64", [text])


VALUES = np.array([-3.0, -1.0, -1.5, -2.0], np.float32)


@pytest.mark.parametrize(("top", "ids"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 3, 0])])
def test_the_best_of_a_row(top: int, ids: list[int]) -> None:
    best = row(Logprobs(top=top), VALUES, 0).top
    assert best is not None
    assert [token for _, token in best] == ids


def test_more_best_than_there_are_tokens_kill() -> None:
    """torch.topk refuses, and nobody catches it in the scheduler."""
    with pytest.raises(Crash) as crash:
        row(Logprobs(top=5), VALUES, 0)
    assert (crash.value.raised.type, crash.value.raised.message) == ("RuntimeError", "selected index k out of range")


@pytest.mark.parametrize(("top_p", "seen"), [(0.3, {1}), (0.5, {1, 2}), (0.999, {0, 1, 2, 3}), (1.0, {0, 1, 2, 3})])
def test_a_draw_takes_what_top_p_needs_and_no_more(top_p: float, seen: set[int]) -> None:
    """The smallest set whose weight reaches top_p (layers/sampler.py@0.5.23): 0.45, 0.27, 0.17, 0.11 here."""
    logits = np.log(np.array([0.17, 0.45, 0.27, 0.11], np.float32))
    drawn = set()
    for number in range(60):
        req = Req("r", [1], Sampling(temperature=1.0, top_p=top_p), number=number)
        drawn.add(choose(req, logits, 0)[0])
    assert drawn == seen


def test_drawing_leaves_the_warnings_of_numpy_alone() -> None:
    before = np.geterr()
    choose(Req("r", [1], Sampling(temperature=1e300)), np.ones(4, np.float32), 0)
    assert np.geterr() == before
