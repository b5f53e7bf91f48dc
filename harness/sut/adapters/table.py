"""Every framework that has an adapter: what it is, what it can do, what it declares, how it is installed.

A driver's `policy` and `pause_mode` are what the framework does by itself: none of them has a setting for it that a
scenario could choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from harness.sut.protocol import Caps, Policy


@dataclass(frozen=True)
class Framework:
    """One framework, one way in which it drives engines.

    `package` is what is imported, `marker` a file of it below the folder that is put on the path (a checkout without it
    is another project), `driver` the module of `drivers` that calls it. `install` is the line that installs it.
    `ranks`: trainer processes; "tp" for one on every GPU of the engines, "any" for as many as a scenario gives its
    trainer. `bare` are packages of it whose __init__ is not run, since it imports what no refit needs; `stubs` are
    packages that are replaced where they are not installed. `alone`: of its folder nothing but the package is looked
    at. `settings` are the driver's own options with their defaults. `of` is the framework whose checkout it shares,
    `tp` the only tensor parallel size that it drives (0: any), `engines` launch options that its engines need.
    """

    name: str
    package: str
    driver: str
    marker: str
    install: str
    ranks: Literal["one", "tp", "any"] = "one"
    transports: frozenset[str] = frozenset({"tensor"})
    policy: Policy = "resume"
    pause_mode: Literal["abort", "retract", "in_place", "none"] = "none"
    optional: frozenset[str] = frozenset()
    bare: tuple[str, ...] = ()
    alone: bool = False
    stubs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    of: str = ""
    tp: int = 0
    engines: Mapping[str, str] = field(default_factory=dict)

    @property
    def project(self) -> str:
        """The name under which its checkout is given."""
        return self.of or self.name

    @property
    def caps(self) -> Caps:
        """What its adapter declares."""
        return Caps(transports=self.transports, policy=self.policy, pause_mode=self.pause_mode, optional=self.optional)


_COMMON = ("ray", "transformers", "tensordict", "omegaconf", "hydra", "codetiming", "datasets", "pandas", "yaml", "PIL")

_NEMO_RL = (
    "nemo_rl",
    "nemo_rl.models",
    "nemo_rl.models.generation",
    "nemo_rl.models.generation.sglang",
    "nemo_rl.models.generation.vllm",
    "nemo_rl.models.policy",
    "nemo_rl.models.policy.workers",
    "nemo_rl.weight_sync",
)

_NEMO_STUBS = ("rich", "tqdm", "torchvision", "decord", "pynvml", "uvloop", "nemo_automodel")
_NEMO_SETTINGS = {"fault_tolerance": "", "pause_mode": "retract"}

_SLIME = (
    "",
    "backends",
    "backends.megatron_utils",
    "backends.megatron_utils.update_weight",
    "backends.sglang_utils",
    "utils",
    "ray",
)
_MEGATRON = ("megatron", "transformer_engine", "mbridge", "wandb", "tensorboard", "triton")


def _below(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}".rstrip(".") for name in names)


_ROLL = (
    *(
        "setproctitle",
        "grpc",
        "peft",
        "trl",
        "mcore_adapter",
        "tqdm",
        "modelscope",
        "dacite",
        "more_itertools",
        "google",
    ),
    *("transfer_queue", "huggingface_hub", "opentelemetry.exporter", "opentelemetry.sdk", "opentelemetry.proto"),
)

_AREAL = (
    *(
        "torchdata",
        "peft",
        "orjson",
        "tqdm",
        "openai",
        "colorlog",
        "wandb",
        "swanlab",
        "tensorboardX",
        "huggingface_hub",
    ),
    *("flask", "werkzeug", "lark", "numba", "einops", "aiofiles"),
)

_TABLE = (
    Framework(
        name="verl",
        package="verl",
        driver="verl",
        marker="verl/workers/rollout/sglang_rollout/sglang_rollout.py",
        install="pip install --no-deps verl==0.9.1 && pip install requests aiohttp",
        ranks="tp",
        optional=frozenset({"phase"}),
        stubs=(*_COMMON, "peft", "accelerate", "torchdata", "pyvers", "uvloop", "orjson", "zmq", "cachetools"),
    ),
    Framework(
        name="nemo-rl",
        package="nemo_rl",
        driver="nemo_rl",
        marker="nemo_rl/weight_sync/sglang_weight_synchronizer.py",
        install="git clone https://github.com/NVIDIA-NeMo/RL, then --sut-option checkout=RL; pip install requests"
        " pyzmq",
        ranks="any",
        pause_mode="retract",
        optional=frozenset({"phase"}),
        bare=_NEMO_RL,
        stubs=(*_COMMON, *_NEMO_STUBS),
        settings=_NEMO_SETTINGS,
    ),
    Framework(
        name="slime",
        package="slime",
        driver="slime",
        marker="slime/backends/megatron_utils/update_weight/update_weight_from_tensor.py",
        install="git clone https://github.com/THUDM/slime, then --sut-option checkout=slime; pip install requests",
        ranks="tp",
        pause_mode="abort",
        optional=frozenset({"phase"}),
        bare=_below("slime", *_SLIME),
        stubs=(*_COMMON, *_MEGATRON, "tqdm", "zstandard", "sglang_router"),
    ),
    Framework(
        name="miles",
        package="miles",
        driver="miles",
        marker="miles/backends/megatron_utils/update_weight/update_weight_from_tensor.py",
        install="pip install --no-deps --target miles miles-rl==0.0.2, then --sut-option checkout=miles (it brings a "
        "sglang of its own, so it must not be installed beside refitcheck); pip install requests",
        ranks="tp",
        pause_mode="retract",
        optional=frozenset({"phase"}),
        bare=_below("miles", *_SLIME, "backends.training_utils"),
        alone=True,
        stubs=(*_COMMON, *_MEGATRON, "tqdm", "mooncake", "sglang_router"),
        settings={"pause_mode": "retract"},
    ),
    Framework(
        name="torchrl",
        package="torchrl",
        driver="torchrl",
        marker="torchrl/weight_update/llm/sglang_nccl.py",
        install="git clone https://github.com/pytorch/rl, then --sut-option checkout=rl; pip install requests",
        transports=frozenset({"distributed"}),
        pause_mode="retract",
        bare=_below("torchrl", "", "modules", "modules.llm", "modules.llm.backends", "modules.llm.backends.sglang")
        + _below("torchrl", "weight_update", "weight_update.llm"),
        stubs=("tensordict", "vllm", "gymnasium", "tqdm", "pyvers", "cloudpickle"),
        settings={"poll": "own"},
    ),
    Framework(
        name="xtuner",
        package="xtuner",
        driver="xtuner",
        marker="xtuner/v1/rl/weight_update/transport.py",
        install="git clone https://github.com/InternLM/xtuner, then --sut-option checkout=xtuner; pip install requests",
        ranks="tp",
        bare=_below("xtuner", "", "v1", "v1.utils", "v1.rl", "v1.rl.weight_update"),
        stubs=(*_COMMON, "mmengine", "checkpoint_engine"),
    ),
    Framework(
        name="roll",
        package="roll",
        driver="roll",
        marker="roll/distributed/strategy/sglang_strategy.py",
        install="git clone https://github.com/alibaba/ROLL, then --sut-option checkout=ROLL",
        optional=frozenset({"phase"}),
        bare=_below("roll", "", "distributed", "distributed.strategy", "distributed.executor", "distributed.scheduler")
        + _below("roll", "third_party"),
        stubs=(*_COMMON, *_ROLL),
    ),
    Framework(
        name="areal",
        package="areal",
        driver="areal",
        marker="areal/infra/remote_inf_engine.py",
        install="pip install --no-deps areal==1.0.4 && pip install requests aiohttp tenacity",
        transports=frozenset({"disk"}),
        pause_mode="abort",
        bare=_below("areal", "", "infra", "engine"),
        stubs=(*_COMMON, *_AREAL),
    ),
    Framework(
        name="unirl",
        package="unirl",
        driver="unirl",
        marker="unirl/distributed/weight_sync/full/tensor.py",
        install="git clone https://github.com/Tencent-Hunyuan/UniRL, then --sut-option checkout=UniRL",
        ranks="tp",
        optional=frozenset({"phase"}),
        bare=_below("unirl", "", "distributed", "distributed.group", "distributed.weight_sync", "rollout")
        + _below("unirl", "distributed.weight_sync.full", "rollout.engine", "rollout.engine.sglang_llm", "utils"),
        stubs=(*_COMMON, "peft", "diffusers", "accelerate", "tqdm", "sglang_router"),
        tp=1,
    ),
    Framework(
        name="checkpoint-engine",
        package="checkpoint_engine",
        driver="checkpoint_engine",
        marker="checkpoint_engine/ps.py",
        install="pip install --no-deps checkpoint-engine==0.4.2 && pip install loguru pyzmq",
        ranks="tp",
        transports=frozenset({"ipc"}),
        stubs=("loguru",),
        engines={"device": "cuda", "checkpoint_engine": "0.4.2"},
    ),
)


def _apart(name: str, driver: str, **changes: Any) -> Framework:
    """The same project with engines on GPUs of their own, to which rank 0 broadcasts."""
    [colocated] = [framework for framework in _TABLE if framework.name == name]
    over = {"transports": frozenset({"distributed"}), "ranks": "any", "optional": frozenset(), **changes}
    return replace(colocated, name=f"{name}-nccl", driver=driver, of=name, **over)


_NIXL = {
    "transports": frozenset({"checkpoint-engine"}),
    "marker": "nemo_rl/models/generation/sglang/checkpoint_engine.py",
    "pause_mode": "none",
    "settings": {**_NEMO_SETTINGS, "asyncio_actor": ""},
    "optional": frozenset({"phase"}),
}

_BROADCASTS = (
    _apart("nemo-rl", "nemo_rl_nccl", settings={**_NEMO_SETTINGS, "trainer": "megatron"}),
    replace(_apart("nemo-rl", "nemo_rl_nixl", **_NIXL), name="nemo-rl-nixl"),
    _apart(
        "slime", "slime_nccl", marker="slime/backends/megatron_utils/update_weight/update_weight_from_distributed.py"
    ),
    _apart(
        "miles",
        "miles_nccl",
        marker="miles/backends/megatron_utils/update_weight/update_weight_from_distributed/broadcast.py",
    ),
    _apart("xtuner", "xtuner_nccl"),
    _apart("areal", "areal_nccl", marker="areal/engine/fsdp_engine.py", bare=_below("areal", "", "infra", "engine")),
    _apart("unirl", "unirl_nccl", marker="unirl/distributed/weight_sync/full/nccl.py"),
)

FRAMEWORKS: Mapping[str, Framework] = {framework.name: framework for framework in (*_TABLE, *_BROADCASTS)}
"""By the name that `--sut` takes."""
