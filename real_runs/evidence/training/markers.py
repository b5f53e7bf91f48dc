"""Markers of refits in a trainer's log, parsed as tokens: a word that only looks like one is refused, never counted.

The names and fields are those that NVIDIA-NeMo/RL#3330 prints: NRL_SGLANG_REFIT_START transfer= refit=,
..._SUCCESS transfer= refit= duration_s=, ..._FAILURE transfer= refit= phase= error_type=, ..._GROUP_READY world_size=
engines=, NRL_REFIT_VALUE_CHECK result=, NRL_REFIT_EXPORT_SHAPE_CHECK compared= exported= reference= mismatches=. Other
prefixes in capitals are as good, one per log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from harness.words import quoted

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RAY = re.compile(r"^[^\S\n]*\([^()\n]{1,200}\)[^\S\n]?", re.MULTILINE)
_HINT = re.compile(r"REFIT_|GROUP_READY", re.IGNORECASE)
_PART = re.compile(r"[^\r]+")  # a progress bar stands before a marker on the same line
_LOOKS = re.compile(
    r"[\w.-]*REFIT_(?:START|SUCC|FAIL|GROUP|VALUE_?CHECK|EXPORT_SHAPE)[\w.-]*|[\w.-]*GROUP_READY[\w.-]*",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?P<prefix>(?:[A-Z][A-Z0-9]*_)*)(?P<kind>REFIT_START|REFIT_SUCCESS|REFIT_FAILURE|REFIT_GROUP_READY"
    r"|REFIT_VALUE_CHECK|REFIT_EXPORT_SHAPE_CHECK)"
)
_FIELD = re.compile(r"([a-z_]+)=(\S+)")
_SETTING = re.compile(r"\s*[=:]|['\"]\s*[:=\]},]")  # NRL_REFIT_VALUE_CHECK=1 is a variable of the environment


def _count(text: str) -> bool:
    return re.fullmatch(r"0|[1-9][0-9]{0,8}", text) is not None


def _seconds(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?", text) is not None and math.isfinite(float(text))


def _word(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z][\w.:/-]*", text) is not None


MOST = 200_000
"""Markers of one run, 600 bytes of memory each: a run of 90,000 refits has fewer."""
Fields = Mapping[str, Callable[[str], bool]]
FIELDS: Mapping[str, Fields] = {
    "REFIT_START": {"transfer": _word, "refit": _count},
    "REFIT_SUCCESS": {"transfer": _word, "refit": _count, "duration_s": _seconds},
    "REFIT_FAILURE": {"transfer": _word, "refit": _count, "phase": _word, "error_type": _word},
    "REFIT_GROUP_READY": {"world_size": _count, "engines": _count},
    "REFIT_VALUE_CHECK": {"result": _word},
    "REFIT_EXPORT_SHAPE_CHECK": {"compared": _count, "exported": _count, "reference": _count, "mismatches": _count},
}
"""Marker -> its fields, all of which it has, and no others (the value check may say more, as `key=value`)."""
SKIPPED = {"skipped": "1"}
CHECKS = frozenset({"REFIT_VALUE_CHECK", "REFIT_EXPORT_SHAPE_CHECK"})


@dataclass(frozen=True)
class Marker:
    """One marker: `place` is file and line for a message, `fields` are texts that were found to be what they should."""

    kind: str
    prefix: str
    fields: Mapping[str, str]
    place: str

    def number(self, field: str) -> int:
        """A count."""
        return int(self.fields[field])


@dataclass(frozen=True)
class Doubt:
    """A line that looks like a marker and is none."""

    line: str


def plain(text: str) -> str:
    """Without colours, and without the name of the Ray worker in front of each line."""
    return _RAY.sub("", _ANSI.sub("", text))


def found(name: str, text: str) -> Iterator[Marker | Doubt]:
    """Everything in a log that is or looks like a marker, in order."""
    for number, line in _lines(text):
        for part in _PART.finditer(line):
            yield from _of_line(f"{name}:{number}", plain(part[0]))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Those that may be of markers, numbered from 1; no list of all lines is made, of which there may be 10^8."""
    number, counted, place = 1, 0, 0
    while (match := _HINT.search(text, place)) is not None:
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", start)
        place = len(text) if end < 0 else end
        number += text.count("\n", counted, start)
        counted = start
        yield number, text[start:place]


def _of_line(place: str, line: str) -> Iterator[Marker | Doubt]:
    seen = [match for match in _LOOKS.finditer(line) if not _is_setting(match, line)]
    if not seen:
        return
    match = seen[0]
    name = _NAME.fullmatch(match[0])
    if name is None:
        yield Doubt(f"{place}: {quoted(match[0], 60)} looks like a marker and is none")
    elif len(seen) > 1:
        yield Doubt(f"{place}: {len(seen)} markers on one line")
    elif line[: match.start()].strip():
        yield Doubt(f"{place}: {match[0]} stands inside other words: {quoted(line, 80)}")
    else:
        yield _marker(place, name["kind"], name["prefix"], line[match.end() :])


def _is_setting(match: re.Match[str], line: str) -> bool:
    name = _NAME.fullmatch(match[0])
    return name is not None and name["kind"] in CHECKS and _SETTING.match(line, match.end()) is not None


def _marker(place: str, kind: str, prefix: str, rest: str) -> Marker | Doubt:
    said = f"{place}: {prefix}{kind}"
    fields: dict[str, str] = {}
    for word in rest.split():
        field = _FIELD.fullmatch(word)
        if field is None:
            return Doubt(f"{said} is followed by {quoted(word, 40)}, no field=value")
        if field[1] in fields:
            return Doubt(f"{said} has {field[1]} twice")
        fields[field[1]] = field[2]
    if kind == "REFIT_EXPORT_SHAPE_CHECK" and fields == SKIPPED:
        return Marker(kind, prefix, fields, place)
    wanted = FIELDS[kind]
    missing = [field for field in wanted if field not in fields]
    unknown = [field for field in fields if field not in wanted] if kind != "REFIT_VALUE_CHECK" else []
    if missing or unknown:
        lacks = f"lacks {', '.join(missing)}" if missing else f"has unknown fields {', '.join(unknown)}"
        return Doubt(f"{said} {lacks}")
    wrong = [f"{field}={quoted(fields[field], 40)}" for field, fits in wanted.items() if not fits(fields[field])]
    if wrong:
        return Doubt(f"{said}: {', '.join(wrong)} is no value of it")
    return Marker(kind, prefix, fields, place)
