"""`refitcheck list` and `explain`: the rules as a person reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from harness.errors import UsageError
from harness.rules import Rule
from harness.suites import Book, load_book
from harness.words import one_line


def print_rules() -> None:
    """One line per rule: level, side, versions, scenarios, mutants of the catalogue and which are plants, its text.

    Plants are mutants too: `refitcheck mutate` runs both.
    """
    from harness.console import Printer

    book = load_book()
    table = _table("rule", "level", "side", "sglang", "scenarios", "mutants", "caught plants", last="text")
    for rules in book.families().values():
        for rule in rules:
            planted = book.plants_of(rule.id)
            plants = " ".join(p.id for p in planted) or "none"
            counts = str(len(book.scenarios_of(rule.id))), str(len(planted) + len(book.mutants_of(rule.id)))
            table.add_row(rule.id, rule.level, rule.side, rule.versions or "all", *counts, plants, one_line(rule.text))
    console = Printer()
    console.print(table)
    unproved = sum(not book.plants_of(rule) and not book.mutants_of(rule) for rule in book.rules)
    proved = f", {unproved} rules without a planted defect" if unproved else ""
    console.print(
        f"{len(book.rules)} rules in {len(book.families())} families, {len(book.scenarios)} scenarios, "
        f"{len(book.plants) + len(book.mutants)} mutants of the catalogue, {len(book.plants)} of them plants{proved}"
    )


def print_scenarios() -> None:
    """One line per scenario: side, what it exercises, how it relates to the real engine."""
    from harness.console import Printer

    book = load_book()
    table = _table("scenario", "side", "rules", "relation")
    for s in book.scenarios.values():
        marks = [s.side, *(["fatal"] if s.fatal else []), *(["explored"] if s.explore else [])]
        table.add_row(s.id, " ".join(marks), " ".join(sorted(s.rules)), s.relation)
    console = Printer()
    console.print(table)
    console.print(f"{len(book.scenarios)} scenarios")


def print_provenance() -> None:
    """One line per rule: what its scenarios say of the real engine, and the newest record of it."""
    from harness.console import Printer

    book = load_book()
    table = _table("rule", "provenance", "validated on", last="or why not")
    counts: Counter[str] = Counter()
    for rule in book.rules.values():
        kind, where, why = provenance(book, rule)
        counts[kind] += 1
        table.add_row(rule.id, kind, where, why)
    console = Printer()
    console.print(table)
    console.print(
        "  ".join(f"{kind} {count}" for kind, count in counts.most_common()) + f"  of {len(book.rules)} rules"
    )


def provenance(book: Book, rule: Rule) -> tuple[str, str, str]:
    """(validated, fake only or not yet; versions with the date of their newest record; reasons where not validated).

    A rule is validated when one scenario of it is; it is fake only when all of them are.
    """
    validated: dict[str, str] = {}
    reasons: dict[str, list[str]] = {"not yet": [], "fake only": []}
    for scenario in book.scenarios_of(rule.id):
        kind, _, rest = scenario.relation.partition(":")
        if kind == "validated":
            version, date = rest.split()
            validated[version] = max(validated.get(version, ""), date)
        else:
            reasons[kind].append(one_line(rest))
    if validated:
        return "validated", ", ".join(f"{version} on {date}" for version, date in sorted(validated.items())), ""
    kind = "not yet" if reasons["not yet"] else "fake only"
    return kind, "", "; ".join(dict.fromkeys(reasons[kind]))


def print_rule(name: str) -> None:
    """One rule in full. UsageError when there is none of that name."""
    from harness.console import Printer

    book = load_book()
    console = Printer()
    for line in explained(book, name):
        console.print(line, markup=False, soft_wrap=True)


def explained(book: Book, name: str) -> list[str]:
    """The lines of `explain`."""
    rule = book.rules.get(name) or book.rules.get(name.upper())
    if rule is None:
        near = [r for r in book.rules if r.split("-")[0] == name.upper().split("-")[0]]
        raise UsageError(f"no rule {name!r}" + (f"; {name.upper().split('-')[0]} has {' '.join(near)}" if near else ""))
    scenarios = book.scenarios_of(rule.id)
    plants, mutants = book.plants_of(rule.id), book.mutants_of(rule.id)
    kind, where, why = provenance(book, rule)
    lines = [
        f"{rule.id} {rule.level}  {one_line(rule.text)}",
        f"  side       {'an engine must' if rule.side == 'engine' else 'a client must'}",
        f"  sglang     {rule.versions or 'every version'}",
        *(f"  clause     {citation}" for citation in rule.citations),
        *([f"  mend       {one_line(rule.mend)}"] if rule.mend else []),
        f"  reads      {' '.join(sorted(rule.needs)) or 'calls, canaries and traffic only'}",
        f"  provenance {kind}{f' on {where}' if where else ''}{f': {why}' if why else ''}",
    ]
    if rule.asks:
        lines.append(f"  asks       that Caps.optional declares {', '.join(sorted(rule.asks))}, or it is unsupported")
    if rule.black_box:
        lines.append(f"  black box  no: {one_line(rule.black_box)}")
    if rule.follows:
        lines.append(f"  follows    from {' '.join(rule.follows)}, where one of them is broken in the same history")
    lines += _example(book, rule)
    lines += [f"  scenario   {s.id}  ({s.relation})" for s in scenarios]
    lines += [f"  catches    {p.id}  ({p.target}; {p.origin})  {one_line(p.text)}".rstrip() for p in plants]
    lines += [f"  kills      {m.id}  ({m.origin})" for m in mutants]
    if not plants and not mutants:
        lines.append("  catches    no planted defect yet")
    lines.append(f"  run        refitcheck run --rule {rule.id}")
    return lines


def _example(book: Book, rule: Rule) -> list[str]:
    """What a report would say of a client or an engine that breaks the rule."""
    from harness.example import example_of

    found = example_of(book, rule)
    if found is None:
        return []
    seen = one_line(found.plant.origin)
    return [
        f"  example    {one_line(found.plant.text) or found.plant.id} (planted; seen in {seen})",
        f"    allowed  {'   |   '.join(map(one_line, found.verdict.allowed)) or '-'}",
        f"    actual   {one_line(found.verdict.actual)}",
        f"    where    {found.scenario}: {one_line(found.verdict.where)}".rstrip(": "),
        f"    replay   {found.replay}",
    ]


def _table(*columns: str, last: str = "") -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == "rule")
    if last:
        table.add_column(last, overflow="fold", ratio=1)
    return table
