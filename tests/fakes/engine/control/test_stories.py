"""Whole stories, every effect of them in order and in time, against what they were.

The texts beside this file were made by the engine itself, whose answers equal the recorded ones (tests/recorded):
they pin what it does and prove nothing by themselves; only sessions and pauses of 0.5.23 were read line by line. A
change of behaviour shows as a difference of lines; when it is meant, write the texts anew with `APPROVE=1 pytest
tests/fakes/engine/control/test_stories.py` and read what changed.
"""

from __future__ import annotations

import difflib
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.engine.control.stories import controlling, generating, updating
from tests.fakes.engine.control.stories.teller import Teller

ENDS = ("0.5.12.post1", "0.5.23")
CASES = [
    *((story, version) for story in (*generating.STORIES, *controlling.STORIES) for version in ENDS),
    *((story, version) for story in updating.STORIES for version in (*ENDS, "0.5.20", "miles")),
]
FOLDER = Path(__file__).with_name("stories")
MARK = "\n=== "


def approved() -> dict[str, str]:
    path = FOLDER / "approved.txt.xz"
    text = lzma.decompress(path.read_bytes()).decode() if path.exists() else ""
    parts = (part.partition("\n") for part in text.split(MARK)[1:])
    return {title: body for title, _, body in parts}


APPROVED = approved()
MADE: dict[str, str] = {}


@pytest.mark.parametrize(("story", "version"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_a_story_goes_as_it_was_approved(story: Callable[[str], Teller], version: str) -> None:
    title = f"{story.__name__} {version}"
    text = "\n".join(story(version).lines)
    if os.environ.get("APPROVE"):
        MADE[title] = text
        whole = "".join(f"{MARK}{name}\n{found}" for name, found in sorted({**approved(), **MADE}.items()))
        (FOLDER / "approved.txt.xz").write_bytes(lzma.compress(whole.encode()))
        return
    if text != APPROVED.get(title):
        wanted = APPROVED.get(title, "").splitlines()
        pytest.fail("\n".join(difflib.unified_diff(wanted, text.splitlines(), "approved", "now", lineterm="", n=1)))


def test_no_story_is_left_over() -> None:
    assert set(approved()) == {f"{story.__name__} {version}" for story, version in CASES}
