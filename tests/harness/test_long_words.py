"""What a client says is bounded where it comes in: nobody waits for fifty megabytes to be rendered."""

from __future__ import annotations

import json

import pytest

from harness.history_files import read_history
from harness.sut.protocol import RefitResult
from harness.words import MOST, cut, one_line, told
from tests.harness.test_cli import cli  # noqa: F401 - a fixture
from tests.harness.toys import ToySut

MUCH = "first " + "x" * 50_000_000 + " last"


class Raises(ToySut):
    def refit(self, deadline_s):
        raise RuntimeError(MUCH)


class RaisesAtClose(ToySut):
    def close(self):
        raise RuntimeError(MUCH)


class Reports(ToySut):
    def refit(self, deadline_s):
        self.fleet.record("ENGINE_LOST", 0, {"engine": "e0", "incarnation": 0, "reason": MUCH})
        return RefitResult(MUCH)


class Dumb(Exception):
    def __str__(self):
        raise ValueError("I have no words")


class RaisesDumb(ToySut):
    def refit(self, deadline_s):
        raise Dumb


@pytest.fixture
def run(cli, tmp_path):  # noqa: F811
    def run_(sut):
        files = ("--report", str(tmp_path / "r.json"), "--histories", str(tmp_path / "h"))
        options = ("--lane", "toy", "--sut", f"{__name__}:{sut.__name__}", "--exploration", "off", "-n", "1")
        code, out, err = cli("run", *options, "--rule", "TOY-2", *files)
        return code, out + err + (tmp_path / "r.json").read_text(), tmp_path / "h"

    return run_


@pytest.mark.parametrize(("sut", "code"), [(Raises, 2), (RaisesAtClose, 3), (Reports, 2)])
def test_fifty_megabytes_are_cut_and_their_ends_are_kept(run, sut, code):
    got, said, histories = run(sut)
    assert got == code
    assert len(said) < 20 * MOST
    if sut is not Reports:
        assert "first xxx" in said
    for path in histories.iterdir():
        history = read_history(path)
        assert len(json.dumps([refit.data for refit in history.refits()])) < 10 * MOST
        assert all(len(str(note.data)) < 3 * MOST for note in history.facts("ENGINE_LOST"))


def test_an_exception_that_cannot_say_what_it_is_is_named_by_its_type(run):
    code, said, _ = run(RaisesDumb)
    assert code == 2
    assert "refits fail without any fault: Dumb: (a Dumb whose text cannot be made: ValueError)" in said
    assert told(Dumb()) == "Dumb: (a Dumb whose text cannot be made: ValueError)"


def test_what_is_short_stays_as_it_is():
    assert cut("x" * MOST) == "x" * MOST
    assert cut("abcdefgh", 4) == "ab … gh"
    assert one_line(" a \n b ") == "a b"
