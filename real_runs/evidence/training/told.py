"""What the launcher of a training run tells of it: run.json. Every field is there, none is unknown, none assumed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

NAME = "run.json"
SCHEMA = 1
Positive = Annotated[int, msgspec.Meta(ge=1)]
Ranks = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No default anywhere: a key that is missing is an error, not a usual value."""


class Expected(_Part, frozen=True, kw_only=True):
    """What the run was to do. Counts are at least 1, so that none can be switched off.

    `refits` beyond `steps` are those of value checks. `gate_bound` is the most that token_mult_prob_error may be at any
    step (a ratio, 1 is perfect). `window` counts steps. `series` are the further metrics that this run reports at every
    step. `artefacts` are files of the run, `{step}` standing for each step.
    """

    steps: Positive
    refits: Positive
    value_checks: Positive
    world_size: Positive
    engines: Positive
    tp: Ranks
    transfer: str
    gate_bound: float
    window: Positive
    series: list[str]
    artefacts: list[str]


class Claim(_Part, frozen=True, kw_only=True):
    """One thing that was to be and was: what was expected and who said so, what was found and where."""

    expected: str
    expected_from: str
    found: str
    found_from: str


class Snapshot(_Part, frozen=True, kw_only=True):
    """The copy of the sources that ran: git trees, 40 hex digits each, and when it was taken (ISO 8601 with a zone)."""

    tree: str
    checkout_tree: str
    taken: Instant


class Submodule(_Part, frozen=True, kw_only=True):
    """A submodule: the commits that the checkout wants and that is there; whether its remote gave it this time."""

    path: str
    wanted: str
    found: str
    fetched: bool


class Conversion(_Part, frozen=True, kw_only=True):
    """A converted checkpoint: the fingerprint of what made it, the one that today's converter has, and when."""

    fingerprint: str
    expected: str
    made: Instant


class Patch(_Part, frozen=True, kw_only=True):
    """A patched file of an installed package: sha256 as shipped, as it should be, as it is. No exit code counts."""

    file: str
    stock: str
    wanted: str
    found: str


class Environment(_Part, frozen=True, kw_only=True):
    """One Python environment: what is installed there, and what its own lock asks for."""

    packages: dict[str, str]
    pins: dict[str, str]


class Looked(_Part, frozen=True, kw_only=True):
    """One thing that the preflight looked at; `causes` is the chain of errors, the first cause last."""

    what: str
    ok: bool
    said: str
    causes: list[str]


class Tests(_Part, frozen=True, kw_only=True):
    """Tests of this evidence's own code: ids that pytest collects, that ran, that were deselected; modes of drivers."""

    collected: list[str]
    ran: list[str]
    deselected: list[str]
    drivers: dict[str, str]


class Launch(_Part, frozen=True, kw_only=True):
    """Which recipe, with which overrides, on how many GPUs, for how long."""

    recipe: str
    overrides: dict[str, str]
    gpus: Positive
    gpu_hours: float


class Told(_Part, frozen=True, kw_only=True):
    """The whole file. `exit_code` is the process's own, a record beside the verdict: a teardown may crash after it."""

    schema: int
    launched: Instant
    started: Instant
    ended: Instant
    exit_code: int
    expected: Expected
    launch: Launch
    claims: dict[str, Claim]
    snapshot: Snapshot
    submodules: list[Submodule]
    conversion: Conversion | None
    patches: list[Patch]
    environments: dict[str, Environment]
    preflight: list[Looked]
    tests: Tests
