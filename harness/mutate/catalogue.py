"""Catalogues of mutants: ours, and those of a user's file or entry point."""

from __future__ import annotations

from collections.abc import Sequence

from harness.mutate.mutant import Mutant
from harness.mutate.source import TargetError


def find(name: str, catalogues: Sequence[str]) -> Mutant:
    """One mutant by id."""
    raise TargetError(f"unknown mutant {name!r}")
