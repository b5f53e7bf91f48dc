"""Clients whose driver, launch arguments or actors are wrong: one per guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from harness.suites import Plant

CLIENT = "harness.reference.adapter"


def catalogue() -> tuple[Plant, ...]:
    """All of them."""
    return PLANTS


def _says(**guards: Any) -> Callable[[], AbstractContextManager[Any]]:
    """The reference client with these in its `guards`."""

    @contextmanager
    def apply() -> Iterator[None]:
        client: Any = import_module(CLIENT).ReferenceSut
        with mock.patch.object(client, "guards", {**client.guards, **guards}):
            yield

    return apply


def _plant(id: str, rule: str, origin: str, text: str, **guards: Any) -> Plant:
    return Plant(id, "client", frozenset({rule}), origin, _says(**guards), text)


PLANTS = (
    _plant(
        "driver-imports-its-worker",
        "ENV-3",
        "NVIDIA-NeMo/RL#3330, D57",
        "the driver imports what only a worker has",
        workers=("harness.reference.transports",),
        executed=False,
    ),
    _plant(
        "driver-needs-what-is-not-installed",
        "ENV-3",
        "NVIDIA-NeMo/RL#3330, D57",
        "the driver imports a package that is missing where it runs",
        not_installed=("numpy",),
    ),
    _plant(
        "argument-of-another-release",
        "ENV-5",
        "NVIDIA-NeMo/RL#3612, D117",
        "a launch argument that this release does not take",
        launch_arguments=("tp_size", "enable_weights_cpu_backups"),
    ),
    _plant(
        "actor-with-a-coroutine",
        "ASYNC-1",
        "NVIDIA-NeMo/RL#3519, D60",
        "one coroutine among the methods of a worker",
        actors=("asyncio:Queue",),
    ),
)
