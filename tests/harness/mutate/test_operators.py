from __future__ import annotations

import ast
import textwrap

import pytest

from harness.mutate import operators
from harness.mutate.live import compile_function
from tests.harness.mutate.samples import sites_of, source_of

CASES = [
    ("drop-call", "flush(engine)", ["pass"]),
    ("drop-call", "await flush(engine)", ["pass"]),
    ("drop-call", "lock.release()", []),
    ("drop-release", "lock.release()", ["pass"]),
    ("drop-release", "with lock:\n    go()", ["lock.__enter__()\ngo()"]),
    ("drop-release", "async with lock as held:\n    go(held)", ["held = await lock.__aenter__()\ngo(held)"]),
    ("drop-await", "x = await call()", ["x = call()"]),
    ("lift-finally", "try:\n    a()\nfinally:\n    end()", ["try:\n    a()\nfinally:\n    pass\nend()"]),
    (
        "lift-finally",
        "try:\n    a()\nfinally:\n    end()\n    cont()",
        ["try:\n    a()\nfinally:\n    cont()\nend()", "try:\n    a()\nfinally:\n    end()\ncont()"],
    ),
    (
        "past-try",
        "try:\n    begin()\n    send()\nfinally:\n    end()",
        [
            "begin()\ntry:\n    send()\nfinally:\n    end()",
            "try:\n    begin()\nfinally:\n    end()\nsend()",
        ],
    ),
    ("swap-calls", "pause()\nflush()", ["flush()\npause()"]),
    ("swap-calls", "pause()\npause()", []),
    ("reorder-effects", "out.append(a)\nout.append(b)", ["out.append(b)\nout.append(a)"]),
    ("reorder-effects", "return [Reply(1), Die(2)]", ["return [Die(2), Reply(1)]"]),
    ("drop-guard", "if bad:\n    raise ValueError(bad)", ["pass"]),
    ("drop-guard", "if new:\n    connect(new)", ["connect(new)"]),
    ("drop-guard", "assert open_", ["pass"]),
    ("drop-guard", "x = a and b", ["x = b", "x = a"]),
    ("negate", "if a:\n    b()", ["if not a:\n    b()"]),
    ("negate", "while not a:\n    b()", ["while a:\n    b()"]),
    ("negate", "x = a or b", ["x = a and b"]),
    ("negate", "x = [y for y in z if y]", ["x = [y for y in z if not y]"]),
    ("compare", "x = a < b", ["x = a <= b"]),
    ("compare", "x = a is None", ["x = a is not None"]),
    ("constant", "x = 3", ["x = 4"]),
    ("constant", "x = True", ["x = False"]),
    ("constant", "x = 'name'", ["x = 'name~'"]),
    ("arithmetic", "x += y", ["x -= y"]),
    ("arithmetic", "x = f'{y}' + z", []),
    ("off-by-one", "x = y[a:b]", ["x = y[a + 1:b]", "x = y[a:b - 1]"]),
    ("off-by-one", "for i in range(n):\n    go(i)", ["for i in range(n - 1):\n    go(i)"]),
    (
        "skip-rank",
        "for r in ranks:\n    go(r)",
        ["for r in __import__('itertools').islice(ranks, 1, None):\n    go(r)"],
    ),
    ("swallow", "raise ValueError(x)", ["pass"]),
    (
        "swallow",
        "try:\n    a()\nfinally:\n    b()",
        ["try:\n    a()\nexcept Exception:\n    pass\nfinally:\n    b()"],
    ),
    ("swallow", "try:\n    a()\nexcept Exception:\n    b()", []),
    ("retry", "post(x)", ["post(x)\npost(x)"]),
    ("retry", "x = pure(y)", []),
]


@pytest.mark.parametrize(("op", "code", "expected"), CASES)
def test_an_operator_makes_exactly_these_changes(tmp_path, op, code, expected):
    made = []
    for site in sites_of(tmp_path, "async def f():\n" + textwrap.indent(code, "    "), op):
        body = ast.parse(site.mutated()).body[0].body
        made.append("\n".join(ast.unparse(s) for s in body))
    assert made == expected


def test_every_operator_of_the_list_is_tried_here():
    assert {op for op, _, expected in CASES if expected} == set(operators.NAMES)


ENGINE = '''
    """A docstring."""
    from dataclasses import dataclass

    LIMIT = 3

    @dataclass
    class Engine:
        """Another."""
        paused: bool = False

        def pause(self, mode: str = "abort") -> list[str]:
            """Not mutated: 1 < 2."""
            if self.paused:
                raise RuntimeError("ü already paused")
            self.paused = True
            return [mode, "ok"]

        def each(self):
            def inner(x):
                return x + 1
            return [inner(x) for x in range(3)]
'''


def test_ids_are_unique_stable_and_say_where(tmp_path):
    ids = [s.id for s in sites_of(tmp_path, ENGINE)]
    assert ids
    assert len(set(ids)) == len(ids)
    assert ids == [s.id for s in sites_of(tmp_path, ENGINE)]
    assert "sample:Engine.pause:drop-guard:14:9:0" in ids
    assert "sample:Engine.each.<locals>.inner:arithmetic:21:20:0" in ids


def test_positions_are_exact_in_characters_not_bytes(tmp_path):
    site = next(
        s for s in sites_of(tmp_path, 'def f():\n    x = "üü"; y = 7\n', "constant") if s.change.original == "7"
    )
    line = (tmp_path / "sample.py").read_text(encoding="utf-8").split("\n")[site.line - 1]
    assert line[site.place.column - 1 : site.place.end_column - 1] == "7"


def test_docstrings_defaults_decorators_and_annotations_are_left_alone(tmp_path):
    text = '@deco(1)\ndef f(a: "x" = 1) -> "y":\n    """Doc 1."""\n    b: "z" = 5\n'
    assert [s.change.original for s in sites_of(tmp_path, text, "constant")] == ["5"]


def test_making_a_mutant_leaves_the_shared_tree_as_it_was(tmp_path):
    source = source_of(tmp_path, ENGINE)
    before = ast.dump(source.tree, include_attributes=True)
    for site in operators.sites(source):
        site.mutated()
    assert ast.dump(source.tree, include_attributes=True) == before


@pytest.mark.parametrize("module", ["json.decoder", "asyncio.locks", "contextlib", "heapq"])
def test_every_mutant_of_real_code_compiles_and_differs(module):
    from harness.mutate.source import read

    source = read(module)
    sites = list(operators.sites(source))
    assert len(sites) > 20
    for site in sites:
        before = ast.dump(site.function.node)
        undo = site.edit()
        try:
            assert ast.dump(site.function.node) != before, site.id
            compile_function(source, site.function, site.function.node)
        finally:
            for edit in reversed(undo):
                setattr(edit.holder, edit.name, edit.new)


def test_only_the_named_operators(tmp_path):
    source = source_of(tmp_path, ENGINE)
    assert {s.op for s in operators.sites(source, frozenset({"swallow"}))} == {"swallow"}


def test_an_expression_is_reached_by_the_lines_of_its_statement(tmp_path):
    found = sites_of(
        tmp_path,
        """
        def f(x):
            if (
                x
                > 1
            ):
                return {
                    "a": 1,
                    "b": 2,
                }
        """,
        "constant",
    )
    assert [(s.line, s.lines) for s in found] == [
        (5, range(3, 7)),
        (8, range(7, 11)),
        (8, range(7, 11)),
        (9, range(7, 11)),
        (9, range(7, 11)),
    ]
