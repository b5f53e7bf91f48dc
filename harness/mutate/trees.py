"""Changing a syntax tree that others share: what changes is copied, the rest stays the same object."""

from __future__ import annotations

import ast
from typing import Any


def changed(node: Any, **changes: Any) -> Any:
    """A shallow copy of an AST node with some fields replaced."""
    fields = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    made = type(node)(**{**fields, **changes})
    return ast.copy_location(made, node)


class Copying(ast.NodeTransformer):
    """A transformer that writes into no node that it was given, and removes none."""

    def generic_visit(self, node: ast.AST) -> Any:
        """Like the base class, but copies what it descends into."""
        changes: dict[str, Any] = {}
        for name, old in ast.iter_fields(node):
            if isinstance(old, list):
                new = [self.visit(x) if isinstance(x, ast.AST) else x for x in old]
                if any(a is not b for a, b in zip(new, old, strict=True)):
                    changes[name] = new
            elif isinstance(old, ast.AST) and (made := self.visit(old)) is not old:
                changes[name] = made
        return changed(node, **changes) if changes else node
