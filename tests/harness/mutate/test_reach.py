"""What a catalogue mutant changes: the lines of an edit, the functions that a planted defect replaces."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.errors import UsageError
from harness.mutate import reach, replay
from harness.mutate.edits import Drop, Edits, Insert, Patch, Table
from harness.mutate.jobs import Step
from harness.mutate.mutant import Mutant
from harness.mutate.pursuit import variety
from harness.mutate.source import parse

BEFORE = """
def f(x):
    '''What it does.'''
    a = 1
    if x:
        b = 2
        c = 3
    else:
        d = 4
    try:
        e = 5
    except ValueError:
        g = 6
    finally:
        h = 7
    return a
"""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a = 1", "a = 2", {4}),
        ("    a = 1\n", "", {4}),
        ("c = 3", "c = 4", {7}),
        ("        b = 2\n", "        b = 2\n        z = 9\n", {7}),
        ("        c = 3\n", "        c = 3\n        z = 9\n", {7}),
        ("if x:", "if not x:", {5}),
        ("d = 4", "d = 5", {9}),
        ("    else:\n        d = 4\n", "", {5}),
        ("g = 6", "g = 7", {13}),
        ("except ValueError", "except KeyError", {10}),
        ("h = 7", "h = 8", {15}),
        ("    return a\n", "    return a\n    z = 9\n", {16}),
        ("def f(x)", "def f(x, y)", {3, 4}),
        ("return a", "yield a", {3, 4}),
        ("c = 3\n    else:\n        d = 4", "c = 4\n    else:\n        d = 5", {7, 9}),
        ("a = 1\n    if x:", "a = 2\n    if not x:", {4}),
        ("", "", set()),
    ],
)
def test_a_line_runs_whenever_the_edit_matters(old: str, new: str, lines: set[int]) -> None:
    one, other = (ast.parse(text).body[0] for text in (BEFORE, BEFORE.replace(old, new, 1)))
    assert reach.changed(one, other) == lines  # type: ignore[arg-type]  # functions


@pytest.fixture
def land(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package with a class, a function and a table."""
    made = ModuleType("land")
    text = """
    class Hill:
        steep = 3
        def climb(self): pass
        @property
        def top(self): return 1
        @classmethod
        def new(cls): pass
    def walk(): pass
    made = lambda: 1
    TABLE = {"a": 1}
    """
    monkeypatch.setitem(sys.modules, "land", made)
    exec(compile(textwrap.dedent(text), "land.py", "exec"), vars(made))
    return made


def _patch(land: ModuleType, change: str) -> Mutant:
    return Mutant("m", "engine:", Patch(lambda: exec(change, vars(land)), "x"), frozenset({"R-1"}))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("Hill.climb = lambda self: 1", ("land:Hill.climb",)),
        ("Hill.new = classmethod(lambda cls: 1)", ("land:Hill.new",)),
        ("walk = Hill.climb = None", ("land:Hill.climb", "land:walk")),
        ("pass", ()),
        ("Hill.steep = 4", None),
        ("Hill.top = property(lambda self: 2)", None),
        ("made = None", ("land:<lambda>",)),
        ("TABLE['a'] = 2", None),
        ("TABLE['b'] = 2", None),
        ("more = 1", None),
        ("class Dale: pass", None),
        ("1 / 0", None),
    ],
)
def test_what_a_planted_defect_replaces(land: ModuleType, change: str, found: tuple[str, ...] | None) -> None:
    assert reach.places([_patch(land, change)], "land") == ({} if found is None else {"m": found})
    assert land.walk() is None, "it was entered in a child"


def test_of_an_edit_the_functions_are_known_and_of_a_table_nothing() -> None:
    edit = Mutant("e", "land:walk", Edits((Drop("x"), Insert("y"))), frozenset({"R-1"}))
    table = Mutant("t", "land:TABLE", Table({"a": lambda old: 2}, "x"), frozenset({"R-1"}))
    assert reach.places([edit, table], "land") == {"e": ("land:walk",)}


def test_lines_are_known_of_live_functions_of_the_targets(tmp_path: Path) -> None:
    path = tmp_path / "land.py"
    path.write_text("def walk():\n    'Slowly.'\n    x = 1\n    y = 2\ndef old():\n    pass\n")
    source = parse("land", path)
    program: Any = SimpleNamespace(sources={"land": source}, dead=[source.function("old")])
    patch = Mutant("p", "engine:", Patch(lambda: None, "x"), frozenset({"R-1"}))
    edit = Mutant("e", "land:walk", Edits((Drop("y = 2"),)), frozenset({"R-1"}))
    gone = Mutant("g", "land:walk", Edits((Drop("z = 3"),)), frozenset({"R-1"}))
    assert reach.lines(patch, "land:walk", program) == (str(path), {2, 3})
    assert reach.lines(edit, "land:walk", program) == (str(path), {4})
    for mutant, place in ((patch, "land:old"), (patch, "land:run"), (patch, "sea:walk"), (gone, "land:walk")):
        assert reach.lines(mutant, place, program) is None


def test_what_changes_nothing_of_the_fake_is_not_replayed(land: ModuleType) -> None:
    mutant = _patch(land, "pass")
    assert replay.of_the_fake([mutant], {}) == [mutant]
    with pytest.raises(UsageError, match=r"^none of these mutants changes the fake engine$"):
        replay.of_the_fake([mutant], {"m": ()})


def test_everything_is_done_once_before_it_is_done_elsewhere_and_what_is_heavy_comes_last() -> None:
    def step(check: int, same: str, heavy: bool = False) -> Step:
        return Step(check, 0, 0.0, 0.0, heavy, same)

    steps = [step(0, "a"), step(1, "a"), step(2, ""), step(3, "b", True), step(4, "a"), step(5, ""), step(6, "c")]
    assert [found.check for found in variety(steps)] == [0, 2, 5, 6, 1, 4, 3]
