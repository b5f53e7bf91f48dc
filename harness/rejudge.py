"""`refitcheck judge`: the judges over a stored history, whoever recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb

from harness.errors import MalformedHistory, UsageError
from harness.explore import rules as explored_rules
from harness.happenings import Call
from harness.history import History, Note
from harness.history_files import read_history
from harness.judgement import Judgement, hung_in, unsettled
from harness.results import EXIT
from harness.rules import Rule, Verdict
from harness.settings import named
from harness.suites import Book, load_book
from harness.versions import version_matches
from harness.words import quoted, told


def judge_history(history: History, rules: Sequence[Rule]) -> list[tuple[Rule, Verdict]]:
    """Every rule that speaks of the engine version in the header, as a run says it: a client that hung settles nothing.

    MalformedHistory where a judge cannot read what is written: it names the rule and, where it can, the record.
    """
    version = history.header.engine_version
    judgement = Judgement(Book(rules={rule.id: rule for rule in rules}), _Recorded(history))
    out: list[tuple[Rule, Verdict]] = []
    for rule in rules:
        try:
            if not version or version_matches(version, rule.versions):
                verdict, hung = judgement.verdict(rule, history), hung_in(history)
                out.append((rule, unsettled(verdict, hung) if hung else verdict))
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise MalformedHistory(
                f"{_record_at_fault(cause)}{rule.id} cannot read it: {quoted(told(cause))}"
            ) from error
    return out


def rules_for(history: History, book: Book) -> tuple[list[Rule], str]:
    """The rules that may judge a history, and which they are in words.

    Those of the scenario that it names: another rule may rest on what that scenario does not do, and accuse for it.
    Without a known scenario those of its side: the client's where a client refits, else the engine's. A recording of a
    live run names what it cannot tell (`not_judged` in its header): those rules are left out.
    """
    rules, which = _all_for(history, book)
    untold = history.header.meta.get("not_judged")
    if not isinstance(untold, list) or not untold:
        return rules, which
    return [rule for rule in rules if rule.id not in untold], f"{which}; without {quoted(' '.join(map(str, untold)))}"


def _all_for(history: History, book: Book) -> tuple[list[Rule], str]:
    name = str(history.header.meta.get("scenario", ""))
    scenario = book.scenarios.get(name)
    if scenario is not None:
        return [rule for rule in book.rules.values() if rule.id in book.rules_of(scenario)], f"of scenario {name}"
    side = "refit" if history.facts("refit", source="harness") or history.calls(origin="sut") else "engine"
    whose = "the client" if side == "refit" else "engines"
    why = f"its scenario {quoted(name, 80)} is not known here" if name else "it names no scenario"
    return [rule for rule in book.rules.values() if rule.side == side], f"about {whose}, all: {why}"


class _Recorded:
    """What a lane is to a judge, of a stored history: it provides what was recorded."""

    def __init__(self, history: History) -> None:
        self.name = history.header.lane or "?"
        self.provides = _Provided(history)


class _Provided(frozenset[str]):
    """Facts of the core, any or none: a fact that did not happen is not one that could not be told."""

    def __new__(cls, history: History) -> _Provided:
        return super().__new__(cls, ["core"] if any(n.source == "core" for n in history.notes_) else [])

    def __contains__(self, need: object) -> bool:
        return super().__contains__(str(need).partition(":")[0])


def _record_at_fault(error: Exception) -> str:
    """`record 17 (t=1.250 e0 core:flush): `, of the call or note that the judge had in hand; "" when it had none."""
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        for value in reversed(frame.f_locals.values()):
            if isinstance(value, Call | Note):
                return f"record {value.pos + 1} ({quoted(value, 120)}): "
    return ""


def judge_files(
    files: Sequence[Path], names: tuple[str, ...], *, without_core: bool = False, beside: Path | None = None
) -> int:
    """Print one line per rule that the history exercised; the exit code of the worst.

    `beside` is the file of the fault-free history that the invariants of exploration are judged beside.
    """
    from harness.console import Printer

    history = read_history(*files)
    clean = read_history(beside) if beside is not None else None
    if without_core:
        history = history.without_core()
    book = load_book()
    mine, which = rules_for(history, book)
    rules = _chosen(mine, names, which, book, clean)
    console = Printer(soft_wrap=True)
    try:
        verdicts = judge_history(history, [rule for rule in rules if rule.id not in book.invariants])
        if clean is not None:
            every = explored_rules.verdicts(history, clean)
            verdicts += [(rule, every[rule.id]) for rule in rules if rule.id in book.invariants]
    except MalformedHistory as error:
        raise MalformedHistory(f"{files[0]}: {error}") from error
    worst = "held" if any(v.status == "held" for _, v in verdicts) else "inconclusive"
    for rule, verdict in verdicts:
        if verdict.status == "violated":
            worst = "violated"
            console.print(f"{rule.id}  violated  ×{verdict.exercised}  {rule.text}", markup=False)
            for word, told_ in (("allowed", " | ".join(verdict.allowed)), ("actual", verdict.actual)):
                console.print(f"  {word:<8} {told_}", markup=False)
            console.print(f"  {'where':<8} {verdict.where}", markup=False)
            if rule.mend:
                console.print(f"  {'mend':<8} {rule.mend}", markup=False)
        elif verdict.status == "held":
            console.print(f"{rule.id}  held  ×{verdict.exercised}", markup=False)
    header = history.header
    console.print(
        f"{len(history.calls_)} calls, {len(history.notes_)} notes, engine {header.engine_version or '?'} on lane "
        f"{header.lane or '?'}, seed {header.seed}",
        markup=False,
    )
    asked = f" that --rule {' '.join(names)} names" if names else ""
    console.print(f"judged by the {len(verdicts)} rules {which}{asked}", markup=False)
    left = [rule for rule in mine if rule.id in book.invariants] if clean is None and not names else []
    if left:
        console.print(f"not judged: {left[0].family}, without --beside the fault-free history", markup=False)
    return EXIT[worst]


def _chosen(mine: Sequence[Rule], names: tuple[str, ...], which: str, book: Book, clean: History | None) -> list[Rule]:
    """Those of `mine` that `names` ask for; UsageError where that is none, or one that cannot be judged so."""
    able = [rule for rule in mine if clean is not None or rule.id not in book.invariants]
    rules = [rule for rule in able if not names or named(rule.id, names)]
    if rules or not names:
        return rules
    asked = " ".join(names)
    if not any(named(rule, names) for rule in book.rules):
        raise UsageError(f"{asked} is no rule or family; see refitcheck list")
    if all(rule in book.invariants for rule in book.rules if named(rule, names)) and clean is None:
        raise UsageError(f"{asked} is judged beside a fault-free history: --beside names its file")
    raise UsageError(f"{asked} cannot judge this history: it is none of the rules {which}")
