"""Dated records: what a green run on a real engine said of every rule, when, and of which sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

JUDGING_PACKAGES = ("harness", "conformance", "real_runs")


class NotGreen(Exception):
    """The run is no validation; the message is one line that says why."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One green run of `seconds`. `rules` is rule id -> status, `unsupported` rule id -> what the lane lacks.

    `sources` is a hash of the judging code: a record of other sources is still evidence, but of them.
    """

    lane: str
    engine: str
    tp: int
    date: str
    seconds: float
    sources: str
    seed: int
    fatal_sample: int | None
    side: str = "both"
    rules: dict[str, str]
    exercised: dict[str, int]
    unsupported: dict[str, str]

    @property
    def name(self) -> str:
        """The file's name without its ending; a newer record of the same engine and side replaces the older."""
        return f"{self.lane}-{self.engine}-tp{self.tp}{'-refit' if self.side == 'refit' else ''}"


def sources_hash() -> str:
    """A short hash of the Python files that judge a real engine."""
    whole = hashlib.sha256()
    for package in JUDGING_PACKAGES:
        root = Path(str(resources.files(package)))
        for path in sorted(root.rglob("*.py")):
            whole.update(str(path.relative_to(root.parent)).encode() + path.read_bytes())
    return whole.hexdigest()[:16]


MOST = 64 << 20  # bytes of a results.json or a record


def records_folder() -> Path:
    """Where the records of this checkout lie."""
    return Path(str(resources.files("real_runs.records")))


def from_results(results: Mapping[str, Any]) -> list[Record]:
    """The records of a run's results.json, one per engine version. NotGreen unless every rule held or was set aside."""
    try:
        settings, found = results["settings"], results["results"]
        if settings["kind"] != "sglang":
            raise NotGreen(f"lane {settings['lane']} has no real engines")
        if settings["rules"] or settings["scenarios"] or settings["faults"] or settings["plant"]:
            raise NotGreen("only a whole run is a validation, not one that was narrowed to rules, scenarios or a plant")
        if results["exit_code"] != 0:
            bad = sorted({r["rule"] for r in found if r["status"] not in ("held", "unsupported")})
            raise NotGreen(f"the run ended with {results['exit_code']}: {', '.join(bad) or 'no rule was judged'}")
        return [_record(results, settings, found, engine) for engine in settings["engines"]]
    except (KeyError, TypeError) as error:
        raise NotGreen(f"not the results of a run: {type(error).__name__} {error}") from None


def _record(results: Mapping[str, Any], settings: Mapping[str, Any], found: list[Any], engine: str) -> Record:
    mine = [entry for entry in found if entry["engine"] == engine]
    return Record(
        lane=settings["lane"],
        engine=engine,
        tp=settings["tp"],
        date=str(results["started"])[:10],
        seconds=results["seconds"],
        sources=sources_hash(),
        seed=settings["seed"],
        fatal_sample=settings["fatal_sample"],
        side=settings["side"],
        rules={entry["rule"]: entry["status"] for entry in mine},
        exercised={entry["rule"]: entry["exercised"] for entry in mine if entry["status"] == "held"},
        unsupported={entry["rule"]: entry["missing"] for entry in mine if entry["status"] == "unsupported"},
    )


def keep(record: Record, folder: Path, *, allow_more_unsupported: bool = False) -> Path:
    """Write the record. NotGreen when rules became unsupported that the last record still judged."""
    path = folder / f"{record.name}.json"
    if path.exists() and not allow_more_unsupported:
        before = read(path)
        lost = sorted(rule for rule in record.unsupported if rule in before.rules and rule not in before.unsupported)
        if lost:
            raise NotGreen(f"rules that {path.name} of {before.date} judged are now unsupported: {', '.join(lost)}")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return path


def read(path: Path) -> Record:
    """One record. NotGreen in one line when the file is none."""
    try:
        return msgspec.json.decode(_content(path), type=Record)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise NotGreen(f"{path}: {error}") from None


def _content(path: Path) -> bytes:
    """All of a file. ValueError for more than a record or the results of a run ever are, as of a device."""
    with path.open("rb") as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise ValueError(f"more than {MOST >> 20} MiB")
    return data


def read_results(path: Path) -> Mapping[str, Any]:
    """A results.json. NotGreen in one line when it is none."""
    try:
        found = json.loads(_content(path))
    except (OSError, ValueError, RecursionError) as error:
        raise NotGreen(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise NotGreen(f"{path}: not the results of a run")
    return found
