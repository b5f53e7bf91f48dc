"""What drivers serialise with the shim is what the fake engine opens, names and bytes."""

import asyncio
import base64
import importlib
import subprocess
import sys
import types

import numpy as np
import pytest

from fakes.engine.allowlist import ALLOW_LISTS
from fakes.engine.payload import open_payload
from fakes.engine.profiles import PROFILES
from fakes.fronts import sglang_shim
from fakes.trainer.torch_wire import TorchResolver

torch = pytest.importorskip("torch", reason="payloads of real torch; without it the fakes need none")


def opened(data, version, rank=0, load_format=None):
    allow = ALLOW_LISTS[PROFILES[version].unpickler]
    return dict(open_payload(data, profile_allow=allow, rank=rank, load_format=load_format, resolver=TorchResolver()))


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.20", "0.5.23"])
def test_a_bucket(version):
    one, two = torch.arange(6, dtype=torch.float32).reshape(2, 3), torch.ones(4, dtype=torch.bfloat16)
    with sglang_shim.installed(version):
        bucket_kind = importlib.import_module("sglang.srt.weight_sync.tensor_bucket").FlattenedTensorBucket
        serializer = importlib.import_module("sglang.srt.utils").MultiprocessingSerializer
        bucket = bucket_kind(named_tensors=[("one", one), ("two", two)])
        again = bucket_kind(flattened_tensor=bucket.get_flattened_tensor(), metadata=bucket.get_metadata())
        assert all(torch.equal(a, b) for (_, a), b in zip(again.reconstruct_tensors(), (one, two), strict=True))
        whole = {"flattened_tensor": bucket.get_flattened_tensor(), "metadata": bucket.get_metadata()}
        text = serializer.serialize(whole, output_str=True)
        arrays = opened(base64.b64decode(text), version, load_format="flattened_bucket")
    assert list(arrays) == ["one", "two"]
    np.testing.assert_array_equal(arrays["one"], one.numpy())
    assert (arrays["two"].dtype.name, arrays["two"].tolist()) == ("bfloat16", [1.0] * 4)


def test_buckets_of_nothing_and_of_halves():
    with sglang_shim.installed("0.5.23"):
        kind = importlib.import_module("sglang.srt.weight_sync.tensor_bucket").FlattenedTensorBucket
        with pytest.raises(ValueError, match="Cannot create empty tensor bucket"):
            kind(named_tensors=[])
        with pytest.raises(ValueError, match="Must provide either"):
            kind(metadata=[])
        room = kind.empty(["a"], ["float32"], [[2, 2]], "cpu")
        assert room.get_flattened_tensor().numel() == 16
        with pytest.raises(ValueError, match="Unaligned"):
            kind.empty(["a", "b"], ["uint8", "float32"], [[3], [1]], "cpu")
        with pytest.raises(ValueError, match="Negative"):
            kind.empty(["a"], ["uint8"], [[-1]], "cpu")
    with sglang_shim.installed("0.5.22"):
        assert not hasattr(
            importlib.import_module("sglang.srt.weight_sync.tensor_bucket").FlattenedTensorBucket, "empty"
        )


class Mesh:
    """A mesh of one rank that stands for two: what gather would bring is said beforehand."""

    mesh = torch.tensor([0, 1])

    def get_local_rank(self):
        return 0

    def get_group(self):
        return None


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.23"])
def test_update_weights_gives_every_rank_the_handle_of_its_own_producer(version, monkeypatch):
    import torch.distributed

    told = []

    async def take(request):
        told.append(request)
        return "taken"

    with sglang_shim.installed(version):
        serializer = importlib.import_module("sglang.srt.utils").MultiprocessingSerializer
        push = importlib.import_module("sglang.srt.weight_sync.utils").update_weights

        def gather(mine, out, dst, group):
            assert dst == 0
            out[:] = [mine, [(name, serializer.serialize(torch.full((2,), 2.0))) for name, _ in mine]]

        monkeypatch.setattr(torch.distributed, "gather_object", gather)
        engine = types.SimpleNamespace(update_weights_from_tensor=take)
        named = [("w", torch.full((2,), 1.0))]
        assert asyncio.run(push(engine, named, "tp", {"tp": Mesh()})) == "taken"
        (request,) = told
        assert (len(request.serialized_named_tensors), request.flush_cache) == (2, True)
        for rank, payload in enumerate(request.serialized_named_tensors):
            np.testing.assert_array_equal(opened(payload, version, rank)["w"], np.full(2, rank + 1.0, np.float32))


def test_what_a_payload_may_not_name_is_refused():
    with sglang_shim.installed("0.5.23"):
        serializer = importlib.import_module("sglang.srt.utils").MultiprocessingSerializer
        data = serializer.serialize(subprocess.Popen)
        with pytest.raises(RuntimeError, match=r"subprocess\.Popen"):
            serializer.deserialize(data)
        assert serializer.deserialize(serializer.serialize({"a": [1]}, output_str=True)) == {"a": [1]}


def test_kill_process_tree_ends_a_child_and_its_children():
    with sglang_shim.installed("0.5.23"):
        kill = importlib.import_module("sglang.srt.utils").kill_process_tree
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        kill(child.pid, wait_timeout=None)
        assert child.wait(600) == -9
        kill(child.pid)
