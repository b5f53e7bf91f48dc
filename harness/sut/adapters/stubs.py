"""Stand-ins for packages that a framework imports and that no refit uses: only where they are not installed.

Whatever is asked of a stub is a class that can be made, called, subclassed and used as a decorator. A stub that decides
anything would be wrong without a word, so drivers give real objects wherever the framework reads a value.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any


class _Kind(type):
    """The class of stub classes: any attribute, any union, nothing to iterate."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _made(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self


def _attribute(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _made(name)()


def _made(name: str) -> Any:
    body = {
        "__init__": lambda self, *args, **kwargs: None,
        "__call__": _call,
        "__getattr__": _attribute,
        "__class_getitem__": classmethod(lambda cls, item: cls),
    }
    return _Kind(name, (object,), body)


class StubModule(ModuleType):
    """A module of a package that is not there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _made(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stubs for some packages, after everything that is really installed."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a stub."""
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in self._packages):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin="a stub of refitcheck's", is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Empty."""
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """A version newer than what anybody asks for."""
        module.__version__ = "99.0.0"  # type: ignore[attr-defined]


def install(packages: Iterable[str]) -> None:
    """Stubs for those that are not installed; `package.part` where only a part is missing."""
    sys.meta_path.append(Finder([name for name in packages if name not in sys.modules and not _installed(name)]))


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def bare(root: str, packages: Sequence[str]) -> None:
    """Packages below `root` without running their __init__: only their modules are looked for."""
    for name in packages:
        module = ModuleType(name)
        module.__path__ = [os.path.join(root, *name.split("."))]
        module.__package__ = name
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
