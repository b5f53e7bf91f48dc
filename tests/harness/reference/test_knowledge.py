"""What the client knows of engines and of tensors: answers, incarnations, GPUs, buckets, options."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fakes.outcome import Outcome
from harness.reference.adapter import ReferenceSut
from harness.reference.buckets import Parcel, buckets, by_dtype, parcels
from harness.reference.engines import Engine, Roster, Session, Weights, any_refused, raise_failed, said_no
from harness.reference.errors import CallFailed, describe
from tests.harness.reference.fleet import no

OK = Outcome(ending="reply", status=200, body={"success": True, "message": ""})


def test_answers() -> None:
    for outcome, declined in (
        (OK, False),
        (no(400, "x"), True),
        (no(200, "x"), True),
        (no(499, "x"), True),
        (no(500, "x"), False),
        (Outcome(ending="dropped"), False),
        (Outcome(ending="timeout"), False),
    ):
        assert said_no(outcome) is declined
    assert describe(Outcome(ending="dropped", error="reset")) == "dropped (reset)"
    assert describe(Outcome(ending="timeout", error="timeout")) == describe(Outcome(ending="timeout")) == "timeout"
    assert not any_refused([(None, lambda: no(400, "x"))])  # type: ignore[list-item]
    assert any_refused([(None, Waiting(OK)), (None, Waiting(no(400, "x")))])  # type: ignore[list-item]
    assert not any_refused([(None, Waiting(OK)), (None, Waiting(no(400, "x"), done=False))])  # type: ignore[list-item]


class Waiting:
    def __init__(self, outcome: Outcome, *, done: bool = True) -> None:
        self.outcome, self.done = outcome, done

    def __call__(self) -> Outcome:
        return self.outcome


def test_the_quickest_failure_is_raised_and_the_rest_are_notes() -> None:
    engines = [Engine(SimpleNamespace(name=f"e{i}"), (i,), 0) for i in range(3)]  # type: ignore[arg-type]
    slow, quick = (msgspec.structs.replace(no(400, "x"), elapsed_s=seconds) for seconds in (2.0, 1.0))
    raise_failed("x", [(engines[0], OK)])
    with pytest.raises(CallFailed, match=r"^x failed on e2: HTTP 400: ") as error:
        raise_failed("x", list(zip(engines, (slow, OK, quick), strict=True)))
    assert [note.partition(":")[0] for note in error.value.__notes__] == ["x failed on e0"]
    assert error.value.outcome is quick


def test_whether_an_engine_may_serve() -> None:
    engine = Engine(SimpleNamespace(name="e"), (0,), 0)  # type: ignore[arg-type]
    assert engine.may_serve
    for change, why in (
        ({"weights": Weights.TORN}, "its weights are torn"),
        ({"weights": Weights.HOLLOW}, "its weights are hollow"),
        ({"session": Session.OPEN}, "its session is open"),
        ({"session": Session.UNKNOWN}, "its session is unknown"),
        ({"released": {"kv_cache", "cuda_graph"}}, "released: cuda_graph, kv_cache"),
    ):
        changed = replace(engine, **change)  # type: ignore[arg-type]
        assert not changed.may_serve
        assert changed.why_not == why


def endpoint(name: str, tp: int = 1, gpu_ids: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(name=name, tp=tp, gpu_ids=gpu_ids, incarnation=0)


def test_which_trainer_ranks_feed_an_engine() -> None:
    def ranks(*endpoints: Any, trainer: int | None = 8) -> list[tuple[int, ...]]:
        return [engine.ranks for engine in Roster(endpoints, trainer)()]

    assert ranks(endpoint("a", 2), endpoint("b", 1), endpoint("c", 2)) == [(0, 1), (2,), (3, 4)]
    assert ranks(endpoint("a", 2, (5, 3)), endpoint("b", 1, (0,))) == [(5, 3), (0,)]
    assert ranks(endpoint("a", 2, (5, 3)), endpoint("b", 2), trainer=None) == [(0, 1), (0, 1)]
    with pytest.raises(ValueError, match=r"^a has tp 2 but 1 GPUs$"):
        ranks(endpoint("a", 2, (0,)))
    with pytest.raises(ValueError, match=r"^b shares GPU 1 with another engine$"):
        ranks(endpoint("a", 3, (2, 1, 0)), endpoint("b", 2, (2, 1)))
    with pytest.raises(ValueError, match=r"^a is on GPUs \(1, 2\), but the trainer has 2 ranks$"):
        ranks(endpoint("a", 2, (1, 2)), trainer=2)
    assert ranks(endpoint("a", 2, (0, 1)), trainer=2) == [(0, 1)]


def test_a_new_incarnation_is_a_new_engine() -> None:
    one, two = endpoint("a"), endpoint("b")
    roster = Roster([one, two], 2)
    first = roster()
    first[0].lost = "x"
    assert roster() == first
    one.incarnation = 1
    again = roster()
    assert (again[0].lost, again[0].incarnation, again[1]) == ("", 1, first[1])


class Sized:
    def __init__(self, nbytes: int, dtype: str = "a") -> None:
        self.nbytes, self.dtype = nbytes, dtype


@pytest.mark.parametrize(
    ("sizes", "limit", "cut"),
    [
        ([4, 4, 4], 8, [[4, 4], [4]]),
        ([4, 4, 1], 8, [[4, 4], [1]]),
        ([9, 1], 8, [[9], [1]]),
        ([1, 9, 1], 8, [[1], [9], [1]]),
        ([8], 8, [[8]]),
        ([7, 2], 8, [[7], [2]]),
        ([], 8, []),
    ],
)
def test_buckets_hold_at_most_so_many_bytes(sizes: list[int], limit: int, cut: list[list[int]]) -> None:
    named: Any = [(str(i), Sized(size)) for i, size in enumerate(sizes)]
    found = list(buckets(iter(named), limit))
    assert [[tensor.nbytes for _, tensor in bucket] for bucket in found] == cut
    assert [item for bucket in found for item in bucket] == named
    with pytest.raises(ValueError, match=r"^a bucket holds at least one byte, not 0$"):
        list(buckets([], 0))
    assert [len(bucket) for bucket in buckets(named, 1)] == [1] * len(named)


def test_parcels_have_one_dtype_and_the_last_one_knows() -> None:
    named: Any = [("a", Sized(1, "x")), ("b", Sized(1, "y")), ("c", Sized(1, "x")), ("d", Sized(9, "y"))]
    assert [[name for name, _ in group] for group in by_dtype(named)] == [["a", "c"], ["b", "d"]]
    made_ = list(parcels(iter(named), 8))
    assert [([name for name, _ in parcel.named], parcel.last) for parcel in made_] == [
        (["a", "c"], False),
        (["b"], False),
        (["d"], True),
    ]
    assert list(parcels([], 8)) == []
    assert not Parcel(named).last


def test_what_the_client_refuses_to_be() -> None:
    for options, text in (
        ({"pause_mode": "in_place"}, "^pause mode in_place is unsafe for weight refit: .* KV of the old weights$"),
        ({"pause_mode": "x"}, "pause mode must be abort or retract, not 'x'"),
        ({"bucket_bytes": 0}, "bucket_bytes must be above 0, not 0"),
        ({"transport": "x"}, "transport must be tensor or .*, not 'x'"),
        ({"policy": "x"}, "x"),
    ):
        with pytest.raises(ValueError, match=text):
            ReferenceSut(**options)  # type: ignore[arg-type]
    ReferenceSut(bucket_bytes=1, pause_mode="abort", transport="tensor", policy="terminal")
