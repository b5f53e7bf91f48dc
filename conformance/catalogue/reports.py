"""Public reports of refits that went wrong: which rules judge each of them here, or which part is missing.

The contract ids are those of the rules where a rule of that name exists; the others belong to families that come with
their parts. A report has a mutant or plant that names it as its origin and breaks one of its rules, unless it says why
not. A test keeps this true.
"""

from __future__ import annotations

from dataclasses import dataclass

RAY = "issue 6: Ray actors, monitors, routers and start-up"


@dataclass(frozen=True)
class Report:
    """One promise that one report saw broken. `rules` judge it; `missing` says which part would have to exist."""

    link: str
    contract: str
    rules: frozenset[str] = frozenset()
    missing: str = ""


def _seen(link: str, contract: str, *rules: str) -> Report:
    return Report(link, contract, frozenset(rules or (contract,)))


def _later(link: str, contract: str, part: str) -> Report:
    return Report(link, contract, missing=part)


REPORTS = (
    _seen("NVIDIA-NeMo/RL#3519", "SESS-1"),
    _seen("vllm-project/vllm#39212", "SESS-3"),
    _seen("NVIDIA-NeMo/RL#3612", "PAUSE-1"),
    _seen("PrimeIntellect-ai/prime-rl#2759", "LIVE-1"),
    _seen("PrimeIntellect-ai/prime-rl#2759", "PAUSE-2"),
    _seen("THUDM/slime#1953", "CACHE-1"),
    _seen("areal-project/AReaL#140", "CACHE-3"),
    _seen("PrimeIntellect-ai/prime-rl#1650", "CACHE-4"),
    _seen("sgl-project/sglang#14062", "CACHE-1"),
    _seen("InternLM/lmdeploy#4917", "CACHE-4", "CACHE-4", "CACHE-58"),
    _seen("radixark/miles#2589", "VER-1"),
    _seen("radixark/miles#2589", "PAUSE-3"),
    _seen("rllm-org/rllm#622", "VER-3"),
    _later("radixark/miles#1724", "FLEET-2", RAY),
    _later("NVIDIA-NeMo/RL#3613", "FLEET-3", RAY),
    _seen("NVIDIA-NeMo/RL#3944", "FLEET-4", "VERIF-1"),
    _seen("vllm-project/vllm#40646", "COLL-2"),
    _seen("radixark/miles#1967", "LOCK-1", "COLL-11"),
    _seen("NVIDIA-NeMo/RL#3189", "COLL-4"),
    _seen("sgl-project/sglang#22754", "LOCK-2", "LOCK-2", "LOCK-52"),
    _seen("PrimeIntellect-ai/prime-rl#1119", "LIVE-1"),
    _seen("RLinf/RLinf#1540", "COLL-5"),
    _later("NVIDIA-NeMo/RL#3519", "ASYNC-1", RAY),
    _seen("NVIDIA-NeMo/RL#3519", "RANK-1"),
    _seen("sgl-project/sglang#32580", "RANK-2"),
    _seen("THUDM/slime#2134", "RANK-4"),
    _seen("NovaSky-AI/SkyRL#1398", "RANK-3"),
    _seen("THUDM/slime#1326", "ENV-1", "VERIF-1", "RANK-1"),
    _seen("modelscope/ms-swift#10207", "IPC-2"),
    _seen("THUDM/slime#1731", "IPC-1"),
    _seen("vllm-project/vime#170", "IPC-2"),
    _seen("THUDM/slime#2188", "IPC-3"),
    _seen("THUDM/slime#2188", "MEM-3"),
    _seen("NovaSky-AI/SkyRL#1816", "NAME-1"),
    _seen("NovaSky-AI/SkyRL#1471", "NAME-2"),
    _seen("sgl-project/sglang#14178", "NAME-3"),
    _seen("THUDM/slime#1673", "NAME-4"),
    _later("radixark/miles#1730", "NAME-4", "issue 4: experts, whose names decide what is sharded"),
    _seen("radixark/miles#1730", "COLL-5"),
    _seen("sgl-project/sglang#27718", "DRAFT-1", "DRAFT-1", "DRAFT-53", "DRAFT-54"),
    _seen("verl-project/verl#7519", "DERIV-1"),
    _seen("sgl-project/sglang#28963", "DERIV-3"),
    _seen("NVIDIA-NeMo/RL#3226", "NAME-4"),
    _seen("lightseekorg/tokenspeed#1373", "VERIF-1"),
    _seen("lightseekorg/tokenspeed#1373", "NAME-2", "NAME-2", "VERIF-1"),
    _seen("verl-project/verl#7289", "MEM-1"),
    _seen("sgl-project/sglang#6367", "MEM-1", "MEM-60", "MEM-62"),
    _seen("vllm-project/vllm#57853", "MEM-2"),
    _seen("areal-project/AReaL#1385", "LORA-1", "LORA-1", "LORA-2"),
    _seen("sgl-project/sglang-omni#784", "PART-1"),
    _later("sgl-project/sglang-omni#784", "FLEET-2", RAY),
    _seen("sgl-project/sglang#37557", "VERIF-2"),
    _later("NVIDIA-NeMo/RL#3330", "ENV-3", RAY),
    _later("InternLM/xtuner#1828", "ENV-4", RAY),
    _seen("OpenRLHF/OpenRLHF#1262", "PAUSE-1"),
    _seen("OpenRLHF/OpenRLHF#1262", "PAUSE-5"),
    _seen("sgl-project/sglang#7930", "DISK-1"),
    _seen("sgl-project/sglang#22623", "COLL-6"),
    _seen("NVIDIA-NeMo/RL#3519", "NAME-2"),
    _seen("NVIDIA-NeMo/RL#3519", "VER-4"),
    _seen("NVIDIA-NeMo/RL#3612", "PAUSE-6"),
    _seen("NVIDIA-NeMo/RL#3612", "MEM-1", "MEM-71"),
    _seen("sgl-project/sglang#39562", "CACHE-5"),
    _seen("vllm-project/vllm#51258", "IPC-1"),
    _seen("sgl-project/sglang#40586", "DERIV-3"),
    _later("radixark/miles#2475", "FLEET-2", RAY),
    _seen("vllm-project/vime#329", "COLL-2"),
    _seen("vllm-project/vime#329", "COLL-3"),
    _seen("huggingface/trl#7103", "COLL-5"),
    _seen("vllm-project/vllm#48981", "RANK-1", "RANK-1", "RANK-4"),
    _seen("PrimeIntellect-ai/prime-rl#3599", "LIVE-2"),
    _seen("sgl-project/sglang#19255", "COLL-3"),
    _seen("Tencent-Hunyuan/UniRL#227", "RANK-2"),
    _seen("radixark/miles#2783", "CACHE-4"),
    _seen("areal-project/AReaL#1444", "PAUSE-5"),
    _seen("areal-project/AReaL#1444", "ERR-1"),
    _seen("sgl-project/sglang#40587", "DERIV-3"),
    _seen("sgl-project/sglang#40587", "SESS-4"),
)
"""66 reports, one line for each promise that each of them saw broken."""
