"""The place that a judge names: said once, and found again in the history, by which findings are put in order."""

from __future__ import annotations

import re

from harness.places import place_of
from tests.conformance.test_judges import BROKEN, RULES


def test_every_place_is_said_once_and_found_again():
    doubled = re.compile(r"(refit \S+ on \S+): \1|(t=\S+ \S+ \S+ /?\S+).* \2")
    twice, lost = [], []
    for rule, make, _ in BROKEN:
        history = make().history
        where = RULES[rule].judge(history).where
        twice += [(rule, where)] if doubled.search(where) else []
        lost += [(rule, where)] if place_of(where, history).pos == history.length else []
    assert (twice, lost) == ([], [])
