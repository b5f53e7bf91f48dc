"""What a refit is set up for, read once and strictly: what cannot work is refused by name before any engine is called.

`Fleet.options["setup"]` is a mapping with every key of `KEYS`: a missing key is never a default, a misspelt one never
ignored. One table says which transport follows from where the engines are, what trains and what was asked for; what is
not in it is refused, and nothing falls back to another transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.reference.errors import BadSetup
from harness.reference.quantised import PLAIN, plan_of

KEYS: Mapping[str, type | tuple[type, ...]] = {
    "colocated": bool,
    "trainer": str,
    "transport": str,
    "nodes_per_engine": int,
    "tensor_parallel_size": int,
    "data_parallel_size": int,
    "pipeline_parallel_size": int,
    "expert_parallel_size": int,
    "pause_mode": str,
    "kv_scales": (dict, type(None)),
    "quantisation": dict,
}
TRAINERS = ("megatron", "fsdp2")
SETTINGS = ("auto", "tensor", "distributed", "checkpoint-engine", "disk")

TABLE: Mapping[tuple[bool, str, str], str] = {
    (True, "megatron", "auto"): "tensor",
    (True, "megatron", "tensor"): "tensor",
    (True, "fsdp2", "auto"): "tensor",
    (True, "fsdp2", "tensor"): "tensor",
    (False, "megatron", "auto"): "distributed",
    (False, "megatron", "distributed"): "distributed",
    (False, "megatron", "checkpoint-engine"): "checkpoint-engine",
    (True, "megatron", "disk"): "disk",
    (True, "fsdp2", "disk"): "disk",
    (False, "megatron", "disk"): "disk",
}
"""(colocated, trainer, transport asked for) -> transport. Not in it: contradictions, and what nobody can do. A disk is
used by whoever asks for one, and by nobody else."""


@dataclass(frozen=True)
class Guard:
    """One thing that is refused: the key that it is about, when, and why."""

    key: str
    refuses: Callable[[Mapping[str, Any]], bool]
    why: str


GUARDS = (
    Guard("nodes_per_engine", lambda s: s["nodes_per_engine"] != 1, "an engine over several nodes has ranks elsewhere"),
    Guard("data_parallel_size", lambda s: s["data_parallel_size"] != 1, "SGLang refuses updates of replicas"),
    Guard("pipeline_parallel_size", lambda s: s["pipeline_parallel_size"] != 1, "stages would share their ranks"),
    Guard("expert_parallel_size", lambda s: s["expert_parallel_size"] != 1, "sharded experts are not gathered"),
    Guard("pause_mode", lambda s: s["pause_mode"] == "in_place", "in_place keeps KV of the old weights"),
    Guard("pause_mode", lambda s: s["pause_mode"] not in ("abort", "retract"), "it is neither abort nor retract"),
    Guard("kv_scales", lambda s: s["kv_scales"] is not None, "scales of the KV cache are not sent"),
    Guard("trainer", lambda s: s["trainer"] not in TRAINERS, f"it is none of {', '.join(TRAINERS)}"),
    Guard("transport", lambda s: s["transport"] not in SETTINGS, f"it is none of {', '.join(SETTINGS)}"),
    Guard("trainer", lambda s: s["trainer"] == "fsdp2" and not s["colocated"], "fsdp2 is for colocated engines only"),
    Guard("trainer", lambda s: _quantised(s) and s["trainer"] == "fsdp2", "its export is not quantised"),
)


def _quantised(setup: Mapping[str, Any]) -> bool:
    return plan_of(setup["quantisation"]).scheme != PLAIN


def transport_of(setup: Any, tensor_parallel_sizes: frozenset[int]) -> str:
    """The transport of a setup. BadSetup names the first key that is missing, unknown, of a wrong type, or refused.

    `tensor_parallel_sizes` are those of the engines that are really there.
    """
    if not isinstance(setup, Mapping):
        raise BadSetup(f"a setup is a mapping, not {setup!r}")
    missing = [key for key in KEYS if key not in setup]
    if missing:
        raise BadSetup(f"the setup lacks {', '.join(missing)}: a missing key is never a default")
    unknown = sorted(str(key) for key in setup if key not in KEYS)
    if unknown:
        raise BadSetup(f"the setup has unknown keys: {', '.join(unknown)}")
    for key, kind in KEYS.items():
        if not isinstance(setup[key], kind) or (kind is int and isinstance(setup[key], bool)):
            raise BadSetup(f"{key} is {setup[key]!r}: of a wrong type")
    for guard in GUARDS:
        if guard.refuses(setup):
            raise BadSetup(f"{guard.key} {setup[guard.key]!r} is refused: {guard.why}")
    if tensor_parallel_sizes != {setup["tensor_parallel_size"]}:
        there = ", ".join(map(str, sorted(tensor_parallel_sizes)))
        raise BadSetup(
            f"tensor_parallel_size {setup['tensor_parallel_size']} contradicts the engines, which have {there}"
        )
    cell = (setup["colocated"], setup["trainer"], setup["transport"])
    if cell not in TABLE:
        where = "colocated" if setup["colocated"] else "separate"
        raise BadSetup(f"transport {setup['transport']!r} contradicts {where} engines: nothing else is tried instead")
    transport = TABLE[cell]
    if _quantised(setup) and transport != "tensor":
        raise BadSetup(f"quantisation is sent by the tensor path alone, not by {transport}")
    return transport
