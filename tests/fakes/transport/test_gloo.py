"""The same groups over real gloo: several engine ranks in one process, and a trainer of ours or of torch's own make."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import timedelta

import numpy as np
import psutil
import pytest

from fakes.engine.protocol import Join, Leave, Recv
from fakes.transport import gloo
from fakes.transport.gloo_groups import GlooGroups, Peers
from fakes.transport.groups import GroupError, GroupTimeout, Hang

torch = pytest.importorskip("torch", reason="groups of real torch")

FORM = timedelta(seconds=300)
W = np.arange(12, dtype=np.float32).reshape(3, 4)


class Engines:
    """`engines` processes of `tp` ranks each, as far as a transport can tell, on an event loop in a thread."""

    def __init__(self, engines: int, tp: int = 1) -> None:
        self.tp = tp
        self.transports = [gloo.GlooTransport(timeout_s=200.0) for _ in range(engines)]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.done: dict[tuple[int, int], object] = {}
        self.came = threading.Condition()

    def _each(self, method, make):
        def start():
            for engine, transport in enumerate(self.transports):
                for rank in range(self.tp):
                    effect = make(engine, rank)
                    if effect is not None:
                        getattr(transport, method)((f"e{engine}", 0), effect, self._finish(engine, rank), None)

        self.done = {}
        self.loop.call_soon_threadsafe(start)

    def _finish(self, engine, rank):
        def finish(done):
            with self.came:
                self.done[engine, rank] = done
                self.came.notify_all()

        return finish

    def join(self, group, name="g", skip=()):
        def make(engine, rank):
            if engine in skip:
                return None
            number = 1 + engine * self.tp + rank
            where = {"master_address": group.address, "master_port": group.port}
            sizes = {"group_rank": number, "world_size": group.world_size}
            return Join(id=1, rank=rank, group_name=name, backend="gloo", **where, **sizes)

        self._each("join", make)

    def recv(self, name="g", skip=(), shape=(3, 4), load_format=None):
        def make(engine, rank):
            told = {"names": ["w"], "dtypes": ["float32"], "shapes": [list(shape)], "load_format": load_format}
            return None if engine in skip else Recv(id=2, rank=rank, group_name=name, **told)

        self._each("recv", make)

    def results(self, count, timeout_s=300.0):
        with self.came:
            assert self.came.wait_for(lambda: len(self.done) >= count, timeout_s), self.done
        return [self.done[key] for key in sorted(self.done)]

    def leave(self, engine):
        self.loop.call_soon_threadsafe(self.transports[engine].leave, (f"e{engine}", 0), Leave(rank=0, group_name="g"))

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5.0)


@pytest.fixture(scope="module")
def peers():
    made = Peers()
    yield made
    made.close()


@pytest.fixture
def groups(peers):
    records = []
    made = GlooGroups(lambda name, rank, data: records.append((name, data)), peers=peers)
    made.records = records
    yield made
    made.close()


@pytest.mark.parametrize(("engines", "tp"), [(4, 1), (2, 2)])
def test_five_ranks_take_a_broadcast(groups, engines, tp):
    fleet = Engines(engines, tp)
    group = groups.open("g", 5)
    fleet.join(group)
    assert group.join(300.0)
    assert [done.error for done in fleet.results(4)] == [None] * 4
    fleet.recv()
    assert group.wait([group.broadcast(W)], 300.0)
    for done in fleet.results(4):
        ((name, array),) = done.value
        assert name == "w"
        assert array.tolist() == W.tolist()
    fleet.recv(load_format="flattened_bucket")
    assert group.wait([group.broadcast(W.reshape(-1).view(np.uint8))], 300.0)
    assert all(done.value[0][1].tolist() == W.tolist() for done in fleet.results(4))
    assert [name for name, _ in groups.records if name.startswith("group")] == [
        "group_open", "group_join", "group_joined",
    ]  # fmt: skip
    fleet.close()


def test_who_does_not_come_is_named_and_the_others_are_let_go(groups):
    fleet = Engines(2)
    group = groups.open("g", 3)
    fleet.join(group, skip=(1,))
    while group._missing() != [2]:  # the test's own time limit ends it
        pass
    with pytest.raises(GroupTimeout, match=r"rank 2 did not join within 0\.5 s") as told:
        group.join(0.5)
    assert told.value.ranks == (2,)
    group.close()
    (done,) = fleet.results(1)
    assert done.error.message.startswith("Failed to recv, got 0 bytes.")
    assert "frame #" not in done.error.message
    fleet.close()


def test_a_wait_without_a_deadline_is_a_hang(groups):
    group = groups.open("g", 2)
    with pytest.raises(Hang, match="rank 1 did not join within 1 s, and nothing would have ended the wait"):
        group.join()


def test_a_receiver_is_let_go_of_when_the_trainer_closes_in_the_middle(groups):
    fleet = Engines(2)
    group = groups.open("g", 3)
    fleet.join(group)
    assert group.join(300.0)
    fleet.results(2)
    fleet.recv(skip=(0,))
    sent = group.broadcast(W)
    assert fleet.results(1)[0].error is None  # rank 2 is fed by rank 0, whatever rank 1 does
    assert group.wait([sent], 10.0, unless=lambda: True) is False
    with pytest.raises(GroupTimeout, match="took no broadcast"):
        group.wait([sent], 0.5)
    fleet.recv(skip=(0,))
    # gloo tells nobody that a receive is posted: it may be before or after the end
    group.close()
    assert "by peer" in fleet.results(1)[0].error.message
    fleet.close()


def test_the_trainer_hears_of_an_engine_that_left(groups):
    fleet = Engines(1)
    group = groups.open("g", 2)
    fleet.join(group)
    assert group.join(300.0)
    fleet.results(1)
    fleet.leave(0)
    with pytest.raises(GroupError, match="by peer"):
        group.wait([group.broadcast(W)], 300.0)
    fleet.close()


def test_a_trainer_with_torch_s_own_helper_is_understood():
    # What a trainer does that copied SGLang's init_custom_process_group (utils/common.py:2859@0.5.23).
    from torch.distributed import TCPStore

    dist = torch.distributed
    fleet = Engines(2)
    store = TCPStore("127.0.0.1", 0, 3, True, wait_for_workers=False)

    class Address:
        address, port, world_size = "127.0.0.1", store.port, 3

    fleet.join(Address)
    helper = dist.distributed_c10d._new_process_group_helper
    pg, _ = helper(3, 0, [], dist.Backend("gloo"), dist.PrefixStore("g", store), group_name="g", timeout=FORM)
    assert all(done.error is None for done in fleet.results(2))
    fleet.recv()
    options = dist.BroadcastOptions()
    options.rootRank = options.rootTensor = 0
    pg.broadcast([torch.from_numpy(W.copy())], options).wait()
    assert all(done.value[0][1].tolist() == W.tolist() for done in fleet.results(2))
    dist.distributed_c10d._world.pg_names.pop(pg, None)
    fleet.close()


def test_memory_that_is_not_contiguous_arrives_as_it_lies(groups):
    fleet = Engines(1)
    group = groups.open("g", 2)
    fleet.join(group)
    assert group.join(300.0)
    fleet.results(1)
    fleet.recv(shape=(4, 3))
    assert group.wait([group.broadcast(W.T)], 300.0)
    assert fleet.results(1)[0].value[0][1].reshape(-1).tolist() == W.reshape(-1).tolist()
    fleet.close()


def test_no_process_is_left():
    mine = psutil.Process()
    before = {child.pid for child in mine.children(recursive=True)}
    groups = GlooGroups(lambda *record: None)
    groups.open("g", 2)
    assert len({child.pid for child in mine.children(recursive=True)} - before) == 2
    assert groups.live() == 1
    groups.close()
    assert groups.live() == 0
    for child in mine.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # of another test, and gone meanwhile
            assert child.pid in before or child.status() == psutil.STATUS_ZOMBIE
