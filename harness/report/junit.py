"""JUnit XML of a run, through junitparser: one test case per rule, engine and system under test."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from harness.report import text
from harness.report.run import Run
from harness.whole_files import write_whole


def write(run: Run, path: Path) -> None:
    """Write the file: violated and inconclusive are failures, a harness error is an error, unsupported is skipped."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite("refitcheck")
    suite.add_property("settings", text.header(run.settings, run.lane))
    for result in run.results:
        target = f"{run.lane.kind}:{result.version}" + (f"-{result.sut}" if result.sut else "")
        case = TestCase(f"{result.rule.id}[{target}]", classname=f"refitcheck.{result.rule.family}")
        block = text.failure(result, run.lane)
        outcome: Any = None
        if result.status in ("violated", "inconclusive"):
            outcome = Failure(result.verdict.actual or result.status, result.status)
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
