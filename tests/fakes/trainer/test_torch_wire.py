"""Payloads over torch's shared memory: what torch reads, what the fake reads, and what is left in shared memory."""

from __future__ import annotations

import base64
import gc
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from fakes.engine.allowlist import ALLOW_LISTS, EXACT202
from fakes.engine.payload import PayloadError, open_payload
from fakes.trainer import TorchResolver, TrainerKit, shm
from fakes.trainer.shm import leftovers
from fakes.trainer.torch_wire import export_bucket, export_list, file_share, torch_share

torch = pytest.importorskip("torch", reason="payloads of real torch; without it the fakes need none")

NAMED = [
    ("a", np.arange(12, dtype=np.float32).reshape(3, 4).astype(ml_dtypes.bfloat16)),
    ("b", np.array(2.5, dtype=np.float32)),
    ("c", np.arange(4, dtype=np.int32)),
]


def read(export, load_format, allow=EXACT202):
    data = base64.b64decode(export.payload)
    return open_payload(data, profile_allow=allow, rank=0, load_format=load_format, resolver=TorchResolver())


def same(got):
    assert [name for name, _ in got] == [name for name, _ in NAMED]
    for (_, ours), (_, theirs) in zip(got, NAMED, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert (ours == theirs).all()


@pytest.fixture(autouse=True)
def _nothing_is_left_in_shared_memory():
    before = leftovers()
    yield
    gc.collect()
    assert leftovers() == before


@pytest.mark.parametrize("share", [torch_share, file_share])
@pytest.mark.parametrize("allow", ALLOW_LISTS.values(), ids=lambda allow: allow.key)
def test_the_fake_reads_both_forms(allow, share):
    for export, load_format in (
        (export_bucket(NAMED, share), "flattened_bucket"),
        (export_list(NAMED, share), None),
        (export_list(NAMED, share), "direct"),
    ):
        same(read(export, load_format, allow))
        export.release()


def test_another_process_reads_it_with_torch_alone():
    export = export_list(NAMED)
    code = (
        "import sys, base64, pickle, torch\n"
        "for name, t in pickle.loads(base64.b64decode(sys.argv[1])): print(name, t.dtype, t.flatten().tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code, export.payload], text=True, capture_output=True, check=True)
    export.release()
    assert out.stdout.splitlines() == [
        f"a torch.bfloat16 {[float(x) for x in range(12)]}",
        "b torch.float32 [2.5]",
        "c torch.int32 [0, 1, 2, 3]",
    ]


def test_the_fake_reads_what_torch_itself_pickles():
    from multiprocessing.reduction import ForkingPickler

    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        base = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
        data = bytes(ForkingPickler.dumps([("t", base.t()), ("row", base[1]), ("p", torch.nn.Parameter(base.float()))]))
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)
    named = dict(open_payload(data, profile_allow=EXACT202, rank=0, load_format=None, resolver=TorchResolver()))
    assert named["t"].tolist() == base.t().tolist()
    assert named["row"].tolist() == base[1].tolist()
    assert named["p"].dtype == np.float32


def test_the_fake_reads_a_plain_torch_pickle():
    data = pickle.dumps([("t", torch.arange(3.0))])
    ((_, array),) = open_payload(data, profile_allow=EXACT202, rank=0, load_format=None, resolver=TorchResolver())
    assert array.tolist() == [0, 1, 2]


@pytest.mark.parametrize("share", [torch_share, file_share])
def test_a_payload_dies_with_its_release(share):
    export = export_bucket(NAMED, share)
    export.release()
    with pytest.raises(PayloadError) as error:
        read(export, "flattened_bucket")
    assert (error.value.type, error.value.message) == ("RuntimeError", "No such file or directory")


@pytest.mark.parametrize("handle", [b"/../../etc/passwd", b"/torch_1_2", b"\xff", b"/torch_1_2_3/../x"])
def test_only_torchs_own_names_are_opened(handle):
    with pytest.raises(PayloadError) as error:
        TorchResolver().shared(b"/nowhere", handle, 8)
    assert error.value.type == "RuntimeError"


def test_a_storage_that_claims_more_than_its_file_holds_is_refused():
    export = export_bucket(NAMED)
    (storage,) = export._storages
    with pytest.raises(PayloadError):
        TorchResolver().shared(storage.manager, storage.handle, 1 << 40)
    export.release()


def test_broken_nested_storages_are_refused():
    with pytest.raises(PayloadError):
        TorchResolver().torch_storage(b"no zip")


def test_there_is_no_gpu():
    with pytest.raises(PayloadError, match="Torch not compiled with CUDA enabled"):
        TorchResolver().cuda(None, 0)


def test_a_payload_has_one_opening_and_the_producers_mapping():
    export = export_bucket(NAMED, file_share)
    (handle,) = [storage.handle for storage in export._storages]
    same(read(export, "flattened_bucket"))
    assert shm.leftovers()
    same(read(export, "flattened_bucket"))  # the second opening takes the producer's own reference
    assert handle[1:].decode() not in shm.leftovers()
    with pytest.raises(PayloadError):
        read(export, "flattened_bucket")
    export.release()


def test_reading_and_writing_files_needs_no_torch():
    code = (
        "import sys, base64, numpy as np\n"
        "from fakes.trainer import TrainerKit, TorchResolver\n"
        "from fakes.engine.payload import open_payload\n"
        "from fakes.engine.allowlist import EXACT202\n"
        "export = TrainerKit(None, 1, wire='shm').export(0, [('a', np.ones(3, np.float32))])\n"
        "data = base64.b64decode(export.payload)\n"
        "got = open_payload(data, profile_allow=EXACT202, rank=0, load_format='flattened_bucket',"
        " resolver=TorchResolver())\n"
        "export.release()\n"
        "print(got[0][1].tolist(), 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert out.stdout == "[1.0, 1.0, 1.0] False\n"


def test_a_process_that_ends_without_releasing_leaves_nothing():
    code = (
        "import numpy as np\n"
        "from fakes.trainer import shm, torch_wire\n"
        "kept = torch_wire.export_list([('a', np.ones(3, np.float32))], torch_wire.file_share)\n"
        "print(*shm.leftovers())"
    )
    out = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    (name,) = out.stdout.split()
    assert not (shm.FOLDER / name).exists()


@pytest.mark.parametrize("wire", ["torch", "shm"])
def test_the_kit_records_counts_and_frees_shared_exports(wire):
    records = []
    kit = TrainerKit(None, 1, lambda name, rank, data: records.append(name), wire=wire)
    first, second = kit.export(0, NAMED, (("e0", 0),)), kit.export(0, NAMED, (("e0", 0),), None)
    assert kit.live_exports() == 2
    first.release()
    first.release()
    assert kit.live_exports() == 1
    kit.close()
    assert kit.live_exports() == 0
    assert records == ["export", "export", "release", "free", "release", "free"]
    del second
