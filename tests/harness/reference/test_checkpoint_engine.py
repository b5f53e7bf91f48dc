"""Streams to receivers: any layout arrives whole, in order, on every rank; what is held is copied in time."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.outcome import Outcome
from fakes.trainer import TrainerKit
from fakes.world import World
from harness.reference.deadline import Deadline
from harness.reference.engines import Engine, Weights
from harness.reference.errors import BadSetup, BadState, CallFailed, StreamFailed, StreamsDiffer
from harness.reference.transports.checkpoint_engine import CheckpointEngineTransport, local_index

DTYPES = [np.dtype(np.uint8), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64)]
OK = Outcome(ending="reply", status=200, body={"success": True})
NO = Outcome(ending="reply", status=500, body={"success": False, "message": "no"})


@dataclass
class Scripted:
    """An engine that takes what is posted; `refuse` is the number of the call that it does not."""

    name: str
    tp: int
    gpu_ids: tuple[int, ...]
    incarnation: int = 0
    refuse: int = 0
    posts: list[dict] = field(default_factory=list)

    def request(self, op, body=None, *, method="POST", query=None, timeout_s):
        assert op == "update_weights_from_tensor"
        self.posts.append(body)
        return NO if len(self.posts) == self.refuse else OK


class Rig:
    """Engines of one size, a kit that keeps copies of what is exported, a transport."""

    def __init__(self, engines=1, tp=2, bucket_bytes=256, spare=0, seed=0):
        self.world = World(seed=seed)
        self.records = []
        self.kit = TrainerKit(self.world, engines * tp + spare, lambda *record: self.records.append(record))
        self.copies = {}
        self.live = 0
        self.kit.export = self.export
        self.endpoints = [Scripted(f"e{i}", tp, tuple(range(i * tp, (i + 1) * tp))) for i in range(engines)]
        self.transport = CheckpointEngineTransport(self.kit, bucket_bytes)
        self.begin()

    def begin(self):
        self.engines = [Engine(e, e.gpu_ids, e.incarnation) for e in self.endpoints]
        for e in self.endpoints:
            e.posts.clear()

    def export(self, gpu, named, consumers):
        rig, key = self, f"payload {len(self.copies)}"
        self.copies[key] = (gpu, consumers, [(name, tensor.copy()) for name, tensor in named])
        self.live += 1

        class Export:
            payload = key

            def release(self):
                rig.live -= 1

        return Export()

    def refit(self, state, version="v1", seconds=60.0):
        self.state = state
        deadline = Deadline(Clock(self.world), seconds)
        self.transport.connect(self.engines, deadline)
        return self.transport.send(self.engines, deadline, state, version)

    def arrived(self, endpoint, tp_rank):
        return [item for post in endpoint.posts for item in self.copies[post["serialized_named_tensors"][tp_rank]][2]]


class Clock:
    def __init__(self, world):
        self.world = world

    def now(self):
        return self.world.now

    def sleep(self, seconds):
        self.world.sleep(seconds)


def tensor(dtype, shape, seed):
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    return np.random.default_rng(seed).integers(0, 120, size, dtype=np.uint8).view(dtype).reshape(shape)


SHAPES = st.one_of(
    st.tuples(), st.tuples(st.integers(0, 40)), st.tuples(st.integers(1, 12), st.integers(1, 12)), st.just((300,))
)
STATES = st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), min_size=1, max_size=12).map(
    lambda items: {f"t{i}": tensor(dtype, shape, i) for i, (dtype, shape) in enumerate(items)}
)


@settings(max_examples=30, deadline=None)
@given(state=STATES, tp=st.integers(1, 3), spare=st.integers(0, 1), bucket=st.sampled_from([64, 96, 256, 1024]))
def test_any_layout_arrives_exactly_on_every_rank_in_order(state, tp, spare, bucket):
    state = {name: t if t.ndim else t.reshape(1) for name, t in state.items()}
    rig = Rig(tp=tp, spare=spare, bucket_bytes=bucket + bucket % 3)
    rig.refit(state)
    (endpoint,) = rig.endpoints
    for tp_rank in range(tp):
        came = rig.arrived(endpoint, tp_rank)
        assert sorted(name for name, _ in came) == sorted(state)
        for dtype in {t.dtype for t in state.values()}:
            assert [n for n, t in came if t.dtype == dtype] == [n for n, t in state.items() if t.dtype == dtype]
        for name, value in came:
            assert value.shape == state[name].shape
            assert value.tobytes() == state[name].tobytes()
    for post in endpoint.posts:
        assert len(post["serialized_named_tensors"]) == tp
        about = [rig.copies[p] for p in post["serialized_named_tensors"]]
        assert [gpu for gpu, _, _ in about] == list(range(tp))
        assert [consumers for _, consumers, _ in about] == [(("e0", rank),) for rank in range(tp)]
        assert len({tuple(n for n, _ in named) for _, _, named in about}) == 1
        assert len({t.dtype for _, _, named in about for _, t in named}) == 1
    labels = [post.get("weight_version") for post in endpoint.posts]
    assert labels == [None] * (len(labels) - 1) + ["v1"]
    assert rig.live == 0
    rig.transport.close(rig.engines)
    assert rig.kit.fabric.registered() == 0


def plain(count=6, size=30):
    return {f"t{i}": tensor(DTYPES[1], (size,), i) for i in range(count)}


def test_agents_are_kept_as_long_as_the_same_incarnations_are_there():
    rig = Rig()
    rig.refit(plain())
    agents = dict(rig.kit.fabric.agents)
    rig.begin()
    rig.refit(plain(), "v2")
    assert rig.kit.fabric.agents == agents
    rig.endpoints[0].incarnation = 1
    rig.begin()
    rig.refit(plain(), "v3")
    assert all(rig.kit.fabric.agents[name] is not agents[name] for name in agents)
    assert rig.endpoints[0].posts[-1]["weight_version"] == "v3"


def test_a_refused_batch_ends_that_engine_and_no_other_and_the_next_refit_has_new_agents():
    rig = Rig(engines=2)
    rig.endpoints[1].refuse = 2
    agents = dict(rig.kit.fabric.agents)
    with pytest.raises(CallFailed, match="transfer failed on e1"):
        rig.refit(plain(12))
    assert rig.world.now < 1.0
    assert [len(e.posts) > 2 for e in rig.endpoints] == [True, False]
    assert [e.complete for e in rig.engines] == [True, False]
    assert rig.engines[1].weights is Weights.TORN
    assert (rig.live, rig.kit.fabric.registered()) == (0, 0)
    rig.begin()
    rig.endpoints[1].refuse = 0
    rig.refit(plain(12))
    assert all(agent is not agents.get(name) for name, agent in rig.kit.fabric.agents.items())
    assert all(e.complete for e in rig.engines)


def test_fewer_trainer_ranks_than_engine_ranks_are_refused_before_any_agent():
    rig = Rig(engines=2)
    rig.kit.ranks = 3
    with pytest.raises(BadSetup, match="4 engine ranks need as many trainer ranks, and there are 3"):
        rig.refit(plain())
    assert rig.kit.fabric.agents == {}


def test_a_backend_that_does_not_come_up_says_so_and_leaves_nothing():
    rig = Rig()
    rig.kit.fabric.env["UCX_TLS"] = "sm"
    with pytest.raises(StreamFailed, match=r"connect: NIXL_ERR_BACKEND .*UCX_TLS=sm"):
        rig.refit(plain())
    assert rig.kit.fabric.registered() == 0
    del rig.kit.fabric.env["UCX_TLS"]
    rig.refit(plain())


def test_a_transfer_that_nixl_refuses_ends_the_refit_in_its_words():
    rig = Rig()
    receiver = rig.transport._receiver

    def smaller(e, tp_rank):
        rig.transport.bucket_bytes = 128
        try:
            return receiver(e, tp_rank)
        finally:
            rig.transport.bucket_bytes = 256

    rig.transport._receiver = smaller
    with pytest.raises(Exception, match="NIXL_ERR_INVALID_PARAM") as error:
        rig.refit(plain())
    assert "length mismatch at index 0" in str(error.value.__notes__)
    assert rig.world.now < 1.0


@pytest.mark.parametrize("ranks", [{0, 1}, {1}], ids=["all", "one"])
def test_streams_that_bring_nothing_are_an_error_and_no_version_is_told(ranks):
    rig = Rig()
    rig.kit.spoil = lambda rank, walk: (item for item in walk if rank not in ranks)
    with pytest.raises((BadState, StreamsDiffer), match=r"brought no tensor at all|ended before t0"):
        rig.refit(plain())
    assert not any("weight_version" in post for post in rig.endpoints[0].posts)


def test_all_ranks_may_lack_the_same_tensor_and_it_is_still_an_error_before_the_version():
    rig = Rig()
    rig.kit.spoil = lambda rank, walk: (item for item in walk if item[0] != "t3")
    with pytest.raises(BadState, match="are not the state: t3 of 1"):
        rig.refit(plain())
    assert not any("weight_version" in post for post in rig.endpoints[0].posts)


def test_a_trainer_rank_that_fails_is_heard_beside_the_engine():
    rig = Rig()

    def spoil(rank, walk):
        for item in walk:
            if rank == 1 and item[0] == "t4":
                raise OSError("bad disk")
            yield item

    rig.kit.spoil = spoil
    with pytest.raises(StreamFailed, match="will not come: OSError: bad disk"):
        rig.refit(plain(), seconds=20.0)


def test_an_engine_that_is_gone_ends_the_refit_by_its_deadline():
    rig = Rig()
    rig.endpoints[0].request = lambda *a, **k: rig.world.sleep(k["timeout_s"]) or Outcome(ending="timeout")
    with pytest.raises(CallFailed, match="transfer failed on e0: timeout"):
        rig.refit(plain(), seconds=20.0)
    assert rig.world.now <= 20.0


def test_devices_are_local():
    assert local_index(5, (4, 5)) == 1
    with pytest.raises(BadSetup, match="GPU 1 is not among those"):
        local_index(1, (4, 5))
    rig = Rig()
    rig.endpoints[0].gpu_ids = (5, 4)
    rig.begin()
    rig.refit(plain())
    post = rig.endpoints[0].posts[0]
    assert [rig.copies[p][0] for p in post["serialized_named_tensors"]] == [5, 4]


def test_a_bucket_too_small_for_an_element_is_refused():
    with pytest.raises(StreamFailed, match="at least 64 bytes"):
        Rig(bucket_bytes=32).refit(plain())


def test_refits_over_the_same_agents_do_not_meet_what_the_last_one_left():
    rig = Rig()
    for number in range(4):
        rig.begin()
        state = {f"t{i}": tensor(DTYPES[1], (40 + i,), 100 * number + i) for i in range(20)}
        rig.refit(state, f"v{number}")
        for tp_rank in (0, 1):
            came = rig.arrived(rig.endpoints[0], tp_rank)
            assert [(name, value.tobytes()) for name, value in came] == [(n, t.tobytes()) for n, t in state.items()]
        assert all(agent.get_new_notifs() == {} for agent in rig.kit.fabric.agents.values())


def test_what_a_receiver_gives_out_as_views_is_noted_and_what_it_copied_is_not():
    rig = Rig(tp=1)
    state = {
        "small": tensor(DTYPES[0], (100,), 1),
        "large": tensor(DTYPES[0], (300,), 2),
        "end": tensor(DTYPES[0], (9,), 3),
    }
    rig.refit(state)
    notes = [data for name, _, data in rig.records if name == "batch"]
    assert [(n["bucket"], n["names"]) for n in notes] == [(0, ["small"]), (1, ["end"])]
    assert {(n["engine"], n["incarnation"], n["tp_rank"], n["agent"]) for n in notes} == {("e0", 0, 0, "e0-0")}
    receiver = next(data for name, _, data in rig.records if name == "receiver")
    assert receiver == {"engine": "e0", "incarnation": 0, "tp_rank": 0, "device": 0, "sees": [0]}


def test_buffers_take_turns():
    rig = Rig(tp=1)
    rig.refit(plain(20))
    regions = [data["regions"] for name, _, data in rig.records if name == "nixl_transfer"]
    assert regions[:4] == [[2], [1], [2], [1]]


def test_a_rank_that_never_comes_ends_the_refit_by_its_deadline_and_the_error_names_the_wait():
    rig = Rig()

    def spoil(rank, walk):
        if rank == 1:
            rig.world.sleep(1000.0)
        return walk

    rig.kit.spoil = spoil
    with pytest.raises(
        StreamFailed, match=r"a bucket of trainer-0 will not come: MeetTimeout: .* ranks \[1\] did not come"
    ):
        rig.refit(plain(), seconds=20.0)
    assert rig.world.now <= 20.0


def test_a_stream_that_ends_within_a_tensor_is_an_error():
    rig = Rig(tp=1)
    rig.transport.connect(rig.engines, Deadline(Clock(rig.world), 10.0))
    sender, receiver = rig.transport.senders[0], rig.transport.receivers["e0"][0]
    descs = sender.agent.get_serialized_descs(sender.agent.get_xfer_descs([sender.buffers[0]])).hex()
    half = {"name": "t", "dtype": "uint8", "shape": [4], "of": 4, "offset": 0, "size": 2, "start": 0}
    sender.tell(bucket=0, chunks=[half], last=True, descs=descs)
    assert receiver.news()
    with pytest.raises(StreamFailed, match="the stream of trainer-0 ended within t"):
        receiver.take()


def test_a_side_forgets_its_peer_and_its_memory_and_may_be_closed_when_its_process_is_gone():
    rig = Rig(tp=1)
    rig.transport.connect(rig.engines, Deadline(Clock(rig.world), 10.0))
    sender, receiver = rig.transport.senders[0], rig.transport.receivers["e0"][0]
    sender.close()
    with pytest.raises(Exception, match="NIXL_ERR_NOT_FOUND"):
        sender.tell(stop="x")
    rig.endpoints[0].incarnation = 1
    receiver.stop("x")
    receiver.close()
    assert receiver.news()
    with pytest.raises(Exception, match=r"e0\.0 is gone"):
        receiver.take()


def test_a_trainer_process_that_is_gone_is_waited_for_until_the_deadline_and_the_error_names_the_wait():
    rig = Rig(tp=1)
    rig.transport.connect(rig.engines, Deadline(Clock(rig.world), 10.0))
    rig.transport.senders[0].send = lambda stream, wait: None
    with pytest.raises(StreamFailed, match="transfer: e0: a bucket for tp rank 0 did not come in time"):
        rig.refit(plain(), seconds=20.0)
    assert 10.0 < rig.world.now <= 20.0


def test_connecting_says_whether_it_made_anything_and_leaves_nothing_of_before():
    rig = Rig(engines=2)
    deadline = Deadline(Clock(rig.world), 10.0)
    assert rig.transport.world_size(rig.engines) == 8
    assert rig.transport.connect(rig.engines, deadline) is True
    assert rig.transport.connect(rig.engines, deadline) is False
    assert rig.kit.fabric.registered() == 16
    assert rig.transport.connect(rig.engines[:1], deadline) is True
    assert rig.kit.fabric.registered() == 8
    assert sorted(rig.transport.receivers) == ["e0"]


def test_connecting_that_fails_half_way_leaves_nothing():
    rig = Rig(engines=2)
    agent = rig.kit.fabric.agent
    rig.kit.fabric.agent = lambda name, host: agent(name, host) if name != "trainer-2" else 1 / 0
    with pytest.raises(StreamFailed, match="connect: division by zero"):
        rig.transport.connect(rig.engines, Deadline(Clock(rig.world), 10.0))
    assert rig.kit.fabric.registered() == 0
    assert (rig.transport.senders, rig.transport.receivers) == ({}, {})
