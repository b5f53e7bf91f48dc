"""A finding as a test that is ready to be kept: red until the fake answers as the real one did."""

from __future__ import annotations

import pprint
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from real_runs.comparing import Answer, Exchange, differences
from real_runs.fuzz.server_search import Found, comparable
from real_runs.fuzz.sides import DTYPE, FakeSide, tiny
from real_runs.sequence import Sequence as Exchanges
from real_runs.sequence import Step

Said = tuple[int | str, Any]
"""How a call ended: its status, or a word where there was no reply, and the body."""


def unlike(
    version: str,
    steps: Sequence[dict[str, Any]],
    said: Sequence[Said],
    *,
    died: bool = False,
    tp: int = 1,
    model: str = "llama",
) -> list[str]:
    """Where the fake of `version` answers `steps` otherwise than the real one, which `said` this, call by call."""
    sequence = Exchanges(name="kept", about="found by refitcheck diff", steps=msgspec.convert(steps, list[Step]))
    fake = FakeSide(version, tiny(tp, model)).perform(sequence)
    answers = tuple(_answer(asked, *one) for asked, one in zip(fake.answers, said, strict=True))
    real = Exchange(fake.data, answers, died)
    return [str(difference) for difference in differences(*comparable(real, fake), DTYPE)]


def _answer(asked: Answer, status: int | str, body: Any) -> Answer:
    if isinstance(status, int):
        return replace(asked, ending="reply", status=status, body=body)
    return replace(asked, ending=status, status=None, body=body)


def name_of(found: Found, version: str, tp: int, model: str) -> str:
    """The test's name: what differs, and of which engine."""
    words = f"{found.difference.op} {found.difference.what} {version} tp{tp} {model}"
    return "test_" + re.sub(r"\W+", "_", words).strip("_").lower()


def text(found: Found, version: str, tp: int, model: str) -> str:
    """The test, as a whole file."""
    said = [(one.ending if one.status is None else one.status, one.body) for one in found.real.answers]
    more = "".join(
        f", {key}={value!r}"
        for key, value, usual in (("died", found.real.died, False), ("tp", tp, 1), ("model", model, "llama"))
        if value != usual
    )
    return (
        f'"""Found by `refitcheck diff`, seed {found.seed}: {found.difference.op} {found.difference.what}."""\n\n'
        "from real_runs.fuzz.regression import unlike\n\n"
        f"STEPS = {_data(msgspec.to_builtins(found.sequence.steps))}\n\n"
        f"SAID = {_data(said)}\n\n\n"
        f"def {name_of(found, version, tp, model)}():\n"
        f"    assert unlike({version!r}, STEPS, SAID{more}) == []\n"
    )


def _data(value: Any) -> str:
    return pprint.pformat(value, width=112, sort_dicts=False)


def keep(folder: Path, name: str, content: str) -> Path:
    """Write a test's file, named as the test."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(content, encoding="utf-8")
    return path
