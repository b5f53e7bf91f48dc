"""What was seen of each driver, and cells beside it."""

import dataclasses

import pytest

from fakes.engine.profiles import PROFILES
from harness.frameworks import expected
from harness.frameworks.cells import Cell
from harness.settings import DEFAULT_VERSION
from harness.sut.adapters.table import FRAMEWORKS
from harness.versions import version_matches


def test_every_framework_was_run_on_the_newest_version_and_no_row_is_hidden_by_another():
    assert [sut for sut in FRAMEWORKS if expected.row_of(sut, DEFAULT_VERSION) is None] == []
    used = {expected.row_of(sut, version) for sut in FRAMEWORKS for version in PROFILES} - {None}
    assert used == set(expected.rows())


@pytest.mark.parametrize("row", expected.rows(), ids=lambda row: f"{row.sut}-{row.versions}")
def test_a_row_names_a_driver_a_state_of_its_code_and_versions(row):
    assert row.sut in FRAMEWORKS
    assert row.at
    assert any(version_matches(version, row.versions) for version in PROFILES)


def test_a_cell_beside_its_row():
    row = expected.row_of("roll", "0.5.23")
    same = Cell("roll", "0.5.23", row.outcome, why=row.says)
    assert expected.compared(same).told == f"as expected of {row.at}"
    assert expected.compared(dataclasses.replace(same, outcome="works")).differs == "outcome works, expected stale"
    assert expected.compared(dataclasses.replace(same, paused=("e0",))).differs == "left paused True, expected False"
    assert "says nothing of" in expected.compared(dataclasses.replace(same, why="")).differs
    works = Cell("slime", "0.5.20", "works", sequence="pause_generation > continue_generation")
    assert "its first refit calls pause_generation > continue_generation, expected" in expected.compared(works).differs
    assert expected.compared(Cell("mine:Adapter", "0.5.23", "works")).told == "no expectation"
