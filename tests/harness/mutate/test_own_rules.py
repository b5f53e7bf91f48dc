"""Rules and mutants of a user's own: treated like ours, and a wrong file is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.mutate import catalogue
from harness.mutate.mutant import PatternGoneError
from harness.mutate.pattern import expression, statement
from harness.mutate.rule_checks import book_with, host
from tests.harness.mutate.conftest import mutate

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "house_rules.py")


def test_the_example_is_killed_by_its_own_rule(tmp_path):
    ran = mutate(tmp_path, "--rules", EXAMPLE, "--catalogue", EXAMPLE, "--rule", "HOUSE", "--no-cache", "-j", "1")
    assert ran.code == 0, ran.err
    assert "✓ house-abort HOUSE-1" in ran.out
    assert "HOUSE-1: mode abort" in ran.out
    assert "controls 2/2" in ran.out


RULE = 'Rule("HOUSE-9", "MUST", "refit", "t", "{versions}", ("c",), lambda h: None)'
HEAD = "from harness.rules import Rule\nfrom harness.scenario import Scenario\nfrom harness.suites import Suite\n"
SCENARIO = 'Scenario("h/a", frozenset({"HOUSE-9"}), lambda b: None, "not yet: x")'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("suite = 5", "its suite is no harness.suites.Suite"),
        ("def suite():\n    raise KeyError('x')", "KeyError: 'x'"),
        ("suite = (", "does not import: SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit(3)", "does not import: SystemExit: 3"),
        ("rules = 5", "has no 'suite'"),
        (HEAD + f"suite = Suite('x', ({RULE.format(versions='')},), ())", "rule HOUSE-9 has no scenario"),
        (HEAD + f"suite = Suite('x', ({RULE.format(versions='so')},), ({SCENARIO},))", "'so' is neither a version"),
        (HEAD + f"suite = Suite('x', (), ({SCENARIO},))", "scenario h/a names rule HOUSE-9, which does not exist"),
        (
            HEAD.replace("Rule\n", "Rule\n", 1) + "suite = Suite('x', ('rule',), ())",
            "'str' object has no attribute 'id'",
        ),
        (
            HEAD + f"suite = Suite('x', ({RULE.format(versions='').replace('HOUSE-9', 'SESS-1')},), ())",
            "rule SESS-1 is defined twice",
        ),
    ],
)
def test_a_file_with_rules_that_is_wrong_is_one_line(tmp_path, text, said):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError) as error:
        book_with([str(tmp_path / "mine.py")])
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "mine.py" in str(error.value)


MUTANT = 'Mutant("a", {target}, {op}, {breaks})'
GOOD = {"target": "'harness.reference.control:Control.pause'", "op": "edits(Drop('x'))", "breaks": "{'SESS-1'}"}
IMPORTS = "from harness.mutate import Mutant\nfrom harness.mutate.edits import Drop, edits\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mutants = 5", "gives no mutants: TypeError: 'int' object is not iterable"),
        ("mutants = ['x']", "'x' is neither a Mutant nor a Plant"),
        ("def mutants():\n    yield 1\n    raise RuntimeError('boom\\nmore')", "gives no mutants: RuntimeError: boom"),
        ({"breaks": "'SESS-1'"}, "mutant a: breaks is 'SESS-1', not a set of rule ids"),
        ({"breaks": "set()"}, "mutant a: it breaks no rule"),
        ({"target": "'justname'"}, "mutant a: its target is 'justname', not 'module:function'"),
        ({"op": "None"}, "mutant a: its op is None, not an operation"),
        ("same", "mutant a is defined twice"),
    ],
)
def test_a_file_with_mutants_that_is_wrong_is_one_line(tmp_path, text, said):
    if isinstance(text, dict):
        text = IMPORTS + f"mutants = [{MUTANT.format(**GOOD | text)}]"
    elif text == "same":
        text = IMPORTS + f"mutants = [{MUTANT.format(**GOOD)}] * 2"
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError) as error:
        catalogue.load([str(tmp_path / "mine.py")], installed=False)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mutant_of_a_rule_that_does_not_exist_and_an_unknown_rule_are_refused():
    with pytest.raises(UsageError, match="a mutant breaks rule NOPE-7, which does not exist"):
        host({"breaks": ["NOPE-7", "SESS-1"]})
    with pytest.raises(UsageError, match="no rule or family 'NOPE'"):
        host({"rules": ["SESS", "NOPE"]})


@pytest.mark.parametrize("text", ["x =", "", "a; b", "def"])
def test_a_pattern_that_is_no_python_cannot_be_found(text):
    with pytest.raises(PatternGoneError, match="the pattern"):
        statement(text)
    with pytest.raises(PatternGoneError, match="the pattern"):
        expression(text)
