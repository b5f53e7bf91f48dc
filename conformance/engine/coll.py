"""Weight-update groups: who joins, what is broadcast in them, and what an engine says that does not take part."""

from __future__ import annotations

from typing import Any

from conformance.engine.groups import (
    DESTROY,
    INIT,
    NAME,
    SHORT_S,
    UPDATE,
    announced,
    bring,
    broadcast,
    flat,
    grouped,
    invite,
)
from conformance.engine.steps import VALIDATED, VALIDATED_ON_20, ask, begin, end, know, load
from harness.bench import Bench
from harness.lanes.base import EngineHandle
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/coll", needs=["groups"])
NORM = "model.norm.weight"


def _failed(bench: Bench, group: Any) -> bool:
    """Notes a group that did not come about: nothing that follows could be judged."""
    if group is None:
        bench.note("no_group")
    return group is None


@scenarios.add("COLL-51", relation=VALIDATED)
def a_whole_set(bench: Bench) -> None:
    """One broadcast per tensor."""
    e = bench.e0
    know(bench, e, "group")
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        bring(bench, group, e, "group", bench.weights(1, e), seeds=[1])
        end(bench, e)
    ask(bench, e, "group")


@scenarios.add("COLL-52", relation=VALIDATED)
def a_whole_set_as_one_bucket(bench: Bench) -> None:
    """One broadcast for all tensors."""
    e = bench.e0
    know(bench, e, "group")
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        bring(bench, group, e, "group-bucket", bench.weights(1, e), seeds=[1], load_format="flattened_bucket")
        end(bench, e)
    ask(bench, e, "group")


@scenarios.add("COLL-53", "COLL-54", relation=VALIDATED)
def a_name_twice(bench: Bench) -> None:
    """Joined, joined again under the same name, destroyed, destroyed again."""
    e = bench.e0
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        again = bench.groups.open(NAME, 1 + e.spec.tp)
        bench.note("asked", e, kind="taken-name")
        (second,) = invite(again, [e])
        second.result(5.0)
        again.close()
        for kind in ("destroy", "destroy-missing"):
            bench.note("asked", e, kind=kind)
            e.call(DESTROY, {"group_name": NAME})


@scenarios.add("COLL-55", relation=VALIDATED, versions=">=0.5.21")
def no_such_group(bench: Bench) -> None:
    """An update in a group that nobody joined."""
    _no_group(bench)


@scenarios.add("COLL-56", relation=VALIDATED_ON_20, versions="<0.5.21,!=miles", fatal=True)
def no_such_group_is_fatal(bench: Bench) -> None:
    """The same before 0.5.21."""
    _no_group(bench)


@scenarios.add("COLL-57", relation="fake only: the branch was read, never run", versions="miles")
def no_such_group_on_miles(bench: Bench) -> None:
    """The same on the miles branch."""
    _no_group(bench)


def _no_group(bench: Bench) -> None:
    e = bench.e0
    begin(bench, e)
    bench.note("push", e, kind="no-group", seeds=[])
    e.call(UPDATE, announced({NORM: bench.weights(1, e)[NORM]}))
    if e.alive:
        end(bench, e)


@scenarios.add("COLL-58", relation=VALIDATED, fatal=True)
def a_group_without_a_name(bench: Bench) -> None:
    """The name is empty."""
    e = bench.e0
    bench.note("asked", e, kind="empty-name")
    body = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 1 + e.spec.tp}
    e.call(INIT, {**body, "group_name": "", "backend": "gloo"})


@scenarios.add("COLL-59", relation=VALIDATED)
def a_dtype_with_its_module(bench: Bench) -> None:
    """torch.bfloat16, as str() of a dtype gives it."""
    e = bench.e0
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        named = {NORM: bench.weights(1, e)[NORM]}
        dtypes = [f"torch.{tensor.dtype}" for tensor in named.values()]
        bring(bench, group, e, "torch-dtype", named, dtypes=dtypes, wait_s=SHORT_S)
        end(bench, e)


@scenarios.add("COLL-60", relation=VALIDATED)
def lists_of_unequal_length(bench: Bench) -> None:
    """One shape less than there are names: what has none is left out."""
    e = bench.e0
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        weights = bench.weights(0, e)
        named = {name: weights[name] for name in list(weights)[:3]}
        told = announced(named)
        bench.note("push", e, kind="unequal", seeds=[])
        update = e.start(UPDATE, {**told, "shapes": told["shapes"][:-1]}, origin="probe", timeout_s=20.0)
        broadcast(bench, group, list(named.values())[:-1], "unequal")
        update.result(20.0)
        end(bench, e)


@scenarios.add("COLL-61", "COLL-67", relation=VALIDATED)
def a_bucket_of_unequal_lists(bench: Bench) -> None:
    """The same for a flattened bucket."""
    e = bench.e0
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        weights = bench.weights(0, e)
        named = {name: weights[name] for name in list(weights)[:3]}
        told = announced(named, load_format="flattened_bucket")
        bench.note("push", e, kind="unequal-bucket", seeds=[])
        update = e.start(UPDATE, {**told, "shapes": told["shapes"][:-1]}, origin="probe", timeout_s=20.0)
        kept = dict(list(named.items())[:-1])
        broadcast(bench, group, [flat(kept)], "unequal-bucket", SHORT_S)
        update.result(20.0)
        end(bench, e)


@scenarios.add("COLL-62", relation=VALIDATED)
def a_tensor_that_cannot_be_loaded(bench: Bench) -> None:
    """A norm of half its length: what was loaded before it stays."""
    e = bench.e0
    know(bench, e, "partly")
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        weights = bench.weights(1, e)
        head = next(name for name in weights if "embed_tokens" in name)
        half = weights[NORM][: len(weights[NORM]) // 2]
        bring(bench, group, e, "load-fails", {head: weights[head], NORM: half})
        end(bench, e)
    ask(bench, e, "partly")
    load(bench, e, 0)


@scenarios.add("COLL-63", relation=VALIDATED, versions=">=0.5.21")
def what_was_broadcast_for_a_refused_update(bench: Bench) -> None:
    """Outside a session: nobody takes it. The next update, announced as another set, gets it."""
    e = bench.e0
    know(bench, e, "late")
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        bring(bench, group, e, "refused", bench.weights(1, e), wait_s=SHORT_S)
        begin(bench, e)
        bring(bench, group, e, "out-of-step", bench.weights(0, e), seeds=[1], wait_s=SHORT_S)
        end(bench, e)
    ask(bench, e, "late")
    load(bench, e, 0)


@scenarios.add("COLL-64", relation=VALIDATED, fatal=True)
def nobody_else_comes(bench: Bench) -> None:
    """The trainer listens and never joins: the engine waits, and answers nothing that its scheduler would have to."""
    e = bench.e0
    groups = bench.groups
    group = groups.open(NAME, 2 + e.spec.tp)
    bench.note("asked", e, kind="alone")
    (joining,) = invite(group, [e])
    e.sleep(0.5)
    bench.note("asked", e, kind="meanwhile")
    e.call("flush_cache", timeout_s=SHORT_S)
    joining.result(SHORT_S)
    bench.note("still_open", e, kind="alone", open=not joining.done)
    group.close()
    groups.close()
    e.kill()


@scenarios.add("COLL-65", relation=VALIDATED)
def the_trainer_goes_away(bench: Bench) -> None:
    """Between the announcement and the broadcast."""
    e = bench.e0
    know(bench, e, "left")
    with grouped(bench, [e]) as group:
        if _failed(bench, group):
            return
        begin(bench, e)
        bench.note("push", e, kind="trainer-gone", seeds=[0])
        update = e.start(UPDATE, announced(bench.weights(1, e)), origin="probe", timeout_s=20.0)
        e.sleep(0.5)
        group.close()
        update.result(20.0)
        end(bench, e)
    ask(bench, e, "left")


@scenarios.add("COLL-66", relation=VALIDATED)
def nccl_without_a_gpu(bench: Bench) -> None:
    """The backend that an engine on a CPU does not have."""
    e: EngineHandle = bench.e0
    groups = bench.groups
    group = groups.open(NAME, 1 + e.spec.tp)
    bench.note("asked", e, kind="no-nccl")
    (joining,) = invite(group, [e], backend="nccl")
    joining.result(10.0)
    group.close()
    groups.close()
