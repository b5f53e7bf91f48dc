"""Fault exploration: every call of a recorded refit, every fault, a new world each time; then the invariants."""

from harness.explore.invariants import Broken, check
from harness.explore.plans import KINDS, Plan, plan
from harness.explore.run import Explored, explore

__all__ = ["KINDS", "Broken", "Explored", "Plan", "check", "explore", "plan"]
