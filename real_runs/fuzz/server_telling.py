"""What a run against a server did, for a reader: counts and cells; a finding, both answers, and a test of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from real_runs.comparing import Answer
from real_runs.fuzz import regression
from real_runs.fuzz.cells import Cell
from real_runs.fuzz.server_cells import LIVES
from real_runs.fuzz.server_search import Found, Search
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.telling import beside

SHOWN_CELLS = 20
"""Cells of one reason that are printed; the record has all."""


def progress(now: Search) -> str:
    """One line while it runs."""
    found = f" · {len(now.found)} kinds of difference" if now.found else ""
    return f"  {now.steps} calls · {now.sequences} sequences · {len(now.cells)} cells · {now.seconds:.0f} s{found}"


def summary(search: Search, words: ServerVocabulary, missing: Mapping[Cell, str]) -> str:
    """Counts, the cells, and those that were not reached, with the reason."""
    left = "".join(f"   {count} left out: {why}" for why, count in sorted(search.left_out.items()))
    explained = "".join(f"   {count} × {name}" for name, count in sorted(search.explained.items()))
    got, wanted = reach(words, missing)
    reasons: dict[str, list[str]] = {}
    for (name, state), why in missing.items():
        reasons.setdefault(why, []).append(f"{name} while {state}")
    share = f"{got}/{wanted} = {math.floor(1000 * got / wanted) / 10} % of what this lane can reach"
    lines = [
        f"  {search.steps} calls in {search.sequences} sequences, {search.fatal} of them fatal{left}",
        f"  cells (operation × state) {share}",
        *(f"  {len(cells)} not reached, {why}: {_some(cells)}" for why, cells in sorted(reasons.items())),
        f"  unexplained differences {len(search.found)}{explained}",
    ]
    return "\n".join(lines)


def _some(cells: list[str]) -> str:
    more = f"; and {len(cells) - SHOWN_CELLS} more" if len(cells) > SHOWN_CELLS else ""
    return "; ".join(cells[:SHOWN_CELLS]) + more


def reach(words: ServerVocabulary, missing: Mapping[Cell, str]) -> tuple[int, int]:
    """(cells that were reached, cells that could have been without a start of their own)."""
    got = len(words.cells) - len(missing)
    return got, got + sum(why == LIVES for why in missing.values())


def told(found: Found, real: str, version: str, tp: int, model: str, replay: str) -> str:
    """The shortest sequence, both answers side by side, and the test."""
    lines = [f"✗ {real} differs from fake {version}   seed {found.seed}, {found.count} times"]
    lines += [f"  {number}. {_line(answer)}" for number, answer in enumerate(found.real.answers, 1)]
    lines.append(f"  call {found.difference.number}, {found.difference.op or 'all'}: {found.difference.what}")
    sides = [_said(found, side.answers, side.died) for side in (found.real, found.fake)]
    lines.append(f"  {'':8}{'real':<60}  fake")
    for key in sides[0]:
        lines += beside(key, sides[0][key], sides[1][key], 8)
    content = regression.text(found, version, tp, model)
    lines += [f"  replay  {replay}", "", "a test for tests/real_runs/fuzz, as --keep-test writes it:", "", content]
    return "\n".join(lines)


def _said(found: Found, answers: tuple[Answer, ...], died: bool) -> dict[str, str]:
    number = found.difference.number
    if not 0 < number <= len(answers):
        return {"dead": str(died)}
    answer = answers[number - 1]
    return {"status": str(answer.status or answer.ending), "body": json.dumps(answer.body, default=str)}


def _line(answer: Answer) -> str:
    request: Any = json.dumps(answer.request, default=str)[:160]
    return f"{answer.op} {request} -> {answer.status or answer.ending}"
