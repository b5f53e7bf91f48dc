"""Lenient engines of update_weights_from_ipc."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import lenient, method

IPC = "fakes.engine.ipc_update:IpcUpdate"
LENIENT = "a fake that is kinder than SGLang"


def _read_at_the_end(original: Any) -> Any:
    """Views of the buffer are kept and loaded when the server is done: its halves hold something else by then."""

    def worker(self: Any, rank: int, address: str) -> Any:
        kept: list[Any] = []
        made = original(self, rank, address)
        load = made._load

        def later(message: Any) -> None:
            kept.append(message)

        def finish() -> None:
            for message in kept:
                load(message)

        made._load, made._finish = later, finish
        return made

    return worker


def _any_handle(original: Any) -> Any:
    def run(self: Any, obj: Any) -> Any:
        from fakes.engine.ipc_update import device_uuid

        base = self._s.config.base_gpu_id
        given = {device_uuid(base, rank): address for rank, address in enumerate(obj["zmq_handles"].values())}
        return original(self, {**obj, "zmq_handles": given})

    return run


def _failures_are_kept(original: Any) -> Any:
    def load(self: Any, rank: int, message: Any) -> None:
        original(self, rank, message)

    return load


def _package_is_there(original: Any) -> Any:
    def handle(self: Any, obj: Any) -> Any:
        from fakes.engine import messages as m

        if not self._s.config.checkpoint_engine:
            return {"success": True, "message": m.IPC_OK.text}
        return original(self, obj)

    return handle


def _ends_the_session(original: Any) -> Any:
    def run(self: Any, obj: Any) -> Any:
        answer = yield from original(self, obj)
        self._u.session = None
        return answer

    return run


PLANTS = (
    lenient(
        "ipc-read-at-the-end",
        "IPC-53",
        "a buffer that is filled in turns",
        "the worker keeps views of the buffer and loads them last",
        method(f"{IPC}._worker", _read_at_the_end),
    ),
    lenient(
        "ipc-any-handle",
        "IPC-54",
        LENIENT,
        "ranks take the handles in their order, whatever their ids",
        method(f"{IPC}._run", _any_handle),
    ),
    lenient(
        "ipc-failures-are-kept",
        "IPC-55",
        LENIENT,
        "the server does not hear of a load that failed",
        method(f"{IPC}._load", _failures_are_kept),
    ),
    lenient(
        "ipc-without-a-package",
        "IPC-56",
        LENIENT,
        "an update over IPC succeeds without its package",
        method(f"{IPC}.handle", _package_is_there),
    ),
    lenient(
        "ipc-ends-the-session",
        "IPC-57",
        LENIENT,
        "an update over IPC closes the session",
        method(f"{IPC}._run", _ends_the_session),
    ),
)
