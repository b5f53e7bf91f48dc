"""Mutants: break the reference client, the fake engine or a user's own code in memory, and see who notices."""

from harness.mutate.mutant import Mutant

__all__ = ["Mutant"]
