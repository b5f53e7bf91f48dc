"""The lane `sglang-gpu`: the real SGLang on this machine's GPUs, weights over CUDA IPC from this very process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, Unsupported, UsageError
from harness.lanes.base import EngineSpec
from real_runs import env as environments
from real_runs.models import FolderModel, TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.preflight import Machine, preflight
from real_runs.server import ServerSpec, base_environment
from real_runs.sglang_cpu import SglangCpuLane, is_on


@dataclass(frozen=True)
class GpuServerSpec(ServerSpec):
    """A server on GPUs. `site` is a folder of packages for its interpreter, `gpus` what it sees, in this order."""

    site: str = ""
    gpus: tuple[int, ...] = (0,)
    cuda_graph: bool = False

    def device_arguments(self) -> list[str]:
        """Triton kernels alone, small pools; without CUDA graphs unless asked for: they cost most of a start."""
        graphs = ("--cuda-graph-max-bs", "4") if self.cuda_graph else ("--disable-cuda-graph",)
        return [
            *("--device", "cuda", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
            *("--grammar-backend", "none", "--mem-fraction-static", "0.1", "--random-seed", "1", *graphs),
            *(("--disable-custom-all-reduce",) if self.tp > 1 else ()),
        ]

    def environment(self) -> dict[str, str]:
        """Ours without PYTHON*, its packages, its GPUs. What SGLANG_* and NCCL_* say here holds there too."""
        out = base_environment() | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        out |= {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))}
        if self.site:
            out["PYTHONPATH"] = self.site
        return out


class SglangGpuLane(SglangCpuLane):
    """Real servers on GPUs, tp 1 and 2, each on the first tp GPUs; the trainer is this process, another than theirs.

    Options, beside those of `sglang-cpu` but `torch_index`: `python` (the interpreter that has SGLang; this one if not
    given), `site` (a folder of packages for it), `model` (a Hugging Face folder of a llama, qwen2 or qwen3 to serve,
    instead of a tiny random one), `gpus` (their numbers, 0,1,...), `spares` (servers started ahead of their need),
    `cuda_graph` (on: capture them).
    """

    name = "sglang-gpu"
    where = "real, http, cuda"
    provides = frozenset()  # a group with engines on GPUs needs NCCL, and a GPU for the trainer's rank
    max_live = 4
    flags: Mapping[str, str] = {
        **SglangCpuLane.flags,
        "max_running_requests": "--max-running-requests",
        "max_lora_rank": "--max-lora-rank",
        "max_loras_per_batch": "--max-loras-per-batch",
        "max_loaded_loras": "--max-loaded-loras",
        "lora_target_modules": "--lora-target-modules",
    }
    switches: Mapping[str, str] = {
        "enable_memory_saver": "--enable-memory-saver",
        "enable_weights_cpu_backup": "--enable-weights-cpu-backup",
        "enable_lora": "--enable-lora",
    }
    option_names = ("cuda_graph", "evidence", "gpus", "model", "python", "quiet", "site", "spares")

    def configure(self, given: dict[str, Any]) -> None:
        """Its own options."""
        self._python = Path(given.pop("python", None) or sys.executable)
        self._site = str(given.pop("site", ""))
        self._folder = str(given.pop("model", ""))
        self._gpus = _numbers("gpus", given.pop("gpus", ""))
        self.spares = (_numbers("spares", given.pop("spares", "")) or (0,))[0]
        self._graphs = is_on(given.pop("cuda_graph", ""))
        self._looked_at: set[Machine] = set()
        # As the engine sets it for itself: memory of the other kind has no handle that the engine could open.
        os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")

    def payloads(self) -> TorchPayloads:
        """CUDA IPC: rank i's on the GPU of rank i."""
        from fakes.trainer.cuda_wire import cuda_share

        return TorchPayloads(lambda rank: cuda_share(self._gpu(rank)))

    def trainer(self, ranks: int) -> Any:
        """A trainer kit of threads whose exports are CUDA IPC handles, rank i on the GPU of tp_rank i."""
        from fakes.trainer import TrainerKit
        from fakes.trainer.cuda_wire import cuda_share

        if self._gate is None:
            raise HarnessError("a trainer was asked for between scenarios")
        kit = TrainerKit(None, ranks, self._gate.trainer, wire="torch", share=lambda rank: cuda_share(self._gpu(rank)))
        self._kits.append(kit)
        return kit

    def model(self, spec: EngineSpec) -> TinyModel:
        """The tiny model of a spec, or what the option `model` names."""
        if not self._folder:
            return super().model(spec)
        key = (spec.shape, spec.tied, spec.dtype, spec.tp)
        if key not in self._models:
            self._models[key] = FolderModel(*key, source=self._folder)
        return self._models[key]

    def spec_of(self, **fields: Any) -> ServerSpec:
        """A server on the first tp GPUs."""
        gpus = tuple(self._number(rank) for rank in range(int(fields["tp"])))
        return GpuServerSpec(**fields, site=self._site, gpus=gpus, cuda_graph=self._graphs)

    def label(self, kind: ServerSpec) -> str:
        """By interpreter, packages and graphs."""
        return f"cuda {kind.version} {self._python} {self._site} {self._folder} graphs {self._graphs}"

    def refuse(self, spec: EngineSpec) -> None:
        """Unsupported beyond the GPUs that there are."""
        if spec.version not in self.versions:
            raise Unsupported(f"this lane starts SGLang {', '.join(self.versions)}, not {spec.version}")
        if spec.tp not in (1, 2):
            raise Unsupported(f"tp {spec.tp}: 1 and 2 are set up")

    def _environment(self, version: str) -> environments.SglangEnv:
        machine = Machine(self._python, self._site, version, self._gpus, self._tp)
        if machine not in self._looked_at:
            self._look(machine)
        return environments.SglangEnv(version, self._python, Path(self._site or self._python.parent), given=True)

    def _look(self, machine: Machine) -> None:
        """Once per kind: it imports torch in another process."""
        missing = [finding.line for finding in preflight(machine) if not finding.ok]
        if missing:
            raise environments.EnvUsage("; ".join(missing))
        self._looked_at.add(machine)

    @property
    def _tp(self) -> int:
        return max((key[3] for key in self._models), default=1)

    def _number(self, rank: int) -> int:
        """The GPU of a rank as the machine numbers them."""
        return self._gpus[rank % len(self._gpus)] if self._gpus else rank

    def _gpu(self, rank: int) -> int:
        """The GPU of a rank as this process numbers them."""
        from fakes.trainer.cuda_wire import gpu_of

        return self._number(rank) if self._gpus else gpu_of(rank)


def _numbers(name: str, text: Any) -> tuple[int, ...]:
    parts = [part.strip() for part in str(text).split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--lane-option {name}={text}: not numbers")
    return tuple(int(part) for part in parts)


def gpu_server(
    version: str, python: Path | None, site: str, model: Path
) -> tuple[environments.SglangEnv, GpuServerSpec]:
    """A server on GPU 0 for a model without weights, and what runs it. EnvUsage with all that the machine lacks."""
    machine = Machine(python or Path(sys.executable), site, version)
    missing = [finding.line for finding in preflight(machine) if not finding.ok]
    if missing:
        raise environments.EnvUsage("; ".join(missing))
    spec = GpuServerSpec(version, model, extra=("--load-format", "dummy", "--mem-fraction-static", "0.5"), site=site)
    return environments.SglangEnv(version, machine.python, Path(site or machine.python.parent), given=True), spec
