"""The guards as rules of the book: an adapter's own subject, and the cases that a guard must tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from harness.bench import Bench
from harness.errors import HarnessError, Unsupported, UsageError
from harness.guards import cases, subjects
from harness.guards.subjects import Subject
from harness.history import History
from harness.rules import Rule, Verdict, held, violated
from harness.scenario import Scenario
from harness.suites import Suite

T = TypeVar("T")
FACT = "guard"
ADAPTER = "the adapter"
RELATION = "fake only: source and launch arguments are looked at before any engine runs"
UNDECLARED = "the adapter does not say where its {} are (attribute `guards`, see harness.guards.subjects)"


def suite() -> Suite:
    """A rule and a scenario per guard."""
    return Suite("guards", RULES, SCENARIOS)


def _subject(bench: Bench, *needs: str) -> Subject:
    """What the adapter declares; Unsupported when none of `needs` is in it."""
    given = bench.adapter_attribute("guards")
    subject = Subject() if given is None else Subject.of(given, ADAPTER)
    if not any(getattr(subject, need) for need in needs):
        raise Unsupported(UNDECLARED.format(needs[0].replace("_", " ")))
    return subject


def _driver_imports(bench: Bench) -> None:
    """As read, and as executed with what is not installed missing."""
    _note(bench, "ENV-3", ADAPTER, "", _found(subjects.import_findings, _subject(bench, "drivers")))
    for case in cases.IMPORTS:
        with cases.subject_of(case) as toy:
            _note(bench, "ENV-3", case.id, case.word, subjects.import_findings(toy))


def _launch_arguments(bench: Bench) -> None:
    """Of the version that is run."""
    mine = _subject(bench, "launch_arguments")
    _note(bench, "ENV-5", ADAPTER, "", _found(subjects.argument_findings, mine, bench.version))
    for version, argument, word in cases.ARGUMENTS:
        found = subjects.argument_findings(Subject(launch_arguments=(argument,)), version)
        _note(bench, "ENV-5", f"{argument} of {version}", word, found)


def _actors(bench: Bench) -> None:
    """By Ray's own rule."""
    _note(bench, "ASYNC-1", ADAPTER, "", _found(subjects.actor_findings, _subject(bench, "actors")))
    with cases.toy_actors() as toys:
        found = subjects.actor_findings(toys)
    for name, (_, word) in cases.ACTORS.items():
        mine = f"{cases.PACKAGE}.{name}:"
        _note(bench, "ASYNC-1", name, word, [line for line in found if line.startswith(mine)])


def _found(guard: Callable[..., T], *arguments: Any) -> T:
    """What a guard finds; what it cannot look at is no verdict on the client, and ends nothing else."""
    try:
        return guard(*arguments)
    except UsageError as error:
        raise HarnessError(str(error)) from error


def _note(bench: Bench, rule: str, subject: str, word: str, found: Sequence[str]) -> None:
    bench.note(FACT, rule=rule, subject=subject, word=word, found=list(found)[:20])


def _judge(rule: str) -> Callable[[History], Verdict]:
    """Nothing is found where nothing is wrong, and what is wrong is found with its word."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for note in history.facts(FACT, source="harness", rule=rule):
            word, found, subject = str(note.get("word")), list(note.get("found") or ()), str(note.get("subject"))
            exercised += 1
            if not word and found:
                told = str(found[0]) + (f" (and {len(found) - 1} more)" if found[1:] else "")
                return violated(allowed=["nothing of the kind"], actual=told, where=subject, exercised=exercised)
            if word and not any(word in str(line) for line in found):
                told = str(found[0]) if found else "nothing is found"
                return violated(allowed=[f"a finding with {word}"], actual=told, where=subject, exercised=exercised)
        return held(exercised)

    return judge


def _rule(id: str, text: str, cites: Sequence[str], mend: str) -> Rule:
    return Rule(
        id=id,
        level="MUST",
        side="refit",
        text=text,
        versions="",
        citations=tuple(cites),
        judge=_judge(id),
        needs=frozenset({"harness:guard"}),
        mend=mend,
    )


RULES = (
    _rule(
        "ENV-3",
        "A driver imports neither modules of its workers nor packages that are not installed beside it.",
        ["NVIDIA-NeMo/RL#3330"],
        "Keep what only workers have in modules of their own, and import those inside the worker or name them by text.",
    ),
    _rule(
        "ENV-5",
        "SGLang is launched with arguments that this version takes.",
        ["NVIDIA-NeMo/RL#3612", "server_args.py:679@0.5.23"],
        "Rename or drop the argument, or pin the release that has it: the line says which one had it last.",
    ),
    _rule(
        "ASYNC-1",
        "A worker whose methods block does not become an asyncio actor, by Ray's own rule.",
        ["NVIDIA-NeMo/RL#3519"],
        "Move the coroutine out of the actor's class and its bases, to an object that a plain method runs.",
    ),
)


def _scenario(id: str, rule: str, run: Callable[[Bench], None]) -> Scenario:
    return Scenario(
        id=f"guards/{id}",
        rules=frozenset({rule}),
        run=run,
        relation=RELATION,
        side="refit",
        lanes=frozenset({"fake"}),
    )


SCENARIOS = (
    _scenario("driver-imports", "ENV-3", _driver_imports),
    _scenario("launch-arguments", "ENV-5", _launch_arguments),
    _scenario("actors", "ASYNC-1", _actors),
)
