"""How the modules of the shim come to be: a finder for `sglang.*`, and modules that name what they lack."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from fakes.fronts import sglang_shim
from fakes.fronts.sglang_shim import table


class ShimModule(ModuleType):
    """A module of the shim; a name that it does not have is noted, unless that SGLang has none of it either."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(_told(self.__name__, name))


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes `sglang.*` of one version."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.modules = table.modules(version)
        self.packages = {name.rpartition(".")[0] for name in self.modules} | {"sglang", "sglang.srt"}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec, or ModuleNotFoundError that names the module: nothing else may answer for `sglang.*`."""
        if fullname.split(".")[0] != "sglang" or fullname == "sglang":
            return None
        inner = any(known == fullname or known.startswith(f"{fullname}.") for known in (*self.modules, *self.packages))
        if not inner:
            raise ModuleNotFoundError(_told(fullname, ""), name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, origin=_origin(self.version), is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Empty."""
        return ShimModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Its names, each of which says that it comes from there: pickles carry that."""
        module.__file__ = _origin(self.version)
        make = self.modules.get(module.__name__)
        for name, value in (make(self.version) if make is not None else {}).items():
            owned(value, module.__name__)
            setattr(module, name, value)


def become(namespace: dict[str, Any]) -> None:
    """Make the package `sglang` itself; called by its __init__."""
    refused = sglang_shim.real_sglang()
    if refused:
        raise sglang_shim.ShimRefused(f"a real sglang is installed ({refused}): the shim is not loaded beside it")
    version = sglang_shim.version()
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(version))
    else:
        next(f for f in sys.meta_path if isinstance(f, Finder)).__init__(version)  # type: ignore[misc]  # another block's
    sys.modules["sglang"].__class__ = ShimModule
    for name, value in table.top(version).items():
        owned(value, "sglang")
        namespace[name] = value


def owned(value: Any, module: str) -> None:
    """A class or function of ours says that it is of that module, unless it already says another of SGLang's."""
    if isinstance(value, type) or callable(value):
        here = str(getattr(value, "__module__", ""))
        if here.startswith("fakes.fronts.sglang_shim"):
            value.__module__ = module


def _told(module: str, name: str) -> str:
    version = sglang_shim.version()
    symbol = f"{module}.{name}" if name else module
    if table.is_absent(symbol, version):
        return f"SGLang {version} has no {symbol}"
    sglang_shim.lacking(symbol)
    return f"refitcheck's shim of SGLang {version} lacks {symbol}"


def _origin(version: str) -> str:
    return f"refitcheck's shim of SGLang {version}"
