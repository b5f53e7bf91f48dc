"""Payloads over CUDA IPC without a GPU: torch is scripted, and what is written is what the simulated handles write."""

from __future__ import annotations

import base64
import pickletools
from types import SimpleNamespace

import numpy as np
import pytest

from fakes.trainer import ExportRegistry, TrainerKit, cuda_wire, wire
from fakes.trainer.cuda_wire import cuda_share, gpu_of
from fakes.trainer.torch_wire import export_bucket, export_list

NAMED = [("a", np.arange(6, dtype=np.float32).reshape(2, 3)), ("b", np.ones(4, dtype=np.int32))]


class ScriptedTorch:
    """Two GPUs whose handles tell what was put where."""

    def __init__(self):
        self.live, self.collected = [], 0
        properties = {0: SimpleNamespace(uuid="uuid-0"), 1: SimpleNamespace(uuid="uuid-1")}
        self.cuda = SimpleNamespace(
            get_device_properties=properties.__getitem__, ipc_collect=self.collect, device_count=lambda: 2
        )

    def collect(self):
        self.collected += 1

    def from_numpy(self, array):
        return SimpleNamespace(to=lambda device: ScriptedTensor(array, device))


class ScriptedTensor:
    def __init__(self, array, device):
        self.array, self.device = array, device

    def untyped_storage(self):
        shared = (0, b"handle of " + self.device.encode(), self.array.size, 512, b"counter", 3, b"event", True)
        return SimpleNamespace(_share_cuda_=lambda: shared)


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    scripted = ScriptedTorch()
    monkeypatch.setattr(cuda_wire, "_torch", lambda: scripted)
    return scripted


def words(payload):
    """Every string, number and bool of a pickle, in order."""
    return [arg for op, arg, _ in pickletools.genops(base64.b64decode(payload)) if op.name not in ("PROTO", "MEMOIZE")]


def globals_of(payload):
    return [word for word in words(payload) if isinstance(word, str) and ("." in word or word.startswith("_"))]


def test_a_bucket_travels_by_uuid_and_handle():
    said = words(export_bucket(NAMED, cuda_share(1)).payload)
    at = said.index("uuid-1")

    assert said[at + 1 : at + 4] == [b"handle of cuda:1", 40, 512]
    assert [word for word in said[at + 4 :] if word is not None][:3] == [b"counter", 3, b"event"]


@pytest.mark.parametrize("ours", [export_bucket, export_list])
def test_it_names_what_the_simulated_one_names(ours):
    simulated = {export_bucket: wire.export_bucket, export_list: wire.export_list}[ours]

    assert globals_of(ours(NAMED, cuda_share(0)).payload) == globals_of(simulated(ExportRegistry(), 0, NAMED).payload)


def test_strides_and_shapes_are_those_of_a_contiguous_tensor():
    real, simulated = export_list(NAMED, cuda_share(0)).payload, wire.export_list(ExportRegistry(), 0, NAMED).payload
    cut = [said[: said.index("torch.storage")] for said in (words(real), words(simulated))]

    assert cut[0] == cut[1]


def test_what_is_released_is_collected_once(torch):
    export = export_bucket(NAMED, cuda_share(0))
    export.release()
    export.release()

    assert torch.collected == 1


def test_a_kit_puts_each_rank_where_its_share_says():
    notes = []
    kit = TrainerKit(
        None, 2, lambda *note: notes.append(note), wire="torch", share=lambda rank: cuda_share(gpu_of(rank))
    )
    made = [kit.export(rank, NAMED) for rank in range(2)]
    kit.close()

    assert ["uuid-0" in words(export.payload) for export in made] == [True, False]
    assert [note[0] for note in notes] == ["export", "export", "release", "free", "release", "free"]


def test_ranks_share_what_gpus_there_are():
    assert [gpu_of(rank) for rank in range(4)] == [0, 1, 0, 1]
