"""`nixl._api` between the trainer processes of one scenario, where the real one is not installed.

Registered tensors move into shared memory, a transfer copies from it when its state is first asked for, and says so to
the owner with the reader's notification, over sockets in the scenario's folder. States and names are NIXL's.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

_MAX = 1 << 16


def install(folder: str) -> None:
    """`import nixl._api` gives this one from now on; a real one stays."""
    try:
        import nixl._api  # noqa: F401 - whether it is there
    except ImportError:
        package, module = ModuleType("nixl"), ModuleType("nixl._api")
        package.__path__ = []
        package.__spec__ = ModuleSpec("nixl", None, is_package=True)
        package._api = module  # type: ignore[attr-defined]  # a module made here
        module.nixl_agent = lambda name, config=None: Agent(name, folder)  # type: ignore[attr-defined]  # a module made here
        module.nixl_agent_config = lambda **given: SimpleNamespace(**given)  # type: ignore[attr-defined]  # a module made here
        sys.modules.update({"nixl": package, "nixl._api": module})


class Agent:
    """One agent of one process."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self._address = os.path.join(folder, f"nixl-{name[:8]}.sock")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address)
        self._socket.setblocking(False)
        self._peers: dict[str, str] = {}

    def create_backend(self, name: str, parameters: Any) -> None:
        """Every backend is this one."""

    def get_agent_metadata(self) -> bytes:
        """Name and address."""
        return json.dumps([self.name, self._address]).encode()

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """The peer's name."""
        name, address = json.loads(metadata)
        self._peers[name] = address
        return str(name).encode()

    def remove_remote_agent(self, name: str) -> None:
        """A peer that is not known is a KeyError."""
        del self._peers[name]

    def register_memory(self, tensor: Any) -> Any:
        """The tensor's memory is shared from now on."""
        tensor.share_memory_()
        return tensor

    def deregister_memory(self, registered: Any) -> None:
        """It lives as long as its tensor."""

    def get_xfer_descs(self, tensor: Any) -> Any:
        """What a peer needs to read it; a tensor pickles as the name of its memory."""
        return Descs(tensor)

    def initialize_xfer(self, op: str, local: Any, remote: Any, peer: str, notify: bytes) -> Any:
        """A READ of the whole. ValueError where the sides differ in length (NIXL_ERR_INVALID_PARAM)."""
        mine, theirs = local.tensor, remote.tensor
        if mine.numel() != theirs.numel():
            raise ValueError("NIXL_ERR_INVALID_PARAM")
        return SimpleNamespace(mine=mine, theirs=theirs, peer=peer, notify=notify)

    def transfer(self, handle: Any) -> str:
        """Begun."""
        return "PROC"

    def check_xfer_state(self, handle: Any) -> str:
        """Bytes move at the last moment."""
        handle.mine.copy_(handle.theirs)
        word = json.dumps([self.name, handle.notify.hex()]).encode()
        self._socket.sendto(word, self._peers[handle.peer])
        return "DONE"

    def release_xfer_handle(self, handle: Any) -> None:
        """Nothing is kept."""

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        """Since the last time, by peer."""
        found: dict[str, list[bytes]] = {}
        while True:
            try:
                name, word = json.loads(self._socket.recv(_MAX))
            except BlockingIOError:
                return found
            found.setdefault(name, []).append(bytes.fromhex(word))


class Descs:
    """Memory of one agent, on its way to another."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import ForkingPickler

        return _opened, (bytes(ForkingPickler.dumps(self.tensor)),)


def _opened(data: bytes) -> Descs:
    import pickle

    return Descs(pickle.loads(data))
