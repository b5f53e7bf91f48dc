"""Mutants of the fake engine that no recording of the real one shows, each with the lane that would show it."""

from __future__ import annotations

ELSEWHERE: dict[str, str] = {}
