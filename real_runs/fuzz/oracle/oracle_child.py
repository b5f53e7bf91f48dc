"""Runs inside SGLang's interpreter: its own weight-updater manager over a scripted TP worker. Standalone, one file.

Lines of JSON over stdin and stdout. It says first who it is (`ready`); then one line is a list of steps on a fresh
manager, and the answer is a list of what each step did, ended by the first exception (in a server: the engine's death).

Attached (no `--checkout`): everything is imported from the installed package; the runner's weight updater, the bucket
and the unpickler are SGLang's own, too. Detached: the manager is loaded by path from a checkout, and what it imports
stands in; then the runner is scripted as well. In both the idle test, the flush and the version record are the methods
of SGLang's `Scheduler`, compiled out of its source, over a bench that holds how many requests run and wait.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import hashlib
import io
import json
import logging
import os
import sys
import types
from pathlib import Path
from typing import Any

from oracle_bench import Bench, Quiet, methods_of
from oracle_sources import attach, detach
from oracle_worker import GROUP_TAKEN, Model, Scripted, Worker, scripted_runner


class Oracle:
    """The manager's module and everything that a fresh manager is made of."""

    def __init__(self, checkout: Path | None) -> None:
        import torch as installed

        torch: Any = installed
        self.torch = torch
        self.script: dict[str, Any] = {}
        self.bench: Any = None
        self.payloads: dict[str, bytes] = {}
        torch.distributed.barrier = self._barrier
        torch.distributed.get_world_size = lambda group=None: 1
        torch.distributed.broadcast = self._broadcast
        torch.distributed.is_initialized = lambda: True
        torch.distributed.destroy_process_group = self._leave
        self.sources = attach(self._join) if checkout is None else detach(checkout, torch)
        own = types.SimpleNamespace
        names = {
            "logging": logging.getLogger("scheduler"),
            "logger": logging.getLogger("scheduler"),
            "DisaggregationMode": self.sources.disaggregation,
            "current_platform": Quiet(),
            "empty_device_cache": Quiet(),
            "get_memory": Quiet(),
            "get_serving": lambda: self.bench,
            "get_context": lambda: own(override=self._override),
            "record_weight_version_events": lambda reqs, old_version: len(reqs),
        }
        self.methods = methods_of(self.sources.root / "managers" / "scheduler.py", names)

    def deserialize(self, data: Any) -> Any:
        """A payload, opened by SGLang's own unpickler; detached, by its name."""
        return self.sources.deserialize(data)

    def loaded(self) -> None:
        """A runner loaded something."""
        self.bench.loads += 1

    def _override(self, why: str, weight_version: str) -> None:
        self.bench.weight_version = weight_version

    def _barrier(self, *args: Any, **kwargs: Any) -> None:
        self.bench.barriers += 1

    def _broadcast(self, tensor: Any, src: int, group: Any, async_op: bool = False) -> Any:
        def wait() -> None:
            if self.script.get("receive") == "raises":
                raise Scripted("the peer went away")

        if not async_op:
            wait()
        return types.SimpleNamespace(wait=wait)

    def _join(self, *, group_name: str, **kwargs: Any) -> Any:
        if self.script.get("join"):  # the store comes first, then the name is looked at
            raise Scripted(self.script["join"])
        if group_name in self.groups:
            raise Scripted(GROUP_TAKEN)
        self.groups.add(group_name)
        return types.SimpleNamespace(name=group_name)

    def _leave(self, group: Any) -> None:
        self.groups.discard(group.name)

    def fresh(self) -> Any:
        """A manager with nothing open, over an idle bench."""
        bench = self.bench = Bench(self.methods, self.sources.disaggregation.NULL)
        self.groups: set[str] = set()
        model = Model(self.torch, self.sources.load)
        if self.sources.runner is None:
            updater = scripted_runner(self.torch, model, lambda: self.script)
        else:
            given = {"tp_rank": 0, "device": "cpu", "gpu_id": 0, "custom_weight_loaders": {}}
            given |= {"get_model": lambda: model.module, "model_config": Quiet()}
            given["get_model_runner"] = lambda: types.SimpleNamespace(
                server_args=types.SimpleNamespace(weight_cache_mode="off")
            )
            fields = [f.name for f in dataclasses.fields(self.sources.runner.WeightUpdater) if f.init]
            updater = self.sources.runner.WeightUpdater(
                **{name: given.get(name, Quiet()) for name in fields if not name.startswith("_")}
            )
        saver = types.SimpleNamespace(pause=lambda tag: None, resume=lambda tag: None)
        parts = {
            "tp_worker": Worker(self, model, updater),
            "draft_worker": None,
            "tp_cpu_group": None,
            "memory_saver_adapter": saver,
            "flush_cache": bench.flush,
            "is_fully_idle": bench.is_fully_idle,
            "scheduler": bench,
        }
        if hasattr(self.sources.module, "SchedulerWeightUpdaterManager"):
            cls = self.sources.module.SchedulerWeightUpdaterManager
            wanted = {f.name for f in dataclasses.fields(cls) if f.init}
            return cls(**{name: value for name, value in parts.items() if name in wanted})
        manager = type("Mixin", (self.sources.module.SchedulerUpdateWeightsMixin,), {})()
        manager.__dict__.update(parts, offload_tags=set(), stashed_model_static_state=None)
        return manager

    def parts(self) -> list[str]:
        """What is SGLang's own here; the drawer of steps leaves out what none of it would judge."""
        found = ["manager", *self.methods]
        if self.sources.attached:
            found += ["unpickler"] + (["runner"] if self.sources.runner is not None else [])
        return found

    def storage(self, count: int) -> str:
        """So many float32 ones as torch.save writes a storage, base64."""
        out = io.BytesIO()
        self.torch.save(self.torch.ones(count)._typed_storage(), out, _use_new_zipfile_serialization=False)
        return base64.b64encode(out.getvalue()).decode()

    def play(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Every step on a fresh manager, up to the first exception."""
        manager, out = self.fresh(), []
        for step in steps:
            bench = self.bench
            bench.flushes, bench.barriers, bench.loads = [], 0, 0
            self.script = step
            try:
                reply = self._do(manager, step)
            except Exception as error:
                out.append({"raised": [type(error).__name__, str(error)]})
                return out
            out.append(self._state(manager, reply))
        return out

    def _state(self, manager: Any, reply: Any) -> dict[str, Any]:
        bench = self.bench
        session = getattr(manager, "_session", None)
        found = None if session is None else [session.selector, session.loaded_weights]
        if getattr(manager, "_weight_update_in_progress", False):
            found = [manager._weight_update_selector, manager._weight_update_loaded]
        return {
            "success": getattr(reply, "success", None),
            "message": getattr(reply, "message", None),
            "session": found,
            "version": bench.weight_version,
            "flushes": bench.flushes,
            "barriers": bench.barriers,
            "loads": bench.loads,
            "tags": sorted(manager.offload_tags),
        }

    def _do(self, manager: Any, step: dict[str, Any]) -> Any:
        op, given = step["op"], dict(step.get("body", {}))
        if op in ("generate", "pause", "continue", "abort"):
            return self.bench.traffic(step)
        if op == "flush_cache":
            return types.SimpleNamespace(success=self.bench.flush(), message="")
        if op == "update_weight_version":
            return self.bench.record_weight_version_change(given["new_version"])
        if op == "update_weights_from_tensor":
            given["serialized_named_tensors"] = [self.payloads[name] for name in given["serialized_named_tensors"]]
        name, struct = OPERATIONS[op]
        return getattr(manager, name)(getattr(self.sources.io, struct)(**given))


OPERATIONS = {
    "begin_weight_update": ("begin_weight_update", "BeginWeightUpdateReqInput"),
    "end_weight_update": ("end_weight_update", "EndWeightUpdateReqInput"),
    "update_weights_from_tensor": ("update_weights_from_tensor", "UpdateWeightsFromTensorReqInput"),
    "update_weights_from_distributed": ("update_weights_from_distributed", "UpdateWeightsFromDistributedReqInput"),
    "update_weights_from_disk": ("update_weights_from_disk", "UpdateWeightFromDiskReqInput"),
    "update_weights_from_ipc": ("update_weights_from_ipc", "UpdateWeightsFromIPCReqInput"),
    "init_weights_update_group": ("init_weights_update_group", "InitWeightsUpdateGroupReqInput"),
    "destroy_weights_update_group": ("destroy_weights_update_group", "DestroyWeightsUpdateGroupReqInput"),
    "release_memory_occupation": ("release_memory_occupation", "ReleaseMemoryOccupationReqInput"),
    "resume_memory_occupation": ("resume_memory_occupation", "ResumeMemoryOccupationReqInput"),
    "weights_checker": ("check_weights", "CheckWeightsReqInput"),
}


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkout", type=Path)
    options = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever SGLang prints goes to the log
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    oracle = Oracle(options.checkout)
    ready = {
        "version": oracle.sources.version,
        "attached": oracle.sources.attached,
        "parts": oracle.parts(),
        "digest": hashlib.sha256(oracle.sources.file.read_bytes()).hexdigest(),
        "storages": {str(count): oracle.storage(count) for count in (2, 64)},
    }
    print(json.dumps(ready), file=out, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "payloads" in asked:
            oracle.payloads = {name: base64.b64decode(data) for name, data in asked["payloads"].items()}
            answer: Any = "taken"
        else:
            answer = oracle.play(asked["steps"])
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
