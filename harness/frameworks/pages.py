"""The table of cells as JSON, Markdown and one page of HTML without anything from outside."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.frameworks.cells import WORDS, Cell
from harness.outputs import Outputs
from harness.whole_files import write_whole

SCHEMA = 1
FILES = ("matrix.json", "matrix.md", "matrix.html")
_MARKS = {"works": "✓", "refused": "✗", "hangs": "∞", "stale": "≠", "dies": "†", "unsupported": "·", "error": "!"}


def write_all(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """matrix.json, matrix.md and matrix.html in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    made = dict(zip(FILES, (as_json(cells), as_markdown(cells), as_html(cells)), strict=True))
    for name, text in made.items():
        write_whole(folder / name, text.encode())
    return [folder / name for name in made]


def check_folder(folder: Path) -> None:
    """UsageError where `write_all` or the histories could not write; makes the folder and its `histories`."""
    Outputs(histories=folder).check()
    Outputs(histories=folder / "histories").check()
    for name in FILES:
        Outputs(report=folder / name).check()


def as_json(cells: Sequence[Cell]) -> str:
    """Every cell with all that is known of it."""
    rows: list[dict[str, Any]] = [{**dataclasses.asdict(cell), "told": cell.told} for cell in cells]
    return json.dumps({"schema": SCHEMA, "cells": rows}, indent=1, default=dict) + "\n"


def as_markdown(cells: Sequence[Cell]) -> str:
    """The table, a line of cause for each cell that does not work, and the rules that each one breaks."""
    suts, versions = axes(cells)
    lines = ["| driver | " + " | ".join(versions) + " |", "|---" * (len(versions) + 1) + "|"]
    for sut in suts:
        found = {cell.version: cell for cell in cells if cell.sut == sut}
        lines.append(f"| {sut} | " + " | ".join(found[v].told if v in found else "" for v in versions) + " |")
    for cell in cells:
        about = causes(cell)
        if about:
            lines += ["", f"**{cell.sut} on {cell.version}**: {cell.told}.", *(f"* {line}" for line in about)]
    return "\n".join(lines) + "\n"


def axes(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """The drivers and the versions, in their order."""
    return list(dict.fromkeys(cell.sut for cell in cells)), list(dict.fromkeys(cell.version for cell in cells))


def causes(cell: Cell) -> list[str]:
    """What a person has to know of a cell, in whole lines; none of one that works and breaks nothing."""
    known = facts(cell)
    return [*known, *evidence(cell)] if known else []


def facts(cell: Cell) -> list[str]:
    """Why a cell is what it is, and what else is wrong with it."""
    out = [_plain(cell.why)] if cell.why else []
    if cell.missing and cell.outcome != "works":
        out.append(f"it never calls {' and '.join(cell.missing)}, which SGLang {cell.version} asks for around buckets")
    out += [f"it calls /{route}, which SGLang {cell.version} does not have" for route in cell.unknown]
    out += [f"it calls {call}, which that interface of its own does not declare" for call in cell.undeclared]
    out += [f"{', '.join(cell.paused)} stays paused"] if cell.paused else []
    if cell.violated:
        out.append(f"rules broken without any fault: {', '.join(cell.violated)}")
    return out


def evidence(cell: Cell) -> list[str]:
    """How to see a cell oneself: its history, and the command that makes it again."""
    return [f"history: {cell.history}"] * bool(cell.history) + [f"`{cell.replay}`"] * bool(cell.replay)


def as_html(cells: Sequence[Cell]) -> str:
    """One page: the table, then each cell with its reason, the rules that it breaks, and links to its history."""
    import jinja2

    suts, versions = axes(cells)
    at = {(cell.sut, cell.version): cell for cell in cells}
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)
    return template.render(
        suts=suts, versions=versions, at=at, facts=facts, marks=_MARKS, words=WORDS, cells=cells, by_status=by_status
    )


def by_status(cell: Cell) -> list[tuple[str, list[str]]]:
    """Rules by what became of them, the broken ones first."""
    found = {status: [r for r, s in cell.rules.items() if s == status] for status in _STATUSES}
    return [(_STATUSES[status], rules) for status, rules in found.items() if rules]


_STATUSES = {"violated": "broken", "held": "held", "inconclusive": "not met", "unsupported": "not asked of it"}


def _plain(text: str) -> str:
    return " ".join(text.split())


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>refitcheck: drivers and SGLang versions</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
td, th { padding: .3rem .7rem; text-align: left; vertical-align: top; } table { border-collapse: collapse; }
tr th:first-child { white-space: nowrap; }
tr { border-bottom: 1px solid #ddd; } code { font-size: 85%; overflow-wrap: anywhere; } h2 { margin-top: 2rem; }
a { color: inherit; } dt { font-weight: 600; float: left; clear: left; width: 9rem; } dd { margin-left: 9.5rem; }
.scroll { overflow-x: auto; } thead th { position: sticky; top: 0; background: #fff; }
.works { background: #dff3df; } .refused { background: #fdeecb; } .unsupported, .error { background: #eee; }
.hangs, .stale, .dies { background: #fbd9d6; } .key span { padding: .1rem .5rem; margin-right: .4rem; }
</style>
<h1>Drivers and SGLang versions</h1>
<p class="key">
{% for outcome, mark in marks.items() %}
<span class="{{ outcome }}">{{ mark }} {{ words[outcome] }}</span>
{% endfor %}
</p>
<div class="scroll"><table><thead><tr><th>driver</th>
{% for version in versions %}<th>{{ version }}</th>{% endfor %}</tr></thead>
{% for sut in suts %}
<tr><th>{{ sut }}</th>
{% for version in versions %}
{% set cell = at.get((sut, version)) %}
{% if cell %}
<td class="{{ cell.outcome }}"><a href="#{{ sut }}-{{ version }}">{{ marks[cell.outcome] }} {{ cell.told }}</a></td>
{% else %}
<td></td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</table></div>
{% for cell in cells %}
<h2 id="{{ cell.sut }}-{{ cell.version }}">{{ cell.sut }} on {{ cell.version }}: {{ cell.told }}</h2>
{% if facts(cell) %}
<ul>
{% for line in facts(cell) %}
<li>{{ line }}</li>
{% endfor %}
</ul>
{% endif %}
<dl>
{% if cell.expected %}<dt>before</dt><dd>{{ cell.expected }}</dd>{% endif %}
{% for status, rules in by_status(cell) %}
<dt>{{ status }}</dt><dd><code>{{ rules | join(" ") }}</code></dd>
{% endfor %}
{% if cell.history %}
<dt>history</dt><dd><a href="histories/{{ cell.history.split("/")[-1] }}">{{ cell.history.split("/")[-1] }}</a></dd>
{% endif %}
{% if cell.calls %}
<dt>its calls</dt><dd><details><summary>{{ cell.calls | length }}</summary>
<pre>{{ cell.calls | join("\n") }}</pre></details></dd>
{% endif %}
{% if cell.replay %}
<dt>again</dt><dd><code>{{ cell.replay }}</code></dd>
{% endif %}
</dl>
{% endfor %}
</html>
"""
