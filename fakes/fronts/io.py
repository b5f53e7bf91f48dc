"""The performer of the core's local I/O: opening payloads and reading model folders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakes.engine.protocol import (
    Done,
    EngineConfig,
    IpcClose,
    IpcTurn,
    OpenAdapter,
    OpenPayload,
    Raised,
    ReadAdapter,
    ReadDisk,
)

if TYPE_CHECKING:
    from fakes.engine.ipc_wire import Reader
    from fakes.transport.ipc import Sockets
    from fakes.transport.peers import Later

Resolver = Any
"""What `fakes.engine.payload.open_payload` takes to open simulated CUDA-IPC handles; None where there are none."""


class Performer:
    """Performs `OpenPayload` and `ReadDisk` for the engine called `name`.

    `resolver` is asked for at each payload; one that can `bind(name)` learns who opens. `latency_s` is what one effect
    costs in the owner's seconds; 0 finishes at once. torch is imported only by a payload that holds real torch tensors.
    `sockets` makes the answering sides of a checkpoint engine when the first is needed.
    """

    def __init__(
        self,
        config: EngineConfig,
        name: str = "",
        *,
        resolver: Callable[[], Resolver] = lambda: None,
        latency_s: float = 0.0,
        sockets: Callable[[], Sockets] | None = None,
    ) -> None:
        self.config = config
        self._make_sockets = sockets
        self._sockets: Sockets | None = None
        self._making = threading.Lock()
        self._readers: dict[int, Reader] = {}
        self.name = name
        self.resolver = resolver
        self.latency_s = latency_s

    def perform(self, effect: OpenPayload | ReadDisk, finish: Callable[[Done], None], later: Later) -> None:
        """Do it and call `finish(Done)`; an exception of the payload or the folder travels as `Raised`."""
        if self.latency_s > 0:
            later(self.latency_s, lambda: finish(self.done(effect)))
        else:
            finish(self.done(effect))

    def ipc(self, effect: IpcTurn, finish: Callable[[Done], None], later: Later) -> None:
        """One turn of a checkpoint-engine worker; what comes is read by its rank's reader."""
        if effect.reply is None:
            from fakes.engine.ipc_wire import Reader

            self._readers[effect.rank] = Reader(effect.rank, self.live_resolver())
        reader = self._readers[effect.rank]
        try:
            self.sockets().turn(effect, lambda data: finish(Done(effect.id, value=reader.read(data))), later)
        except (OSError, ImportError) as error:
            finish(Done(effect.id, error=_raised(error)))

    def ipc_close(self, effect: IpcClose) -> None:
        """The end of a worker."""
        self._readers.pop(effect.rank, None)
        self.sockets().close(effect)

    def sockets(self) -> Sockets:
        """The answering sides of this engine. ImportError where they need a package that is not there."""
        with self._making:  # the ranks' first turns come at once, in threads of their own
            if self._sockets is None:
                if self._make_sockets is None:
                    raise ImportError("this front has no sockets for a checkpoint engine")
                self._sockets = self._make_sockets()
            return self._sockets

    def done(self, effect: OpenPayload | ReadDisk) -> Done:
        """The result of one effect, value or exception."""
        try:
            if isinstance(effect, OpenPayload):
                return Done(effect.id, value=self._open(effect))
            return Done(effect.id, value=_read(effect))
        except Exception as error:
            return Done(effect.id, error=_raised(error))

    def live_resolver(self) -> Resolver:
        """Where a buffer comes from that is read while its producer fills it."""
        return self._bound()

    def _open(self, effect: OpenPayload) -> Any:
        from fakes.engine.allowlist import ALLOW_LISTS
        from fakes.engine.payload import open_payload
        from fakes.engine.profiles import PROFILES

        if isinstance(effect, OpenAdapter):
            from fakes.engine.lora_payload import open_adapter

            return open_adapter(
                effect.data,
                profile_allow=ALLOW_LISTS[PROFILES[self.config.profile].unpickler],
                rank=effect.rank,
                load_format=effect.load_format,
                resolver=self._bound(),
            )
        return open_payload(
            effect.data,
            profile_allow=ALLOW_LISTS[PROFILES[self.config.profile].unpickler],
            rank=effect.rank,
            load_format=effect.load_format,
            resolver=self._bound(),
            unpickle_only=effect.unpickle_only,
        )

    def _bound(self) -> Resolver:
        resolver = self.resolver()
        bind = getattr(resolver, "bind", None)
        return bind(self.name) if bind is not None else resolver


def _read(effect: ReadDisk) -> Any:
    if not isinstance(effect, ReadAdapter):
        return read_folder(effect)
    from fakes.fronts.lora_folder import read_adapter

    return read_adapter(effect)


def read_folder(effect: ReadDisk) -> list[tuple[str, Any]]:
    """The tensors of a folder's *.safetensors as (HF name, array), sorted by name; nothing else is looked at. None of
    them for who only looks whether they are there.

    A path that is no folder is taken for a hub id, as SGLang does, and refused with huggingface_hub's words
    (observed on 0.5.23, cpu: update_weights_from_disk missing).
    """
    folder = Path(effect.path)
    if not folder.is_dir():
        from fakes.engine.weight_update import hub_words

        raise _HfIdError(hub_words(effect.path))
    from fakes.tiny import read_tensors

    if effect.looks_only and any(folder.glob("*.safetensors")):
        return []
    try:
        return sorted(read_tensors(folder).items())
    except FileNotFoundError:
        raise _NoWeights(f"Cannot find any model weights with `{effect.path}`") from None
    except ValueError as error:
        raise _Unreadable(str(error)) from None


class _HfIdError(ValueError):
    """HFValidationError of huggingface_hub."""


class _NoWeights(RuntimeError):
    """model_loader/loader.py:580@0.5.23."""

    type = "RuntimeError"


class _Unreadable(ValueError):
    """What the iterator meets when the first tensor is asked for, not before."""

    type = "SafetensorError"


def _raised(error: Exception) -> Raised:
    """An exception as data: the payload's own errors carry the class that SGLang would have raised in `.type`."""
    if isinstance(error, _HfIdError):
        return Raised("HFValidationError", str(error))
    return Raised(str(getattr(error, "type", type(error).__name__)), str(getattr(error, "message", error)))
