"""How a defect is planted: one method of the fake or of the reference client is replaced while the plant is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

from harness.suites import Plant

Apply = Callable[[], AbstractContextManager[Any]]


def lenient(id: str, rule: str, origin: str, text: str, *applies: Apply) -> Plant:
    """An engine that does not do what `rule` says."""
    return Plant(id, "engine", frozenset({rule}), origin, _together(applies), text)


def broken(id: str, rule: str, origin: str, text: str, *applies: Apply) -> Plant:
    """A client that does not do what `rule` says: the reference client with one mutation."""
    return Plant(id, "client", frozenset({rule}), origin, _together(applies), text)


def method(target: str, make: Callable[[Any], Any]) -> Apply:
    """Replace `module:Class.attribute` (or `module:name`) by `make(original)`."""

    @contextmanager
    def apply() -> Iterator[None]:
        module, _, path = target.partition(":")
        owner: Any = import_module(module)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        original = owner.__dict__[name]
        with mock.patch.object(owner, name, make(original)):
            yield

    return apply


def constant(target: str, value: Any) -> Apply:
    """Replace a module's or a class's value."""
    return method(target, lambda _original: value)


def profile(**changes: Any) -> Apply:
    """Every version's profile with these entries changed."""

    @contextmanager
    def apply() -> Iterator[None]:
        import msgspec

        from fakes.engine.profiles import PROFILES

        changed = {name: msgspec.structs.replace(found, **changes) for name, found in PROFILES.items()}
        with mock.patch.dict(PROFILES, changed):
            yield

    return apply


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget what engines computed, before and after: a plant in the model would leave its answers behind."""
    from fakes.engine.memo import SHARED
    from harness.lanes import fake

    def forget() -> None:
        SHARED.clear()
        for name in ("clean_answer", "_clean_model"):
            getattr(fake, name).cache_clear()

    forget()
    try:
        yield
    finally:
        forget()


def _together(applies: tuple[Apply, ...]) -> Apply:
    @contextmanager
    def apply() -> Iterator[None]:
        with ExitStack() as stack:
            for one in applies:
                stack.enter_context(one())
            yield

    return apply
