"""One trainer process: it holds a framework's objects and does what it is told, one command after the other."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.sut.adapters import wire
from harness.sut.adapters.pacing import pace

STACK_SIGNAL = signal.SIGUSR1
_OURS = (str(Path(__file__).resolve().parent),)


def serve(
    channel: socket.socket, driver: Any, given: dict[str, Any], undeclared: Callable[[], list[str]] = list
) -> int:
    """Make the driver's `Rank` and serve it until `close`, or until the harness is gone.

    `undeclared` gives what the framework called so far and its own interface does not declare.
    """
    os.environ.update(given["environment"])
    _redirect(given["log"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stack = open(given["stack"], "w", encoding="utf-8")  # noqa: SIM115  # for as long as this process lives
    faulthandler.register(STACK_SIGNAL, stack, all_threads=False)  # heard in C code too, as a broadcast's
    pace(given["scale"])
    held: Any = None
    with contextlib.suppress(wire.Ended):
        while True:
            name, *arguments = wire.receive_command(channel)
            try:
                if name == "setup":
                    held = driver.Rank(given["about"])
                    value = None
                else:
                    value = getattr(held, name)(*arguments)
                reply = {"ok": True, "value": value}
            except BaseException as error:
                traceback.print_exc()
                reply = {"ok": False, "type": type(error).__name__, "error": _text(error), "where": _raised_in(error)}
            sys.stdout.flush()
            sys.stderr.flush()
            wire.send_reply(channel, {**reply, "lacking": _lacking(), "undeclared": undeclared()})
            if name == "close":
                return 0
    return 0


def _text(error: BaseException) -> str:
    """With its notes: there HTTP clients put the body of a reply."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def _lacking() -> list[str]:
    from fakes.fronts import sglang_shim

    return list(sglang_shim.lacking())


def _redirect(log: str) -> None:
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def line_of_dump(text: str) -> str:
    """The framework's innermost line in what faulthandler wrote, for a harness that waits in vain; "" for no line."""
    found = [(m[1], int(m[2]), m[3]) for m in re.finditer(r'^  File "(.*)", line (\d+) in (.*)$', text, re.MULTILINE)]
    frames = [traceback.FrameSummary(path, number, name) for path, number, name in reversed(found)]
    return innermost(traceback.StackSummary.from_list(frames)) if frames else ""


def _raised_in(error: BaseException) -> str:
    return innermost(traceback.extract_tb(error.__traceback__))


def innermost(frames: traceback.StackSummary) -> str:
    """`sglang_rollout.py:230 in update_weights: await ...`: the last line that is no library's and none of ours."""
    import sysconfig

    library = (sysconfig.get_path("stdlib") + os.sep, "<")
    found = [f for f in frames if not f.filename.startswith((*library, *_OURS)) or f.filename.endswith("site.py")]
    named = [f for f in found if not any(part in f.filename for part in _LIBRARIES)]
    last = (named or found or list(frames))[-1]
    return f"{Path(last.filename).name}:{last.lineno} in {last.name}: {last.line}"


_LIBRARIES = tuple(
    f"{os.sep}{name}{os.sep}"
    for name in ("torch", "requests", "urllib3", "aiohttp", "httpx", "httpcore", "anyio", "fakes", "harness")
)
