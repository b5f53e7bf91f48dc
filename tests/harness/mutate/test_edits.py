from __future__ import annotations

import ast
import textwrap

import pytest

from harness.mutate.edits import Body, Drop, Edits, Insert, Move, Replace, ReplaceExpr, Table, Unwrap, edits
from harness.mutate.mutant import PatternGoneError
from harness.mutate.pattern import expression, matches, statement
from tests.harness.mutate.samples import live

REFIT = """
def refit(self, engines, deadline):
    with Guards() as guards:
        guards.hold("continue", self._continue)
        control.pause(engines, deadline)
        if not control.flush(engines, deadline):
            raise FlushFailed("not idle")
        try:
            control.begin(engines, timeout=3)
            send(engines)
        finally:
            control.end(engines)
    return engines
"""


def made(*found):
    function = ast.parse(REFIT).body[0]
    before = ast.dump(function)
    after = edits(*found).mutated(function)
    assert ast.dump(function) == before, "the given tree is not touched"
    return ast.unparse(after)


def same(text):
    return ast.unparse(ast.parse(textwrap.dedent(text)))


def test_drop_a_statement():
    assert "control.pause" not in made(Drop("control.pause(...)"))


def test_dropping_all_of_a_block_leaves_pass():
    assert "finally:\n            pass" in made(Drop("control.end(...)"))


def test_move_before_and_after_another_statement():
    before = made(Move("control.begin(...)", before="try: ...\nfinally: ..."))
    assert before.index("control.begin") < before.index("try:")
    after = made(Move("control.begin(...)", after="send(...)"))
    assert after.index("send(engines)") < after.index("control.begin")


def test_replace_a_statement_and_an_expression():
    assert "skip()" in made(Replace("if not ANY: ...", "skip()"))
    assert "send(engines[1:])" in made(ReplaceExpr("send(ANY)", "send(engines[1:])"))


def test_unwrap_a_guard():
    text = made(Unwrap("with Guards() as guards: ..."))
    assert "with Guards" not in text
    assert "control.pause" in text


def test_insert_and_body():
    assert "again()" in made(Insert("again()", after="send(...)"))
    assert made(Insert("first()")).splitlines()[1].strip() == "first()"
    assert made(Body("return None")) == same("def refit(self, engines, deadline):\n    return None")


def test_several_edits_are_one_mutant():
    text = made(Drop("control.pause(...)"), Drop("control.end(...)"))
    assert "pause" not in text
    assert "control.end" not in text


def test_lines_and_layout_do_not_matter():
    moved = REFIT.replace(
        "control.pause(engines, deadline)",
        "# comment\n\n        control.pause(\n            engines,\n            deadline)",
    )
    function = ast.parse(moved).body[0]
    assert "control.pause" not in ast.unparse(edits(Drop("control.pause(...)")).mutated(function))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Drop("control.resume(...)"), r"no code matches 'control.resume\(...\)' any more"),
        (Drop("ANY"), r"\d places match 'ANY'; name one with nth"),
        (Drop("control.pause(...)", nth=1), "only 1 places match"),
        (ReplaceExpr("nothing", "x"), "no code matches 'nothing' any more"),
    ],
)
def test_a_pattern_that_is_gone_or_vague_fails_loudly(edit, said):
    with pytest.raises(PatternGoneError, match=said):
        made(edit)


@pytest.mark.parametrize(
    ("pattern", "code", "result"),
    [
        ("f(...)", "f(1, 2, k=3)", True),
        ("f(1, ...)", "f(1, 2)", True),
        ("f(2, ...)", "f(1, 2)", False),
        ("f(ANY)", "f(g())", True),
        ("f(ANY)", "f()", False),
        ("f(k=ANY)", "f(k=1)", True),
        ("f(k=ANY)", "f(k=1, m=2)", False),
        ("f(..., k=1)", "f(0, m=2, k=1)", True),
        ("a.b", "a.c", False),
        ("True", "1", False),
        ("await f(...)", "f()", False),
    ],
)
def test_patterns_of_expressions(pattern, code, result):
    assert matches(expression(pattern), expression(code)) is result


@pytest.mark.parametrize(
    ("pattern", "code", "result"),
    [
        ("x = ANY", "x = f()", True),
        ("if ANY: ...", "if a:\n  b()\n  c()", True),
        ("if ANY:\n  b()\n  ...", "if a:\n  b()\n  c()", True),
        ("if ANY:\n  c()\n  ...", "if a:\n  b()\n  c()", False),
        ("if ANY: ...", "if a:\n  b()\nelse:\n  c()", False),
        ("return ANY", "return", False),
        ("for r in ANY: ...", "for r in ranks: go(r)", True),
    ],
)
def test_patterns_of_statements(pattern, code, result):
    assert matches(statement(pattern), statement(code)) is result


def test_an_edit_is_applied_to_the_living_function(tmp_path, monkeypatch):
    module, program = live(tmp_path, "def f(out):\n    out.append(1)\n    out.append(2)\n    return out\n", monkeypatch)
    Edits((Drop("out.append(1)"),)).apply(f"{module.__name__}:f", program)
    assert module.f([]) == [2]


def test_an_edit_names_its_target_when_the_pattern_is_gone(tmp_path, monkeypatch):
    module, program = live(tmp_path, "def f(out):\n    return out\n", monkeypatch)
    with pytest.raises(PatternGoneError, match=rf"^{module.__name__}:f: no code matches"):
        Edits((Drop("out.append(1)"),)).apply(f"{module.__name__}:f", program)


def test_a_table_is_edited_in_place_and_a_change_that_changes_nothing_is_refused(tmp_path, monkeypatch):
    module, program = live(tmp_path, "TABLE = {'old': 1, 'new': 2}\n", monkeypatch)
    held = module.TABLE
    Table({"old": lambda n: n + 10}, "old is kinder").apply(f"{module.__name__}:TABLE", program)
    assert held == {"old": 11, "new": 2}
    Table({...: lambda n: 0}, "all").apply(f"{module.__name__}:TABLE", program)
    assert held == {"old": 0, "new": 0}
    with pytest.raises(PatternGoneError, match="changes nothing"):
        Table({"old": lambda n: n}, "nothing").apply(f"{module.__name__}:TABLE", program)
    with pytest.raises(PatternGoneError, match="no entry 'gone'"):
        Table({"gone": lambda n: n}, "gone").apply(f"{module.__name__}:TABLE", program)
