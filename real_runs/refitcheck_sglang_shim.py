"""Lets the real SGLang be imported and served where only a CPU build of torch exists.

Copied into the environment of each SGLang version and switched on by a one-line `.pth` file, so that the
processes that SGLang spawns have it too. Importing this module changes nothing; `install()` does.

Two things, and nothing of SGLang is patched by default:

* `triton`, `torchvision`, `sgl_kernel` and `IPython` have no use on the CPU path but are imported at the top of
  many modules. Where one of them is absent, a stand-in takes its place. A package that is really there wins.
* With `REFITCHECK_SHIM_TENSOR_CUDA=1`, `Tensor.cuda()` is the identity from the moment that SGLang's weight checker is
  imported: the checker moves tensors to the GPU unconditionally, which a CPU build of torch refuses. Off by default,
  because the refusal is what a CPU server really answers.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

ABSENT_ON_CPU = ("triton", "torchvision", "sgl_kernel", "IPython")
TENSOR_CUDA_SWITCH = "REFITCHECK_SHIM_TENSOR_CUDA"
_WEIGHT_CHECKER = "sglang.srt.utils.weight_checker"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _StandInMeta(type):
    """A class whose attributes exist as plain strings: enough for enum-like uses such as `Autotuner.KEY`."""

    def __getattr__(cls, name: str) -> str:
        if _is_dunder(name):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _StandIn(metaclass=_StandInMeta):
    """Base of every class found in an absent package: may be subclassed, instantiated and asked with isinstance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class _StandInModule(ModuleType):
    """A package whose every attribute exists: capitalised names are classes, the others again such modules."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__file__ = __file__

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name):
            raise AttributeError(name)
        value: Any
        if name[:1].isupper():
            value = _StandInMeta(name, (_StandIn,), {"__module__": self.__name__})
        else:
            qualified = f"{self.__name__}.{name}"
            value = sys.modules.get(qualified)
            if value is None:
                value = _StandInModule(qualified)
                value.__spec__ = importlib.machinery.ModuleSpec(qualified, None, is_package=True)
                sys.modules[qualified] = value
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # `@triton.jit` gets the function itself, `@triton.jit(...)` and `@triton.autotune(...)` one that keeps it.
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return lambda function: function

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, key: Any) -> _StandInModule:
        return self

    def __or__(self, other: Any) -> Any:
        # `tl.tensor | None` in an annotation that is evaluated.
        return other

    __ror__ = __or__


# What the CPU path really computes with or compares, at import time.
_VALUES: dict[str, dict[str, Any]] = {
    "triton": {
        "__version__": "3.0.0",
        "cdiv": lambda numerator, denominator: -(numerator // -denominator),
        "next_power_of_2": lambda number: 1 << max(0, number - 1).bit_length(),
    },
    "torchvision": {"__version__": "0.0.0"},
}


class _AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in line: asked only for what no real finder has found."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in ABSENT_ON_CPU:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = sys.modules.get(spec.name) or _StandInModule(spec.name)
        module.__dict__.update(_VALUES.get(spec.name, {}))
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _TensorCudaFinder(importlib.abc.MetaPathFinder):
    """First in line: notices the import of the weight checker, and finds nothing itself."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == _WEIGHT_CHECKER:
            import torch

            # Ignored below: methods of torch are replaced, which is all that this switch is for.
            torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[assignment,method-assign]
            torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
            torch.cuda.synchronize = lambda *args, **kwargs: None  # type: ignore[assignment]
        return None


def install() -> None:
    """Switch the stand-ins on; called by the `.pth` file of the environment, harmless when called again."""
    if not any(isinstance(finder, _AbsentFinder) for finder in sys.meta_path):
        sys.meta_path.append(_AbsentFinder())
        if os.environ.get(TENSOR_CUDA_SWITCH) == "1":
            sys.meta_path.insert(0, _TensorCudaFinder())
