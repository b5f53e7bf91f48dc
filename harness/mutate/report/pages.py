"""The two pages, each one file that needs no network."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from harness.errors import HarnessError
from harness.mutate import table
from harness.mutate.mutant import Result
from harness.mutate.plan import Outcome
from harness.mutate.report.stryker import reason

COMPONENT = "mutation-test-elements.js"
PINNED = "mutation-test-elements.pinned.txt"


def component() -> str:
    """The vendored web component. HarnessError when it is not the file whose hash is pinned."""
    here = files(__package__ or "harness.mutate.report")
    data = (here / COMPONENT).read_bytes()
    pinned = re.search(r"sha256 ([0-9a-f]{64})", (here / PINNED).read_text(encoding="utf-8"))
    if pinned is None or hashlib.sha256(data).hexdigest() != pinned.group(1):
        raise HarnessError(f"{COMPONENT} is not the file that was vendored")
    return data.decode("utf-8")


def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("harness.mutate", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def mutation(report: Mapping[str, Any], title: str) -> str:
    """The page of mutation-testing-elements around a report."""
    data = json.dumps(report, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    page: str = (
        _environment().get_template("mutation.html.jinja").render(title=title, component=component(), report=data)
    )
    return page


def matrix(outcome: Outcome, rules: Mapping[str, str], title: str) -> str:
    """Rules against mutants: who was to notice what, and who did."""
    catalogue = [r for r in outcome.results if not r.generic]
    generic = [r for r in outcome.results if r.generic]
    named = {rule for r in catalogue for rule in (*r.breaks, *r.killers)} | set(rules)
    page: str = (
        _environment()
        .get_template("matrix.html.jinja")
        .render(
            title=title,
            rules=[_row(rule, rules.get(rule, ""), catalogue) for rule in sorted(named, key=_natural)],
            mutants=[_column(r) for r in catalogue],
            generic=_by_operator(generic),
            operators=sorted({r.op for r in generic}),
            summary=table.summary(outcome),
            score=table.percent(outcome.results),
        )
    )
    return page


def anchor(text: str) -> str:
    """A name for a link inside the page."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _natural(rule: str) -> tuple[str, int]:
    family, _, number = rule.rpartition("-")
    return family, int(number) if number.isdigit() else 0


def cell(rule: str, result: Result) -> tuple[str, str]:
    """What stands where a rule and a mutant meet: a class and its sign."""
    declared = rule in result.breaks
    noticed = rule in result.killers
    if declared and noticed:
        return "killed", "●"
    if declared:
        return ("other", "○") if result.verdict == "killed" else ("missed", "✗")
    return ("also", "·") if noticed else ("", "")


def _row(rule: str, text: str, results: list[Result]) -> dict[str, Any]:
    cells = [cell(rule, r) for r in results]
    return {
        "id": rule,
        "anchor": anchor(rule),
        "text": text,
        "cells": [
            {"kind": kind, "sign": sign, "mutant": anchor(r.id), "title": r.id}
            for (kind, sign), r in zip(cells, results, strict=True)
        ],
        "kills": [_column(r) for r, (kind, _) in zip(results, cells, strict=True) if kind == "killed"],
        "missed": [_column(r) for r, (kind, _) in zip(results, cells, strict=True) if kind == "missed"],
    }


def _column(r: Result) -> dict[str, Any]:
    return {
        "id": r.id,
        "anchor": anchor(r.id),
        "target": r.target,
        "verdict": r.verdict,
        "breaks": [{"id": rule, "anchor": anchor(rule)} for rule in r.breaks],
        "killers": [{"id": rule, "anchor": anchor(rule)} for rule in r.killers],
        "reason": reason(r),
        "origin": r.origin,
        "what": r.description or r.replacement,
        "by": r.by,
    }


def _by_operator(results: list[Result]) -> list[dict[str, Any]]:
    """Generic mutants: one row a module, one column an operator: noticed of all."""
    rows = []
    operators = sorted({r.op for r in results})
    for module in sorted({r.target.partition(":")[0] for r in results}):
        own = [r for r in results if r.target.partition(":")[0] == module]
        cells = []
        for op in operators:
            some = [r for r in own if r.op == op]
            noticed = sum(r.verdict in ("killed", "crash", "timeout", "equivalent", "elsewhere") for r in some)
            kind = "" if not some else "killed" if noticed == len(some) else "missed"
            cells.append({"text": f"{noticed}/{len(some)}" if some else "", "kind": kind})
        rows.append({"module": module, "cells": cells, "score": table.percent(own)})
    return rows
