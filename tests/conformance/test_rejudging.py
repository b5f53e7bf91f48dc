"""Histories that a green run kept are judged again as that run did: none is accused by a rule of another scenario."""

from __future__ import annotations

import pytest

from harness.cli import invoke
from harness.history_files import read_history
from harness.rejudge import rules_for
from harness.suites import load_book

SCENARIOS = (
    "engine/err/an-unknown-load-format",
    "engine/name/unknown-and-no-names",
    "engine/sess/update-outside-a-session",
    "refit/cache/a-warm-prompt",
    "refit/envelope/two-refits",
    "refit/envelope/two-refits-from-released-memory",
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("histories")
    book = load_book()
    assert book.scenarios.keys() >= set(SCENARIOS)
    options = [part for name in SCENARIOS for part in ("--scenario", name)]
    assert invoke(
        [
            "run",
            *options,
            "--exploration",
            "off",
            "--allow-inconclusive",
            "PAUSE",
            "--tp",
            "2",
            "--histories",
            str(folder),
        ]
    ) in (0, 2)
    return sorted(folder.iterdir())


def test_a_green_runs_histories_are_judged_held_again(kept, capsys):
    for path in kept:
        code = invoke(["judge", str(path)])
        out = capsys.readouterr().out
        assert code == 0, (path.name, out)
        assert f"of scenario {read_history(path).header.meta['scenario']}\n" in out


def test_a_history_of_no_known_scenario_is_judged_by_the_rules_of_its_side(kept):
    book = load_book()
    for path in kept:
        history = read_history(path)
        history.header.meta["scenario"] = "mine/own"
        rules, which = rules_for(history, book)
        side = "refit" if path.name.startswith("refit") else "engine"
        assert {rule.side for rule in rules} == {side}
        assert "its scenario" in which
        assert "mine/own" in which
