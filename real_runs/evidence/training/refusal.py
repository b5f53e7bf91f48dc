"""A refusal: the rule of evidence that is broken, and one line that says where and why."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """`rule` is an id of family EVID; `line` is for a person."""

    rule: str
    line: str
