"""The trainer side: a sharded policy, payloads over simulated CUDA IPC or torch's shared memory, and the books on
every handle."""

from __future__ import annotations

from fakes.trainer.kit import Export, TrainerKit
from fakes.trainer.registry import ExportRegistry, RegistryResolver
from fakes.trainer.torch_wire import TorchResolver
from fakes.trainer.wire import probe_payloads

__all__ = ["Export", "ExportRegistry", "RegistryResolver", "TorchResolver", "TrainerKit", "probe_payloads"]
