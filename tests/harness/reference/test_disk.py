"""Refits through a shared folder: whole before anybody is told, kept while somebody may read, gone afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Weights
from harness.reference.errors import BadState, CallFailed, DeadlineSpent
from harness.reference.transports.disk import DiskTransport
from tests.harness.reference.fleet import Rig, client, state

DISK = "update_weights_from_disk"


@dataclass(eq=False)
class Folder:
    name: str
    events: list[str]
    files: list[list[str]] = field(default_factory=list)
    broken: Exception | None = None

    def write(self, named: Any) -> None:
        if self.broken is not None:
            raise self.broken
        self.files.append([name for name, _ in named])

    def publish(self) -> str:
        self.events.append(f"{self.name} published")
        return f"/shared/{self.name}"

    def remove(self) -> None:
        self.events.append(f"{self.name} removed")


class Shelf:
    """The shared disk; `broken` is what the next folder raises when it is written."""

    def __init__(self, events: list[str]) -> None:
        self.events, self.made = events, []  # type: ignore[var-annotated]
        self.broken: Exception | None = None

    def create(self, name: str) -> Folder:
        self.made.append(Folder(name, self.events, broken=self.broken))
        return self.made[-1]


class Direct:
    """A transport, engines and a shelf; one list of everything that happened."""

    def __init__(self, engines: int = 1, spare: int = 0) -> None:
        self.rig = Rig(engines=engines, spare=spare)
        self.events = self.rig.order
        self.shelf = self.rig.kit.disk = Shelf(self.events)
        self.transport = DiskTransport(self.rig.kit, 64)
        self.engines = [Engine(e, (i,), 0) for i, e in enumerate(self.rig.e)]  # type: ignore[arg-type]

    def send(self, tensors: Any = None, version: str = "v1", seconds: float = 100.0) -> int:
        deadline = Deadline(self.rig.world.clock, seconds)
        return self.transport.send(self.engines, deadline, state() if tensors is None else tensors, version)

    def restart(self, at: int) -> None:
        self.rig.e[at].incarnation += 1
        self.engines[at] = Engine(self.rig.e[at], (at,), self.rig.e[at].incarnation)  # type: ignore[arg-type]


def test_a_folder_is_whole_before_it_is_told_and_gone_when_all_have_answered() -> None:
    d = Direct(engines=2, spare=1)
    assert (d.send(), d.send(version="v2")) == (1, 1)
    told = [f"e{i}:{DISK}" for i in range(2)]
    assert d.events == [
        *("refit-1 published", *told, "refit-1 removed"),
        *("refit-2 published", *told, "refit-2 removed"),
    ]
    assert [sorted(name for file in folder.files for name in file) for folder in d.shelf.made] == [sorted(state())] * 2
    assert all(len(folder.files) == len(state()) - 2 for folder in d.shelf.made), "a file for each bucket"
    assert [body for _, body in d.rig.e[1].log] == [
        {"model_path": f"/shared/refit-{n}", "weight_version": f"v{n}", "flush_cache": False} for n in (1, 2)
    ]
    assert d.rig.kit.drained == [2 * len(state())] * 3
    d.transport.close(d.engines)
    assert d.events[-1] == "refit-2 removed"
    assert len(d.events) == 8


def test_there_is_nothing_to_connect() -> None:
    d = Direct(engines=3)
    assert d.transport.connect(d.engines, Deadline(d.rig.world.clock, 1.0)) is False
    assert d.transport.world_size(d.engines) == 3
    assert d.events == []


@pytest.mark.parametrize(
    ("script", "complete", "kept"),
    [
        ("", True, False),
        ("400 after", False, False),
        ("500 after", False, False),
        ("drop after", False, True),
        ("hang after", False, True),
    ],
)
def test_who_may_still_read_keeps_its_folder(script: str, complete: bool, kept: bool) -> None:
    d = Direct(engines=2)
    d.rig.e[0].script[DISK, 1] = script
    if complete:
        d.send()
    else:
        with pytest.raises(CallFailed, match="transfer failed on e0"):
            d.send()
    assert ("refit-1 removed" in d.events) is not kept
    assert [(e.touched, e.weights, e.complete) for e in d.engines] == [
        (True, Weights.TORN, complete),
        (True, Weights.TORN, True),
    ]
    d.transport.close(d.engines)
    d.transport.close(d.engines)
    assert d.events.count("refit-1 removed") == 1


def test_one_that_is_gone_reads_nothing() -> None:
    d = Direct()
    d.rig.e[0].dead = True
    with pytest.raises(CallFailed, match="refused"):
        d.send()
    assert "refit-1 removed" in d.events


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize(
    ("again", "left"), [("", []), ("500 before", ["refit-1"]), ("hang before", ["refit-1", "refit-2"])]
)
def test_a_silent_reader_frees_its_folder_by_loading_a_later_one(silent: int, again: str, left: list[str]) -> None:
    d = Direct(engines=2)
    d.rig.e[silent].script |= {(DISK, 1): "hang after", (DISK, 2): again}
    with pytest.raises(CallFailed):
        d.send()
    try:
        d.send(version="v2")
    except CallFailed:
        assert again
    there = [f"refit-{n}" for n in (1, 2) if f"refit-{n} removed" not in d.events]
    assert there == left


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_silent_reader_that_was_replaced_reads_no_more(replaced: int) -> None:
    d = Direct(engines=2)
    d.rig.e[0].script |= {(DISK, 1): "hang after", (DISK, 2): "500 before"}
    with pytest.raises(CallFailed):
        d.send()
    d.restart(replaced)
    with pytest.raises(CallFailed):
        d.send(version="v2")
    assert ("refit-1 removed" in d.events) is (replaced == 0)


def test_a_reader_that_is_not_asked_any_more_may_read_still() -> None:
    d = Direct(engines=2)
    d.rig.e[0].script[DISK, 1] = "hang after"
    with pytest.raises(CallFailed):
        d.send()
    del d.engines[0]
    d.send(version="v2")
    assert "refit-1 removed" not in d.events
    d.transport.close(d.engines)
    assert d.events[-1] == "refit-1 removed"


def test_a_folder_that_cannot_be_written_is_told_to_nobody_and_goes_with_the_next() -> None:
    d = Direct(spare=1)
    d.shelf.broken = OSError("no space left")
    with pytest.raises(OSError, match=r"^no space left$"):
        d.send({f"w{i}": np.zeros(16, np.float32) for i in range(9)})
    assert d.events == []
    assert d.rig.world.now < 1.0
    assert d.rig.kit.drained == [3, 3], "every rank learns of it at the first bucket, which is known by the third"
    d.shelf.broken = None
    d.send()
    assert d.events == ["refit-2 published", f"e0:{DISK}", "refit-1 removed", "refit-2 removed"]


def test_every_rank_has_the_time_for_work_and_half_of_the_reserve_and_learns_at_once_what_another_met() -> None:
    d, given = Direct(spare=1), []
    run = d.rig.kit.run
    d.rig.kit.run = lambda fn, timeout_s: given.append(timeout_s) or run(fn, timeout_s)  # type: ignore[func-returns-value]
    stream = d.rig.kit.stream

    def spoilt(rank: int, *args: Any) -> Any:
        yield from stream(rank, *args)
        if rank == 1:
            raise OSError("bad disk")

    d.rig.kit.stream = spoilt
    with pytest.raises(OSError, match=r"^bad disk$"):
        d.send()
    assert given == [87.5]
    assert d.rig.world.now < 1.0
    assert d.events == []


def test_an_export_that_is_not_the_state_is_never_published() -> None:
    d = Direct()
    d.rig.kit.skip = {"bias"}
    with pytest.raises(BadState, match="transfer: the export is not the state: bias of 1"):
        d.send()
    assert d.events == []


def test_a_step_without_time_is_not_begun() -> None:
    d = Direct()
    deadline = Deadline(d.rig.world.clock, 10.0)
    d.rig.world.sleep(7.5)
    with pytest.raises(DeadlineSpent, match=r"^transfer: "):
        d.transport.send(d.engines, deadline, {"a": np.zeros(1, np.float32)}, "v1")
    assert f"e0:{DISK}" not in d.events
    assert not d.engines[0].touched


class Wide(Direct):
    """Engines of two ranks, of which one answers."""

    def __init__(self, engines: int = 1) -> None:
        super().__init__(engines, spare=engines)
        self.engines = [Engine(e, (2 * i, 2 * i + 1), 0) for i, e in enumerate(self.rig.e)]  # type: ignore[arg-type]

    def confirm(self, *which: int, seconds: float = 100.0) -> None:
        asked = [self.engines[i] for i in which or range(len(self.engines))]
        self.transport.confirm(asked, Deadline(self.rig.world.clock, seconds))


TOKEN = {"input_ids": [0], "sampling_params": {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}}


def test_one_of_several_ranks_speaks_for_itself_until_a_token_came() -> None:
    d = Wide(2)
    d.send()
    assert "refit-1 removed" not in d.events
    d.confirm()
    assert d.events == [
        "refit-1 published",
        f"e0:{DISK}",
        f"e1:{DISK}",
        "e0:generate",
        "e1:generate",
        "refit-1 removed",
    ]
    assert d.rig.e[1].log[-1] == ("generate", TOKEN)
    d.confirm()
    assert len(d.events) == 6, "nobody is asked for what is known"


def test_a_single_rank_is_not_asked() -> None:
    d = Direct(2)
    d.engines[1] = Engine(d.rig.e[1], (1, 2), 0)  # type: ignore[arg-type]
    d.send()
    d.transport.confirm(d.engines, Deadline(d.rig.world.clock, 100.0))
    assert d.events[-2:] == ["e1:generate", "refit-1 removed"]


@pytest.mark.parametrize("script", ["400 before", "500 before", "drop before", "hang before", "200 false before"])
def test_without_a_token_the_folder_stays_and_the_refit_fails(script: str) -> None:
    d = Wide(2)
    d.send()
    d.rig.e[1].script["generate", 1] = script
    with pytest.raises(CallFailed, match=r"^confirm failed on e1"):
        d.confirm()
    assert "refit-1 removed" not in d.events
    d.send(version="v2")
    d.confirm()
    assert d.events[-2:] == ["refit-1 removed", "refit-2 removed"]
    assert d.events.count("e0:generate") == 2


@pytest.mark.parametrize("script", ["400 after", "500 after", "hang after"])
def test_a_refusal_speaks_for_rank_0_too(script: str) -> None:
    d = Wide()
    d.rig.e[0].script[DISK, 1] = script
    with pytest.raises(CallFailed):
        d.send()
    assert "refit-1 removed" not in d.events
    d.send(version="v2")
    d.confirm()
    assert d.events[-2:] == ["refit-1 removed", "refit-2 removed"]


def test_several_ranks_that_are_gone_or_replaced_read_nothing() -> None:
    d = Wide(2)
    d.send()
    d.rig.e[0].dead = True
    d.rig.e[1].incarnation = 1
    d.engines[1] = Engine(d.rig.e[1], (2, 3), 1)  # type: ignore[arg-type]
    with pytest.raises(CallFailed, match="refused"):
        d.send(version="v2")
    assert d.events[-1] == "refit-1 removed"
    d.confirm(1)
    assert d.events[-2:] == ["e1:generate", "refit-2 removed"]


def test_one_that_is_gone_when_it_is_asked_for_a_token_reads_nothing() -> None:
    d = Wide()
    d.send()
    d.rig.e[0].dead = True
    with pytest.raises(CallFailed, match="refused"):
        d.confirm()
    assert d.events[-1] == "refit-1 removed"


def test_a_token_is_asked_for_when_the_engine_runs_again() -> None:
    rig = Rig(engines=1, spare=1)
    rig.e[0].tp = 2
    shelf = rig.kit.disk = Shelf(rig.order)
    client(rig, transport="disk").refit(100)
    assert rig.e[0].ops == ["model_info", "pause_generation", "flush_cache", DISK, "continue_generation", "generate"]
    assert rig.order[-1] == "refit-1 removed"
    assert shelf.made[0].files


def test_after_a_failure_nobody_is_asked_for_a_token() -> None:
    rig = Rig(engines=1, spare=1)
    rig.e[0].tp = 2
    rig.kit.disk = Shelf(rig.order)
    rig.e[0].script["continue_generation", 1] = "hang before"
    sut = client(rig, transport="disk")
    rig.e[0].script[DISK, 1] = "500 after"
    with pytest.raises(CallFailed, match="transfer"):
        sut.refit(100)
    assert "generate" not in rig.e[0].ops
    assert "refit-1 removed" not in rig.order
    sut.set_weights(state(), "v2")
    sut.refit(100)
    assert rig.order[-3:] == ["e0:generate", "refit-1 removed", "refit-2 removed"]


def test_the_client_sends_no_session_around_it() -> None:
    rig = Rig()
    shelf = rig.kit.disk = Shelf(rig.order)
    result = client(rig, transport="disk").refit(100)
    assert result.buckets == 1
    assert shelf.made[0].files, "the only rank writes"
    assert rig.e[0].ops == ["model_info", "pause_generation", "flush_cache", DISK, "continue_generation"]
