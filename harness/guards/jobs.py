"""What runs in a guard's child: imports with packages blocked, an actor's class, the order of environment and groups.

`python -I jobs.py JOB FD` reads its question as a line of JSON from stdin and writes its answer to that descriptor. It
imports nothing of ours: what the user's modules are named is their affair.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

OURS = str(Path(__file__).resolve())
MOST = 20  # findings of a kind that are told
LONG = 500  # characters of one


class Blocked:
    """A finder before all others: packages that are not installed, whatever is."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises for what is blocked, as Python does for what is missing."""
        if any(name == blocked or name.startswith(blocked + ".") for blocked in self.names):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def imports(asked: dict[str, Any]) -> dict[str, Any]:
    """Import each of `drivers` with the packages `blocked` missing; where the first that fails asked for what."""
    for name in [n for n in sys.modules if any(n == b or n.startswith(b + ".") for b in asked["blocked"])]:
        del sys.modules[name]
    sys.meta_path.insert(0, Blocked(asked["blocked"]))  # type: ignore[arg-type]  # a finder needs no more
    for driver in asked["drivers"]:
        try:
            importlib.import_module(driver)
        except BaseException as error:
            missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
            return {"driver": driver, "missing": str(missing or ""), **_raised(error)}
    return {}


def actors(asked: dict[str, Any]) -> dict[str, Any]:
    """Of each class in `target`: whether Ray would make an asyncio actor of it, by Ray's own rule, and why."""
    try:
        from ray._private.async_compat import has_async_methods, is_async_func
    except ImportError:
        has_async_methods, is_async_func = has_members, is_asynchronous  # type: ignore[assignment]  # the same, ours
    told: dict[str, list[str]] = {}
    for target in asked["target"]:
        cls = _found(target)
        cls = getattr(getattr(cls, "__ray_metadata__", None), "modified_class", cls)
        if not inspect.isclass(cls):
            return {"usage": f"{target}: {type(cls).__name__} is no class"}
        members = [name for name, _ in inspect.getmembers(cls, predicate=is_async_func)]
        owners = [next((c for c in cls.__mro__ if name in vars(c)), cls) for name in members]
        why = [f"{name} of {c.__module__}.{c.__qualname__}" for name, c in zip(members, owners, strict=True)]
        told[target] = (why or ["a member that Ray sees"]) if has_async_methods(cls) else []  # type: ignore[arg-type]  # a class
    return {"asyncio": told, "rays": is_async_func is not is_asynchronous}


def is_asynchronous(function: Any) -> bool:
    """What Ray awaits (ray/_private/async_compat.py:33@2.60.0), for where it is not installed."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def has_members(cls: type) -> bool:
    """What makes Ray start an event loop for an actor, inherited or not (ray/_private/async_compat.py:39@2.60.0)."""
    return bool(inspect.getmembers(cls, predicate=is_asynchronous))


def environment(asked: dict[str, Any]) -> dict[str, Any]:
    """Call `target`; what its process groups found in `variables`, and who changed them when it was too late."""
    wanted: dict[str, str] = asked["variables"]
    groups: list[dict[str, Any]] = []
    late: list[str] = []

    def heed(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("os.putenv", "os.unsetenv") or not groups:
            return
        name = os.fsdecode(arguments[0])
        value = os.fsdecode(arguments[1]) if event == "os.putenv" else None
        if name in wanted and value != groups[0]["found"][name] and len(late) < MOST:
            late.append(f"{_place(sys._getframe(1))}: {name}={value} after the first group")

    try:
        _watch_groups(groups, tuple(wanted))
    except ImportError as error:
        return {"usage": f"process groups are torch's, and torch is not installed here: pip install torch ({error})"}
    function = _found(asked["target"])
    sys.addaudithook(heed)
    raised = {}
    try:
        function()
    except BaseException as error:
        raised = _raised(error)
    return {"groups": groups, "late": late, **raised}


def _watch_groups(groups: list[dict[str, Any]], names: Sequence[str]) -> None:
    from torch.distributed import distributed_c10d

    original: Callable[..., Any] = distributed_c10d._new_process_group_helper

    def helper(*args: Any, **keywords: Any) -> Any:
        found = {name: os.environ.get(name) for name in names}
        del groups[MOST:]
        groups.append({"found": found, "place": _place(sys._getframe(1))})
        return original(*args, **keywords)

    distributed_c10d._new_process_group_helper = helper


def _found(target: str) -> Any:
    module, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(f"{target}: {type(error).__name__}: {_text(error)}") from None
    return found


def _raised(error: BaseException) -> dict[str, Any]:
    """What an exception says, and the innermost line that is neither ours nor the import system's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_machinery(f.filename)]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return {"raised": f"{type(error).__name__}: {_text(error)}"[:LONG], "place": place[:LONG]}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _place(frame: FrameType | None) -> str:
    """The nearest line that is no library's."""
    library = os.sep + "lib" + os.sep + "python"
    while frame is not None and (_is_machinery(frame.f_code.co_filename) or library in frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "a library"


def _is_machinery(filename: str) -> bool:
    return filename.startswith(("<", OURS)) or f"{os.sep}importlib{os.sep}" in filename


JOBS = {"imports": imports, "actors": actors, "environment": environment}


class Refused(Exception):
    """The question cannot be answered; the text says why."""


def _leave_with(parent: int) -> None:
    """End this process and its group when the one that asked is gone: it keeps its end of `parent` open."""

    def wait() -> None:
        while os.read(parent, 1 << 16):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Answer one question, and leave whatever threads of the user's still run."""
    job, out = JOBS[sys.argv[1]], int(sys.argv[2])
    with open(0, "rb", buffering=0, closefd=False) as stdin:  # unbuffered: the rest is the parent's end
        asked = json.loads(stdin.readline())
    parent = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_inheritable(out, False)
    _leave_with(parent)
    nonce, sys.path[:0] = asked.pop("nonce"), asked.pop("paths")
    sys.argv[:] = [""]
    try:
        answer = job(asked)
    except Refused as refused:
        answer = {"usage": str(refused)}
    sys.stdout.flush()
    told = json.dumps({**answer, "nonce": nonce}).encode() + b"\n"
    while told:
        told = told[os.write(out, told) :]
    os._exit(0)


if __name__ == "__main__":
    main()
