import pytest

from fakes.engine.profiles import profile
from real_runs.fuzz import records
from real_runs.fuzz.cells import coverage, reachable, reached
from real_runs.fuzz.server_cells import HANGS, KILLS, LIVES
from real_runs.fuzz.server_run import ServerSettings, subject
from real_runs.fuzz.server_steps import ServerVocabulary

GREEN = records.Validation(
    kind="oracle", version="0.5.23", profile="0.5.23", date="2026-11-30", seconds=1.0, seed=0, steps=100_000,
    sequences=5, deaths=1, cells=3, reachable=4, missing=["begin_weight_update while free idle, open"],
    parts=["manager"], digest="d", sources="s",
)  # fmt: skip


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = records.write(GREEN, tmp_path / "new")
    assert path.name == "oracle-0.5.23.validation.json"
    assert records.read(tmp_path / "new") == [GREEN]


def test_a_file_that_is_no_record_is_told_in_one_line(tmp_path):
    (tmp_path / "x.validation.json").write_text("{}")
    with pytest.raises(ValueError, match=r"x\.validation\.json"):
        records.read(tmp_path)


def test_records_are_listed_with_their_dates(tmp_path, monkeypatch):
    records.write(GREEN, tmp_path)
    monkeypatch.setattr(records, "folder", lambda: tmp_path)
    assert records.dated() == [("diff oracle, fake 0.5.23, 100000 steps", "2026-11-30")]


def test_the_hash_of_the_sources_is_stable_and_short():
    assert records.sources_hash() == records.sources_hash()
    assert len(records.sources_hash()) == 16


def test_committed_records_are_of_whole_runs():
    found = {record.profile: record for record in records.read(records.folder()) if record.kind == "oracle"}
    for name, record in found.items():
        assert profile(name).version == name
        assert record.steps >= 100_000
        assert record.reachable is not None
        assert record.cells / record.reachable >= 0.95
        assert len(record.missing) == record.reachable - record.cells


def test_cells_follow_the_state_along_a_sequence():
    steps = [
        {"op": "generate"},
        {"op": "pause", "mode": "in_place"},
        {"op": "abort"},
        {"op": "continue"},
        {"op": "flush_cache"},
        {"op": "pause", "mode": "retract"},
        {"op": "generate"},
        {"op": "flush_cache"},
    ]
    closed = {"session": None, "tags": []}
    opened = {"session": ["all", False], "tags": ["weights"]}
    states = [state for _, state in reached(steps, [closed] * 6 + [opened] * 2)]
    assert states == [
        "free idle, closed",
        "free running, closed",
        "in_place running, closed",
        "in_place running, closed",
        "free idle, closed",
        "free idle, closed",
        "retract idle, closed",
        "retract queued, open, released",
    ]


def test_coverage_names_what_was_not_reached():
    chosen = profile("0.5.17")
    every = reachable(chosen)
    assert all(operation != "begin_weight_update" for operation, _ in every)
    got, wanted, missing = coverage(chosen, every[1:])
    assert (got, wanted, missing) == (len(every) - 1, len(every), [every[0]])


SERVERS = [record for record in records.read(records.folder()) if record.kind.startswith("server")]


MAIN, AT_TP2, OTHER_MODEL = (2_000, 2), (1_000, 1), (300, 0)
"""Calls and deaths of a whole run: of the llama at tp 1 and tp 2, and of another model."""


@pytest.mark.parametrize("record", SERVERS, ids=lambda record: f"{record.kind}-{record.profile}")
def test_a_record_of_a_server_says_why_a_cell_was_not_reached(record):
    tp, model = subject(record.kind)
    words = ServerVocabulary(profile(record.profile), tp=tp)
    assert len(record.missing) == len(words.cells) - record.cells
    reasons = [entry.partition(": ")[2] for entry in record.missing]
    assert set(reasons) <= {LIVES, KILLS, HANGS}
    assert reasons.count(LIVES) == record.reachable - record.cells
    steps, deaths = OTHER_MODEL if model != "llama" else MAIN if tp == 1 else AT_TP2
    assert record.steps >= steps
    assert record.deaths >= deaths


@pytest.mark.parametrize(("tp", "model"), [(1, "llama"), (2, "llama"), (1, "qwen2"), (2, "qwen2-tied")])
def test_a_kind_says_of_what_a_run_was(tp, model):
    assert subject(ServerSettings("url", "0.5.23", 1, 0, tp=tp, model=model).kind) == (tp, model)
