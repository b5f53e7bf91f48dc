"""JUnit XML of a run, through junitparser: one test case per rule, engine and system under test."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from harness.report import text
from harness.report.run import Run
from harness.settings import named
from harness.whole_files import write_whole


def write(run: Run, path: Path) -> None:
    """Write the file: violated is a failure; inconclusive is an error, as is a harness error, each under its name.

    Unsupported is skipped, and so is what may stay inconclusive.
    """
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite("refitcheck")
    suite.add_property("settings", text.header(run.settings, run.lane))
    for result in run.results:
        target = f"{run.lane.kind}:{result.version}" + (f"-{result.sut}" if result.sut else "")
        case = TestCase(f"{result.rule.id}[{target}]", classname=f"refitcheck.{result.rule.family}")
        block = text.failure(result, run.lane)
        outcome: Any = None
        if result.status == "violated":
            outcome = Failure(result.verdict.actual or result.status, result.status)
            outcome.text = block
        elif result.status == "inconclusive" and named(result.rule.id, run.settings.allow_inconclusive):
            outcome = Skipped(f"inconclusive, as is allowed: {result.verdict.actual}")
        elif result.status == "inconclusive":
            outcome = Error(result.verdict.actual or result.status, result.status)
            outcome.text = block
        elif result.status == "error":
            outcome = Error(result.error, "harness error")
            outcome.text = result.trace or block
        elif result.status == "unsupported":
            outcome = Skipped(result.verdict.missing)
        if outcome is not None:
            case.result = [outcome]
        suite.add_testcase(case)
    xml = JUnitXml("refitcheck")
    xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]  # junitparser gives it no types
    suite.time = xml.time = round(run.seconds, 3)
    written = io.BytesIO()
    xml.write(written, pretty=True)
    write_whole(path, written.getvalue())
