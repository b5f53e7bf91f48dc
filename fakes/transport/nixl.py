"""NIXL agents in one process: registration, one-sided transfers, notifications, with the errors of the real ones.

Methods, states ("PROC", "DONE", "ERR") and errors are those of `nixl._api` (observed: nixl 1.5.1 over UCX, CPU memory):
a transfer whose sides differ in length is NIXL_ERR_INVALID_PARAM (nixl_agent.cpp:942), memory or a peer that was never
made known is NIXL_ERR_NOT_FOUND (:951, :1007), an agent whose UCX has no network transport does not come up
(NIXL_ERR_BACKEND, :371), a backend without a plugin is left out with a warning (_api.py:251), a peer that died is
NIXL_ERR_REMOTE_DISCONNECT. What no real agent does, and every client has to expect: bytes move at the last moment, when
a transfer is first seen to be done, and a region that is read into again holds poison in between.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from fakes.trainer.memory import poison

Record = Callable[[str, int, Mapping[str, Any]], None]
NETWORK = ("all", "tcp", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "dc", "dc_x", "ud", "ud_x", "ib")
"""UCX transports, and aliases, that can carry a transfer between two agents."""


class NixlError(Exception):
    """`nixl._bindings.nixl...Error`: its text is the status, its reason stands in the agent's log (`said`)."""

    status = "NIXL_ERR_UNKNOWN"

    def __init__(self, said: str) -> None:
        super().__init__(self.status)
        self.said = said
        self.add_note(said)


class NixlInvalidParamError(NixlError):
    """The two sides of a transfer do not fit."""

    status = "NIXL_ERR_INVALID_PARAM"


class NixlNotFoundError(NixlError):
    """A peer or memory that this agent does not know."""

    status = "NIXL_ERR_NOT_FOUND"


class NixlBackendError(NixlError):
    """A backend that did not come up."""

    status = "NIXL_ERR_BACKEND"


class NixlMismatchError(NixlError):
    """Bytes that are no agent's metadata."""

    status = "NIXL_ERR_MISMATCH"


class NixlRemoteDisconnectError(NixlError):
    """The peer is gone."""

    status = "NIXL_ERR_REMOTE_DISCONNECT"


class ProcessGone(Exception):
    """A call into a process that ended: what an actor's handle raises."""


class Endpoint(Protocol):
    """What is asked of an engine to know the processes beside it: a new incarnation is a new process."""

    name: str
    tp: int
    gpu_ids: tuple[int, ...]

    @property
    def incarnation(self) -> int:
        """Grows with every restart."""
        ...


@dataclass(frozen=True)
class Host:
    """One process: the GPUs that it sees (CUDA_VISIBLE_DEVICES, physical numbers in local order), and whether it
    lives."""

    name: str
    gpus: tuple[int, ...]
    alive: Callable[[], bool] = lambda: True

    def empty(self, device: int, nbytes: int) -> np.ndarray:
        """`torch.empty(nbytes, dtype=uint8, device=f"cuda:{device}")`: devices count from 0 in every process."""
        self.gpu(device)
        return np.empty(nbytes, dtype=np.uint8)

    def gpu(self, device: int) -> int:
        """The physical GPU behind a local index. RuntimeError where there is none, as CUDA says it."""
        if not 0 <= device < len(self.gpus):
            raise RuntimeError("CUDA error: invalid device ordinal")
        return self.gpus[device]


@dataclass(eq=False)
class Region:
    """Registered memory. `id` counts the registrations of its agent."""

    id: int
    data: np.ndarray
    registered: bool = True

    @property
    def address(self) -> int:
        """Where it begins."""
        return _address(self.data)


@dataclass(frozen=True)
class Descs:
    """A list of (address, bytes) of one agent's memory."""

    agent: str
    spans: tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Transfer:
    """One request. `state` is "" until it is posted."""

    op: str
    local: Descs
    remote: Descs
    peer: str
    notify: bytes
    state: str = ""


@dataclass(frozen=True)
class AgentConfig:
    """`nixl_agent_config`."""

    backends: Sequence[str] = ("UCX",)


class Fabric:
    """Every agent of one scenario. `env` is their environment; `record(name, rank, data)` gets what they do."""

    def __init__(self, record: Record | None = None, env: MutableMapping[str, str] | None = None) -> None:
        self.env: MutableMapping[str, str] = {} if env is None else env
        self.agents: dict[str, NixlAgent] = {}
        self._record = record

    def trainer(self, rank: int) -> Host:
        """The process of one trainer rank: it sees one GPU, its own."""
        return Host(f"trainer rank {rank}", (rank,))

    def beside(self, engine: Endpoint) -> Host:
        """The process on an engine's node that started this incarnation of it, and ends with it."""
        incarnation = engine.incarnation
        gpus = tuple(engine.gpu_ids) or tuple(range(engine.tp))
        return Host(f"{engine.name}.{incarnation}", gpus, lambda: engine.incarnation == incarnation)

    def agent(self, name: str, host: Host, config: AgentConfig | None = None) -> NixlAgent:
        """`nixl_agent(name, config)` in a process. NixlBackendError where UCX has no transport between agents; a later
        agent of the same name takes its place."""
        made = NixlAgent(self, name, host, config or AgentConfig())
        self.agents[name] = made
        self.say("nixl_agent", agent=name, process=host.name)
        return made

    def say(self, event: str, **data: Any) -> None:
        """Record what happened."""
        if self._record is not None:
            self._record(event, 0, data)

    def registered(self) -> int:
        """Regions that nobody has deregistered, in processes that live."""
        return sum(a.host.alive() * sum(r.registered for r in a.regions) for a in self.agents.values())


class NixlAgent:
    """`nixl_agent`. Memory is numpy arrays of uint8."""

    def __init__(self, fabric: Fabric, name: str, host: Host, config: AgentConfig) -> None:
        self.fabric = fabric
        self.name = name
        self.host = host
        self.backends = [backend for backend in config.backends if backend == "UCX"]
        self.regions: list[Region] = []
        self._peers: dict[str, tuple[NixlAgent, int]] = {}
        self._notifs: dict[str, list[bytes]] = {}
        self._ids = itertools.count(1)
        tls = fabric.env.get("UCX_TLS", "all")
        if self.backends and not tls.startswith("^") and not {t.strip() for t in tls.split(",")} & set(NETWORK):
            self._fail(
                NixlBackendError,
                "createBackend: backend 'UCX' encountered error during intra-agent transfer setup with status "
                f"NIXL_ERR_BACKEND (no active messages transport among UCX_TLS={tls})",
            )

    # -- memory ---------------------------------------------------------------------------------------------------

    def register_memory(self, arrays: Sequence[np.ndarray]) -> tuple[Region, ...]:
        """Make memory known to the backends."""
        self._live()
        if not self.backends:
            self._fail(NixlNotFoundError, "registerMem: no available backends for mem type 'DRAM_SEG'")
        made = tuple(Region(next(self._ids), array) for array in arrays)
        self.regions.extend(made)
        self.fabric.say("nixl_register", agent=self.name, regions=[r.id for r in made])
        return made

    def deregister_memory(self, regions: Sequence[Region]) -> None:
        """Forget it. A peer that writes there afterwards is still told DONE."""
        self._live()
        if not all(region.registered for region in regions):
            self._fail(NixlNotFoundError, "deregisterMem: no available backends for mem type 'DRAM_SEG'")
        for region in regions:
            region.registered = False
        self.fabric.say("nixl_deregister", agent=self.name, regions=[r.id for r in regions])

    def get_xfer_descs(self, arrays: Sequence[np.ndarray]) -> Descs:
        """Descriptors, of registered memory or not. IndexError for none."""
        return Descs(self.name, tuple((_address(array), array.nbytes) for array in (arrays[0], *arrays[1:])))

    def get_serialized_descs(self, descs: Descs) -> bytes:
        """To hand them to a peer."""
        return json.dumps([descs.agent, descs.spans]).encode()

    def deserialize_descs(self, data: bytes) -> Descs:
        """A peer's. NixlMismatchError."""
        agent, spans = self._parsed(data)
        return Descs(str(agent), tuple((int(at), int(size)) for at, size in spans))

    # -- peers ----------------------------------------------------------------------------------------------------

    def get_agent_metadata(self) -> bytes:
        """What a peer needs to reach this agent, this very one, and the memory that it has registered so far.

        NixlInvalidParamError without a backend.
        """
        self._live()
        if not self.backends:
            self._fail(NixlInvalidParamError, "getLocalMD: no backends support remote operations")
        return json.dumps([self.name, [self.host.name, len(self.regions)]]).encode()

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """Know a peer; again is no error. Its name. NixlMismatchError for other bytes, NixlRemoteDisconnectError for
        one that is gone."""
        self._live()
        name, about = self._parsed(metadata)
        if not isinstance(about, list) or len(about) != 2:
            self._fail(NixlMismatchError, "loadRemoteMD: failed to deserialize remote metadata")
        process, regions = about
        peer = self.fabric.agents.get(str(name))
        if peer is None or peer.host.name != process:
            self._fail(NixlRemoteDisconnectError, f"loadRemoteMD: agent {name!r} of {process} is gone")
        self._peers[str(name)] = (peer, int(regions))
        return str(name).encode()

    def remove_remote_agent(self, name: str) -> None:
        """Forget a peer; one that is not known is no error."""
        self._live()
        self._peers.pop(name, None)

    # -- transfers ------------------------------------------------------------------------------------------------

    def initialize_xfer(
        self, operation: str, local: Descs, remote: Descs, remote_agent: str, notif_msg: bytes = b""
    ) -> Transfer:
        """A READ or WRITE between local and remote memory of equal lengths; the peer gets `notif_msg` when it is done.

        KeyError for another operation; NixlNotFoundError, NixlInvalidParamError, NixlRemoteDisconnectError.
        """
        self._live()
        operation = {"READ": "READ", "WRITE": "WRITE"}[operation]
        if remote_agent not in self._peers:
            self._fail(NixlNotFoundError, f"createXferReq: metadata for remote agent {remote_agent!r} not found")
        if len(local.spans) != len(remote.spans):
            sizes = f"local={len(local.spans)}, remote={len(remote.spans)}"
            self._fail(NixlInvalidParamError, f"createXferReq: different descriptor list sizes ({sizes})")
        for index, (mine, theirs) in enumerate(zip(local.spans, remote.spans, strict=True)):
            if mine[1] != theirs[1]:
                self._fail(NixlInvalidParamError, f"createXferReq: length mismatch at index {index}")
        peer = self._reached(remote_agent)
        if not all(self.find(*span, registered=True) for span in local.spans) or not all(
            (region := peer.find(*span)) and region.id <= self._peers[remote_agent][1] for span in remote.spans
        ):
            self._fail(NixlNotFoundError, "createXferReq: no specified or potential backend had the registrations")
        return Transfer(operation, local, remote, remote_agent, notif_msg)

    def transfer(self, handle: Transfer) -> str:
        """Post it: what is read into holds nothing from here on. "PROC"."""
        self._live()
        self._reached(handle.peer)
        if handle.op == "READ":
            for span in handle.local.spans:
                region = self.find(*span)
                if region is not None:
                    poison(region.data)
        handle.state = "PROC"
        return handle.state

    def check_xfer_state(self, handle: Transfer) -> str:
        """ "DONE" from the first look on: the bytes move now. NixlRemoteDisconnectError."""
        self._live()
        if handle.state == "PROC":
            peer = self._reached(handle.peer)
            for mine, theirs in zip(handle.local.spans, handle.remote.spans, strict=True):
                here, there = self._bytes(*mine), peer._bytes(*theirs)
                source, sink = (there, here) if handle.op == "READ" else (here, there)
                sink[...] = source
            handle.state = "DONE"
            if handle.notify:
                peer._notifs.setdefault(self.name, []).append(handle.notify)
            regions = [found.id for span in handle.local.spans if (found := self.find(*span))]
            size = sum(size for _, size in handle.local.spans)
            self.fabric.say(
                "nixl_transfer", agent=self.name, peer=handle.peer, op=handle.op, regions=regions, bytes=size
            )
        return handle.state

    def release_xfer_handle(self, handle: Transfer) -> None:
        """Free a request; its last state stays to be asked for."""

    # -- notifications --------------------------------------------------------------------------------------------

    def send_notif(self, remote_agent_name: str, notif_msg: bytes) -> None:
        """A message to a peer. NixlNotFoundError, NixlRemoteDisconnectError."""
        self._live()
        if remote_agent_name not in self._peers:
            said = "genNotif: no specified or potential backend could send the inter-agent notifications"
            self._fail(NixlNotFoundError, said)
        self._reached(remote_agent_name)._notifs.setdefault(self.name, []).append(notif_msg)

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        """What came since the last time, by peer."""
        self._live()
        found, self._notifs = self._notifs, {}
        return found

    # -- inside ---------------------------------------------------------------------------------------------------

    def find(self, address: int, size: int, *, registered: bool = False) -> Region | None:
        """The newest region that holds these bytes; one that is deregistered only where that does not matter."""
        for region in reversed(self.regions):
            inside = region.address <= address and address + size <= region.address + region.data.nbytes
            if inside and (region.registered or not registered):
                return region
        return None

    def _bytes(self, address: int, size: int) -> np.ndarray:
        region = self.find(address, size)
        assert region is not None, "initialize_xfer has looked"
        start = address - region.address
        return region.data[start : start + size]

    def _reached(self, name: str) -> NixlAgent:
        peer = self._peers[name][0]
        if not peer.host.alive():
            self._fail(NixlRemoteDisconnectError, f"agent {name!r} of {peer.host.name} is gone")
        return peer

    def _live(self) -> None:
        if not self.host.alive():
            raise ProcessGone(f"{self.host.name} is gone")

    def _parsed(self, data: bytes) -> list[Any]:
        try:
            first, second = json.loads(data)
        except (ValueError, TypeError):
            self._fail(NixlMismatchError, "Deserialization failed, missing nixlSerDes tag")
        return [first, second]

    def _fail(self, kind: type[NixlError], said: str) -> NoReturn:
        self.fabric.say("nixl_error", agent=self.name, status=kind.status, said=said)
        raise kind(said)


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
