"""The verdicts of a bundle beside those of the fake today, in the same scenarios."""

from __future__ import annotations

from harness.suites import Book, load_book
from real_runs.agreement import Agreement, agreement
from real_runs.evidence.files import Files
from real_runs.evidence.manifest import RESULTS, loaded, read_manifest
from real_runs.validation import Record


def compare(files: Files, book: Book | None = None) -> Agreement:
    """Run the fake as the bundle's engine was run: some seconds. BadBundle where it does not say how."""
    return agreement(record_of(files), book if book is not None else load_book())


def record_of(files: Files) -> Record:
    """What a dated record of the bundle's run would say, green or not; of its first engine version."""
    head, found = read_manifest(files), loaded(files, RESULTS)
    mine = [entry for entry in found["results"] if entry["engine"] == head.engines[0]]
    return Record(
        lane=head.lane,
        engine=head.engines[0],
        tp=head.tp,
        date=head.started[:10],
        seconds=head.seconds,
        sources=head.sources,
        seed=head.seed,
        fatal_sample=found["settings"]["fatal_sample"],
        side=head.side,
        rules={entry["rule"]: entry["status"] for entry in mine},
        exercised={entry["rule"]: entry["exercised"] for entry in mine if entry["status"] == "held"},
        unsupported={entry["rule"]: entry["missing"] for entry in mine if entry["status"] == "unsupported"},
    )
