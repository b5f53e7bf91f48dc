"""What was validated on a real engine, and when: scenarios by their relation, and dated records of other packages.

Records come through entry points of group `refitcheck.validations`: a function that gives (what, ISO date) pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime

from harness.errors import UsageError
from harness.suites import Book, load_point, named_points

GROUP = "refitcheck.validations"
Dated = tuple[str, str]


def days_of(text: str) -> int:
    """`30d` as 30. UsageError for anything else."""
    found = re.fullmatch(r"(\d{1,5})d", text.strip())
    if found is None:
        raise UsageError(f"--validated-before {text!r}: give days, as 30d")
    return int(found.group(1))


def everything(book: Book) -> list[Dated]:
    """Every scenario that is validated, once per version, and every record of the entry points."""
    found: list[Dated] = []
    for scenario in book.scenarios.values():
        kind, _, rest = scenario.relation.partition(":")
        if kind == "validated":
            version, day = rest.split()
            found.append((f"scenario {scenario.id} on {version}", day))
    for point in named_points(GROUP).values():
        found += load_point(point)()
    return found


def before(records: Iterable[Dated], days: int, today: date) -> list[Dated]:
    """Those of more than `days` days before `today`, the oldest first."""
    old = [record for record in records if (today - date.fromisoformat(record[1])).days > days]
    return sorted(old, key=lambda record: (record[1], record[0]))


def print_before(text: str) -> None:
    """One line each, and how many of how many."""
    from harness.console import Printer
    from harness.suites import load_book

    days, records = days_of(text), everything(load_book())
    console = Printer()
    old = before(records, days, datetime.now(UTC).date())
    for what, day in old:
        console.print(f"{day}  {what}", markup=False, soft_wrap=True)
    console.print(f"{len(old)} of {len(records)} validations are older than {days} days")
