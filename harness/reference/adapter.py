"""The reference client as a system under test."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

from harness.errors import Unsupported
from harness.reference.control import Control
from harness.reference.deadline import Deadline
from harness.reference.engines import Roster
from harness.reference.errors import BadSetup, BadState, CallFailed
from harness.reference.lora import LoraClient
from harness.reference.markers import Markers
from harness.reference.profile import EngineProfile
from harness.reference.quantised import NONE, PLAIN, Plan, plan_of
from harness.reference.refit import RefitClient
from harness.reference.setup import transport_of
from harness.reference.transports import Transport
from harness.reference.transports.checkpoint_engine import CheckpointEngineTransport
from harness.reference.transports.disk import DiskTransport
from harness.reference.transports.distributed import DistributedTransport
from harness.reference.transports.ipc import IpcTransport
from harness.reference.transports.tensor import TensorTransport
from harness.sut.protocol import Caps, Fleet, Policy, RefitResult

BUCKET_BYTES = 128 * 1024  # three calls for the tiny bfloat16 model: a first, a middle and a last one
PHASE_DEADLINE_S = 120.0
TRANSPORTS = ("tensor", "distributed", "checkpoint-engine", "disk", "ipc", "lora")
COLOCATED = ("tensor", "ipc")
FINALISING = ("disk", "ipc")
"""Updates that the engine finalises by itself: no session is opened around them."""


class ReferenceSut:
    """The known-good client.

    `policy` None takes `Fleet.options["policy"]`, else resume. `pause_mode` None takes the gentlest mode that the
    engine's version can be flushed under: retract from 0.5.21 on, abort before. `transport` "" takes
    `Fleet.options["transport"]`, else tensor. ValueError for in_place, which keeps KV of old weights, and for an
    unknown policy, mode or transport.
    """

    options = frozenset({"enable_weights_cpu_backup"})
    """What it reads of `--sut-option`."""

    guards: Mapping[str, Any] = {
        "drivers": ("harness.reference.adapter", "harness.reference.refit"),
        "workers": ("fakes.engine", "fakes.fronts", "real_runs", "conformance"),
        "not_installed": ("torch", "ray", "sglang", "megatron", "transformer_engine", "fastapi", "uvicorn"),
        "actors": ("harness.reference.adapter:ReferenceSut",),
        "launch_arguments": ("model_path", "tp_size", "host", "port", "dtype", "random_seed", "weight_version"),
    }
    """Where its driver is, and what must not be there: see `harness.guards.subjects`."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        pause_mode: Literal["abort", "retract", "in_place"] | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        transport: str = "",
    ) -> None:
        if pause_mode == "in_place":
            raise ValueError("pause mode in_place is unsafe for weight refit: requests keep KV of the old weights")
        if pause_mode not in (None, "abort", "retract"):
            raise ValueError(f"pause mode must be abort or retract, not {pause_mode!r}")
        if policy is not None:
            _check_policy(policy)
        if bucket_bytes <= 0:
            raise ValueError(f"bucket_bytes must be above 0, not {bucket_bytes}")
        if transport not in ("", *TRANSPORTS):
            raise ValueError(f"transport must be {' or '.join(TRANSPORTS)}, not {transport!r}")
        self._transport = transport
        self._policy: Policy | None = policy
        self._pause_mode = pause_mode
        self._bucket_bytes = bucket_bytes
        self._fleet: Fleet | None = None
        self._client: RefitClient | LoraClient | None = None
        self._state: Mapping[str, Any] = {}
        self._version = ""
        self._rollouts = 0

    def setup(self, fleet: Fleet) -> None:
        """ValueError where trainer ranks and engine GPUs do not match, Unsupported on a lane without a trainer kit."""
        if fleet.trainer is None:
            raise Unsupported("the lane has no trainer kit, so nothing can be exported")
        name = self._transport_name(fleet)
        profile = EngineProfile.of(fleet.version)
        if name in FINALISING:
            profile = dataclasses.replace(profile, sessions=False)
        control = Control(
            clock=fleet.clock,
            profile=profile,
            pause_mode=self._pause_mode or profile.pause_mode,
            weights_survive_release=bool(fleet.options.get("enable_weights_cpu_backup")),
        )
        self._fleet = fleet
        self._pause_mode = control.pause_mode
        self._policy = self._policy or _check_policy(fleet.options.get("policy", "resume"))
        if name == "lora":
            self._client = LoraClient(
                fleet.trainer,
                Markers(fleet.record, fleet.clock),
                Roster(fleet.endpoints, fleet.trainer.ranks),
                fleet.options.get("lora") or {},
                one_payload=fleet.version == "0.5.12.post1",
            )
            return
        transport = self._transport_of(fleet, name)
        colocated = transport.name in COLOCATED
        self._client = RefitClient(
            control,
            fleet.trainer,
            Markers(fleet.record, fleet.clock),
            Roster(fleet.endpoints, fleet.trainer.ranks if colocated else None),
            transport,
            policy=self._policy,
        )

    def _transport_name(self, fleet: Fleet) -> str:
        """The factory's, a setup's, the scenario's, or tensor. A setup is read before anything else is looked at."""
        setup = fleet.options.get("setup")
        if setup is None:
            return self._transport or str(fleet.options.get("transport") or "tensor")
        name = transport_of(setup, frozenset(endpoint.tp for endpoint in fleet.endpoints))
        if self._transport not in ("", name):
            raise BadSetup(f"the client has transport {self._transport}, and the setup asks for {name}")
        self._pause_mode = setup["pause_mode"]
        return name

    def _transport_of(self, fleet: Fleet, name: str) -> Transport:
        if name == "tensor":
            return TensorTransport(fleet.trainer, self._bucket_bytes, _plan(fleet))
        if _plan(fleet).scheme != PLAIN:
            raise BadSetup(f"quantisation is sent by the tensor path alone, not by {name}")
        if name == "disk":
            return DiskTransport(fleet.trainer, self._bucket_bytes)
        if name == "ipc":
            return _on_sockets(fleet, self._bucket_bytes)
        if name == "checkpoint-engine":
            return CheckpointEngineTransport(fleet.trainer, self._bucket_bytes)
        if name == "distributed":
            try:
                return DistributedTransport(fleet.trainer, fleet.clock, self._bucket_bytes)
            except NotImplementedError as lacks:
                raise Unsupported(str(lacks)) from None
        raise ValueError(f"transport must be {' or '.join(TRANSPORTS)}, not {name!r}")

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        """The next refit sends `state` as `version`."""
        self._state, self._version = dict(state), str(version)

    def refit(self, deadline_s: float) -> RefitResult:
        """One refit in at most `deadline_s` seconds of the fleet's clock."""
        if not self._version:
            raise BadState("refit before set_weights")
        fleet, client = self._ready()
        return client.refit(self._state, self._version, Deadline(fleet.clock, deadline_s))

    def phase(self, name: str, deadline_s: float = PHASE_DEADLINE_S) -> None:
        """ "train": the engines give their memory to the trainer. "rollout": nothing, a refit has brought it back."""
        if name not in ("train", "rollout"):
            raise ValueError(f"phase must be train or rollout, not {name!r}")
        if name == "train":
            fleet, client = self._ready()
            client.offload(Deadline(fleet.clock, deadline_s))

    def reported_version(self) -> str | None:
        """The last version of which every engine has confirmed the complete set."""
        return self._client.version if self._client else None

    def rollout(self, prompt: Sequence[int], n: int, timeout_s: float = PHASE_DEADLINE_S) -> dict[str, Any]:
        """`n` greedy tokens of one engine: {"tokens", "version"}; the version is one that the engine says it used.

        Never the policy's own version: that may have moved while the engine was generating.
        """
        fleet, client = self._ready()
        self._rollouts += 1
        endpoint = fleet.endpoints[self._rollouts % len(fleet.endpoints)]
        sampling = {"temperature": 0, "max_new_tokens": n, "ignore_eos": True}
        body: dict[str, Any] = {"input_ids": list(prompt), "sampling_params": sampling}
        if isinstance(client, LoraClient) and client.serving:
            body["lora_path"] = client.serving
        outcome = endpoint.request("generate", body, timeout_s=timeout_s)
        if not outcome.ok:
            raise CallFailed("rollout", endpoint.name, outcome)
        meta = outcome.body["meta_info"]
        spans = meta.get("weight_versions") or [{"version": meta.get("weight_version")}]
        return {"tokens": outcome.body["output_ids"], "version": spans[-1]["version"]}

    def capabilities(self) -> Caps:
        """What it can do; policy and pause mode may depend on the fleet, so they are final after setup."""
        optional = {"buckets", "phase", "reported_version", "rollout", "setup"}
        if self._transport in ("", "tensor"):
            optional.add("quantisation")
        return Caps(
            transports=frozenset({self._transport} if self._transport else TRANSPORTS),
            policy=self._policy or "resume",
            pause_mode=self._pause_mode or "retract",
            ranks=self._fleet.trainer.ranks if self._fleet else 1,
            optional=frozenset(optional),
        )

    def close(self) -> None:
        """Leave no group behind, here or on an engine."""
        client, self._fleet, self._client = self._client, None, None
        if client is not None:
            client.close()

    def _ready(self) -> tuple[Fleet, RefitClient | LoraClient]:
        if self._fleet is None or self._client is None:
            raise RuntimeError("setup has not been called")
        return self._fleet, self._client


def _plan(fleet: Fleet) -> Plan:
    """Of a setup, or of what the engines hold; engines of which nothing is said hold the model's own dtype."""
    setup = fleet.options.get("setup")
    given = fleet.options.get("quantisation") if setup is None else setup["quantisation"]
    return NONE if given is None else plan_of(given)


def _on_sockets(fleet: Fleet, bucket_bytes: int) -> Transport:
    try:
        _ = fleet.trainer.ipc
    except NotImplementedError as lacks:
        raise Unsupported(str(lacks)) from None
    return IpcTransport(fleet.trainer, bucket_bytes)


def _check_policy(policy: str) -> Policy:
    if policy not in get_args(Policy):
        raise ValueError(f"policy must be {', '.join(get_args(Policy))}, not {policy!r}")
    return cast(Policy, policy)


def distributed() -> ReferenceSut:
    """The reference client for engines on GPUs of their own, whatever a scenario would choose."""
    return ReferenceSut(transport="distributed")


def checkpoint_engine() -> ReferenceSut:
    """The reference client with a receiver for every engine rank, whatever a scenario would choose."""
    return ReferenceSut(transport="checkpoint-engine")


class IpcSut(ReferenceSut):
    """The reference client as the parameter servers of a checkpoint engine, whatever a scenario would choose."""

    engine_options: Mapping[str, Any] = {"device": "cuda", "checkpoint_engine": "0.4.2"}

    def __init__(self) -> None:
        super().__init__(transport="ipc")


ipc = IpcSut
