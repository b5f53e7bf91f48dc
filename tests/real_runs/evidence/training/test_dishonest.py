"""The validator is attacked: every mutation of a good run is refused, by the rule that it breaks, with the reason."""

from collections import Counter

import pytest

from real_runs.evidence.training import good, validating
from real_runs.evidence.training.checks import CHECKS
from real_runs.evidence.training.dishonest import CASES
from real_runs.evidence.training.run import TrainingRun


def test_the_good_run_stands():
    assert validating.refusals(TrainingRun(good.files())) == []


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_it_is_refused_for_its_reason(case):
    lines = [line for rule, line in validating.refusals(case.run()) if rule == case.rule]

    assert any(case.word in line for line in lines), lines
    assert all("\n" not in line and len(line) < 500 for line in lines)


def test_the_table_is_whole():
    counts = Counter(case.rule for case in CASES)

    assert len(CASES) >= 160
    assert len({case.id for case in CASES}) == len(CASES)
    assert set(counts) == {check.rule for check in CHECKS}
    assert [check.rule for check in CHECKS] == [f"EVID-{number}" for number in range(1, 21)]
