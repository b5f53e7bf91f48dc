"""The validator is attacked: every mutation of a good run is refused, by the rule that it breaks, with the reason."""

import json
from collections import Counter
from pathlib import Path

import pytest

from real_runs.evidence.training import good, validating
from real_runs.evidence.training.checks import CHECKS
from real_runs.evidence.training.dishonest import CASES
from real_runs.evidence.training.run import TrainingRun


def test_the_good_run_stands():
    assert validating.refusals(TrainingRun(good.files())) == []


WORDS = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))
"""Case -> every line that is said of it, word by word: a person has read them."""


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_it_is_refused_for_its_reason(case):
    found = validating.refusals(case.run())
    lines = [line for rule, line in found if rule == case.rule]

    assert any(case.word in line for line in lines), lines
    assert all("\n" not in line and len(line) < 500 for line in lines)
    assert [f"{rule} {line}" for rule, line in found] == WORDS[case.id]


def test_the_table_is_whole():
    counts = Counter(case.rule for case in CASES)

    assert len(CASES) >= 160
    assert len({case.id for case in CASES}) == len(CASES)
    assert set(counts) == {check.rule for check in CHECKS}
    assert [check.rule for check in CHECKS] == [f"EVID-{number}" for number in range(1, 21)]
