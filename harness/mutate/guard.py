"""The session in a child of its own, so that code which is mutated or judges cannot end or hang the command unheard.

What the command returns is what the child said before anything could end it. A child that says nothing ends the command
with one clear line, whatever its own exit code was.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from harness.adopting import adopting
from harness.errors import HarnessError, RefitcheckError, UsageError
from harness.streams import complain, give_up, lost
from harness.words import told

IMPORT_S = 120.0
COLLECT_S = 600.0
GRACE_S = 30.0
"""So long a session that was interrupted may take to tell what it has."""
LINGER_S = 3.0
_DEATH_SIGNAL = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
_ENDING = {signal.SIGINT, signal.SIGTERM}
_inside: tuple[int, int] | None = None  # the process that is guarded, and where it speaks
_now = ("", 0.0)
_struck = ""  # the stage that a KeyboardInterrupt ended


def stage(name: str, limit_s: float = 0.0) -> None:
    """From the child: what it does now, in words that go before "ended" or "hangs". 0 s: for as long as it takes."""
    global _now
    _now = (name, limit_s)
    if _inside is not None and _inside[0] == os.getpid():
        _say(_inside[1], ["stage", name, limit_s])


@contextlib.contextmanager
def staged(name: str, limit_s: float) -> Iterator[None]:
    """A stage within another, whose time begins anew afterwards."""
    global _struck
    before = _now
    stage(name, limit_s)
    try:
        yield
    except KeyboardInterrupt:
        _struck = _struck or name
        raise
    finally:
        stage(*before)


def guarded(work: Callable[[], int]) -> int:
    """`work()` in a child; its exit code. Errors of ours come through as they are.

    UsageError where the child ended or hung while it imported the user's code, HarnessError where it did so later.
    """
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    read, write = os.pipe()
    with adopting():
        pid = 0
        try:
            with _passing_signals() as passing:
                mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # until both know what to do with them
                pid = os.fork()
                if pid == 0:
                    os.close(read)
                    _run(work, write, mask)
                os.close(write)
                passing.begin(pid)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                said = _listen(read, pid, passing.came)
        finally:
            if pid:
                _end(pid)
            os.close(read)
    if said[0] == "interrupted":
        if passing.came:
            raise KeyboardInterrupt
        kind = UsageError if said[2] else HarnessError
        raise kind(f"{said[2] or 'the code under test'} raised KeyboardInterrupt, and nobody interrupted it")
    if said[0] == "error":
        error = RefitcheckError(said[2])
        error.exit_code = said[1]
        raise error
    if said[2]:
        complain(f"standard output: {said[2]}")
    return int(said[1]) or (4 if said[2] else 0)


def _run(work: Callable[[], int], write: int, mask: set[Any]) -> None:
    """The whole life of the child."""
    global _inside
    try:
        os.setpgid(0, 0)
        if _PRCTL is not None:
            _PRCTL(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        for number in _ENDING:
            signal.signal(number, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - _ENDING)
        _inside = (os.getpid(), write)
        said = _outcome(work)
        try:
            sys.stdout.flush()
        except OSError as error:
            give_up(error)
        _say(write, [*said, lost()])
        atexit._run_exitfuncs()  # said is said: they change nothing any more
    finally:
        os._exit(0)


def _outcome(work: Callable[[], int]) -> list[Any]:
    try:
        return ["code", work()]
    except KeyboardInterrupt:
        return ["interrupted", 130, _struck]
    except RefitcheckError as error:
        return ["error", error.exit_code, str(error)]
    except SystemExit as error:
        return ["error", 4, f"the code under test ended the session: SystemExit: {error.code}"]
    except BaseException as error:
        if os.environ.get("REFITCHECK_TRACEBACK"):
            traceback.print_exc()
        return ["error", 3, f"harness error: {told(error)} (REFITCHECK_TRACEBACK=1 shows where)"]


def _say(fd: int, message: list[Any]) -> None:
    body = json.dumps(message).encode()
    view: Any = memoryview(struct.pack("q", len(body)) + body)
    while view:
        view = view[os.write(fd, view) :]


def _listen(fd: int, pid: int, interrupted: list[float]) -> list[Any]:
    """What the child said last. KeyboardInterrupt when it was told to end and did not."""
    name, limit, since, data = "", 0.0, time.monotonic(), b""
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        while select.select([fd], [], [], 0.0 if ended else 0.1)[0]:
            more = os.read(fd, 65536)
            if not more:
                time.sleep(0.01)  # its end is near
                break
            data += more
            while len(data) >= 8 and len(data) >= 8 + (size := struct.unpack("q", data[:8])[0]):
                message, data = json.loads(data[8 : 8 + size]), data[8 + size :]
                if message[0] != "stage":
                    return list(message)
                _, name, limit = message
                since = time.monotonic()
        if interrupted and (ended or len(interrupted) > 1 or time.monotonic() - interrupted[0] > GRACE_S):
            raise KeyboardInterrupt
        if ended:
            how = signal.Signals(ended.si_status).name if ended.si_code != os.CLD_EXITED else f"exit {ended.si_status}"
            if limit:
                raise UsageError(f"{name} ended the process ({how})")
            raise HarnessError(f"the session was ended by the code that it ran ({how}); nothing is certain")
        if limit and time.monotonic() - since > limit:
            raise UsageError(f"{name} hangs: no end within {limit:g} s")


class _Passing:
    """INT and TERM go on to the child, once there is one; `came` says when, by `time.monotonic`."""

    def __init__(self) -> None:
        self.came: list[float] = []
        self._to = 0

    def begin(self, pid: int) -> None:
        """This is the child; what came before it is not lost."""
        self._to = pid
        if self.came:
            self._pass()

    def __call__(self, number: int, frame: object) -> None:
        self.came.append(time.monotonic())
        if self._to:
            self._pass()

    def _pass(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._to, signal.SIGINT)


@contextlib.contextmanager
def _passing_signals() -> Iterator[_Passing]:
    """Heard from before the fork: a mask is one thread's, and any thread may be given a signal that nobody hears."""
    passing = _Passing()
    before = {number: signal.signal(number, passing) for number in _ENDING}
    try:
        yield passing
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(pid: int) -> None:
    """A little time for what runs at its exit, then kill it with its group."""
    until = time.monotonic() + LINGER_S
    with contextlib.suppress(KeyboardInterrupt):
        while sys.exc_info()[0] is None and time.monotonic() < until:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.002)
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _open_standard_streams() -> None:
    """A closed one becomes /dev/null: else the next file that is opened gets its number, and what is printed."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
            os.set_inheritable(null, True)
    for name in ("__stdin__", "__stdout__", "__stderr__"):
        if getattr(sys, name) is None:  # pytest's fault handler asks it for its number
            setattr(sys, name, getattr(sys, name.strip("_")))
