"""The reference client with a real trainer: megatron-bridge exports, the client sends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, Unsupported, UsageError
from harness.reference.adapter import ReferenceSut
from harness.sut.adapters.start import uncounted
from harness.sut.protocol import Caps, Fleet
from real_runs.making import EnvError, EnvUsage
from real_runs.megatron_bridge import environment
from real_runs.megatron_bridge.jobs import Job, JobFailed, job_of
from real_runs.megatron_bridge.trainer import BridgeTrainer

MOST_RANKS = 8
OPTIONS = ("megatron_tp", "megatron_pp")
NOT_EXPORTED = frozenset({"lora"})
"""What the reference client sends without a walk of the export."""


class MegatronBridgeSut(ReferenceSut):
    """Options: `megatron_tp` and `megatron_pp`, the job's tensor and pipeline parallel sizes (1 each where not given).

    The job has a whole number of model replicas, at least one rank for each trainer rank of the scenario; what it has
    beyond those are ranks that feed no engine and drain.
    """

    options = ReferenceSut.options | set(OPTIONS)

    def __init__(self, **about: Any) -> None:
        super().__init__(**about)
        self._bridge: BridgeTrainer | None = None

    def capabilities(self) -> Caps:
        """The reference client's, in so far as weights come out of the export."""
        caps = super().capabilities()
        return dataclasses.replace(caps, transports=caps.transports - NOT_EXPORTED)

    @staticmethod
    def check_options(options: Mapping[str, str]) -> None:
        """ValueError for a size that the tiny models cannot be cut into."""
        for name in OPTIONS:
            if str(options.get(name, "1")) not in ("1", "2"):
                raise ValueError(f"{name} is 1 or 2, not {options[name]!r}: the tiny models have 2 KV heads, 2 layers")

    def setup(self, fleet: Fleet) -> None:
        """Unsupported where the environment is not made, HarnessError where the job cannot be started."""
        if fleet.trainer is None:
            super().setup(fleet)
            return
        tensor, pipeline = (int(fleet.options.get(name, 1)) for name in OPTIONS)
        world = tensor * pipeline * -(-fleet.trainer.ranks // (tensor * pipeline))
        if world > MOST_RANKS:
            raise Unsupported(f"megatron-bridge is run with {MOST_RANKS} ranks at most, not with {world}")
        with uncounted():
            self._bridge = BridgeTrainer(fleet.trainer, partial(_job, world, tensor, pipeline))
        super().setup(dataclasses.replace(fleet, trainer=self._bridge))

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        """Imported by the bridge, trained for a step, after which the policy holds `state`: see `Job.load`."""
        super().set_weights(state, version)
        if self._bridge is not None:
            with uncounted():
                self._bridge.hold(state)


def _python() -> Path:
    found = environment.find()
    if found is None:
        raise Unsupported(f"megatron-bridge is not installed: {environment.COMMAND}")
    return found


def _job(world: int, tensor: int, pipeline: int) -> Job:
    try:
        return job_of(_python(), world, tensor, pipeline)
    except EnvUsage as error:
        raise UsageError(f"megatron-bridge: {error}") from error
    except (JobFailed, EnvError) as error:
        raise HarnessError(f"megatron-bridge: {error}") from error


def distributed() -> MegatronBridgeSut:
    """The same for engines on GPUs of their own, whatever a scenario would choose."""
    return MegatronBridgeSut(transport="distributed")
