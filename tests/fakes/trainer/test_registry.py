"""Every handle is exported once, opened by whom, released, freed, reused: and all of it is on record."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from fakes.engine.allowlist import EXACT202
from fakes.engine.payload import PayloadError, open_payload
from fakes.trainer.memory import POISON, DeviceMemory
from fakes.trainer.registry import ExportRegistry, gpu_uuid
from fakes.trainer.wire import digest_of, export_bucket, export_list, probe_payloads

NAMED = [("w", np.arange(6, dtype=np.float32)), ("v", np.ones(2, dtype=np.float32))]


class Books:
    def __init__(self):
        self.records = []
        self.registry = ExportRegistry(lambda name, rank, data: self.records.append((name, rank, data)))

    def names(self):
        return [name for name, _, _ in self.records]

    def last(self, name):
        return [data for kind, _, data in self.records if kind == name][-1]


@pytest.fixture
def books():
    return Books()


def read(export, resolver, rank=0):
    data = base64.b64decode(export.payload)
    return open_payload(data, profile_allow=EXACT202, rank=rank, load_format="flattened_bucket", resolver=resolver)


def error_of(export, resolver):
    with pytest.raises(PayloadError) as error:
        read(export, resolver)
    return error.value.type, error.value.message


def test_the_life_of_a_handle_is_on_record(books):
    export = export_bucket(books.registry, 3, NAMED, [("e0", 1)])
    read(export, books.registry.bind("e0"), rank=1)
    export.release()
    assert books.names() == ["export", "open", "release", "free"]
    assert {rank for _, rank, _ in books.records} == {3}
    made, opened = books.last("export"), books.last("open")
    assert made["names"] == ["w", "v"]
    assert made["sha256"] == digest_of(export.payload) == export.sha256
    assert (made["consumers"], made["bytes"], made["gpu"]) == ([["e0", 1]], 32, 3)
    assert (opened["engine"], opened["tp_rank"], opened["times"], opened["own"]) == ("e0", 1, 1, True)
    assert opened["state"] == "live"
    assert books.last("release")["opened"] == 1
    assert books.last("free")["unopened"] == []


def test_an_open_by_another_rank_or_engine_works_and_is_seen(books):
    export = export_bucket(books.registry, 0, NAMED, [("e0", 0)])
    read(export, books.registry.bind("e0"), rank=1)
    assert books.last("open")["own"] is False
    read(export, books.registry.bind("e1"), rank=0)
    assert books.last("open")["own"] is False
    assert books.last("open")["times"] == 2
    read(export, books.registry, rank=0)
    assert books.last("open")["own"] is True


def test_memory_freed_too_early_is_poisoned_and_seen(books):
    export = export_bucket(books.registry, 0, NAMED, [("e0", 0)])
    export.release()
    assert books.last("free")["unopened"] == [1]
    values = read(export, books.registry)[0][1]
    assert not np.isin(values, NAMED[0][1]).any()
    assert np.isfinite(values).all()
    assert books.last("open")["state"] == "freed"


def test_memory_reused_too_early_shows_what_is_in_it_now(books):
    first = export_bucket(books.registry, 0, NAMED, [("e0", 0)])
    first.release()
    second = export_bucket(books.registry, 0, [("w", NAMED[0][1] + 100), ("v", NAMED[1][1])], [("e0", 0)])
    reuse = books.last("reuse")
    assert (reuse["exports"], reuse["unopened"], reuse["unreleased"]) == ([1], [1], [])
    assert read(first, books.registry)[0][1][0] == 100
    assert books.last("open")["state"] == "reused"
    assert read(second, books.registry)[0][1][0] == 100


def test_memory_in_use_is_never_handed_out_twice(books):
    first = export_bucket(books.registry, 0, NAMED)
    export_bucket(books.registry, 0, [("w", NAMED[0][1] + 100), ("v", NAMED[1][1])])
    assert read(first, books.registry)[0][1][0] == 0
    assert "reuse" not in books.names()


def test_gpus_have_memory_of_their_own(books):
    export_bucket(books.registry, 0, NAMED).release()
    export_bucket(books.registry, 1, NAMED)
    assert "reuse" not in books.names()


def test_a_handle_is_released_once(books):
    export = export_bucket(books.registry, 0, NAMED)
    export.release()
    export.release()
    assert books.names().count("release") == 1
    with pytest.raises(ValueError, match="export 1 is released twice"):
        books.registry.release(books.registry.handles[1])
    with pytest.raises(ValueError, match="freed twice"):
        books.registry.free(0, books.registry.handles[1].block)


def test_live_counts_what_nobody_released(books):
    exports = [export_bucket(books.registry, 0, NAMED), export_list(books.registry, 0, NAMED)]
    assert books.registry.live() == 3
    exports[1].release()
    assert books.registry.live() == 1


def test_the_exporting_process_cannot_open_its_own_handle(books):
    export = export_bucket(books.registry, 2, NAMED)
    assert error_of(export, books.registry.resolver("", process=2)) == (
        "torch.AcceleratorError",
        "CUDA error: invalid device context",
    )
    assert read(export, books.registry.resolver("", process=1))


def test_a_producer_that_is_gone_takes_its_handles_along(books):
    export = export_bucket(books.registry, 2, NAMED)
    books.registry.lose_rank(2)
    assert error_of(export, books.registry) == ("torch.AcceleratorError", "CUDA error: invalid resource handle")


def test_a_handle_of_another_world_is_no_handle(books):
    export = export_bucket(ExportRegistry(), 0, NAMED)
    export_bucket(books.registry, 0, NAMED)
    books.registry.handles.clear()
    kind, message = error_of(export, books.registry.resolver("", gpus=[0]))
    assert (kind, message) == ("torch.AcceleratorError", "CUDA error: invalid resource handle")


def test_a_gpu_that_the_engine_does_not_see_is_refused_by_its_uuid(books):
    export = export_bucket(books.registry, 5, NAMED)
    assert error_of(export, books.registry.resolver("e0", gpus=[0, 1])) == (
        "Exception",
        f"Invalid device_uuid={gpu_uuid(5)}",
    )
    assert read(export, books.registry.resolver("e0", gpus=[5]))


def test_probes_leave_no_record_and_may_be_opened_again(books):
    payloads = probe_payloads(books.registry, [dict(NAMED), dict(NAMED)])
    assert len(payloads) == 2
    for rank in (0, 0, 1):
        data = base64.b64decode(payloads[0])
        named = open_payload(
            data, profile_allow=EXACT202, rank=rank, load_format="flattened_bucket", resolver=books.registry
        )
        assert named[0][1].tolist() == NAMED[0][1].tolist()
    assert books.records == []
    assert books.registry.live() == 0


def test_probes_come_as_lists_too(books):
    (payload,) = probe_payloads(books.registry, [dict(NAMED)], None)
    data = base64.b64decode(payload)
    named = open_payload(data, profile_allow=EXACT202, rank=0, load_format=None, resolver=books.registry)
    assert [name for name, _ in named] == ["w", "v"]


def test_freed_memory_is_poisoned_for_whoever_looks_and_under_whoever_still_does():
    memory = DeviceMemory(0)
    unseen, _ = memory.allocate(6)
    unseen.fill([np.arange(6, dtype=np.uint8)])
    memory.free(unseen)
    assert unseen.data.tobytes() == bytes(POISON) * 3
    seen, _ = memory.allocate(4)
    seen.fill([np.arange(4, dtype=np.uint8)])
    view = seen.data[1:3]
    memory.free(seen)
    assert view.tobytes() == bytes([POISON[1], POISON[0]])


def test_memory_that_is_handed_out_again_holds_poison_until_it_is_filled():
    memory = DeviceMemory(0)
    first, _ = memory.allocate(4)
    first.fill([np.zeros(4, np.uint8)])
    memory.free(first)
    again, reused = memory.allocate(4)
    assert (again is first, reused) == (True, True)
    assert again.data.tobytes() == bytes(POISON) * 2
    memory.free(again)
    third, _ = memory.allocate(4)
    third.fill([np.ones(2, np.uint8), np.full(2, 7, np.uint8)])
    assert third.data.tolist() == [1, 1, 7, 7]
