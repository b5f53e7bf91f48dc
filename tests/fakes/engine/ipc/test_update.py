"""update_weights_from_ipc beside a parameter server in process."""

from __future__ import annotations

import pytest

from fakes.engine.ipc_update import device_uuid
from fakes.engine.protocol import EngineConfig
from fakes.fronts.inprocess import Server
from fakes.tiny import tiny_config, tiny_weights
from fakes.trainer import ExportRegistry, TrainerKit
from fakes.trainer.parameter_server import ParameterServer, ServerError
from fakes.trainer.registry import gpu_uuid
from fakes.world import World

CONFIG = tiny_config("llama", False, "bfloat16")
OLD, NEW = tiny_weights(CONFIG, 0), tiny_weights(CONFIG, 1)
OP = "update_weights_from_ipc"


class Fleet:
    """One engine of two ranks, and a parameter server of as many."""

    def __init__(self, version="0.5.23", package="0.4.2", server=None, **config):
        self.registry = ExportRegistry()
        self.world = World(0, resolver=self.registry)
        settings = {"device": "cuda", "tp_size": 2, "checkpoint_engine": package, **config}
        self.core = self.world.add_engine("e0", EngineConfig(profile=version, **settings), OLD, CONFIG).core
        self.engine = Server(self.world, self.world.engines["e0"])
        self.kit = TrainerKit(self.world, 2, registry=self.registry)
        self.package = server or package

    def servers(self, sets=None, cuts=3):
        out = []
        for rank, named in enumerate(sets or [list(NEW.items())] * 2):
            size = -(-len(named) // cuts)
            buckets = [named[at : at + size] for at in range(0, len(named), size)]
            out.append(ParameterServer(self.kit, rank, self.address(rank), buckets, package=self.package))
        return out

    def address(self, rank):
        return f"ipc://@checkpoint-engine-{device_uuid(0, rank)}-0.sock"

    def handles(self, *ranks):
        return {device_uuid(0, rank): self.address(rank) for rank in ranks or (0, 1)}

    def start(self, handles=None, **fields):
        return self.engine.start("POST", OP, {"zmq_handles": handles or self.handles(), **fields})

    def state(self):
        return self.core.scheduler.state_id()


@pytest.fixture
def fleet():
    made = []

    def make(*args, **kwargs):
        made.append(Fleet(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


def whole(tp=2):
    from fakes.engine.core import EngineCore

    return EngineCore(EngineConfig(tp_size=tp, device="cuda"), NEW, CONFIG).scheduler.state_id()


def test_the_id_is_the_one_that_torch_prints():
    assert device_uuid(2, 1) == f"GPU-{gpu_uuid(3)}"


@pytest.mark.parametrize("package", ["0.1.2", "0.4.2"])
@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.20", "0.5.23"])
def test_a_whole_set_without_a_session(fleet, version, package):
    one = fleet(version, package)
    call = one.start(weight_version="7")
    for server in one.servers():
        server.run(1.0)
    done = call.result()
    assert (done.status, done.body["message"]) == (
        200,
        "IPC weight update completed successfully Weight version updated to 7.",
    )
    assert one.state() == whole()
    assert {handle.state for handle in one.registry.handles.values()} == {"freed"}


def test_ranks_do_not_wait_for_each_other_before_the_end(fleet):
    one = fleet()
    call = one.start()
    first, second = one.servers()
    second.run(1.0)
    assert not call.done
    first.run(1.0)
    assert call.result().status == 200


def test_a_server_that_says_none_twice_hangs_on_an_old_worker(fleet):
    one = fleet(package="0.1.2", server="0.4.2")
    call = one.start()
    for server in one.servers():
        with pytest.raises(ServerError, match=r"did not answer within 1 s"):
            server.run(1.0)
    assert call.result().status == 200
    assert one.state() == whole()


def test_the_id_of_rank_0_is_missing(fleet):
    one = fleet()
    before = one.state()
    call = one.start(one.handles(1))
    one.servers()[1].run(1.0)
    done = call.result()
    missing, known = device_uuid(0, 0), device_uuid(0, 1)
    assert (done.status, done.body["message"]) == (
        400,
        f"Device UUID {missing} not found in zmq_handles: ['{known}']",
    )
    assert one.state() != before
    assert one.core.scheduler.updater.torn


def test_the_id_of_another_rank_is_missing_and_nobody_hears(fleet):
    one = fleet()
    call = one.start(one.handles(0))
    one.servers()[0].run(1.0)
    assert call.result().status == 200
    assert one.state() != whole()
    assert one.core.scheduler.updater.torn


def _bad(named):
    return [(name, array[:-1] if name == "model.norm.weight" else array) for name, array in named]


def test_a_load_that_fails_is_told_to_the_server_which_stops_the_worker(fleet):
    one = fleet()
    call = one.start()
    servers = one.servers([_bad(list(NEW.items()))] * 2)
    for server in servers:
        with pytest.raises(ServerError, match=r"^Traceback \(most recent call last\):\n\w+"):
            server.run(1.0)
        server.give_up()
    done = call.result()
    assert (done.status, done.body["message"]) == (400, "Some workers failed to update weights")
    assert one.engine.alive
    assert one.core.scheduler.updater.torn


def test_an_old_worker_tells_its_caller_and_leaves_the_server_waiting(fleet):
    one = fleet(package="0.1.2")
    call = one.start()
    for server in one.servers([_bad(list(NEW.items()))] * 2):
        with pytest.raises(ServerError, match="did not answer"):
            server.run(1.0)
    done = call.result()
    assert done.status == 400
    assert done.body["message"] != "Some workers failed to update weights"
    assert one.engine.alive


def test_an_open_session_stays_open(fleet):
    one = fleet()
    assert one.engine.request("POST", "begin_weight_update", {}).status == 200
    call = one.start()
    for server in one.servers():
        server.run(1.0)
    assert call.result().status == 200
    assert one.core.scheduler.updater.session is not None
    assert not one.core.scheduler.updater.session.loaded
    assert one.engine.request("POST", "end_weight_update", {}).status == 200


def test_nobody_at_the_address_blocks_the_engine(fleet):
    one = fleet()
    call = one.start()
    assert call.result(5.0).ending == "timeout"
    assert one.engine.request("POST", "flush_cache", timeout_s=1.0).ending == "timeout"


@pytest.mark.parametrize("version", ["0.5.19", "0.5.23"])
def test_without_a_gpu(fleet, version):
    one = fleet(version, device="cpu")
    done = one.start(one.handles(0)).result()
    said = done.body["message"]
    assert done.status == 400
    assert said.startswith("Torch not compiled with CUDA" if version == "0.5.19" else "Device UUID GPU-")
