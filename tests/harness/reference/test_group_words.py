"""The group of trainer and engines, call by call, over a scripted group: who is asked what, when, and who is let go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.reference.engines import Engine, Weights
from harness.reference.errors import CallFailed, GroupFailed
from tests.harness.reference.fleet import no
from tests.harness.reference.scripted_group import DESTROY, INIT, NAME, UPDATE, Default, Direct

# -- connecting --------------------------------------------------------------------------------------------------------


def test_what_was_there_is_destroyed_then_rank_0_listens_then_engines_come() -> None:
    d = Direct(engines=2, tp=2)
    d.groups.default = Default()
    assert d.connect() is True
    assert d.events == [
        *(f"e0:{DESTROY}", f"e1:{DESTROY}", "open weight_update_group 5"),
        *(f"e0:{INIT}", f"e1:{INIT}", "join 75"),
    ]
    common = {"master_address": "10.0.0.7", "master_port": 4242, "world_size": 5, "backend": "gloo", **NAME}
    assert [e.log for e in d.rig.e] == [
        [(DESTROY, NAME), (INIT, {**common, "rank_offset": 1})],
        [(DESTROY, NAME), (INIT, {**common, "rank_offset": 3})],
    ]
    assert d.timeouts == [(DESTROY, 75.0)] * 2 + [(INIT, 75.0)] * 2
    assert (d.groups.bound, d.groups.default.bound_device_id) == ([None, None], "cuda:0")
    assert d.groups.env == {"NCCL_CUMEM_ENABLE": "0"}


def test_a_group_lasts_as_long_as_its_members() -> None:
    d = Direct(engines=2)
    assert d.connect() is True
    before = list(d.events)
    assert d.connect() is False
    assert d.events == before
    d.engines[1] = Engine(d.rig.e[1], (), 1)  # type: ignore[arg-type]
    assert d.connect() is True
    assert d.events[len(before) :] == ["close", *before]
    assert d.transport.connect(d.engines[:1], d.deadline()) is True
    assert d.events[-4:] == [f"e0:{DESTROY}", "open weight_update_group 2", f"e0:{INIT}", "join 75"]


@pytest.mark.parametrize(("status", "text", "fine"), [
    (400, "the group does not exist", True),
    (200, "", True),
    (400, "no", False),
    (404, "does not exist", False),
    (500, "does not exist", False),
])  # fmt: skip
def test_to_destroy_nothing_is_fine_and_any_other_refusal_is_not(status: int, text: str, fine: bool) -> None:
    d = Direct()
    act = d.rig.e[0].act
    said = no(status, text) if status != 200 else None
    d.rig.e[0].act = lambda op, body: said if said and op == DESTROY else act(op, body)  # type: ignore[method-assign]
    if fine:
        assert d.connect() is True
    else:
        with pytest.raises(CallFailed, match=f"^connect failed on e0: HTTP {status}"):
            d.connect()
        assert d.told(INIT) == []


def test_who_does_not_come_is_let_go_of_and_the_groups_own_words_are_quoted() -> None:
    d = Direct(engines=2)

    def late(timeout_s: float, unless: Callable[[], bool]) -> bool:
        assert not unless()
        raise TimeoutError("rank 2 was missing")

    d.groups.joins, d.answered_at_once = late, {INIT}
    with pytest.raises(GroupFailed, match=r"^connect: rank 2 was missing$") as caught:
        d.connect()
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert d.events[-3:] == ["close", f"e0:{DESTROY}", f"e1:{DESTROY}"]
    assert d.timeouts[-2:] == [(DESTROY, 5.0)] * 2
    assert d.transport._group is None


def test_a_refusal_is_the_cause_of_a_join_that_ended_and_the_groups_words_a_note() -> None:
    d = Direct(engines=2)
    d.rig.e[1].script[INIT, 1] = "400 before"

    def broken(timeout_s: float, unless: Callable[[], bool]) -> bool:
        raise OSError("store is gone")

    d.groups.joins, d.answered_at_once = broken, {INIT}
    with pytest.raises(CallFailed) as caught:
        d.connect()
    assert str(caught.value) == "connect failed on e1: HTTP 400: scripted refusal"
    assert caught.value.__notes__ == ["OSError: store is gone"]


def test_an_interrupt_of_the_join_stays_one() -> None:
    d = Direct()

    def stopped(timeout_s: float, unless: Callable[[], bool]) -> bool:
        raise KeyboardInterrupt("stop")

    d.groups.joins, d.answered_at_once = stopped, {INIT}
    with pytest.raises(KeyboardInterrupt, match="stop"):
        d.connect()
    assert d.events[-2:] == ["close", f"e0:{DESTROY}"]


def test_a_join_ends_early_once_an_engine_has_refused_and_all_that_were_told_are_let_in() -> None:
    d = Direct(engines=2)
    d.rig.e[0].script[INIT, 1] = "400 before"
    heard: list[bool] = []
    d.groups.joins = lambda timeout_s, unless: heard.append(unless()) or not heard[0]  # type: ignore[func-returns-value]
    d.answered_at_once = {INIT}
    with pytest.raises(CallFailed, match="connect failed on e0"):
        d.connect()
    assert heard == [True]
    assert d.rig.world.now == 0.0, "everybody had answered: nobody is on the way"
    assert d.told(DESTROY) == ["e0", "e1", "e0", "e1"]


@pytest.mark.parametrize("mute", [False, True], ids=["told when it is done", "never told"])
@pytest.mark.parametrize("broken", [False, True], ids=["ended early", "failed"])
@pytest.mark.parametrize(("total", "waited"), [(100.0, 1.0), (0.4, 0.2), (0.6, 0.3)])
def test_one_that_is_on_its_way_is_let_in_for_a_second_or_half_of_what_is_left(
    total: float, waited: float, broken: bool, mute: bool
) -> None:
    d = Direct()
    at: list[float] = []

    def join(timeout_s: float, unless: Callable[[], bool]) -> bool:
        if broken:
            raise OSError("store is gone")
        return False

    close = d.groups.close
    d.groups.close = lambda: at.append(d.rig.world.now) or close()  # type: ignore[method-assign, func-returns-value]
    d.groups.joins = join
    d.rig.e[0].script[INIT, 1] = "400 before"
    if mute:
        start = d.rig.e[0].start
        d.rig.e[0].start = lambda *args, **more: lambda: start(*args, **more)()  # type: ignore[method-assign]
    with pytest.raises(CallFailed):
        d.connect(total)
    assert len(at) == 1
    assert waited - 1e-9 <= at[0] < waited + 0.05 or at == [pytest.approx(1.1)], "asked ten times a second"


@pytest.mark.parametrize("at", [0, 1])
def test_a_refusal_after_all_had_joined_ends_the_group_for_all(at: int) -> None:
    d = Direct(engines=2)
    d.rig.e[at].script[INIT, 1] = "500 before"
    with pytest.raises(CallFailed, match=f"connect failed on e{at}"):
        d.connect()
    assert d.events[-3:] == ["close", f"e0:{DESTROY}", f"e1:{DESTROY}"]
    assert d.rig.e[0].log[-1] == (DESTROY, NAME)
    assert d.connect() is True, "what is left of a group that failed is no group"


def test_nobody_says_farewell_to_one_that_is_gone_and_a_short_one_when_time_is_short() -> None:
    d = Direct(engines=2)
    d.connect()
    d.engines[0].lost = "it is gone"
    d.transport._parted([], d.deadline(3.0, spent=1.0), d.engines)
    assert d.told(DESTROY)[2:] == ["e1"]
    assert d.timeouts[-1] == (DESTROY, 1.0)
    d.transport._parted([], d.deadline(3.0, spent=3.0), d.engines)
    assert d.timeouts[-1] == (DESTROY, 0.1)


# -- sending -----------------------------------------------------------------------------------------------------------


def test_one_transfer_call_by_call() -> None:
    d = Direct(engines=2, spare=1)
    d.connect()
    d.events.clear()
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.ones(16, np.float32)}
    assert d.send(tensors) == 2
    one = [f"e0:{UPDATE}", f"e1:{UPDATE}", "wait for 1, 75"]
    assert d.events == ["lock refitcheck-reference 100", *one, *one, "unlock refitcheck-reference"]
    first = {"names": ["a"], "dtypes": ["float32"], "shapes": [[3, 2]], "flush_cache": False, **NAME}
    last = {
        "names": ["b"],
        "dtypes": ["float32"],
        "shapes": [[16]],
        "flush_cache": False,
        "weight_version": "v1",
        **NAME,
    }
    for e in d.rig.e:
        assert [body for op, body in e.log if op == UPDATE] == [first, last]
    assert [array.flags.c_contiguous for array in d.groups.sent] == [True, True]
    assert [array.tolist() for array in d.groups.sent] == [tensors["a"].tolist(), tensors["b"].tolist()]
    assert [(e.touched, e.weights, e.complete) for e in d.engines] == [(True, Weights.TORN, True)] * 2
    assert d.rig.kit.drained == [2, 2, 2]


def test_engines_are_torn_before_they_are_told_and_complete_only_after_the_last() -> None:
    d = Direct(engines=2)
    d.connect()
    seen: list[Any] = []
    d.groups.waits = lambda *_: (  # type: ignore[func-returns-value]
        seen.append([(e.touched, e.weights, e.complete) for e in d.engines]) or True
    )
    d.send({"a": np.ones(16, np.float32), "b": np.ones(16, np.float32)})
    assert seen == [[(True, Weights.TORN, False)] * 2] * 2


@pytest.mark.parametrize("at", [0, 1])
def test_a_refused_update_ends_the_group_and_leaves_nothing_complete(at: int) -> None:
    d = Direct(engines=2, spare=1)
    d.connect()
    given: list[float] = []
    run = d.rig.kit.run
    d.rig.kit.run = lambda fn, timeout_s: given.append(timeout_s) or run(fn, timeout_s)  # type: ignore[method-assign, func-returns-value]
    d.rig.e[at].script[UPDATE, 2] = "400 before"
    d.answered_at_once = {UPDATE}
    d.groups.waits = lambda timeout_s, unless: not unless()
    d.events.clear()
    with pytest.raises(CallFailed, match=f"^transfer failed on e{at}: HTTP 400: scripted refusal$"):
        d.send()
    assert d.events[-4:] == ["close", f"e0:{DESTROY}", f"e1:{DESTROY}", "unlock refitcheck-reference"]
    assert [e.complete for e in d.engines] == [False, False]
    assert given == [87.5], "the time for work and half of the reserve"
    assert d.rig.world.now < 1.0, "every rank learns of it at once"
    assert d.connect() is True


def test_one_that_is_gone_when_all_say_farewell_is_known_to_be() -> None:
    d = Direct(engines=2)
    d.connect()
    d.rig.e[1].script[UPDATE, 1] = "die"
    d.groups.waits = lambda *_: False
    with pytest.raises(CallFailed, match="transfer failed on e1: dropped"):
        d.send()
    assert [e.lost for e in d.engines] == ["", "it is gone: connection refused"]


@pytest.mark.parametrize("where", ["broadcast", "waits"])
@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (TimeoutError("rank 1 was missing"), GroupFailed, "transfer: rank 1 was missing"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
    ],
)
def test_a_broadcast_that_fails_is_quoted(
    where: str, error: BaseException, raised: type[BaseException], said: str
) -> None:
    d = Direct()
    d.connect()

    def fails(*_: Any) -> bool:
        raise error

    setattr(d.groups, where, fails)
    with pytest.raises(raised) as caught:
        d.send()
    assert str(caught.value) == said
    assert d.events[-3:] == ["close", f"e0:{DESTROY}", "unlock refitcheck-reference"]


def test_an_export_that_fails_on_any_rank_ends_the_group_at_once() -> None:
    for failing in (0, 1):
        d = Direct(spare=1)
        d.connect()
        stream = d.rig.kit.stream

        def spoilt(rank: int, *args: Any, failing: int = failing, stream: Any = stream) -> Any:
            yield from stream(rank, *args)
            if rank == failing:
                raise OSError("bad disk")

        d.rig.kit.stream = spoilt  # type: ignore[method-assign]
        with pytest.raises(OSError, match=r"^bad disk$"):
            d.send()
        assert d.events[-2:] == ["close", "unlock refitcheck-reference"]
        assert d.rig.world.now < 1.0


# -- closing -----------------------------------------------------------------------------------------------------------


def test_closing_ends_the_trainers_side_first_and_tells_members_only() -> None:
    d = Direct(engines=3)
    d.connect()
    d.events.clear()
    d.engines[1] = Engine(d.rig.e[1], (), 1)  # type: ignore[arg-type]
    d.transport.close(d.engines[:2])
    assert d.events == ["close", f"e0:{DESTROY}"]
    assert d.rig.e[0].log[-1] == (DESTROY, NAME)
    assert d.timeouts[-1] == (DESTROY, 5.0)
    d.transport.close(d.engines)
    assert len(d.events) == 2


def test_closing_what_never_was_or_has_failed_tells_nobody() -> None:
    d = Direct()
    d.transport.close(d.engines)
    assert d.events == []
    d.connect()
    d.transport._abandon()
    d.events.clear()
    d.transport.close(d.engines)
    assert d.events == []
