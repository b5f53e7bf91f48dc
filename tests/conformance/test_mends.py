"""Every rule says what to do where it is broken: a line, not its clause again, of routes that there are."""

from __future__ import annotations

import re

from fakes.engine.profiles import profile
from fakes.engine.routes import routes
from harness.listing import explained
from harness.suites import load_book

BOOK = load_book()
LONGEST = 160


def alike(one, other):
    """The share of words that two texts have in common: 1 where one is the other again."""
    mine, theirs = (set(re.findall(r"[\w'-]+", text.lower())) for text in (one, other))
    return len(mine & theirs) / len(mine | theirs)


def test_every_must_rule_says_what_to_mend_in_a_line_of_its_own():
    must = [rule for rule in BOOK.rules.values() if rule.level == "MUST"]
    assert [r.id for r in must if not r.mend or r.mend != " ".join(r.mend.split())] == []
    assert [r.id for r in must if len(r.mend) > LONGEST] == []
    assert [r.id for r in must if alike(r.mend, r.text) >= 0.5] == []


def test_no_two_rules_say_the_same():
    said = [rule.mend for rule in BOOK.rules.values() if rule.mend]
    assert sorted(said) == sorted(set(said))


def test_every_route_that_a_line_names_is_one_of_sglangs():
    known = set(routes(profile("0.5.23")))
    named = {path for rule in BOOK.rules.values() for path in re.findall(r"(?<![\w/])/[a-z_]+", rule.mend)}
    assert len(named) > 5
    assert named <= known


def test_explain_prints_it(monkeypatch):
    monkeypatch.setattr("harness.example.example_of", lambda book, rule: None)  # what it costs is not asked here
    rule = BOOK.rules["CACHE-1"]
    assert f"  mend       {rule.mend}" in explained(BOOK, "CACHE-1")


def test_what_the_invariants_of_exploration_follow_from_are_rules_of_the_suite():
    named = {cause for rule in BOOK.rules.values() for cause in (*rule.follows, *rule.echoes)}
    assert {"SESS-1", "PAUSE-1", "ERR-1"} <= {c for r in BOOK.invariants for c in BOOK.rules[r].follows}
    assert named <= set(BOOK.rules)
