"""`refitcheck list` and `explain`: the rules as a person reads them."""

from __future__ import annotations

from typing import Any

from harness.errors import UsageError
from harness.suites import Book, load_book


def print_rules() -> None:
    """One line per rule: level, side, versions, scenarios, the plants that it catches, its text."""
    from rich.console import Console
    from rich.table import Table

    book = load_book()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rule", "level", "side", "sglang", "scenarios", "caught plants"):
        table.add_column(name, overflow="fold", no_wrap=name == "rule")
    table.add_column("text", overflow="fold", ratio=1)
    for rules in book.families().values():
        for rule in rules:
            plants = " ".join(p.id for p in book.plants_of(rule.id)) or "none"
            mutants = len(book.mutants_of(rule.id))
            plants += f" +{mutants} mutants" if mutants else ""
            count = str(len(book.scenarios_of(rule.id)))
            table.add_row(rule.id, rule.level, rule.side, rule.versions or "all", count, plants, _flat(rule.text))
    console = _console(Console)
    console.print(table)
    unproved = sum(not book.plants_of(rule) for rule in book.rules)
    proved = f", {unproved} without a plant" if unproved else ""
    console.print(
        f"{len(book.rules)} rules in {len(book.families())} families, {len(book.scenarios)} scenarios, "
        f"{len(book.plants)} plants, {len(book.mutants)} mutants{proved}"
    )


def print_scenarios() -> None:
    """One line per scenario: side, what it exercises, how it relates to the real engine."""
    from rich.console import Console
    from rich.table import Table

    book = load_book()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("scenario", "side", "rules", "relation"):
        table.add_column(name, overflow="fold")
    for s in book.scenarios.values():
        marks = [s.side, *(["fatal"] if s.fatal else []), *(["explored"] if s.explore else [])]
        table.add_row(s.id, " ".join(marks), " ".join(sorted(s.rules)), s.relation)
    console = _console(Console)
    console.print(table)
    console.print(f"{len(book.scenarios)} scenarios")


def print_rule(name: str) -> None:
    """One rule in full. UsageError when there is none of that name."""
    from rich.console import Console

    book = load_book()
    console = _console(Console)
    for line in explained(book, name):
        console.print(line, markup=False, soft_wrap=True)


def explained(book: Book, name: str) -> list[str]:
    """The lines of `explain`."""
    rule = book.rules.get(name) or book.rules.get(name.upper())
    if rule is None:
        near = [r for r in book.rules if r.split("-")[0] == name.upper().split("-")[0]]
        raise UsageError(f"no rule {name!r}" + (f"; {name.upper().split('-')[0]} has {' '.join(near)}" if near else ""))
    scenarios = book.scenarios_of(rule.id)
    plants = book.plants_of(rule.id)
    lines = [
        f"{rule.id} {rule.level}  {_flat(rule.text)}",
        f"  side       {'an engine must' if rule.side == 'engine' else 'a client must'}",
        f"  sglang     {rule.versions or 'every version'}",
        *(f"  clause     {citation}" for citation in rule.citations),
        f"  reads      {' '.join(sorted(rule.needs)) or 'calls, canaries and traffic only'}",
    ]
    if rule.black_box:
        lines.append(f"  black box  no: {_flat(rule.black_box)}")
    lines += [f"  scenario   {s.id}  ({s.relation})" for s in scenarios]
    lines += [f"  catches    {p.id}  ({p.target}; {p.origin})  {_flat(p.text)}".rstrip() for p in plants] or [
        "  catches    no planted defect yet"
    ]
    lines.append(f"  run        refitcheck run --rule {rule.id}")
    return lines


def _console(make: Any) -> Any:
    console = make(highlight=False)
    return console if console.is_terminal else make(highlight=False, width=220)


def _flat(text: str) -> str:
    return " ".join(text.split())
