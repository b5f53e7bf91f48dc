"""The trainer's side of weight-update groups over real gloo, for engines that are processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from fakes.transport.groups import HANG_S, HOST, GroupError, GroupTimeout, Hang, Until, never
from fakes.transport.mesh import describe, raw_bytes

MODULE = "fakes.transport.gloo_peer"
POLL_S = 0.01
READY_S = 120.0
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A process with threads must not be forked."""

Record = Callable[[str, int, Mapping[str, Any]], None]


class Peers:
    """The process that groups are forked from; started when the first is wanted. `close()` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()

    def group(self) -> tuple[int, socket.socket]:
        """A new group: its process id, and the socket that it takes orders from."""
        with self._lock:
            channel = self._channel or self._start()
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(channel, [b"g"], [theirs.fileno()])
                pid = int(_line(channel))
            except (OSError, ValueError) as error:
                ours.close()
                raise GroupError(f"the process that makes groups is gone: {error}") from error
            finally:
                theirs.close()
            return pid, ours

    def start(self) -> None:
        """Start it, where it is not there: importing torch takes seconds."""
        with self._lock:
            if self._channel is None:
                self._start()

    def close(self) -> None:
        """End it."""
        if self._process is None or self._channel is None:
            return
        self._channel.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self._channel = None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "--channel", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.settimeout(READY_S)
        if _line(ours) != b"ready\n":
            raise GroupError("the process that makes groups did not come up (is torch installed?)")
        self._channel = ours
        return ours


def _line(channel: socket.socket) -> bytes:
    out = b""
    while not out.endswith(b"\n"):
        part = channel.recv(1)
        if not part:
            return out
        out += part
    return out


class GlooGroups:
    """`fakes.transport.groups.Groups` over real gloo.

    `scale` is real seconds per second of whoever waits. `peers` is shared by who makes many; one's own ends with it.
    """

    backend = "gloo"

    def __init__(
        self,
        record: Record,
        *,
        scale: float = 1.0,
        hang_s: float = HANG_S,
        peers: Peers | None = None,
        env: MutableMapping[str, str] | None = None,
    ) -> None:
        self.default: Any = None
        self.env: MutableMapping[str, str] = {} if env is None else env
        self.record = record
        self.scale = scale
        self.hang_s = hang_s
        self.peers = peers if peers is not None else Peers()
        self._own = peers is None
        self._open: set[GlooGroup] = set()

    def open(self, name: str, world_size: int, backend: str | None = None) -> GlooGroup:
        """A store that listens at a free port of this machine."""
        group = GlooGroup(self, name, world_size, backend or self.backend)
        self._open.add(group)
        about = {"group": name, "world_size": world_size, "backend": group.backend, "port": group.port}
        self.record("group_open", 0, {**about, "live": len(self._open)})
        return group

    def live(self) -> int:
        """Groups that were opened and not closed."""
        return len(self._open)

    def close(self) -> None:
        """Close what is left open."""
        for group in list(self._open):
            group.close()
        if self._own:
            self.peers.close()

    def forget(self, group: GlooGroup) -> None:
        """It is closed."""
        self._open.discard(group)


class GlooGroup:
    """`UpdateGroup` over real gloo: rank 0 is a process of its own, and ends at once when this is closed.

    A broadcast has its tensor's bytes as they are when it is posted.
    """

    address = HOST

    def __init__(self, groups: GlooGroups, name: str, world_size: int, backend: str) -> None:
        self.name = name
        self.world_size = world_size
        self.backend = backend
        self._groups = groups
        self._pid, self._socket = groups.peers.group()
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()
        self._closed = False
        self._joined = False
        self._posted = 0
        self.port: int = self._ask("open", name=name, world_size=world_size, address=self.address)["port"]

    def join(self, timeout_s: float | None = None, *, unless: Until = never) -> bool:
        """See `UpdateGroup`."""
        about = {"group": self.name, "world_size": self.world_size, "backend": self.backend}
        self._groups.record("group_join", 0, {**about, "cumem": "", "split": False})
        if not self._wait(lambda: not self._missing(), timeout_s, unless, "did not join", self._missing):
            return False
        self._ask("form")
        self._joined = True
        self._groups.record("group_joined", 0, about)
        return True

    def broadcast(self, array: np.ndarray) -> int:
        """See `UpdateGroup`. What is not contiguous is sent as it lies, as gloo does."""
        if not self._joined:
            raise GroupError(f"group {self.name!r} has not been joined")
        whole = bool(array.flags.c_contiguous)
        data = array.reshape(-1).view(np.uint8) if whole else raw_bytes(array)
        about = {"group": self.name, "number": self._posted, "bytes": array.nbytes, "dtype": str(array.dtype)}
        # Recorded first: an engine may have taken it, and answered, before rank 0 says that it was posted.
        self._groups.record("broadcast", 0, {**about, "shape": list(array.shape), "contiguous": whole})
        self._posted += 1
        return int(self._ask("broadcast", data.data, size=data.nbytes)["number"])

    def wait(self, sent: Iterable[int], timeout_s: float | None = None, *, unless: Until = never) -> bool:
        """See `UpdateGroup`. gloo does not say which rank took nothing: all of them may be meant."""
        numbers = list(sent)

        def over() -> bool:
            state = self._ask("state", numbers=numbers)
            if state["failed"]:
                raise GroupError(state["failed"])
            return not state["under_way"]

        def everybody() -> list[int]:
            return list(range(1, self.world_size))

        if not self._wait(over, timeout_s, unless, "took no broadcast, or some of them", everybody):
            return False
        self._groups.record("broadcasts_waited", 0, {"group": self.name, "numbers": numbers})
        return True

    def close(self) -> None:
        """See `UpdateGroup`."""
        if self._closed:
            return
        self._closed = True
        self._groups.forget(self)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._file.close()
        self._socket.close()
        self._groups.record("group_closed", 0, {"group": self.name, "live": self._groups.live()})

    def _missing(self) -> list[int]:
        return list(self._ask("missing")["ranks"])

    def _ask(self, op: str, data: memoryview | None = None, **fields: Any) -> dict[str, Any]:
        """One order. GroupError with torch's words, or when rank 0 is gone."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
                if data is not None:
                    self._socket.sendall(data)
                line = self._file.readline()
            except (OSError, ValueError) as error:
                raise GroupError(f"group {self.name!r}: rank 0 is gone ({error})") from None
        if not line:
            raise GroupError(f"group {self.name!r}: rank 0 is gone")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise GroupError(answer["error"])
        return answer

    def _wait(
        self, over: Until, timeout_s: float | None, unless: Until, failed: str, missing: Callable[[], Sequence[int]]
    ) -> bool:
        limit = self._groups.hang_s if timeout_s is None else timeout_s
        until = time.monotonic() + limit * self._groups.scale
        while not over():
            if unless():
                return False
            if time.monotonic() >= until:
                ranks = list(missing()) or list(range(1, self.world_size))
                who = describe(ranks)
                text = f"group {self.name!r}: {who} {failed} within {limit:g} s"
                if timeout_s is None:
                    self._groups.record("hang", 0, {"group": self.name, "waited_for": who, "after_s": limit})
                    raise Hang(f"{text}, and nothing would have ended the wait", ranks)
                raise GroupTimeout(text, ranks)
            time.sleep(POLL_S)
        return True
