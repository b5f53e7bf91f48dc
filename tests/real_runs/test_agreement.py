"""What a rule says of the real engine it says of the fake: every committed record, beside today's fake."""

import msgspec
import pytest
from typer.testing import CliRunner

from harness.rules import Rule, held, violated
from harness.scenario import Scenario
from harness.suites import Book, Suite, load_book
from real_runs import validation
from real_runs.agreement import agreement, compared
from real_runs.cli import real_app

RECORDS = sorted(validation.records_folder().glob("*.json"))
TOY = validation.Record(
    lane="sglang-cpu",
    engine="0.5.23",
    tp=1,
    date="2026-11-30",
    seconds=1.0,
    sources="x",
    seed=1,
    fatal_sample=None,
    side="engine",
    rules={"A-1": "held"},
    exercised={"A-1": 1},
    unsupported={},
)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_fake_has_the_verdicts_of_the_real_engine(path):
    record = validation.read(path)
    found = agreement(record, load_book())

    assert found.different == {}
    assert len(found.same) > 20


def test_both_tensor_parallel_sizes_have_a_record():
    assert {(record.engine, record.tp) for record in map(validation.read, RECORDS)} >= {("0.5.23", 1), ("0.5.23", 2)}


def book(relation="validated: 0.5.23 2026-11-30", judge=lambda history: held(1)):
    found = Book()
    rule = Rule("A-1", "MUST", "engine", "A text.", "", ("a",), judge)
    found.add_suite(Suite("s", (rule,), (Scenario("s/x", frozenset({"A-1"}), lambda bench: None, relation),)))
    return found


def change(**fields):
    return msgspec.structs.replace(TOY, **fields)


def test_the_same_verdict_is_the_same():
    assert compared(TOY, {"A-1": "held"}, book()).same == ("A-1",)
    assert compared(TOY, {"A-1": "held"}, book()).different == {}


@pytest.mark.parametrize(
    ("record", "fake", "why"),
    [
        (TOY, {"A-1": "violated"}, "on the real 0.5.23 it is held, on the fake violated"),
        (TOY, {"A-1": "inconclusive"}, "on the fake inconclusive"),
        (change(rules={}), {"A-1": "held"}, "no verdict, though a scenario of it says that it was validated"),
        (TOY, {}, "no such rule"),
    ],
)
def test_a_difference_is_named(record, fake, why):
    assert why in compared(record, fake, book()).different["A-1"]


def test_a_rule_that_is_not_said_to_be_validated_is_new():
    found = compared(change(rules={}), {"A-1": "held"}, book("not yet: made today"))

    assert (list(found.new), found.different) == (["A-1"], {})


def test_what_the_real_lane_cannot_judge_is_listed_with_its_reason():
    record = change(rules={"A-1": "unsupported"}, unsupported={"A-1": "needs a GPU"})
    found = compared(record, {"A-1": "held"}, book())

    assert (found.unsupported, found.different, found.same) == ({"A-1": "needs a GPU"}, {}, ())


def test_a_fake_that_differs_ends_the_command_with_1(tmp_path, monkeypatch):
    path = tmp_path / "sglang-cpu-0.5.23-tp1.json"
    path.write_bytes(msgspec.json.encode(TOY))
    for judge, code in (
        (lambda history: held(1), 0),
        (lambda history: violated(allowed=("a",), actual="b", where="c"), 1),
    ):
        monkeypatch.setattr("harness.suites.load_book", lambda judge=judge: book(judge=judge))
        done = CliRunner().invoke(real_app, ["compare", str(path)])
        assert done.exit_code == code, done.output
        assert ("✗ A-1: on the real 0.5.23 it is held, on the fake violated" in done.output) == bool(code)


def test_a_file_that_is_no_record_is_one_line(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    done = CliRunner().invoke(real_app, ["compare", str(path)])

    assert done.exit_code == 4
    assert len(done.output.splitlines()) == 1
