"""Where a mutated expression can be evaluated beside the original one, and the function rewritten so that it is.

For each mutant the largest expression around it is sought that can be evaluated a second time, with the change: what
lies to the right of the change must be pure, what lies to the left is pure or its value is kept in a variable. In its
place comes `see(begin(), original, lambda value: (lambda: mutated, ...))`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.mutate.pure import GUARDS, builtin, guarded, listed, method, pure
from harness.mutate.sites import Site, placed
from harness.mutate.source import FunctionNode
from harness.mutate.trees import Copying, changed

VALUE = "__refitcheck_value__"
EMPTY, AGREED = "__refitcheck_empty__", "__refitcheck_agreed__"
_EXIT = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BRANCHING = (ast.BoolOp, ast.IfExp, ast.Compare)
_PARTIAL = (ast.Slice, ast.FormattedValue, ast.comprehension, ast.GeneratorExp, ast.Attribute)
"""Parts of an expression that have no value of their own, or not one that could be looked at."""


@dataclass
class Probe:
    """One expression and the mutants that are evaluated beside it.

    `truth`: only whether it is true matters. `fresh`: a list that it gives is always a new one. `whole`: a mutant may
    leave out what the original evaluates, so that must change nothing either: the first thunk is the original again.
    A `root` that is a `try` has no thunks: that an exception leaves it is what matters.
    """

    number: int
    root: ast.AST
    truth: bool = False
    fresh: bool = False
    whole: bool = False
    mutants: list[str] = field(default_factory=list)
    thunks: list[ast.expr] = field(default_factory=list)

    @property
    def begin(self) -> str:
        """The name of what is called before the expression."""
        return f"__refitcheck_begin_{self.number}__"

    @property
    def see(self) -> str:
        """The name of what sees its value."""
        return f"__refitcheck_see_{self.number}__"


class Probes:
    """All probes of one function. `numbers` gives each its own; `shadowed` are builtins that the module hides."""

    def __init__(
        self, node: FunctionNode, sites: Sequence[Site], numbers: Iterator[int], shadowed: frozenset[str] = frozenset()
    ) -> None:
        self._node, self._numbers = node, numbers
        self._parents = {id(child): (parent, name) for parent, name, child in _links(node)}
        self._shadowed = shadowed | _bound(node)
        self._by_root: dict[int, Probe] = {}
        self._kept: dict[int, str] = {}
        self._leaving_out: set[int] = set()
        for site in sites:
            if len(site.change.edits) == 1:
                self._place(site, site.change.first)

    @property
    def all(self) -> list[Probe]:
        """Every probe."""
        return list(self._by_root.values())

    def rewritten(self) -> FunctionNode:
        """The function with its probes; the tree that it was made from is left alone."""
        for probe in self.all:
            if id(probe.root) in self._leaving_out:
                again = guarded(probe.root, self._kept, self._shadowed)
                probe.whole = any(isinstance(n, ast.Name) and n.id in GUARDS for n in ast.walk(again))
                probe.thunks[:0] = [placed(again, probe.root)] if probe.whole else []
        made: FunctionNode = _Rewrite(self._by_root, self._kept).visit(self._node)
        return made

    def _pure(self, node: ast.AST) -> bool:
        return pure(node, self._shadowed)

    def _place(self, site: Site, node: Any) -> None:
        if site.op == "skip-rank":
            self._add(site, node, _call(EMPTY, ast.Name(VALUE, ast.Load())))
        elif site.op == "swallow" and isinstance(node, ast.Try):
            self._add(site, node, ast.Constant(None))
        elif isinstance(node, ast.AugAssign) and site.op == "arithmetic":
            self._augmented(site, node)
        elif site.stmt is not None:
            self._expression(site, node)
        elif site.op == "drop-guard" and self._pure(node.test):
            kept = isinstance(node, ast.Assert) or not isinstance(node.body[-1], _EXIT)
            self._add(site, node.test, ast.Constant(kept))
            self._leaving_out.add(id(node.test))

    def _augmented(self, site: Site, node: ast.AugAssign) -> None:
        """`x += e` beside `x -= e`: the sums are compared."""
        target: Any = changed(node.target, ctx=ast.Load())
        if self._pure(target) and self._pure(node.value):
            sums = [ast.BinOp(target, op, node.value) for op in (node.op, site.change.edits[0].new)]
            parts = [guarded(placed(part, node), {}, self._shadowed) for part in (target, *sums)]
            self._add(site, node.value, _call(AGREED, ast.Name(VALUE, ast.Load()), *parts))

    def _expression(self, site: Site, node: Any) -> None:
        edit = site.change.edits[0]
        new = edit.new
        if isinstance(new, list):
            new = next(n for n, o in zip(new, getattr(edit.holder, edit.name), strict=True) if n is not o)
        before = list(_topmost(new, self._parents))
        if _skips(node, new) and not self._pure(node):
            return
        root, before = self._climb(node, before)
        kept: dict[int, str] = {}
        if not all(self._pure(part) for part in before):
            if self._scoped(root):
                return
            kept = {id(p): f"__refitcheck_kept_{id(p)}__" for p in before if not isinstance(p, ast.Constant)}
        undo = site.edit()
        try:
            thunk = guarded(new if root is node else root, kept, self._shadowed)
        finally:
            for e in reversed(undo):
                setattr(e.holder, e.name, e.new)
        self._kept.update(kept)
        self._add(site, root, thunk)
        if any(isinstance(part, _BRANCHING) for part in ast.walk(root)):
            self._leaving_out.add(id(root))

    def _climb(self, node: Any, before: list[ast.AST]) -> tuple[Any, list[ast.AST]]:
        """The largest expression that can be evaluated again with a change of `node`; what it evaluates before that."""
        best, at, seen = (node, before), node, before
        while (found := self._around(self._parents[id(at)][0], at)) is not None:
            at, seen = self._parents[id(at)][0], [*seen, *found]
            if not isinstance(at, _PARTIAL):
                best = at, seen
        return best

    def _around(self, parent: Any, child: ast.AST) -> list[ast.AST] | None:
        """What `parent` evaluates before `child`, if it can be evaluated again with another `child`; else None."""
        if isinstance(parent, ast.comprehension):
            whole, _ = self._parents[id(parent)]
            return [] if self._pure(listed(whole)) else None
        if isinstance(parent, _COMPREHENSIONS):
            return [] if self._pure(listed(parent)) else None
        if isinstance(parent, ast.Attribute):
            above, name = self._parents[id(parent)]
            return [] if name == "func" and method(above) else None
        parts = _in_order(parent, self._shadowed)
        at = next((i for i, part in enumerate(parts) if part is child), -1)
        if at < 0:
            return None
        after = [] if isinstance(parent, ast.IfExp) and at == 1 else parts[at + 1 :]
        if not all(self._pure(listed(part)) for part in after):
            return None
        return [part.value if part is getattr(parent, "func", parent) else part for part in parts[:at]]

    def _scoped(self, root: ast.AST) -> bool:
        """It lies in a scope in which no variable of the function can be set."""
        node = root
        while node is not self._node:
            node, _ = self._parents[id(node)]
            if isinstance(node, _SCOPES):
                return True
        return False

    def _truth(self, root: ast.AST) -> bool:
        """Nothing but whether it is true is used."""
        parent, name = self._parents[id(root)]
        if isinstance(parent, (ast.If, ast.While, ast.Assert)):
            return name == "test"
        if isinstance(parent, ast.IfExp):
            return name == "test" or self._truth(parent)
        if isinstance(parent, ast.UnaryOp):
            return isinstance(parent.op, ast.Not)
        if isinstance(parent, ast.BoolOp):
            return self._truth(parent)
        return isinstance(parent, ast.comprehension) and name == "ifs"

    def _add(self, site: Site, root: ast.AST, thunk: ast.expr) -> None:
        probe = self._by_root.get(id(root))
        if probe is None:
            probe = self._by_root[id(root)] = Probe(next(self._numbers), root)
            if isinstance(root, ast.expr):
                probe.truth, probe.fresh = self._truth(root), _fresh(root)
        probe.mutants.append(site.id)
        probe.thunks.append(placed(thunk, root))


class _Rewrite(Copying):
    def __init__(self, probes: dict[int, Probe], kept: dict[int, str]) -> None:
        self._probes, self._kept = probes, kept

    def visit(self, node: ast.AST) -> Any:
        made: Any = self.generic_visit(node)
        probe = self._probes.get(id(node))
        if probe is not None and isinstance(node, ast.Try):
            seen = [ast.Expr(_call(probe.see)), ast.Raise()]
            handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, seen)
            made = placed(changed(made, handlers=[*made.handlers, handler]), node)
        elif probe is not None:
            each = ast.Tuple([ast.Lambda(_arguments(), thunk) for thunk in probe.thunks], ast.Load())
            made = placed(_call(probe.see, _call(probe.begin), made, ast.Lambda(_arguments(VALUE), each)), node)
        if id(node) in self._kept:
            made = placed(ast.NamedExpr(ast.Name(self._kept[id(node)], ast.Store()), made), node)
        return made


def _skips(node: ast.AST, new: ast.AST) -> bool:
    """The change may leave out a part of the expression, or evaluate one that was left out."""
    if isinstance(new, ast.UnaryOp) and new.operand is node:
        return False
    return isinstance(node, ast.BoolOp) or (isinstance(node, ast.Compare) and len(node.ops) > 1)


def _fresh(node: ast.AST) -> bool:
    """A list that it gives is a new one, which nothing else holds."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("list", "sorted")
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Slice)
    return isinstance(node, (ast.List, ast.ListComp, ast.BinOp))


def _in_order(node: Any, shadowed: frozenset[str]) -> list[Any]:
    """The operands of an expression in the order of evaluation; none for what cannot be evaluated a second time."""
    found: list[Any] = []
    if isinstance(node, ast.Compare):
        found = [node.left, *node.comparators]
    elif isinstance(node, (ast.BoolOp, ast.JoinedStr)):
        found = node.values
    elif isinstance(node, ast.BinOp):
        found = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        found = [node.operand]
    elif isinstance(node, ast.IfExp):
        found = [node.test, node.body, node.orelse]
    elif isinstance(node, ast.Slice):
        found = [part for part in (node.lower, node.upper, node.step) if part is not None]
    elif isinstance(node, ast.FormattedValue):
        found = [part for part in (node.value, node.format_spec) if part is not None]
    elif isinstance(node, ast.Call):
        if builtin(node, shadowed):
            found = node.args
        elif method(node):
            found = [node.func, *node.args]
    elif isinstance(getattr(node, "ctx", None), ast.Load):
        if isinstance(node, ast.Subscript):
            found = [node.value, node.slice]
        elif isinstance(node, (ast.Tuple, ast.List)):
            found = node.elts
    return found


def _topmost(node: ast.AST, known: dict[int, Any]) -> Iterator[ast.AST]:
    """The largest parts of a changed expression that the original one has, too."""
    if id(node) in known and isinstance(node, ast.expr):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from _topmost(child, known)


def _links(node: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield node, name, child
                yield from _links(child)


def _bound(node: FunctionNode) -> frozenset[str]:
    """All names that are bound somewhere in a function."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    names |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    return frozenset(names | {n.name for n in ast.walk(node) if isinstance(n, (ast.FunctionDef, ast.ClassDef))})


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _arguments(*names: str) -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
