"""The adapter protocol: what the author of a trainer writes so that it can be judged.

An adapter never pauses, flushes, begins or ends on its own account: what it does is what its trainer does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fakes.outcome import Outcome

Policy = Literal["resume", "quarantine", "terminal"]


class Endpoint(Protocol):
    """A gated way to one engine.

    `url` is its base url, without a last slash. In process (lane fake) there is none: reading it ends the run with a
    line that says so.
    """

    name: str
    url: str | None
    incarnation: int
    tp: int
    gpu_ids: tuple[int, ...]

    def request(
        self,
        op: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Outcome:
        """Returns every ending, never raises for what the engine does. `timeout_s` counts on `Fleet.clock`.

        May be called from several threads at once: in process, time passes when all of them are blocked.
        """
        ...

    def start(self, op: str, body: Any = None, *, method: str = "POST", timeout_s: float) -> Callable[[], Outcome]:
        """The same in the background, for a fan-out: the returned function waits for the outcome.

        Endpoints of the harness return one whose `done` says whether the outcome is known.
        """
        ...


class ClockLike(Protocol):
    """The lane's clock: virtual in process, real elsewhere."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let the clock advance; engines go on meanwhile."""
        ...


@dataclass(frozen=True)
class Fleet:
    """Everything a client may know: endpoints, the clock, where to say what its trainer ranks do, and how to serialise.

    `record(name, rank, data)` writes a trainer record. Judges read these: `ENGINE_HELD` and `ENGINE_LOST` {engine,
    incarnation, reason} (an engine that a failed refit leaves paused on purpose, until the next one has sent all again;
    one that is given up for good), `TERMINAL` {reason} (the client sends nothing more to anybody).

    `trainer` is the lane's trainer kit (`fakes.trainer`): export registry, serialiser and collectives for N ranks;
    adapters of real frameworks ignore it. `options` are policy, seed, transport, `time_scale` (real seconds per second
    of the fleet's clock, for a client that has time-outs of its own), and what `--sut-option` gave.
    """

    endpoints: tuple[Endpoint, ...]
    clock: ClockLike
    version: str
    record: Callable[[str, int, Mapping[str, Any]], None]
    trainer: Any
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RefitResult:
    """What a refit reports. A refused or failed refit raises instead."""

    version: str
    buckets: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Caps:
    """What the adapter can do.

    `transports` names those it has: tensor, distributed, checkpoint-engine, disk, ipc, lora. `optional` names the
    optional methods of `Sut` that it has, and what else it does: "buckets" where a state of twice the bytes takes more
    update calls, "setup" where its `setup` reads `Fleet.options["setup"]`: a mapping with colocated, trainer (megatron,
    fsdp2), transport (auto, or one by name), nodes_per_engine, tensor_parallel_size, data_parallel_size,
    pipeline_parallel_size, expert_parallel_size, pause_mode, kv_scales and quantisation. "quantisation": it sends fp8
    pairs to engines whose `Fleet.options["quantisation"]` is {"scheme": fp8 or mxfp8}. Without "phase" (the trainer
    takes the engines' memory, a refit gives it back) rules about released memory are unsupported, without "buckets"
    that about bucket sizes (`Rule.asks`), unless the client brings their precondition about all the same.
    """

    transports: frozenset[str] = frozenset({"tensor"})
    policy: Policy = "resume"
    pause_mode: Literal["abort", "retract", "in_place", "none"] = "retract"
    ranks: int = 1
    optional: frozenset[str] = frozenset()


class Sut(Protocol):
    """A system under test.

    Optional methods, named in `Caps.optional` where they exist: ranks, phase, rollout, on_engine_lost,
    on_engine_recovered, reported_version.

    An adapter that reads options of `--sut-option` names them in an attribute `options` (a set of names), known before
    `setup`: a run that is given another name is refused. It may have a method `check_options(options)`, asked then,
    that raises ValueError for a value that cannot work. An attribute `guards` (a mapping, see
    `harness.guards.subjects.Subject`) says where driver, workers, actors and launch arguments are: rules ENV and ASYNC.
    A factory may have an attribute `engine_options` (of a class: on the class itself): launch options of SGLang that
    its engines cannot do without. They are read before there is an adapter; a scenario's own go before them.
    """

    def setup(self, fleet: Fleet) -> None:
        """Meet the engines; called once, before anything else."""
        ...

    def set_weights(self, state: Mapping[str, Any], version: str) -> None:
        """The policy now holds `state`: HF names to full arrays, ml_dtypes.bfloat16 or float32.

        Where the transport is lora, an adapter's: PEFT names to arrays, of the configuration `Fleet.options["lora"]`.
        """
        ...

    def refit(self, deadline_s: float) -> RefitResult:
        """Push the policy's weights to every engine within `deadline_s` of the fleet's clock; raise if that failed.

        In process that clock is virtual and stands still while this method sleeps, spins or waits by itself. When it
        has not come back after `--hang-timeout` real seconds (elsewhere: beyond `deadline_s`), a BaseException is
        raised in it, and it breaks EXPLORE-8.
        """
        ...

    def capabilities(self) -> Caps:
        """What this adapter can do; known before `setup`."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...
