"""Every framework that has an adapter: what it is, what it can do, what it declares, how it is installed.

A driver's `policy` and `pause_mode` are what the framework does by itself: none of them has a setting for it that a
scenario could choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.sut.protocol import Caps, Policy


@dataclass(frozen=True)
class Framework:
    """One framework, one way in which it drives engines.

    `package` is what is imported, `marker` a file of it below the folder that is put on the path (a checkout without it
    is another project), `driver` the module of `drivers` that calls it. `install` is the line that installs it.
    `ranks`: trainer processes for each engine, "tp" for one on every GPU. `bare` are packages of it whose __init__ is
    not run, since it imports what no refit needs; `stubs` are packages that are replaced where they are not installed.
    `settings` are the driver's own options with their defaults.
    """

    name: str
    package: str
    driver: str
    marker: str
    install: str
    ranks: Literal["one", "tp"] = "one"
    transports: frozenset[str] = frozenset({"tensor"})
    policy: Policy = "resume"
    pause_mode: Literal["abort", "retract", "in_place", "none"] = "none"
    optional: frozenset[str] = frozenset()
    bare: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def caps(self) -> Caps:
        """What its adapter declares."""
        return Caps(transports=self.transports, policy=self.policy, pause_mode=self.pause_mode, optional=self.optional)


_COMMON = ("ray", "transformers", "tensordict", "omegaconf", "hydra", "codetiming", "datasets", "pandas", "yaml", "PIL")

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
)

FRAMEWORKS: Mapping[str, Framework] = {framework.name: framework for framework in _TABLE}
"""By the name that `--sut` takes."""
