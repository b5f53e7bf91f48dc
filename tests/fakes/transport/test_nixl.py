"""The fake agent answers as nixl 1.5.1 over UCX was seen to."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.trainer.memory import POISON
from fakes.transport.nixl import (
    AgentConfig,
    Fabric,
    Host,
    NixlBackendError,
    NixlInvalidParamError,
    NixlMismatchError,
    NixlNotFoundError,
    NixlRemoteDisconnectError,
    ProcessGone,
)

HOST = Host("h", (0,))


class Pair:
    """Agents a and b; b knows a. `mine` is registered with a, `here` with b."""

    def __init__(self, size=100, other=100):
        self.alive = True
        self.records = []
        self.fabric = Fabric(lambda name, rank, data: self.records.append((name, data)))
        self.a = self.fabric.agent("a", Host("a's", (0,), lambda: self.alive))
        self.b = self.fabric.agent("b", HOST)
        self.mine, self.here = np.arange(size, dtype=np.uint8), np.zeros(other, dtype=np.uint8)
        self.regions = self.a.register_memory([self.mine])
        self.b.register_memory([self.here])
        self.a.add_remote_agent(self.b.get_agent_metadata())
        self.b.add_remote_agent(self.a.get_agent_metadata())

    def descs(self, *arrays):
        return self.b.deserialize_descs(self.a.get_serialized_descs(self.a.get_xfer_descs(list(arrays))))

    def read(self, **changed):
        about = {"op": "READ", "local": [self.here], "remote": [self.mine], "peer": "a", **changed}
        local = self.b.get_xfer_descs(about["local"])
        return self.b.initialize_xfer(about["op"], local, self.descs(*about["remote"]), about["peer"], b"done 1")


def test_a_read_brings_the_bytes_and_tells_the_peer_when_it_is_done():
    pair = Pair()
    handle = pair.read()
    assert pair.b.transfer(handle) == "PROC"
    assert pair.a.get_new_notifs() == {}
    assert pair.b.check_xfer_state(handle) == "DONE"
    assert np.array_equal(pair.here, pair.mine)
    assert pair.a.get_new_notifs() == {"b": [b"done 1"]}
    assert pair.a.get_new_notifs() == {}


def test_what_is_read_into_holds_poison_until_then():
    pair = Pair()
    part = pair.here[:10]
    handle = pair.read(local=[part], remote=[pair.mine[:10]])
    pair.here[...] = 7
    pair.b.transfer(handle)
    assert set(pair.here) == set(POISON)
    pair.b.check_xfer_state(handle)
    assert np.array_equal(part, pair.mine[:10])
    assert set(pair.here[10:]) == set(POISON)


def test_bytes_move_at_the_last_moment():
    pair = Pair()
    handle = pair.read()
    pair.b.transfer(handle)
    pair.mine[...] = 9
    pair.b.check_xfer_state(handle)
    assert set(pair.here) == {9}


def test_a_write_goes_the_other_way_and_poisons_nothing():
    pair = Pair()
    pair.here[...] = 5
    handle = pair.read(op="WRITE")
    pair.b.transfer(handle)
    pair.b.check_xfer_state(handle)
    assert set(pair.mine) == {5}
    assert set(pair.here) == {5}


def test_a_released_request_still_tells_its_state():
    pair = Pair()
    handle = pair.read()
    pair.b.transfer(handle)
    pair.b.check_xfer_state(handle)
    pair.b.release_xfer_handle(handle)
    assert pair.b.check_xfer_state(handle) == "DONE"


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"local": "half"}, NixlInvalidParamError, "length mismatch at index 0"),
        ({"local": "two"}, NixlInvalidParamError, "different descriptor list sizes (local=2, remote=1)"),
        ({"peer": "zzz"}, NixlNotFoundError, "metadata for remote agent 'zzz' not found"),
        ({"local": "foreign"}, NixlNotFoundError, "no specified or potential backend"),
        ({"remote": "foreign"}, NixlNotFoundError, "no specified or potential backend"),
    ],
)
def test_a_transfer_that_cannot_be(changed, kind, said):
    pair = Pair()
    arrays = {"half": [pair.here[:50]], "two": [pair.here, pair.here], "foreign": [np.zeros(100, dtype=np.uint8)]}
    with pytest.raises(kind) as error:
        pair.read(**{key: arrays.get(value, value) for key, value in changed.items()})
    assert str(error.value) == kind.status
    assert said in error.value.said
    assert ("nixl_error", {"agent": "b", "status": kind.status, "said": error.value.said}) in pair.records


def test_another_operation_is_a_key_error():
    with pytest.raises(KeyError):
        Pair().read(op="COPY")


def test_memory_registered_after_the_metadata_was_given_is_not_known_to_the_peer():
    pair = Pair()
    late = np.zeros(100, dtype=np.uint8)
    pair.a.register_memory([late])
    with pytest.raises(NixlNotFoundError):
        pair.read(remote=[late])
    pair.b.add_remote_agent(pair.a.get_agent_metadata())
    assert pair.read(remote=[late])


def test_a_read_of_memory_that_was_deregistered_is_done_all_the_same():
    pair = Pair()
    pair.a.deregister_memory(pair.regions)
    handle = pair.read()
    pair.b.transfer(handle)
    assert pair.b.check_xfer_state(handle) == "DONE"
    assert np.array_equal(pair.here, pair.mine)
    with pytest.raises(NixlNotFoundError):
        pair.a.deregister_memory(pair.regions)


def test_local_memory_that_was_deregistered_is_not_found():
    pair = Pair()
    pair.a.deregister_memory(pair.regions)
    theirs = pair.b.get_xfer_descs([pair.here])
    with pytest.raises(NixlNotFoundError):
        pair.a.initialize_xfer("READ", pair.a.get_xfer_descs([pair.mine]), theirs, "b")


def test_notifications_go_to_known_peers_only():
    pair = Pair()
    pair.a.send_notif("b", b"x")
    pair.a.send_notif("b", b"y")
    assert pair.b.get_new_notifs() == {"a": [b"x", b"y"]}
    with pytest.raises(NixlNotFoundError):
        pair.a.send_notif("zzz", b"x")
    pair.b.remove_remote_agent("a")
    pair.b.remove_remote_agent("a")
    with pytest.raises(NixlNotFoundError):
        pair.read()


def test_a_peer_that_died_is_a_remote_disconnect_and_its_own_calls_fail():
    pair = Pair()
    handle = pair.read()
    metadata = pair.a.get_agent_metadata()
    pair.alive = False
    for call in (
        pair.read,
        lambda: pair.b.transfer(handle),
        lambda: pair.b.send_notif("a", b"x"),
    ):
        with pytest.raises(NixlRemoteDisconnectError):
            call()
    with pytest.raises(ProcessGone, match="a's is gone"):
        pair.a.get_new_notifs()
    pair.fabric.agent("a", Host("a's next", (0,)))
    with pytest.raises(NixlRemoteDisconnectError):
        pair.b.add_remote_agent(metadata)


@pytest.mark.parametrize("tls", ["sm", "sysv,posix,cma", "self", "cuda_ipc, sm"])
def test_without_a_network_transport_no_agent_comes_up(tls):
    with pytest.raises(NixlBackendError, match="NIXL_ERR_BACKEND") as error:
        Fabric(env={"UCX_TLS": tls}).agent("a", HOST)
    assert f"UCX_TLS={tls}" in error.value.said


@pytest.mark.parametrize("tls", ["tcp", "sm,tcp", "all", "^cuda_ipc", "rc_x,sm"])
def test_with_one_it_does(tls):
    assert Fabric(env={"UCX_TLS": tls}).agent("a", HOST)


def test_a_backend_without_a_plugin_is_left_out():
    agent = Fabric().agent("a", HOST, AgentConfig(backends=["NOPE"]))
    with pytest.raises(NixlNotFoundError):
        agent.register_memory([np.zeros(4, dtype=np.uint8)])
    with pytest.raises(NixlInvalidParamError):
        agent.get_agent_metadata()


@pytest.mark.parametrize("data", [b"garbage", b"[1]", b'["a", 1]', b"3"])
def test_bytes_that_are_no_metadata(data):
    with pytest.raises(NixlMismatchError):
        Fabric().agent("a", HOST).add_remote_agent(data)


def test_no_descriptors_of_nothing():
    with pytest.raises(IndexError):
        Fabric().agent("a", HOST).get_xfer_descs([])


def test_devices_count_from_0_in_every_process():
    host = Host("e0", (4, 5))
    assert [host.gpu(0), host.gpu(1)] == [4, 5]
    assert host.empty(1, 8).nbytes == 8
    for device in (-1, 2, 4):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            host.empty(device, 8)


def test_what_is_left_registered_is_counted_where_somebody_lives():
    pair = Pair()
    assert pair.fabric.registered() == 2
    pair.alive = False
    assert pair.fabric.registered() == 1
