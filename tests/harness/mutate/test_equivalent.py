from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.mutate import command
from harness.mutate.baseline import Baseline
from harness.mutate.controls import Control
from harness.mutate.equivalent import load
from harness.mutate.jobs import Report
from harness.mutate.plan import Outcome
from harness.mutate.source import TargetError
from tests.harness.mutate.samples import sites_of

CODE = "def f(x):\n    y = x + 1\n    z = x + 1\n    return y, z\n"
ENTRY = """
[[equivalent]]
target = "sample:f"
op = "arithmetic"
original = "x + 1"
replacement = "x - 1"
n = 1
reason = "nobody reads z"
"""


def reasons(tmp_path, entry, code=CODE):
    file = tmp_path / "equivalent.toml"
    file.write_text(entry)
    known = load(file)
    found = [known.reason(s.mutant()) for s in sites_of(tmp_path, code, "arithmetic")]
    return found, known.stale(["sample"])


def test_an_entry_means_one_mutant_by_its_text(tmp_path):
    assert reasons(tmp_path, ENTRY) == (["", "nobody reads z"], [])


def test_it_survives_when_the_code_moves(tmp_path):
    assert reasons(tmp_path, ENTRY, "\n\n# moved\n" + CODE.replace("    z", "\n    z"))[0] == ["", "nobody reads z"]


def test_it_goes_stale_when_the_code_changes(tmp_path):
    assert reasons(tmp_path, ENTRY, CODE.replace("z = x + 1", "z = x")) == (
        [""],
        ["sample:f arithmetic: x + 1 -> x - 1"],
    )


def test_entries_of_other_modules_are_not_stale_here(tmp_path):
    assert reasons(tmp_path, ENTRY.replace("sample:", "elsewhere:")) == (["", ""], [])


@pytest.mark.parametrize("missing", ["target", "op", "original", "replacement", "reason"])
def test_an_entry_without_all_its_keys_is_refused(tmp_path, missing):
    entry = "\n".join(line for line in ENTRY.splitlines() if not line.startswith(missing))
    with pytest.raises(TargetError, match=f"an entry lacks '{missing}'"):
        reasons(tmp_path, entry)


def test_a_file_that_is_no_toml_is_one_line(tmp_path):
    with pytest.raises(TargetError, match=r"equivalent\.toml: "):
        reasons(tmp_path, "[[equivalent")


@pytest.mark.parametrize(
    ("report", "interrupted", "stale"),
    [("survived", False, ["sample:f arithmetic: x + 1 -> x - 1"]), ("killed", False, []), ("survived", True, [])],
)
def test_entries_are_stale_only_where_the_mutants_were_asked_for(tmp_path, monkeypatch, report, interrupted, stale):
    control = Control("identity", "survived", lambda: None, [], Report(report))
    outcome = Outcome([], Baseline([], [], []), [], [control], 0.0, interrupted=interrupted)
    monkeypatch.setattr(command, "Session", lambda *a: SimpleNamespace(run=lambda: outcome))
    (tmp_path / "equivalent.toml").write_text(ENTRY)
    known = load(tmp_path / "equivalent.toml")
    program = SimpleNamespace(sources={"sample": None})
    command._session(command.Request(targets=("sample",)), program, [], {}, None, None, known)
    assert outcome.stale == stale
