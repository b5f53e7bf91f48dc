"""Clients of the fake engines that no process should have to live with."""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import itertools
import os
import posix
import signal
import sys
import threading
import time

from harness import frames, watchdog
from tests.examples.minimal_adapter import Adapter, ForgetsBegin
from tests.harness.toys import soon


def late():
    """The time that a worker's parent gives a client is over, however slow this machine was so far."""
    (vigil,) = watchdog.VIGIL
    assert 60 < vigil._until[vigil._mine] - time.monotonic() < 120
    vigil._until[vigil._mine] = time.monotonic()


class Stubborn(Adapter):
    """Hangs, and catches whatever would end that."""

    def refit(self, deadline_s):
        soon(again=0.2)
        while True:
            try:
                time.sleep(1e6)
            except BaseException:
                continue


class Lingers(Adapter):
    """Leaves a thread behind that is no daemon and never ends."""

    def setup(self, fleet):
        super().setup(fleet)
        threading.Thread(target=threading.Event().wait).start()


class HangsInC(Adapter):
    """Never gives the interpreter's lock back."""

    def refit(self, deadline_s):
        late()
        collections.deque(itertools.repeat(0), maxlen=0)


class TakesTheSignal(Adapter):
    def refit(self, deadline_s):
        signal.setitimer(signal.ITIMER_REAL, 0)
        late()
        time.sleep(1e6)


class BlocksTheSignal(Adapter):
    def refit(self, deadline_s):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        late()
        time.sleep(1e6)


class _Violates(ForgetsBegin):
    """Violates SESS-1, and meddles with the end of the process."""

    def refit(self, deadline_s):
        self.meddle()
        return super().refit(deadline_s)


class ExitsLaterInAThread(_Violates):
    """When the process is about to end by itself: what it does before is judged as what it did to the process."""

    def meddle(self):
        threading.Thread(target=lambda: (threading.main_thread().join(), os._exit(0))).start()


class PatchesExit(_Violates):
    def meddle(self):
        leave = ctypes.CDLL(None)._exit
        sys.exit = lambda code=0: leave(0)


class ExitsAtExit(_Violates):
    def meddle(self):
        atexit.register(ctypes.CDLL(None)._exit, 0)


class ExitsBehindOurBack(_Violates):
    def meddle(self):
        posix._exit(0)


class ClosesTheStreams(Adapter):
    def refit(self, deadline_s):
        result = super().refit(deadline_s)
        sys.stdout.close()
        sys.stderr = None
        return result


class GoesElsewhere(Adapter):
    def refit(self, deadline_s):
        os.chdir("/")
        return super().refit(deadline_s)


class WritesIntoThePipe(Adapter):
    """What its parent reads is no answer of a worker."""

    def refit(self, deadline_s):
        _say(b"\0\0\0\x04oops")
        time.sleep(1e6)


class ComesBackTwice(Adapter):
    """A fork of its process returns from the refit as well."""

    def refit(self, deadline_s):
        if os.fork():
            os.wait()
        return super().refit(deadline_s)


class DiesWithAChild(Adapter):
    """Its process ends; one that it forked lives on, and holds what it held open."""

    def refit(self, deadline_s):
        if os.fork() == 0:
            signal.alarm(60)  # whatever becomes of who reads this
            with open(os.environ["REFITCHECK_TEST_CHILD"], "w") as file:
                file.write(str(os.getpid()))
            signal.pause()
        while not os.path.exists(os.environ["REFITCHECK_TEST_CHILD"]):
            pass
        os.kill(os.getpid(), signal.SIGKILL)


class SaysHalfAWord(Adapter):
    """What could be the beginning of an answer, and then nothing."""

    def refit(self, deadline_s):
        _say(frames.MARK[:3])
        late()
        time.sleep(1e6)


def _say(what):
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                os.write(int(number), what)
