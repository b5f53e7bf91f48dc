"""results.json: a run as data. The schema is `SCHEMA`; fields are only ever added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from harness.report.leads import Told, after_fault, in_order
from harness.report.run import STATUSES, Run, our_version
from harness.results import Result
from harness.units import UnitReport
from harness.whole_files import write_whole

SCHEMA = 1


def as_data(run: Run) -> dict[str, Any]:
    """The run as plain JSON values."""
    s = run.settings
    counts = run.counts()
    return {
        "schema": SCHEMA,
        "refitcheck": our_version(),
        "started": run.started,
        "seconds": round(run.seconds, 3),
        "exit_code": run.exit_code,
        "settings": {
            "lane": s.lane,
            "kind": run.lane.kind,
            "clock": run.lane.clock,
            "engines": list(s.versions),
            "suts": list(s.suts),
            "policy": s.policy,
            "tp": run.lane.tp,
            "seed": s.seed,
            "rules": list(s.rules),
            "scenarios": list(s.scenarios),
            "faults": [str(fault) for fault in s.faults],
            "side": s.side or "both",
            "exploration": s.exploration,
            "fatal_sample": s.fatal_sample,
            "plant": s.plant,
            "hang_timeout": s.hang_timeout,
            "death": s.death,
            "allow_inconclusive": list(s.allow_inconclusive),
            "lane_options": dict(s.lane_options),
            "sut_options": dict(s.sut_options),
        },
        "replay": s.replay(tp=run.lane.tp, kind=run.lane.kind),
        "counts": {status: counts[status] for status in STATUSES},
        "families": {name: {"held": held, "judged": judged} for name, (held, judged) in run.families().items()},
        "findings": [_finding(one) for one in in_order(run.with_status("violated"), run.reports)],
        "results": [_result(result) for result in run.results],
        "units": [_unit(report) for report in run.reports],
    }


def write(run: Run, path: Path) -> None:
    """Write results.json."""
    data = msgspec.json.format(msgspec.json.encode(as_data(run), enc_hook=str), indent=1)
    write_whole(path, data + b"\n")


def _result(result: Result) -> dict[str, Any]:
    rule, verdict = result.rule, result.verdict
    return {
        "rule": rule.id,
        "family": rule.family,
        "level": rule.level,
        "side": rule.side,
        "text": rule.text,
        "versions": rule.versions,
        "citations": list(rule.citations),
        "mend": rule.mend,
        "engine": result.version,
        "sut": result.sut,
        "tp": result.tp,
        "status": result.status,
        "exercised": verdict.exercised,
        "histories": result.histories,
        "allowed": list(verdict.allowed),
        "actual": verdict.actual,
        "where": verdict.where,
        "missing": verdict.missing,
        "causes": [{"rule": cause.rule, "actual": cause.actual} for cause in result.causes],
        "scenario": result.scenario,
        "faults": [str(fault) for fault in result.faults],
        "replay": result.replay,
        "error": result.error,
        "traceback": result.trace,
    }


def _finding(one: Told) -> dict[str, Any]:
    """Violated rules in the order in which to mend them: the first of a version and a client is where to start."""
    result = one.result
    return {
        "rule": result.rule.id,
        "engine": result.version,
        "sut": result.sut,
        "after_fault": after_fault(result),
        "lead": one.lead.rule.id if one.lead else None,
        "behind": one.behind.rule.id if one.behind else None,
        "why": one.why,
    }


def _unit(report: UnitReport) -> dict[str, Any]:
    unit = report.unit
    return {
        "scenario": unit.scenario,
        "engine": unit.version,
        "sut": unit.sut,
        "tp": unit.tp,
        "shard": list(unit.shard) if unit.shard[1] else None,
        "runs": report.runs,
        "calls": report.calls,
        "seconds": round(report.seconds, 4),
        "hung": report.hung,
        "declared_policy": report.policy,
        "error": report.error,
    }
