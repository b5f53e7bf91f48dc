"""Today's rules over the histories of an old bundle; no engine and no GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from harness.history import History
from harness.judgement import Judgement, hung_in
from harness.lanes.base import Clock, Lane
from harness.lanes.info import LaneInfo
from harness.results import Result, results_of
from harness.rules import unsupported
from harness.settings import Settings
from harness.suites import Book, load_book
from harness.units import Finding, Unit, UnitReport, judged, worse
from real_runs.evidence.checking import Key, histories_of, key_of, units
from real_runs.evidence.environment import NAME as ENVIRONMENT
from real_runs.evidence.files import BadBundle, Files
from real_runs.evidence.manifest import RESULTS, loaded


@dataclass(frozen=True)
class Rejudged:
    """`same`, `different` (rule -> both verdicts), `new` (rules that the run did not judge), `gone` (that are no more).

    Only `different` is of interest: the rules or the judges have changed since, or somebody has edited.
    """

    same: tuple[str, ...]
    different: Mapping[str, str]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    results: tuple[Result, ...]


def rejudge(files: Files, book: Book | None = None) -> Rejudged:
    """Judge every history again. BadBundle where the bundle does not say how."""
    whole = book if book is not None else load_book()
    results = results_again(files, whole)
    now = {(result.rule.id, result.version, result.sut): result for result in results}
    then = {(e["rule"], e["engine"], e["sut"]): e for e in loaded(files, RESULTS)["results"]}
    same, different = [], {}
    for key in now.keys() & then.keys():
        status, old = now[key].status, str(then[key]["status"])
        if status == old:
            same.append(key[0])
        else:
            different[key[0]] = f"was {old}, is {status}: {_why(now[key])}"
    return Rejudged(
        tuple(sorted(same)),
        dict(sorted(different.items())),
        tuple(sorted({key[0] for key in now.keys() - then.keys()})),
        tuple(sorted({key[0] for key in then.keys() - now.keys()})),
        tuple(results),
    )


def results_again(files: Files, book: Book) -> list[Result]:
    """One result per rule that the run's settings ask for today."""
    settings, info = _settings(files)
    lane = cast(Lane, SimpleNamespace(name=info.name, provides=_provides(files)))
    judgement = Judgement(book, lane)
    histories: dict[Key, list[History]] = defaultdict(list)
    for history in histories_of(files).values():
        histories[key_of(history)].append(history)
    reports = []
    for said in units(files):
        key = (said["scenario"], said["engine"], said["sut"])
        report = UnitReport(Unit(*key[:2], said["tp"], key[2]), error=said["error"], hung=said["hung"])
        scenario = book.scenarios.get(key[0])
        if scenario is None:
            continue
        rules = judged(settings, book, scenario, key[1])
        for history in histories[key]:
            for rule, finding in judgement.findings(rules, (), (), history, None).items():
                report.findings[rule] = worse(report.findings.get(rule), finding)
            report.hung = report.hung or hung_in(history)
        if not histories[key] and not report.error:
            for rule_ in rules:
                report.findings[rule_.id] = Finding(unsupported("the run could not do its scenario"), histories=0)
        reports.append(report)
    return results_of(settings, book, info, reports)


def _settings(files: Files) -> tuple[Settings, LaneInfo]:
    said: Mapping[str, Any] = loaded(files, RESULTS)["settings"]
    try:
        settings = Settings(
            lane=said["lane"],
            versions=tuple(said["engines"]),
            suts=tuple(said["suts"]),
            policy=said["policy"],
            tp=said["tp"],
            seed=said["seed"],
            rules=tuple(said["rules"]),
            scenarios=tuple(said["scenarios"]),
            exploration="off",
            fatal_sample=said["fatal_sample"],
            plant=said["plant"],
            side=None if said["side"] == "both" else said["side"],
            lane_options=said["lane_options"],
        )
        clock = cast(Clock, said["clock"])
        return settings, LaneInfo(
            said["lane"], said["kind"], "bundle", clock, said["tp"], settings.versions, said["side"]
        )
    except (KeyError, TypeError) as error:
        raise BadBundle(f"{RESULTS}: settings: {type(error).__name__} {error}") from None


def _provides(files: Files) -> frozenset[str]:
    found = loaded(files, ENVIRONMENT).get("provides")
    if not isinstance(found, list):
        raise BadBundle(f"{ENVIRONMENT}: provides is no list")
    return frozenset(map(str, found))


def _why(result: Result) -> str:
    verdict = result.verdict
    return result.error or verdict.actual or verdict.missing or f"exercised {verdict.exercised} times"
