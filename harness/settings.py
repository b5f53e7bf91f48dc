"""Everything that a run depends on, in one frozen object: what the header prints and the replay line repeats."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from harness.errors import UsageError
from harness.faults import Fault, faults_text
from harness.lanes.base import Clock
from harness.rules import Side
from harness.sut.protocol import Policy

DEFAULT_SEED = 20261130
DEFAULT_VERSION = "0.5.23"
HANG_TIMEOUT_S = 60.0
Exploration = Literal["off", "sample", "full"]
Death = Literal["raise", "process"]


@dataclass(frozen=True)
class Settings:
    """One run.

    `versions` are engine versions, `suts` names or `module:factory`; `rules` are ids or families, () for all. `tp` 0
    means the lane's own default. `faults` are planted in the client's calls. `fatal_sample` None runs all scenarios
    that kill an engine, N keeps N of them, picked by the seed. `plant` is the id of a planted defect. `side` None runs
    the scenarios of both sides. `hang_timeout` are the real seconds that a client may take where time is virtual, and
    beyond its deadline elsewhere; 0 is no limit. `death` "process": an engine in the client's process takes it along.
    `sut_options` reach the adapter in `Fleet.options`.
    """

    lane: str = "fake"
    versions: tuple[str, ...] = (DEFAULT_VERSION,)
    suts: tuple[str, ...] = ("reference",)
    policy: Policy = "resume"
    tp: int = 0
    seed: int = DEFAULT_SEED
    rules: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    exploration: Exploration = "full"
    fatal_sample: int | None = None
    plant: str = ""
    allow_inconclusive: tuple[str, ...] = ()
    side: Side | None = None
    hang_timeout: float = HANG_TIMEOUT_S
    death: Death = "raise"
    lane_options: Mapping[str, Any] = field(default_factory=dict)
    sut_options: Mapping[str, Any] = field(default_factory=dict)

    def wants(self, rule_id: str) -> bool:
        """Whether the run judges this rule."""
        return not self.rules or named(rule_id, self.rules)

    def replay(self, **changes: Any) -> str:
        """The command that runs it again.

        `changes` are fields that are narrower for one finding; `kind` (fake, sglang) is put before the versions.
        """
        kind = changes.pop("kind", "")
        s = {**{name: getattr(self, name) for name in self.__dataclass_fields__}, **changes}
        parts = ["refitcheck run"]
        parts += [f"--rule {rule}" for rule in s["rules"]]
        parts += [f"--scenario {scenario}" for scenario in s["scenarios"]]
        if s["lane"] != "fake":
            parts.append(f"--lane {s['lane']}")
        parts.append(f"--engine {','.join(f'{kind}:{v}' if kind else v for v in s['versions'])}")
        if s["suts"]:
            parts.append(f"--sut {','.join(s['suts'])}")
        if s["policy"] != "resume":
            parts.append(f"--policy {s['policy']}")
        parts.append(f"--tp {s['tp']} --seed {s['seed']}")
        parts += [f"--lane-option {shlex.quote(f'{name}={value}')}" for name, value in s["lane_options"].items()]
        parts += [f"--sut-option {shlex.quote(f'{name}={value}')}" for name, value in s["sut_options"].items()]
        if s["side"]:
            parts.append(f"--side {s['side']}")
        if s["exploration"] != "full" and not s["faults"]:
            parts.append(f"--exploration {s['exploration']}")
        if s["faults"]:
            parts.append(f"--fault '{faults_text(s['faults'])}'")
        if s["fatal_sample"] is not None:
            parts.append(f"--fatal-sample {s['fatal_sample']}")
        parts += [f"--allow-inconclusive {rule}" for rule in s["allow_inconclusive"]]
        if s["hang_timeout"] != HANG_TIMEOUT_S:
            parts.append(f"--hang-timeout {s['hang_timeout']:g}")
        if s["death"] != "raise":
            parts.append(f"--death {s['death']}")
        if s["plant"]:
            parts.append(f"--plant {s['plant']}")
        return " ".join(parts)


def named(rule_id: str, names: tuple[str, ...]) -> bool:
    """Whether a rule is meant by ids or families, in any case: "SESS-1", "sess"."""
    family = rule_id.rsplit("-", 1)[0]
    return any(name.upper() in (rule_id.upper(), family.upper()) for name in names)


def split_engines(text: str, known: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """`fake:0.5.23,0.5.20`, `all`: the versions, each known to the lane. `kind` is fake or sglang."""
    out: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        prefix, colon, version = part.rpartition(":")
        if colon and prefix != kind:
            raise UsageError(f"engine {part!r}: this lane has {kind} engines, not {prefix!r}")
        if version == "all":
            out += known
        elif version not in known:
            raise UsageError(f"unknown engine version {version!r}; known: {', '.join(known)}, all")
        else:
            out.append(version)
    if not out:
        raise UsageError("no engine version given")
    return tuple(dict.fromkeys(out))


def policy_of(text: str) -> Policy:
    """UsageError unless it is one of the three policies."""
    return cast(Policy, _one_of("policy", text, get_args(Policy)))


def death_of(text: str, lane: str, where: str) -> Death:
    """UsageError unless it is raise or process; the latter is for engines that live in the client's process."""
    death = cast(Death, _one_of("death", text, get_args(Death)))
    if death == "process" and where != "in process":
        raise UsageError(f"--death process: the engines of lane {lane} are no part of the client's process")
    return death


def exploration_of(text: str, clock: Clock = "virtual") -> Exploration:
    """UsageError unless it is off, sample or full; "" is the lane's own.

    Where the clock is not virtual that is off, since a hang costs the client's deadline, and full is but a sample.
    """
    virtual = clock == "virtual"
    if not text:
        return "full" if virtual else "off"
    kind = cast(Exploration, _one_of("exploration", text, get_args(Exploration)))
    return "sample" if kind == "full" and not virtual else kind


def side_of(text: str, default: str = "both") -> Side | None:
    """None for both sides; "" is the lane's own. UsageError unless it is engine, refit or both."""
    side = _one_of("side", text or default, (*get_args(Side), "both"))
    return None if side == "both" else cast(Side, side)


def _one_of(what: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise UsageError(f"unknown {what} {text!r}; one of {', '.join(known)}")
    return text


def hang_timeout_of(seconds: float) -> float:
    """UsageError unless it is a number of seconds from 0 to a day."""
    if not 0 <= seconds <= 86400:
        raise UsageError(f"--hang-timeout {seconds:g} is not between 0 and 86400 seconds")
    return seconds
