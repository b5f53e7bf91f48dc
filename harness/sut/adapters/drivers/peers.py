"""Calls between trainer ranks of one scenario: the worker of rank k as an actor handle in the process of rank 0.

Each rank but 0 serves its worker on a socket of the scenario's own folder, one call at a time.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from harness.sut.adapters.drivers.common import Ref

KEY = b"refitcheck"


def serve(folder: str, rank: int, worker: Any) -> None:
    """From now on the worker of this rank can be called from rank 0."""
    listener = Listener(_address(folder, rank), "AF_UNIX", authkey=KEY)
    threading.Thread(target=_served, args=(listener, worker), daemon=True).start()


def _served(listener: Listener, worker: Any) -> None:
    with listener.accept() as connection:
        while True:
            try:
                name, kwargs = connection.recv()
            except (EOFError, OSError):
                return
            try:
                answer: tuple[Any, ...] = (True, getattr(worker, name)(**kwargs))
            except BaseException as error:
                answer = (False, type(error).__name__, str(error))
            connection.send(answer)


class Peer:
    """The worker of another rank; `call(name, ...)` gives a reference to the result."""

    def __init__(self, folder: str, rank: int) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._connection = _connected(_address(folder, rank))

    def call(self, name: str, **kwargs: Any) -> Ref:
        """One call after another."""
        return Ref(self._pool.submit(self._call, name, kwargs))

    def _call(self, name: str, kwargs: dict[str, Any]) -> Any:
        self._connection.send((name, kwargs))
        answer = self._connection.recv()
        if answer[0]:
            return answer[1]
        raise type(answer[1], (RuntimeError,), {})(answer[2])


class Local:
    """The worker of this rank, called in a thread of its own."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._pool = concurrent.futures.ThreadPoolExecutor(1)

    def call(self, name: str, **kwargs: Any) -> Ref:
        """One call after another."""
        return Ref(self._pool.submit(getattr(self._worker, name), **kwargs))


def _address(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank{rank}.sock")


def _connected(address: str) -> Connection[Any, Any]:
    while True:
        try:
            return Client(address, "AF_UNIX", authkey=KEY)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
