"""update_weights_from_ipc: a checkpoint engine's parameter servers beside an engine on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from conformance.engine.steps import NOT_RUN, ask, begin, end, know
from fakes.outcome import Outcome
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

if TYPE_CHECKING:
    from fakes.trainer.parameter_server import ParameterServer

scenarios = ScenarioList("engine/ipc-server")
UPDATE = "update_weights_from_ipc"
GPU = "not yet: needs GPUs and the checkpoint-engine package beside SGLang"
BESIDE = {"device": "cuda", "checkpoint_engine": "0.4.2"}
NORM = "model.norm.weight"
CUTS = 5
WAIT_S = 1.0
CALL_S = 5.0


def _address(rank: int) -> str:
    return f"ipc://@checkpoint-engine-{rank}-0.sock"


def _ids(bench: Bench) -> dict[str, str]:
    from fakes.engine.ipc_update import device_uuid

    return {device_uuid(0, rank): _address(rank) for rank in range(bench.tp)}


def _servers(bench: Bench, engine: EngineHandle, named: Mapping[str, np.ndarray]) -> list[ParameterServer]:
    """One server per rank: the set in several buckets, so that the halves of the buffer are filled again and again."""
    from fakes.trainer.parameter_server import ParameterServer

    kit = bench.lane.trainer(bench.tp)
    items = list(named.items())
    size = -(-len(items) // CUTS)
    buckets = [items[at : at + size] for at in range(0, len(items), size)]
    return [
        ParameterServer(kit, rank, _address(rank), buckets, consumers=((engine.name, rank),))
        for rank in range(bench.tp)
    ]


def _update(
    bench: Bench,
    engine: EngineHandle,
    kind: str,
    handles: Mapping[str, str],
    servers: Iterable[ParameterServer] = (),
    seeds: Iterable[int] = (),
) -> Outcome:
    """The call, and beside it every server from its first message to its last; one whose worker failed stops it."""
    from fakes.trainer.parameter_server import ServerError

    bench.note("push", engine, kind=kind, seeds=list(seeds))
    pending = engine.start(UPDATE, {"zmq_handles": dict(handles)}, origin="probe", timeout_s=CALL_S)
    for server in servers:
        try:
            server.run(WAIT_S)
        except ServerError:
            with contextlib.suppress(ValueError):  # nobody came: there is nobody to stop
                server.give_up()
    return pending.result(CALL_S)


@scenarios.add("IPC-53", relation=GPU, lanes=["fake"], options=BESIDE)
def a_whole_set(bench: Bench) -> None:
    """Outside any session."""
    e = bench.e0
    know(bench, e, "ipc")
    _update(bench, e, "ipc-whole", _ids(bench), _servers(bench, e, bench.weights(1, e)), [1])
    ask(bench, e, "ipc")


@scenarios.add("IPC-54", relation=GPU, lanes=["fake"], options=BESIDE)
def handles_of_another_engine(bench: Bench) -> None:
    """Their servers are there and wait."""
    e = bench.e0
    ask(bench, e, "ipc")
    others = {f"GPU-other-{rank}": _address(rank) for rank in range(bench.tp)}
    _update(bench, e, "ipc-other-id", others, _servers(bench, e, bench.weights(1, e))[:1])
    ask(bench, e, "ipc")


@scenarios.add("IPC-55", relation=GPU, lanes=["fake"], options=BESIDE)
def a_tensor_of_another_shape(bench: Bench) -> None:
    """In the last bucket."""
    e = bench.e0
    weights = bench.weights(1, e)
    bad = {**weights, NORM: weights[NORM][:-1]}
    _update(bench, e, "ipc-load-fails", _ids(bench), _servers(bench, e, bad))


@scenarios.add("IPC-56", relation=NOT_RUN, lanes=["fake", "http"])
def without_the_package(bench: Bench) -> None:
    """As SGLang is installed by itself."""
    e = bench.e0
    ask(bench, e, "ipc")
    _update(bench, e, "ipc-no-package", _ids(bench))
    ask(bench, e, "ipc")


@scenarios.add("IPC-57", relation=GPU, lanes=["fake"], options=BESIDE, versions=">=0.5.21")
def inside_a_session(bench: Bench) -> None:
    """It is open before and after."""
    e = bench.e0
    begin(bench, e)
    _update(bench, e, "ipc-inside", _ids(bench), _servers(bench, e, bench.weights(1, e)))
    bench.note("asked", e, kind="end-after-ipc")
    end(bench, e)
