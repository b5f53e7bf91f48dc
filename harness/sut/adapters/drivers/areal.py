"""AReaL's disk path: `RemoteInfEngine` with its SGLang backend, which pauses, loads a checkpoint by path and continues.

The requests, their retries and their order are AReaL's. Given to it are a checkpoint that is already there, where its
trainer would save one and announce it, and an executor of threads for its pool of processes.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

common.ray()
for _name, _content in (
    ("pybase64", {"b64encode": base64.b64encode, "b64decode": base64.b64decode}),
    ("uvloop", {"run": asyncio.run, "install": lambda: None}),
):
    if _name not in sys.modules:
        sys.modules[_name] = ModuleType(_name)
        sys.modules[_name].__dict__.update(_content)

import areal.infra as infra  # noqa: E402
from areal.infra import remote_inf_engine  # noqa: E402

infra.RemoteInfEngine = remote_inf_engine.RemoteInfEngine
infra.RolloutController = infra.WorkflowExecutor = object

from areal.engine import sglang_remote  # noqa: E402

_serial = itertools.count()


def inference_engine(about: dict[str, Any]) -> Any:
    """AReaL's client of the engines, whose addresses are known."""
    module: Any = remote_inf_engine
    pool = ThreadPoolExecutor(1)
    module.get_executor = lambda: pool
    config = SimpleNamespace(
        experiment_name="refitcheck",
        trial_name="refitcheck",
        request_retries=3,
        request_timeout=3600.0,
        pause_grace_period=0.0,
        setup_timeout=60.0,
    )
    hosts = [common.host_port(engine["url"]) for engine in about["engines"]]
    made = object.__new__(module.RemoteInfEngine)
    made.__dict__.update(
        config=config,
        backend=sglang_remote.SGLangBackend(),
        addresses=[f"{host}:{port}" for host, port in hosts],
        logger=SimpleNamespace(info=print, error=print, warning=print),
        _version=0,
        lock=module.Lock(),
    )
    return made


class Rank:
    """The trainer."""

    def __init__(self, about: dict[str, Any]) -> None:
        module: Any = remote_inf_engine
        module.name_resolve = SimpleNamespace(wait=lambda name, timeout: str(time.time()))
        self.folder = Path(about["folder"])
        self.engine = inference_engine(about)
        self.state: dict[str, Any] = {}
        self.version = ""

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state, self.version = dict(state), version

    def refit(self) -> None:
        """Pause, load from the folder, continue (areal/trainer/rl_trainer.py)."""
        from fakes.tiny import write_tensors

        path = self.folder / f"checkpoint-{next(_serial)}"
        path.mkdir()
        write_tensors(path / "model.safetensors", self.state)
        meta = SimpleNamespace(
            type="disk", path=str(path), use_lora=False, version=None, lora_name="", clear_checkpoint_after_load=True
        )
        self.engine.pause_generation()
        self.engine.update_weights_from_disk(meta).result()
        self.engine.continue_generation()

    def close(self) -> None:
        """Nothing of it outlives the process."""
