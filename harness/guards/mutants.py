"""Mutants of the guards: each is blind to one spelling, or takes a shortcut that a guard was once seen to take."""

from __future__ import annotations

from harness.mutate import Mutant
from harness.mutate.edits import Body, Drop, FunctionEdit, Insert, ReplaceExpr, edits

HERE = "harness.guards"
IMPORTS = "NVIDIA-NeMo/RL#3330, D58"


def mutants() -> tuple[Mutant, ...]:
    """All of them."""
    return MUTANTS


def _mutant(id: str, rule: str, where: str, note: str, *changes: FunctionEdit, origin: str = IMPORTS) -> Mutant:
    return Mutant(id, f"{HERE}.{where}", edits(*changes), frozenset({rule}), origin, note)


MUTANTS = (
    _mutant(
        "guard-takes-names-of-packages-for-modules",
        "ENV-3",
        "spellings:_Walk._statement",
        "from a.b import worker names a.b alone",
        Drop("names += ANY"),
    ),
    _mutant(
        "guard-reads-aliases-only",
        "ENV-3",
        "spellings:_Walk._statement",
        "from a.b.worker import X names a.b.worker.X, which is no module",
        ReplaceExpr("_with_parents(base)", "[]"),
        ReplaceExpr("_with_parents(alias.name)", "[alias.name]"),
    ),
    _mutant(
        "guard-is-blind-to-relative-imports",
        "ENV-3",
        "spellings:_absolute",
        "a leading dot is dropped",
        Body("return name"),
    ),
    _mutant(
        "guard-forgives-what-is-raised-again",
        "ENV-3",
        "spellings:_forgives",
        "any handler makes an import optional",
        Body("return bool(_named(handler.type) & _MISSING)"),
    ),
    _mutant(
        "guard-forgives-nothing",
        "ENV-3",
        "spellings:_forgives",
        "an optional import is an import",
        Body("return False"),
    ),
    _mutant(
        "guard-knows-statements-alone",
        "ENV-3",
        "spellings:_Walk._is_loader",
        "importlib.import_module is a call like any other",
        Body("return False"),
    ),
    _mutant(
        "guard-stops-at-the-driver",
        "ENV-3",
        "imports:forbidden_imports",
        "what the driver's own modules import is not looked at",
        Drop("todo.extend((name, (*chain, name)) for name in inside if ANY)"),
    ),
    _mutant(
        "guard-forgets-the-package",
        "ENV-3",
        "imports:forbidden_imports",
        "a package's __init__ is not executed",
        Drop("todo.extend((parent, chain) for parent in _parents(module))"),
    ),
    _mutant(
        "guard-accuses-late-imports",
        "ENV-3",
        "imports:forbidden_imports",
        "a helper's function that imports late counts as an import",
        ReplaceExpr("mine or one.when == 'import'", "True"),
    ),
    _mutant(
        "guard-only-reads",
        "ENV-3",
        "subjects:import_findings",
        "what is computed is never executed",
        ReplaceExpr("subject.executed and subject.drivers", "False"),
    ),
    _mutant(
        "guard-knows-one-release",
        "ENV-5",
        "arguments:_line",
        "what any release has is taken by each",
        Insert("if any(name in _taken(other) for other in PROFILES):\n    return ''", before="mine = ANY"),
        origin="NVIDIA-NeMo/RL#3612, D117",
    ),
    _mutant(
        "guard-takes-what-is-refused",
        "ENV-5",
        "arguments:_line",
        "a flag that is only known to be refused counts as taken",
        ReplaceExpr("mine[name]", "False"),
        origin="NVIDIA-NeMo/RL#3612, D117",
    ),
    _mutant(
        "guard-asks-for-no-actor",
        "ASYNC-1",
        "subjects:actor_findings",
        "what Ray says is not read",
        Insert("return []", before="told = ANY"),
        origin="NVIDIA-NeMo/RL#3519, D61",
    ),
    _mutant(
        "guard-looks-at-the-class-alone",
        "ASYNC-1",
        "subjects:actor_findings",
        "what a class inherits is not its own",
        ReplaceExpr(
            "told['asyncio'].items()",
            "[(t, [w for w in y if w.endswith('.Actor')]) for t, y in told['asyncio'].items()]",
        ),
        origin="NVIDIA-NeMo/RL#3519, D61",
    ),
)
