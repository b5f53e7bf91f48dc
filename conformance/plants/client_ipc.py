"""Broken parameter servers: handles of the wrong device, buffers filled too early, workers left waiting."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import broken, method

MODULE = "harness.reference.transports.ipc"
TRANSFER = f"{MODULE}:IpcTransfer"
SERVERS = "a parameter server that is not checkpoint-engine's"


def _emptied(original: Any) -> Any:
    """What was told is overwritten at once: the worker reads what comes after."""

    def telling(self: Any, named: Any, sent: int) -> Any:
        def say(line: Any) -> None:
            line.tell(line.fill(0, named))
            line.fill(0, [(name, array * 0) for name, array in named])

        return say

    return telling


def _turned_round(original: Any) -> Any:
    def made(self: Any, *args: Any) -> None:
        original(self, *args)
        lines = list(self.lines.values())
        for line, uuid in zip(lines, [line.uuid for line in reversed(lines)], strict=True):
            line.uuid = uuid

    return made


def _with_a_session(original: Any) -> Any:
    def setup(self: Any, fleet: Any) -> None:
        from harness.reference.profile import EngineProfile

        original(self, fleet)
        self._client.control.profile = EngineProfile.of(fleet.version)

    return setup


def _silent(original: Any) -> Any:
    return lambda self, why: True


PLANTS = (
    broken(
        "buffer-emptied-at-once",
        "IPC-76",
        SERVERS,
        "a bucket is overwritten when it was told of, not when it was answered for",
        method(f"{TRANSFER}._telling", _emptied),
    ),
    broken(
        "sockets-turned-round",
        "IPC-77",
        SERVERS,
        "every rank is sent to the socket beside another rank",
        method(f"{TRANSFER}.__init__", _turned_round),
    ),
    broken(
        "session-around-an-ipc-update",
        "IPC-78",
        "a finaliser that is not idempotent",
        "begin and end around an update over IPC",
        method("harness.reference.adapter:ReferenceSut.setup", _with_a_session),
    ),
    broken(
        "workers-left-waiting",
        "IPC-79",
        SERVERS,
        "a rank that fails says nothing to its worker",
        method("fakes.trainer.worker_line:WorkerLine.stop", _silent),
    ),
)
