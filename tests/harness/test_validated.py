from datetime import date

import pytest

from harness import validated
from harness.errors import UsageError
from harness.suites import load_book


def test_days_are_written_with_a_d():
    assert validated.days_of(" 30d ") == 30
    for wrong in ("30", "d", "-1d", "1h", "123456d"):
        with pytest.raises(UsageError, match="give days, as 30d"):
            validated.days_of(wrong)


def test_what_is_older_comes_oldest_first():
    records = [("new", "2026-11-30"), ("old", "2026-10-01"), ("older", "2026-09-01"), ("on the day", "2026-10-31")]
    assert validated.before(records, 30, date(2026, 11, 30)) == [("older", "2026-09-01"), ("old", "2026-10-01")]


def test_scenarios_and_records_of_other_packages_are_listed(monkeypatch):
    class Point:
        pass

    monkeypatch.setattr(validated, "named_points", lambda group: {"one": Point()})
    monkeypatch.setattr(validated, "load_point", lambda point: lambda: [("a search", "2026-11-30")])
    found = dict(validated.everything(load_book()))
    assert found["a search"] == "2026-11-30"
    assert any(what.startswith("scenario ") and " on 0.5." in what for what in found)
    assert all(date.fromisoformat(day) for day in found.values())


def test_the_command_takes_one_of_its_options(capsys):
    from harness.cli import list_

    with pytest.raises(UsageError, match="one of"):
        list_(rules=True, validated_before="30d")
    assert list_(validated_before="0d") == 0
    assert "validations are older than 0 days" in capsys.readouterr().out
