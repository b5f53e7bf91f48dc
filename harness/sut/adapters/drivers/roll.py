"""ROLL's colocated path in process: `SgLangStrategy` over its `SglangEngine`; the Engine is the shim's, over a url.

Serialising and the strategy's calls are ROLL's. As its worker does, the driver awaits `update_parameter_in_bucket` and
drops what it returns (roll/pipeline/base_worker.py:478). The module that patches SGLang's launch by version is left
out: it refuses every SGLang but 0.4.6 to 0.5.7 when it is imported.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from harness.sut.adapters.drivers import common

common.ray()
for _name in ("pybase64",):
    sys.modules.setdefault(_name, ModuleType(_name))
    sys.modules[_name].__dict__.update(b64encode=base64.b64encode, b64decode=base64.b64decode)
_launching: Any = ModuleType("roll.third_party.sglang")
_launching.patch = SimpleNamespace()
sys.modules["roll.third_party.sglang"] = _launching

import sglang  # noqa: E402
import torch.multiprocessing  # noqa: E402
from roll.distributed.strategy import sglang_strategy  # noqa: E402
from roll.utils import send_recv_utils  # noqa: E402

BUCKET_TENSORS = 8


class Rank:
    """The trainer and the inference workers in one process, one strategy for each engine."""

    def __init__(self, about: dict[str, Any]) -> None:
        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]  # torch's own, without types
        os.environ["REFITCHECK_SGLANG_ENGINES"] = ",".join(engine["url"] for engine in about["engines"])
        self.state: dict[str, Any] = {}
        self.strategies = [(self._strategy(about, engine), engine["tp"]) for engine in about["engines"]]

    @staticmethod
    def _strategy(about: dict[str, Any], engine: dict[str, Any]) -> Any:
        held = sglang_strategy.SglangEngine()
        held.engine = sglang.Engine(model_path=about["folder"], tp_size=engine["tp"])
        strategy = object.__new__(sglang_strategy.SgLangStrategy)
        strategy.model, strategy.slave_list = held, []
        strategy.is_model_in_gpu = strategy.is_kv_cache_in_gpu = True
        strategy.worker = SimpleNamespace(pipeline_config=SimpleNamespace(is_actor_infer_colocated=True))
        return strategy

    def set_weights(self, state: Any, version: str) -> None:
        """The policy's parameters."""
        self.state = common.tensors(state)

    def refit(self) -> None:
        """Every bucket to every engine, then load_states."""
        asyncio.run(self._refit())

    async def _refit(self) -> None:
        items = list(self.state.items())
        for at in range(0, len(items), BUCKET_TENSORS):
            named = items[at : at + BUCKET_TENSORS]
            for strategy, tp in self.strategies:
                payloads = [send_recv_utils.serialize_named_weights(named, infer_strategy="sglang") for _ in range(tp)]
                await strategy.update_parameter_in_bucket(payloads)
        for strategy, _ in self.strategies:
            await strategy.load_states()

    def phase(self, name: str) -> None:
        """The trainer takes the memory."""
        if name == "train":
            for strategy, _ in self.strategies:
                asyncio.run(strategy.offload_states())

    def close(self) -> None:
        """Nothing of it outlives the process."""
