"""Broken clients: set-ups that are taken although they cannot work, and transports that nobody asked for."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import broken, method

SETUP = "harness.reference.adapter:transport_of"
MAIN = "NVIDIA-NeMo/RL#3612"


def _refused_later(original: Any) -> Any:
    """What is refused is called a tensor refit; an engine will say so."""

    def transport_of(setup: Any, sizes: Any) -> str:
        from harness.reference.errors import BadSetup

        try:
            return str(original(setup, sizes))
        except BadSetup as refused:
            if "lacks" in str(refused) or "unknown keys" in str(refused) or "contradicts" in str(refused):
                raise
            return "tensor"

    return transport_of


def _always_something(original: Any) -> Any:
    def transport_of(setup: Any, sizes: Any) -> str:
        from harness.reference.errors import BadSetup

        try:
            return str(original(setup, sizes))
        except BadSetup as refused:
            if "contradicts" in str(refused) and "engines:" in str(refused):
                return "tensor" if setup["colocated"] else "distributed"
            raise

    return transport_of


def _defaults(original: Any) -> Any:
    def transport_of(setup: Any, sizes: Any) -> str:
        plain = {
            **dict.fromkeys(("nodes_per_engine", "data_parallel_size", "pipeline_parallel_size"), 1),
            **{"expert_parallel_size": 1, "tensor_parallel_size": min(sizes), "pause_mode": "abort"},
            **{
                "colocated": True,
                "trainer": "megatron",
                "transport": "auto",
                "kv_scales": None,
                "quantisation": {"scheme": "bf16"},
            },
        }
        return str(original({key: setup.get(key, plain[key]) for key in plain}, sizes))

    return transport_of


PLANTS = (
    broken(
        "refused-at-the-first-refit",
        "GUARD-1",
        f"{MAIN}, D24",
        "what cannot work is found out when it is tried",
        method(SETUP, _refused_later),
    ),
    broken(
        "some-transport-or-other",
        "GUARD-2",
        f"{MAIN}, D25",
        "a setting that contradicts the topology is ignored",
        method(SETUP, _always_something),
    ),
    broken(
        "a-default-for-every-key",
        "GUARD-3",
        "a configuration that is filled up",
        "missing keys are guessed, misspelt ones ignored",
        method(SETUP, _defaults),
    ),
)
