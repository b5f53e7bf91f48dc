"""Finding a system under test by name: an entry point of `refitcheck.suts`, or `package.module:factory`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from harness.errors import HarnessError, UsageError
from harness.suites import load_point, named_points
from harness.sut.protocol import Sut
from harness.watchdog import Hung
from harness.words import told

GROUP = "refitcheck.suts"
OURS = ("fakes", "harness", "conformance", "real_runs")
_METHODS = ("setup", "set_weights", "refit", "capabilities", "close")


def load_sut(name: str) -> Callable[[], Sut]:
    """A factory without arguments. UsageError in one line when there is none, or when what it names is no adapter."""
    points = named_points(GROUP)
    if name in points:
        return _checked(name, load_point(points[name]))
    module_name, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(sorted(points)) or "none"
        raise UsageError(f"no system under test {name!r}; installed: {known}; or package.module:factory")
    return _checked(name, _attribute(name, module_name, attribute))


def is_ours(name: str) -> bool:
    """Whether what a name means lies in a package of ours. Imports nothing."""
    return _module(name).split(".")[0] in OURS


def is_reference(name: str) -> bool:
    """Whether a name means the reference client. Imports nothing."""
    return _module(name).startswith("harness.reference.")


def _module(name: str) -> str:
    points = named_points(GROUP)
    return points[name].module if name in points else name.partition(":")[0]


def installed() -> list[str]:
    """Names of the installed adapters."""
    return sorted(named_points(GROUP))


def _attribute(name: str, module_name: str, attribute: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: an adapter may lie in the working folder
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(f"system under test {name!r}: no module named {error.name!r}") from error
    except (KeyboardInterrupt, HarnessError, Hung):
        raise  # ours: the user's, what stands for os._exit, and the watch's
    except BaseException as error:
        raise UsageError(f"system under test {name!r}: importing {module_name} raised {told(error)}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"system under test {name!r}: {module_name} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _checked(name: str, found: Any) -> Callable[[], Sut]:
    if not callable(found):
        raise UsageError(f"system under test {name!r}: {found!r} is no factory")

    def factory() -> Sut:
        try:
            sut = found()
        except (Exception, SystemExit) as error:
            raise UsageError(f"system under test {name!r}: its factory raised {told(error)}") from error
        missing = [method for method in _METHODS if not callable(getattr(sut, method, None))]
        if missing:
            raise UsageError(f"system under test {name!r}: {type(sut).__name__} lacks {', '.join(missing)}")
        return cast(Sut, sut)

    options = getattr(found, "engine_options", None)
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"system under test {name!r}: engine_options is a {type(options).__name__}, no mapping")
    vars(factory)["engine_options"] = options
    return factory
