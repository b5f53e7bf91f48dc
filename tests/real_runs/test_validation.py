"""Dated records of green runs."""

import json
from pathlib import Path

import pytest

from real_runs import validation
from real_runs.validation import NotGreen, from_results, keep, read, read_results


def results(**changes):
    entries = [
        {"rule": "SESS-1", "engine": "0.5.23", "status": "held", "exercised": 3, "missing": ""},
        {"rule": "MEM-1", "engine": "0.5.23", "status": "unsupported", "exercised": 0, "missing": "memory saver"},
    ]
    settings = {
        "lane": "sglang-cpu",
        "kind": "sglang",
        "engines": ["0.5.23"],
        "tp": 2,
        "seed": 5,
        "rules": [],
        "scenarios": [],
        "faults": [],
        "plant": "",
        "fatal_sample": None,
        "side": "engine",
    }
    whole = {
        "started": "2026-11-30T07:00:00",
        "seconds": 61.5,
        "exit_code": 0,
        "settings": settings,
        "results": entries,
    }
    settings.update(changes.pop("settings", {}))
    return {**whole, **changes}


def test_a_green_run_is_a_record(tmp_path):
    (record,) = from_results(results())
    path = keep(record, tmp_path)

    assert path.name == "sglang-cpu-0.5.23-tp2.json"
    assert read(path) == record
    assert (record.date, record.seconds, record.tp) == ("2026-11-30", 61.5, 2)
    assert record.rules == {"SESS-1": "held", "MEM-1": "unsupported"}
    assert record.exercised == {"SESS-1": 3}
    assert record.unsupported == {"MEM-1": "memory saver"}
    assert record.sources == validation.sources_hash()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exit_code": 1, "results": [{"rule": "SESS-1", "engine": "x", "status": "violated"}]}, "1: SESS-1"),
        ({"settings": {"kind": "fake", "lane": "fake"}}, "lane fake has no real engines"),
        ({"settings": {"rules": ["SESS-1"]}}, "only a whole run"),
        ({"settings": {"plant": "x"}}, "only a whole run"),
        ({"settings": None}, "not the results of a run"),
        ({"results": [{}]}, "not the results of a run"),
    ],
)
def test_what_is_no_validation_is_refused_in_one_line(changes, why):
    data = results(**{key: value for key, value in changes.items() if value is not None})
    if changes.get("settings", ...) is None:
        del data["settings"]

    with pytest.raises(NotGreen, match=why) as caught:
        from_results(data)
    assert "\n" not in str(caught.value)


def test_the_list_of_unsupported_rules_may_not_grow(tmp_path):
    (judged,) = from_results(results())
    keep(judged, tmp_path)
    lost = results()
    lost["results"][0].update(status="unsupported", missing="something")
    (record,) = from_results(lost)

    with pytest.raises(NotGreen, match=r"of 2026-11-30 judged are now unsupported: SESS-1"):
        keep(record, tmp_path)
    keep(record, tmp_path, allow_more_unsupported=True)
    assert read(tmp_path / "sglang-cpu-0.5.23-tp2.json").rules["SESS-1"] == "unsupported"


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_file_that_is_no_results_is_one_line(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)

    with pytest.raises(NotGreen, match=r"results\.json"):
        read_results(path)
    with pytest.raises(NotGreen, match=r"none\.json"):
        read_results(tmp_path / "none.json")
    with pytest.raises(NotGreen):
        read(path)


def test_the_committed_records_can_be_read():
    for path in validation.records_folder().glob("*.json"):
        assert read(path).name == path.stem


def test_the_hash_follows_the_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "JUDGING_PACKAGES", ("real_runs",))
    before = validation.sources_hash()
    monkeypatch.setattr(validation, "JUDGING_PACKAGES", ("real_runs", "harness"))

    assert validation.sources_hash() != before
    json.dumps(before)


@pytest.mark.parametrize("reads", [read, read_results])
def test_a_file_without_an_end_and_one_without_a_bottom_are_one_line(tmp_path, monkeypatch, reads):
    monkeypatch.setattr(validation, "MOST", 1 << 20)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    for path in (deep, "/dev/zero"):
        with pytest.raises(NotGreen, match=rf"^{path}: .+"):
            reads(Path(path))
