from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fakes.engine.protocol import EngineConfig
from fakes.outcome import Outcome
from fakes.tiny import tiny_config, tiny_weights
from fakes.trainer import ExportRegistry
from fakes.trainer.wire import export_bucket
from fakes.world import World

CONFIG = tiny_config("llama", False, "float32")
WEIGHTS = tiny_weights(CONFIG, 0)
PEFT = "base_model.model.model.layers.{}.{}.lora_{}.weight"
DIMS = {
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (64, 32),
    "self_attn.v_proj": (64, 32),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (64, 128),
    "mlp.up_proj": (64, 128),
    "mlp.down_proj": (128, 64),
}
ADAPTER = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": [name.split(".")[1] for name in DIMS]}
PROMPT = [9, 10, 11, 12, 13]


def adapter(seed: int = 1, *modules: str, r: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for layer in range(int(CONFIG["num_hidden_layers"])):
        for module in modules or DIMS:
            columns, rows = DIMS[module]
            out[PEFT.format(layer, module, "A")] = rng.normal(0, 0.3, (r, columns)).astype(np.float32)
            out[PEFT.format(layer, module, "B")] = rng.normal(0, 0.3, (rows, r)).astype(np.float32)
    return out


def merged(named: dict[str, np.ndarray], scaling: float = 2.0) -> dict[str, np.ndarray]:
    out = dict(WEIGHTS)
    for name in named:
        if ".lora_A." in name:
            full = name.removeprefix("base_model.model.").replace(".lora_A", "")
            out[full] = (out[full] + scaling * named[name.replace("lora_A", "lora_B")] @ named[name]).astype(np.float32)
    return out


class Served:
    """One engine that takes adapters, in virtual time."""

    def __init__(self, version: str = "0.5.23", tp: int = 1, **options: Any) -> None:
        self.version, self.tp = version, tp
        self.registry = ExportRegistry()
        self.world = World(0, None, resolver=self.registry)
        launch = {"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": ["all"], **options}
        config = EngineConfig(profile=version, tp_size=tp, dtype="float32", **launch)
        self.engine = self.world.add_engine("e0", config, WEIGHTS, CONFIG)

    def start(self, op: str, body: Any) -> Any:
        return self.world.submit("e0", "POST", "/" + op, body)

    def call(self, op: str, body: Any, timeout_s: float = 30.0) -> Outcome:
        return self.world.run_until(self.start(op, body), timeout_s)

    def body(
        self, name: str, named: dict[str, np.ndarray] | list[dict[str, np.ndarray]], **fields: Any
    ) -> dict[str, Any]:
        ranks = named if isinstance(named, list) else [named] * self.tp
        payloads = [
            export_bucket(self.registry, rank, list(one.items()), recorded=False).payload
            for rank, one in enumerate(ranks)
        ]
        body = {"lora_name": name, "config_dict": ADAPTER, "load_format": "flattened_bucket"}
        one = self.version == "0.5.12.post1"
        return body | ({"serialized_tensors": payloads[0]} if one else {"serialized_named_tensors": payloads}) | fields

    def load(self, name: str, named: Any, **fields: Any) -> Outcome:
        return self.call("load_lora_adapter_from_tensors", self.body(name, named, **fields))

    def ask(self, name: Any = None, n: int = 6, prompt: list[int] | None = None, **more: Any) -> Any:
        return self.start("generate", request(name, n, prompt, **more))

    def tokens(self, name: Any = None, n: int = 6, **more: Any) -> Any:
        outcome = self.world.run_until(self.ask(name, n, **more), 30.0)
        if not outcome.ok:
            return outcome.status, outcome.body["error"]["message"]
        bodies = outcome.body if isinstance(outcome.body, list) else [outcome.body]
        found = [body["output_ids"] for body in bodies]
        return found if isinstance(outcome.body, list) else found[0]


def request(name: Any, n: int, prompt: Any = None, **more: Any) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": n, "ignore_eos": True, **more.pop("sampling", {})}
    body = {"input_ids": prompt or PROMPT, "sampling_params": sampling, **more}
    return body | ({"lora_path": name} if name is not None else {})


def said(outcome: Outcome) -> str:
    assert outcome.status == 400
    assert outcome.body["success"] is False
    return str(outcome.body["error_message"])


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
