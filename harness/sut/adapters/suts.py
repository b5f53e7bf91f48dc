"""The entry points: one factory for each framework of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.sut.adapters.remote import RemoteSut
from harness.sut.adapters.table import FRAMEWORKS


def __getattr__(name: str) -> Callable[[], RemoteSut]:
    """`harness.sut.adapters.suts:nemo_rl` for the framework nemo-rl."""
    framework = FRAMEWORKS.get(name.replace("_", "-"))
    if framework is None:
        raise AttributeError(name)

    def factory() -> Any:
        return RemoteSut(framework)

    return factory
