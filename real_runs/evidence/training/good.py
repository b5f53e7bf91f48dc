"""A small training run whose evidence stands: what every dishonest one is made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from real_runs.evidence.training import metrics, told, values
from real_runs.evidence.training.run import LOG, Kept

STARTED = 1_796_040_000.0  # seconds since 1970
STEPS = 4
TENSORS = ("model.embed_tokens.weight", "model.layers.0.mlp.gate_up_proj.weight", "model.norm.weight")


def digest(text: str, size: int = 64) -> str:
    """A digest that nobody typed."""
    return hashlib.sha256(text.encode()).hexdigest()[:size]


def files() -> dict[str, Kept]:
    """One trainer rank and one engine of tp 2; four steps, and one refit more for the value check of the first."""
    made: dict[str, bytes] = {
        LOG: log().encode(),
        "logs/worker-1.log": b"(MegatronPolicyWorker pid=4711) NCCL_CUMEM_ENABLE=0 watchdog_timeout=300\n",
        metrics.NAME: json.dumps(series()).encode(),
        told.NAME: json.dumps(run()).encode(),
        values.NAME: json.dumps(value_checks()).encode(),
        **{f"train_data_step{step}.jsonl": b"{" for step in range(1, STEPS + 1)},
    }
    return {name: Kept(data, STARTED + 60, len(data)) for name, data in made.items()}


def log() -> str:
    """As NeMo-RL's driver prints it, with colours and the names of workers."""
    worker = "\x1b[36m(MegatronPolicyWorker pid=812, ip=10.0.0.2)\x1b[0m "
    lines = ["NRL_REFIT_VALUE_CHECK=1 is set", "ServerArgs(watchdog_timeout=300, dist_timeout=600)"]
    for index in range(1, STEPS + 2):
        step = max(1, index - 1)
        lines.append(f"NRL_SGLANG_REFIT_START transfer=distributed refit={index}")
        if index == 1:
            lines.append(f"{worker}NRL_SGLANG_REFIT_GROUP_READY world_size=3 engines=1")
            lines.append("NRL_REFIT_EXPORT_SHAPE_CHECK compared=3 exported=3 reference=3 mismatches=0")
        took = 9.5 if index == 1 else 1.0 + index / 10
        lines.append(f"NRL_SGLANG_REFIT_SUCCESS transfer=distributed refit={index} duration_s={took:.3f}")
        if index == 2:
            lines.append("NRL_REFIT_VALUE_CHECK result=pass ranks=2")
        if index > 1:
            lines.append(f"step {step}/{STEPS} done")
    return "\n".join(lines) + "\n"


def series() -> dict[str, dict[str, float]]:
    """All of them whole."""

    def each(*numbers: float) -> dict[str, float]:
        return {str(step): number for step, number in enumerate(numbers, 1)}

    return {
        metrics.LOSS: each(0.52, 0.5, 0.47, 0.45),
        metrics.GATE: each(1.011, 1.012, 1.01, 1.013),
        metrics.REWARD: each(0.1, 0.2, 0.15, 0.3),
        metrics.TOKENS: each(812, 840, 799, 830),
        metrics.GRADIENTS: each(0.9, 0.0, 0.7, 0.8),
    }


def value_checks() -> list[dict[str, Any]]:
    """One, at step 1."""

    def sums(phase: str) -> dict[str, dict[str, str]]:
        kept = "same" if phase != "reset" else phase
        return {f"{rank}/2": {name: digest(f"{kept} {rank} {name}", 16) for name in TENSORS} for rank in range(2)}

    actions = ["checksum", "checksum", "reset_tensors", "checksum", "checksum"]
    return [{"step": 1, "actions": actions, "engines": {"e0": {phase: sums(phase) for phase in values.FRESH}}}]


def run() -> dict[str, Any]:
    """run.json."""
    return {
        "schema": told.SCHEMA,
        "launched": _time(-120),
        "started": _time(0),
        "ended": _time(300),
        "exit_code": 0,
        "expected": {
            **{"steps": STEPS, "refits": STEPS + 1, "value_checks": 1, "world_size": 3, "engines": 1, "tp": 2},
            **{"transfer": "distributed", "gate_bound": 1.05, "window": 2},
            "series": [metrics.REWARD, metrics.TOKENS, metrics.GRADIENTS],
            "artefacts": ["train_data_step{step}.jsonl"],
        },
        "launch": {"recipe": "3gpu", "overrides": {"seed": "7"}, "gpus": 3, "gpu_hours": 0.4},
        "claims": {
            **{name: _claim(digest(name, 40)) for name in ("revision", "container", "model", "dataset")},
            "image": _claim(f"registry.example/nemo-rl@sha256:{digest('image')}"),
        },
        "snapshot": {"tree": digest("tree", 40), "checkout_tree": digest("tree", 40), "taken": _time(-60)},
        "submodules": [{"path": "3rdparty/a", "wanted": digest("a", 40), "found": digest("a", 40), "fetched": True}],
        "conversion": {"fingerprint": digest("converter", 16), "expected": digest("converter", 16), "made": _time(-30)},
        "patches": [
            {
                "file": "sglang/srt/utils/common.py",
                "stock": digest("stock"),
                "wanted": digest("patched"),
                "found": digest("patched"),
            }
        ],
        "environments": {
            "trainer": {"packages": {"torch": "2.11.0", "megatron-core": "0.16.1"}, "pins": {"torch": "2.11.0"}},
            "engine": {"packages": {"torch": "2.11.0", "sglang": "0.5.23"}, "pins": {"sglang": "0.5.23"}},
        },
        "preflight": [
            {"what": "gpus", "ok": True, "said": "3 found", "causes": []},
            {"what": "ray", "ok": True, "said": "2.56.1, 1 node", "causes": []},
        ],
        "tests": {
            "collected": ["tests/test_checks.py::test_a", "tests/test_checks.py::test_b"],
            "ran": ["tests/test_checks.py::test_a"],
            "deselected": ["tests/test_checks.py::test_b"],
            "drivers": {"run.sh": "755"},
        },
    }


def _claim(value: str) -> Mapping[str, str]:
    return {"expected": value, "expected_from": "recipe.lock", "found": value, "found_from": "the container"}


def _time(offset: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(STARTED + offset, UTC).isoformat()
