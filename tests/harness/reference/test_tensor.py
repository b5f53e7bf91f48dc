"""The tensor transport over several trainer ranks: order, lock step, errors that all learn, nothing left exported."""

from __future__ import annotations

import numpy as np
import pytest

from harness.reference.adapter import ReferenceSut
from harness.reference.buckets import buckets, by_dtype, parcels
from harness.reference.errors import BrokenGather, CallFailed
from tests.harness.reference.fleet import Rig, state

UPDATE = "update_weights_from_tensor"


def client(rig: Rig, bucket_bytes: int = 64) -> ReferenceSut:
    sut = ReferenceSut(bucket_bytes=bucket_bytes)
    sut.setup(rig.fleet)
    sut.set_weights(state(), "v1")
    return sut


def producers(engine) -> list[list[int]]:
    return [[int(p.split(";")[0]) for p in body["serialized_named_tensors"]] for op, body in engine.log if op == UPDATE]


def test_payload_i_comes_from_the_trainer_rank_on_the_gpu_of_engine_rank_i():
    rig = Rig(engines=2, tp=2)
    assert client(rig).refit(100).buckets == 3
    assert producers(rig.e[0]) == [[0, 1]] * 3
    assert producers(rig.e[1]) == [[2, 3]] * 3


def test_the_gpus_of_an_engine_decide_not_its_place():
    rig = Rig(engines=2, tp=2)
    rig.e[0].gpu_ids, rig.e[1].gpu_ids = (3, 2), (0, 1)
    client(rig).refit(100)
    assert producers(rig.e[0]) == [[3, 2]] * 3


def test_without_gpu_ids_ranks_are_dealt_in_order():
    rig = Rig(engines=2, tp=2)
    rig.e[0].gpu_ids = rig.e[1].gpu_ids = ()
    client(rig).refit(100)
    assert producers(rig.e[1]) == [[2, 3]] * 3


@pytest.mark.parametrize(
    ("gpus", "text"),
    [(((0, 1), (1, 2)), "shares GPU 1"), (((0, 1), (2, 7)), "trainer has 4 ranks"), (((0,), (1, 2)), "has tp 2")],
)
def test_a_fleet_that_does_not_fit_the_trainer_is_refused_at_setup(gpus, text):
    rig = Rig(engines=2, tp=2)
    for engine, ids in zip(rig.e, gpus, strict=True):
        engine.gpu_ids = ids
    with pytest.raises(ValueError, match=text):
        ReferenceSut().setup(rig.fleet)


def test_every_rank_exports_for_its_own_consumer_only():
    rig = Rig(tp=2)
    client(rig).refit(100)
    payloads = rig.e[0].log[3 + 1][1]["serialized_named_tensors"]
    assert [p.split(";")[3] for p in payloads] == ["(('e0', 0),)", "(('e0', 1),)"]


def test_ranks_without_an_engine_walk_the_whole_export():
    rig = Rig(tp=2, spare=3)
    client(rig).refit(100)
    assert rig.kit.drained == [5] * 5
    assert rig.world.deadlock is None


def test_nothing_is_released_before_every_engine_has_answered_for_the_parcel():
    rig = Rig(engines=2, tp=2)
    seen: list[int] = []
    for engine in rig.e:
        act = engine.act

        def watched(op, body, act=act):
            if op == UPDATE:
                seen.append(len(rig.kit.live))
            return act(op, body)

        engine.act = watched
    client(rig).refit(100)
    assert seen == [4] * 6
    assert rig.kit.live == []
    assert rig.marker("OFFLOADED") == {"live_exports": 0}


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_an_export_that_fails_on_one_rank_fails_on_all_and_hangs_none(rank):
    rig = Rig(engines=2, tp=2, spare=1)
    sut = client(rig)
    rig.kit.break_export[rank] = RuntimeError(f"no memory on rank {rank}")
    began = rig.world.now
    with pytest.raises(RuntimeError, match=f"rank {rank}"):
        sut.refit(100)
    assert rig.world.now - began < 1
    assert rig.kit.live == []
    assert not any(e.open for e in rig.e)


@pytest.mark.parametrize("how", ["400 before", "hang before"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_what_an_engine_says_to_its_source_every_rank_raises(nth, how):
    rig = Rig(engines=2, tp=2, spare=1)
    rig.e[1].script[UPDATE, nth] = how
    sut = client(rig)
    raised: list[BaseException | None] = []
    run = rig.kit.run

    def watched(fn, timeout_s):
        results = run(fn, timeout_s)
        raised.extend(results)
        return results

    rig.kit.run = watched
    with pytest.raises(CallFailed, match="scripted refusal" if how == "400 before" else "timeout"):
        sut.refit(100)
    assert len(raised) == 5
    assert all(isinstance(r, CallFailed) and r.engine == "e1" for r in raised)
    assert [e.ops.count(UPDATE) for e in rig.e] == [nth, nth]
    assert rig.kit.live == []


def test_a_rank_that_contributes_nothing_is_named():
    rig = Rig(engines=2, tp=2)
    sut = client(rig)
    rig.kit.silent = {3}
    with pytest.raises(BrokenGather, match="e1 from trainer rank 3"):
        sut.refit(100)
    assert UPDATE not in rig.e[1].ops


def test_the_error_of_an_exporting_rank_is_told_rather_than_its_missing_payload():
    rig = Rig(tp=2)
    sut = client(rig)
    rig.kit.break_export[1] = RuntimeError("no memory")
    with pytest.raises(RuntimeError, match="no memory"):
        sut.refit(100)


@pytest.mark.parametrize("broken", [False, True])
def test_a_rank_that_never_comes_is_a_timeout_within_the_deadline_unless_there_was_an_error_before(broken):
    rig = Rig(tp=2)
    sut = client(rig)
    gather = rig.kit.gather

    def absent(rank, value, **rest):
        return rig.world.sleep(1000) if rank == 1 else gather(rank, value, **rest)

    rig.kit.gather = absent

    def bounded(fn, timeout_s):
        threads = [rig.world.spawn(fn, r, name=f"rank{r}") for r in range(2)]
        rig.world.join(*threads, timeout_s=timeout_s)
        return [t.error or (t.result if t.done else TimeoutError(t.name)) for t in threads]

    rig.kit.run = bounded
    if broken:
        rig.kit.break_export[0] = RuntimeError("no memory")
    with pytest.raises(RuntimeError if broken else TimeoutError):
        sut.refit(100)
    assert rig.world.now < 100
    assert not rig.e[0].paused


@pytest.mark.parametrize("size", [1, 32, 33, 64, 10**6])
def test_every_tensor_travels_exactly_once_whatever_the_bucket_size(size):
    rig = Rig()
    client(rig, bucket_bytes=size).refit(100)
    names = [
        name
        for op, body in rig.e[0].log
        if op == UPDATE
        for name in body["serialized_named_tensors"][0].split(";")[1].split(",")
    ]
    assert sorted(names) == sorted(state())


def test_a_bucket_closes_before_it_would_overflow_and_a_large_tensor_travels_alone():
    named = [(n, np.zeros(k, np.uint8)) for n, k in (("a", 3), ("b", 3), ("big", 99), ("c", 3))]
    assert [[n for n, _ in b] for b in buckets(named, 6)] == [["a", "b"], ["big"], ["c"]]
    assert [[n for n, _ in b] for b in buckets(named[2:], 6)] == [["big"], ["c"]]
    with pytest.raises(ValueError, match="at least one byte"):
        list(buckets(named, 0))


def test_a_bucket_is_split_by_dtype_and_order_is_kept():
    named = [("a", np.zeros(1, "f4")), ("b", np.zeros(1, "f2")), ("c", np.zeros(1, "f4"))]
    assert [[n for n, _ in g] for g in by_dtype(named)] == [["a", "c"], ["b"]]


def test_only_the_last_parcel_is_the_last():
    named = [("a", np.zeros(1, "f4")), ("b", np.zeros(1, "f2")), ("c", np.zeros(1, "f4"))]
    assert [p.last for p in parcels(named, 8)] == [False, False, True]
    assert [p.last for p in parcels([], 8)] == []


@pytest.mark.parametrize("silent", [0, 1])
def test_the_rank_that_gave_no_payload_is_named(silent):
    rig = Rig(tp=2)
    rig.kit.silent = {silent}
    with pytest.raises(BrokenGather, match=rf"^transfer: no payload for e0 from trainer rank {silent}$"):
        client(rig).refit(100)
    assert UPDATE not in rig.e[0].ops
    assert not rig.e[0].paused


@pytest.mark.parametrize("failing", [0, 1])
def test_an_export_that_fails_after_its_last_tensor_is_learnt_by_all_at_once(failing):
    rig = Rig(tp=2)
    stream = rig.kit.stream

    def spoilt(rank, *args):
        yield from stream(rank, *args)
        if rank == failing:
            raise OSError("bad disk")

    rig.kit.stream = spoilt
    with pytest.raises(OSError, match=r"^bad disk$"):
        client(rig).refit(100)
    assert rig.world.now < 1.0
    assert rig.kit.live == []
