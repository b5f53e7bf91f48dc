from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from harness.errors import HarnessError
from harness.mutate.mutant import Place, Result
from harness.mutate.report import pages, stryker

SCHEMA = json.loads(
    (Path(__file__).parent / "data" / "mutation-testing-report-schema.json").read_text(encoding="utf-8")
)


def test_the_json_is_valid_by_the_published_schema(whole_run):
    jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(whole_run.report())


def test_the_schema_would_notice(whole_run):
    report = whole_run.report()
    next(iter(report["files"].values()))["mutants"][0]["status"] = "Dead"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(report)


def test_every_id_that_is_named_exists_and_every_place_is_in_its_file(whole_run):
    report = whole_run.report()
    tests = {t["id"] for f in report["testFiles"].values() for t in f["tests"]}
    for file in report["files"].values():
        lines = file["source"].split("\n")
        for mutant in file["mutants"]:
            assert set(mutant["coveredBy"]) | set(mutant["killedBy"]) <= tests
            assert mutant["status"] != "Killed" or mutant["killedBy"] or "does not import" in mutant["statusReason"]
            start, end = mutant["location"]["start"], mutant["location"]["end"]
            assert (start["line"], start["column"]) < (end["line"], end["column"])
            assert end["line"] <= len(lines)
            assert end["column"] <= len(lines[end["line"] - 1]) + 1


def result(verdict, *breaks, **more):
    return Result("m", verdict, op="drop", target="a:b", breaks=list(breaks), place=Place("a.py", 1, 1, 1, 4), **more)


@pytest.mark.parametrize(
    ("made", "status", "reason"),
    [
        (result("killed", "R-1", rule="R-1", by="s", detail="x"), "Killed", "killed by R-1: x"),
        (
            result("misattributed", "R-1", rule="R-2", by="s", detail="x"),
            "Survived",
            "misattributed: noticed by R-2 (declared: R-1): x",
        ),
        (result("crash", "R-1", by="s", detail="exit 3"), "RuntimeError", "crash in s: exit 3"),
        (result("timeout", by="s", detail="steps"), "Timeout", "timeout in s: steps"),
        (result("survived", "R-1"), "Survived", "survived (declared: R-1)"),
        (result("not covered"), "NoCoverage", "not covered"),
        (result("equivalent", detail="no reader"), "Ignored", "equivalent: no reader"),
        (result("error", detail="gone"), "CompileError", "error: gone"),
    ],
)
def test_verdicts_in_strykers_words(made, status, reason):
    assert (stryker.STATUS[made.verdict], stryker.reason(made)) == (status, reason)


def test_the_page_holds_everything_and_asks_no_network(whole_run):
    page = (whole_run.folder / "report" / "mutation.html").read_text(encoding="utf-8")
    assert pages.component() in page
    assert "<script src" not in page
    assert '<link rel="stylesheet"' not in page
    assert page.count("</script>") == 3, "nothing in the report ends a script early"


def test_a_source_that_would_end_the_script_cannot():
    page = pages.mutation({"files": {"a.py": {"source": "</script><script>alert(1)</script>"}}}, "<t>")
    assert "<script>alert(1)" not in page
    assert "&lt;t&gt;" in page


def test_the_component_is_the_one_whose_hash_is_pinned(monkeypatch):
    folder = Path(pages.__file__).parent
    pinned = (folder / pages.PINNED).read_text(encoding="utf-8")
    assert hashlib.sha256((folder / pages.COMPONENT).read_bytes()).hexdigest() in pinned
    assert "Apache License" in (folder / "mutation-test-elements.LICENSE.txt").read_text(encoding="utf-8")
    monkeypatch.setattr(pages, "COMPONENT", "stryker.py")
    with pytest.raises(HarnessError, match="not the file that was vendored"):
        pages.component()


@pytest.mark.parametrize(
    ("made", "rule", "kind"),
    [
        (result("killed", "R-1", killers=["R-1"]), "R-1", "killed"),
        (result("killed", "R-1", "R-2", killers=["R-1"]), "R-2", "other"),
        (result("survived", "R-1"), "R-1", "missed"),
        (result("misattributed", "R-1", killers=["R-2"]), "R-1", "missed"),
        (result("misattributed", "R-1", killers=["R-2"]), "R-2", "also"),
        (result("killed", "R-1", killers=["R-1"]), "R-3", ""),
    ],
)
def test_a_cell_of_the_matrix(made, rule, kind):
    assert pages.cell(rule, made)[0] == kind
