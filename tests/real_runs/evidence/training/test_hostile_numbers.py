"""Whatever number stands where: refusals in no time, never a loop as long as somebody says, never a traceback."""

from __future__ import annotations

import json

import pytest

from harness.watchdog import watched
from real_runs.evidence.training import metrics, provenance_checks, told, validating, values
from real_runs.evidence.training.dishonest import put
from real_runs.evidence.training.good import files
from real_runs.evidence.training.metrics import BadMetrics, parsed, problems
from real_runs.evidence.training.run import MAX_FILES, Kept, TrainingRun

HOSTILE = [10**12, 2**63, 10**400, -(10**400), -1, 0, 1e308, float("nan"), float("inf")]
IN_NO_TIME_S = 60.0  # however slow this machine is


def places(value, path=()):
    """Where numbers stand, of many in one list or object the first."""
    if isinstance(value, dict | list):
        for key, one in list(value.items() if isinstance(value, dict) else enumerate(value))[:20]:
            yield from places(one, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


NAMES = (told.NAME, metrics.NAME, values.NAME)
PLACES = [(name, path) for name in NAMES for path in places(json.loads(files()[name].data))]


@pytest.mark.parametrize(("name", "path"), PLACES, ids=lambda v: v if isinstance(v, str) else ".".join(map(str, v)))
def test_a_number_from_outside_costs_nothing(name, path):
    kept = files()
    for hostile in HOSTILE:
        data = json.loads(kept[name].data)
        at = data
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = hostile
        made = {**kept, name: Kept(json.dumps(data).encode(), kept[name].written, 1)}
        with watched(IN_NO_TIME_S, "a validation"):
            found = validating.refusals(TrainingRun(made))
        assert sum(len(refusal.line) for refusal in found) < 100_000


def test_steps_beyond_all_files_are_one_reason():
    made = files()
    put("expected", "steps", to=10**12)(made)
    with watched(IN_NO_TIME_S, "a validation"):
        found = validating.refusals(TrainingRun(made))
    lines = {refusal.rule: refusal.line for refusal in found}
    assert lines["EVID-9"].startswith("run.json: 1000000000000 artefacts")
    assert lines["EVID-9"].endswith(f"and a run may leave {MAX_FILES} files")
    assert "has no step 5, 6, 7, 8, 9 and 999999999991 more of 1000000000000" in lines["EVID-5"]


def test_as_many_artefacts_as_a_run_may_leave_are_looked_at(monkeypatch):
    from real_runs.evidence.training import count_checks

    run = TrainingRun(files())
    many = sum(run.told.expected.steps if "{step}" in one else 1 for one in run.told.expected.artefacts)
    monkeypatch.setattr(count_checks, "MAX_FILES", many)
    assert list(count_checks.artefacts(run)) == []
    monkeypatch.setattr(count_checks, "MAX_FILES", many - 1)
    assert len(list(count_checks.artefacts(run))) == 1


def test_a_step_that_is_missing_is_told_beside_one_that_is_too_many():
    lines = list(problems("x", {"0": 1, "2": 1, "9": 1}, 3))
    assert lines == [
        "metrics.json: x has no step 1, 3 of 3",
        "metrics.json: x has step 0, 9, the run was to have steps 1 to 3",
    ]


def test_what_is_there_twice_is_found_in_one_pass():
    names = [str(n) for n in range(100_000)]
    text = ", ".join(f'"{name}": 1' for name in [*names, names[-1]])
    with watched(IN_NO_TIME_S, "a reading"):
        with pytest.raises(BadMetrics, match="99999 is there twice"):
            parsed(f"{{{text}}}".encode())
        assert provenance_checks._twice([*names, names[-1]]) == ["99999"]
