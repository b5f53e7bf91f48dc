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
_MARKS = {"works": "✓", "refused": "✗", "hangs": "⧗", "stale": "≠", "dies": "†", "unsupported": "·", "error": "!"}


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
    out += [f"{', '.join(cell.paused)} stays paused"] if cell.paused else []
    if cell.violated:
        out.append(f"rules broken without any fault: {', '.join(cell.violated)}")
    return out


def evidence(cell: Cell) -> list[str]:
    """How to see a cell oneself: its history, and the command that makes it again."""
    return [f"history: {cell.history}"] * bool(cell.history) + [f"`{cell.replay}`"] * bool(cell.replay)


def as_html(cells: Sequence[Cell]) -> str:
    """One page."""
    import jinja2

    suts, versions = axes(cells)
    at = {(cell.sut, cell.version): cell for cell in cells}
    template = jinja2.Environment(autoescape=True).from_string(_PAGE)
    return template.render(suts=suts, versions=versions, at=at, causes=causes, marks=_MARKS, words=WORDS, cells=cells)


def _plain(text: str) -> str:
    return " ".join(text.split())


_PAGE = """<!doctype html>
<meta charset="utf-8"><title>refitcheck: drivers and SGLang versions</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; } td, th { padding: .3rem .7rem; text-align: left; }
table { border-collapse: collapse; } tr { border-bottom: 1px solid #ddd; } code { font-size: 85%; }
.works { background: #dff3df; } .refused { background: #fdeecb; } .unsupported, .error { background: #eee; }
.hangs, .stale, .dies { background: #fbd9d6; }
</style>
<h1>Drivers and SGLang versions</h1>
<table><tr><th>driver{% for version in versions %}<th>{{ version }}{% endfor %}
{% for sut in suts %}<tr><th>{{ sut }}{% for version in versions %}{% set cell = at.get((sut, version)) %}
<td{% if cell %} class="{{ cell.outcome }}"><a href="#{{ sut }}-{{ version }}">{{ marks[cell.outcome] }}</a>
{{ cell.told }}{% else %}>{% endif %}{% endfor %}
{% endfor %}</table>
{% for cell in cells %}{% set about = causes(cell) %}<h2 id="{{ cell.sut }}-{{ cell.version }}">{{ cell.sut }} on
{{ cell.version }}: {{ cell.told }}</h2>
<ul>{% for line in about %}<li>{{ line }}{% endfor %}</ul>
<p><code>{% for rule, status in cell.rules.items() %}{{ rule }} {{ status }}{{ ", " if not loop.last }}
{%- endfor %}</code>
{% endfor %}
"""
