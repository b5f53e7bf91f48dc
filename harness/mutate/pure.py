"""Which expressions may be evaluated twice: reading, comparing, computing, and calls of builtins that only look.

What a mutated expression reads is wrapped in guards where its type decides whether reading changes anything: an item of
a `defaultdict`, the elements of an iterator. A guard that is not sure raises `Unsure`.
"""

from __future__ import annotations

import ast
import builtins
from collections import OrderedDict, defaultdict
from types import MappingProxyType
from typing import Any

from harness.mutate.trees import changed

ITEM, ELEMENTS, METHOD = "__refitcheck_item__", "__refitcheck_elements__", "__refitcheck_method__"
GUARDS = frozenset((ITEM, ELEMENTS, METHOD))
_CONSUMES = frozenset(
    {
        "all",
        "any",
        "bytes",
        "dict",
        "enumerate",
        "frozenset",
        "list",
        "max",
        "min",
        "set",
        "sorted",
        "sum",
        "tuple",
        "zip",
    }
)
BUILTINS = _CONSUMES | {
    *("abs", "bool", "chr", "divmod", "float", "getattr", "hasattr", "hex", "int", "isinstance", "issubclass", "len"),
    *("ord", "range", "repr", "reversed", "round", "str", "type"),
}
_TEXT = (str, bytes)
_MAPPING = (dict, OrderedDict, defaultdict, MappingProxyType)
METHODS: dict[str, tuple[type, ...]] = {
    "get": _MAPPING,
    "keys": _MAPPING,
    "values": _MAPPING,
    "items": _MAPPING,
    "count": (*_TEXT, list, tuple),
    "index": (*_TEXT, list, tuple),
    "isdisjoint": (set, frozenset),
    "issubset": (set, frozenset),
    **dict.fromkeys(("startswith", "endswith", "find", "rfind", "lower", "upper", "strip", "lstrip", "rstrip"), _TEXT),
    **dict.fromkeys(("split", "rsplit", "splitlines", "partition", "rpartition", "join", "replace"), _TEXT),
    **dict.fromkeys(("removeprefix", "removesuffix", "isdigit", "isdecimal", "format", "encode", "decode"), _TEXT),
}
"""Methods that change nothing, if what they belong to is exactly one of these types."""
_PARTS = (
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.comprehension,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.cmpop,
    ast.boolop,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


class Unsure(Exception):
    """Whether reading this changes anything is not known."""


def builtin(node: ast.AST, shadowed: frozenset[str]) -> str:
    """The name of the pure builtin that this call is of, or ""."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name = node.func.id
        if name in BUILTINS and name not in shadowed and not any(isinstance(a, ast.Starred) for a in node.args):
            return name
    return ""


def method(node: ast.AST) -> str:
    """The name of the method that this call is of, if on builtin types it changes nothing, or ""."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return ""
    name = node.func.attr
    return name if name in METHODS and not any(isinstance(a, ast.Starred) for a in node.args) else ""


def pure(node: ast.AST | None, shadowed: frozenset[str] = frozenset()) -> bool:
    """Evaluating it changes nothing, as far as its guarded copy does not raise `Unsure`.

    `shadowed` are the names that are no builtins here.
    """
    if node is None:
        return True
    if isinstance(node, ast.GeneratorExp):
        return False  # unless a builtin uses it up at once, below
    if isinstance(node, ast.Call):
        name = builtin(node, shadowed)
        if name in _CONSUMES:
            return all(pure(listed(arg), shadowed) for arg in node.args)
        if name:
            return all(pure(arg, shadowed) for arg in node.args)
        if method(node):
            assert isinstance(node.func, ast.Attribute)
            return pure(node.func.value, shadowed) and all(pure(listed(arg), shadowed) for arg in node.args)
        return False
    if not isinstance(node, _PARTS) or (isinstance(node, ast.comprehension) and node.is_async):
        return False
    return all(pure(child, shadowed) for child in ast.iter_child_nodes(node))


def listed(node: ast.AST) -> ast.AST:
    """A generator expression as the list of what it yields."""
    if isinstance(node, ast.GeneratorExp):
        return ast.ListComp(node.elt, node.generators)
    return node


class _Guarded(ast.NodeTransformer):
    def __init__(self, temporary: dict[int, str], shadowed: frozenset[str]) -> None:
        self._temporary, self._shadowed = temporary, shadowed

    def visit(self, node: ast.AST) -> Any:
        name = self._temporary.get(id(node))
        if name is not None:
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        made: Any = self.generic_visit(node)
        if isinstance(made, ast.Subscript) and not any(isinstance(n, ast.Slice) for n in ast.walk(made.slice)):
            return _call(ITEM, node, made.value, made.slice)
        if isinstance(made, ast.comprehension):
            return changed(made, iter=_call(ELEMENTS, made.iter, made.iter))
        if isinstance(made, ast.Compare):
            inside = [isinstance(op, (ast.In, ast.NotIn)) for op in made.ops]
            over = [_call(ELEMENTS, c, c) if yes else c for c, yes in zip(made.comparators, inside, strict=True)]
            return changed(made, comparators=over)
        if isinstance(made, ast.Call):
            return self._call(node, made)
        return made

    def _call(self, node: Any, made: Any) -> Any:
        name = builtin(node, self._shadowed)
        reads = method(node)
        if not reads and name not in _CONSUMES:
            return made
        args = [a if isinstance(a, (ast.GeneratorExp, ast.Call)) else _call(ELEMENTS, a, a) for a in made.args]
        func = _call(METHOD, node, made.func.value, ast.Constant(reads)) if reads else made.func
        return changed(made, args=args, func=func)

    def generic_visit(self, node: ast.AST) -> Any:
        """A copy of all of it: the original's nodes are known by their identity, and these are not they."""
        changes: dict[str, Any] = {}
        for name, old in ast.iter_fields(node):
            if isinstance(old, list):
                changes[name] = [self.visit(x) if isinstance(x, ast.AST) else x for x in old]
            elif isinstance(old, ast.AST) and not isinstance(old, ast.expr_context):
                changes[name] = self.visit(old)
        return changed(node, **changes) if changes else node


def guarded(node: ast.AST, temporary: dict[int, str], shadowed: frozenset[str]) -> Any:
    """A copy with guards, in which every node of `temporary` (by identity) is the variable of that name."""
    return _Guarded(temporary, shadowed).visit(node)


def _call(name: str, near: ast.AST, *args: ast.expr) -> ast.expr:
    made = ast.Call(ast.Name(name, ast.Load()), list(args), [])
    for node in ast.walk(made):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, near)
    return made


def item(holder: Any, key: Any) -> Any:
    """`holder[key]`, where a missing item is not made."""
    if hasattr(type(holder), "__missing__"):
        raise Unsure
    return holder[key]


def elements(found: Any) -> Any:
    """`found`, where going through it uses nothing up."""
    if hasattr(type(found), "__next__"):
        raise Unsure
    return found


def method_of(holder: Any, name: str) -> Any:
    """A method of `METHODS`, where it is that of the builtin type."""
    if type(holder) not in METHODS[name]:
        raise Unsure
    return getattr(holder, name)


def provide() -> None:
    """Make the guards known to guarded code."""
    for name, guard in ((ITEM, item), (ELEMENTS, elements), (METHOD, method_of)):
        setattr(builtins, name, guard)
