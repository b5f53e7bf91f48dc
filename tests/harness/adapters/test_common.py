"""What drivers share: tensors as they were given, actors by Ray's rule, helpers that join over gloo."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from harness.errors import Unsupported
from harness.sut.adapters.drivers import common
from harness.sut.adapters.remote import trainer_ranks
from tests.harness.adapters.toys import fleet, framework


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_strided_view_stays_one_and_has_memory_of_its_own(dtype):
    given = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = common.tensor(given.T)
    assert tensor.shape == (3, 2)
    assert not tensor.is_contiguous()
    given[:] = 0
    assert tensor.float().tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert common.tensor(given).is_contiguous()


class Threaded:
    def inside(self):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True


class Coroutine(Threaded):
    async def other(self):
        return 7


class Generator(Threaded):
    async def other(self):
        yield 7


@pytest.mark.parametrize(("kind", "inside"), [(Threaded, False), (Coroutine, True), (Generator, True)])
def test_one_async_method_makes_an_asyncio_actor(kind, inside):
    assert common.has_async_methods(kind) is inside
    assert common.Handle(kind()).inside.remote().get(10.0) is inside


def test_an_asyncio_actor_awaits_and_a_loop_of_its_own_fails():
    class Actor(Coroutine):
        def starts(self):
            made = self.other()
            try:
                return asyncio.run(made)
            finally:
                made.close()

    handle = common.Handle(Actor())
    assert handle.other.remote().get(10.0) == 7
    with pytest.raises(RuntimeError, match=r"asyncio\.run\(\) cannot be called from a running event loop"):
        handle.starts.remote().get(10.0)
    common.threaded(Actor)
    assert common.Handle(Actor()).starts.remote().get(10.0) == 7


def test_both_sides_of_a_group_are_asked_for_gloo():
    module = SimpleNamespace(init_process_group=lambda **given: given)
    common.over_gloo(module)
    assert module.init_process_group(backend="nccl", rank=0) == {"backend": "gloo", "rank": 0}

    class Actor:
        def init_weights_update_group(self, master_address, master_port, group_name, backend):
            return (master_address, master_port, group_name, backend)

    common.joins_over_gloo(Actor)
    assert Actor().init_weights_update_group("a", 1, group_name="g", backend="nccl") == ("a", 1, "g", "gloo")


@pytest.fixture
def ray():
    def loaded():
        return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "ray"}

    before = loaded()
    yield common.ray()
    for name in loaded():
        del sys.modules[name]
    sys.modules.update(before)


def test_of_a_list_the_first_failure_is_raised_though_another_call_never_ends(ray):
    ended = threading.Event()

    class Actor:
        def waits(self):
            ended.wait(60.0)

        def fails(self):
            raise ValueError("no")

    waiting, failing = common.Handle(Actor()).waits.remote(), common.Handle(Actor()).fails.remote()
    try:
        with pytest.raises(ValueError, match="no"):
            ray.get([waiting, failing])
        with pytest.raises(ray.exceptions.GetTimeoutError):
            ray.get([waiting], timeout=0.01)
    finally:
        ended.set()
    assert ray.get([waiting, 7, common.RemoteFunction(lambda x: x + 1).remote(1)]) == [None, 7, 2]


def test_methods_of_an_interface_are_read_with_those_of_its_bases():
    source = "class A(ABC):\n    def a(self): pass\nclass B(A, Other):\n    async def b(self): pass\n    c = 1\n"
    assert common.methods_of(source, "B") == {"a", "b"}
    assert common.methods_of(source, "C") == set()


def test_the_lock_is_a_flag():
    lock = common.Lock()
    assert (lock.acquire(), lock.acquire()) == (True, False)
    lock.release()
    with pytest.raises(AssertionError, match="is not held"):
        lock.release()


def asked(ranks, tp=2):
    given = fleet(tp=tp)
    given.trainer = SimpleNamespace(ranks=ranks)
    return given


def test_trainer_ranks_are_what_scenario_and_framework_agree_on():
    assert trainer_ranks(framework(ranks="one"), asked(3)) == 1
    assert trainer_ranks(framework(ranks="tp"), asked(2)) == 2
    with pytest.raises(Unsupported, match="no trainer rank without an engine"):
        trainer_ranks(framework(ranks="tp"), asked(3))
    assert trainer_ranks(framework(ranks="any"), asked(3)) == 3
    assert trainer_ranks(framework(ranks="any"), asked(1)) == 2
    assert trainer_ranks(framework(ranks="any", transports=frozenset({"distributed"})), asked(1)) == 1
    with pytest.raises(Unsupported, match="of tensor parallel size 1 only"):
        trainer_ranks(framework(tp=1), asked(2))
