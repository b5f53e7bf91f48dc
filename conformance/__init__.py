"""What is promised: rules with their judges, the scenarios that exercise them, and the defects that they must catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.suites import Suite


def suite() -> Suite:
    """All rules and scenarios of the tensor path."""
    from conformance import engine, refit, rules
    from harness.suites import Suite

    return Suite("conformance", rules.all_rules(), (*engine.scenarios(), *refit.scenarios()))
