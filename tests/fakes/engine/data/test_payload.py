"""What a payload may hold, and the words of what it may not (checked against torch where torch says them)."""

from __future__ import annotations

import base64
import pickle

import ml_dtypes
import numpy as np
import pytest

from fakes.engine.allowlist import ALLOW_LISTS, EXACT202, PREFIX30, PREFIX33
from fakes.engine.payload import PayloadError, open_payload
from fakes.trainer.pickling import Global, Object, Reduce, dumps
from fakes.trainer.registry import ExportRegistry
from fakes.trainer.wire import export_bucket, export_list

NAMED = [
    ("a", np.arange(12, dtype=np.float32).reshape(3, 4).astype(ml_dtypes.bfloat16)),
    ("b", np.array(2.5, dtype=np.float32)),
    ("empty", np.empty((0, 4), dtype=np.float32)),
    ("c", np.arange(5, dtype=np.float32)),
]
METADATA = Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata")
UINT8 = [("u", np.arange(8, dtype=np.uint8))]


@pytest.fixture
def registry():
    return ExportRegistry()


def opened(data, registry=None, *, load_format=None, allow=EXACT202, rank=0):
    return open_payload(data, profile_allow=allow, rank=rank, load_format=load_format, resolver=registry)


def raw(export):
    return base64.b64decode(export.payload)


def said(data, registry=None, **options):
    with pytest.raises(PayloadError) as error:
        opened(data, registry, **options)
    return error.value.type, error.value.message


def same(got, wanted):
    assert [name for name, _ in got] == [name for name, _ in wanted]
    for (_, ours), (_, theirs) in zip(got, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert (ours == theirs).all()


@pytest.mark.parametrize("allow", ALLOW_LISTS.values(), ids=lambda allow: allow.key)
def test_a_bucket_comes_back_with_names_dtypes_and_shapes(registry, allow):
    data = raw(export_bucket(registry, 0, NAMED))
    same(opened(data, registry, load_format="flattened_bucket", allow=allow), NAMED)


@pytest.mark.parametrize("load_format", [None, "direct"])
def test_a_list_of_tensors_comes_back(registry, load_format):
    same(opened(raw(export_list(registry, 0, NAMED)), registry, load_format=load_format), NAMED)


def test_arrays_are_views_of_the_producers_memory(registry):
    export = export_bucket(registry, 0, NAMED)
    ((_, array), *_) = opened(raw(export), registry, load_format="flattened_bucket")
    before = array.copy()
    export.release()
    assert not (array == before).any()


def test_an_empty_list_is_fine_and_an_empty_bucket_cannot_be_made(registry):
    assert opened(dumps([])) == []
    with pytest.raises(ValueError, match="Cannot create empty tensor bucket"):
        export_bucket(registry, 0, [])


@pytest.mark.parametrize(
    ("value", "load_format", "error"),
    [
        ([], "bogus", ("NotImplementedError", "Unknown load_format=bogus")),
        ([], "auto", ("NotImplementedError", "Unknown load_format=auto")),
        ([], "flattened_bucket", ("TypeError", "list indices must be integers or slices, not str")),
        ({"flattened_tensor": None, "metadata": []}, None, ("ValueError", "too many values to unpack (expected 2)")),
        (
            {"flattened_tensor": None, "metadata": []},
            "flattened_bucket",
            ("ValueError", "Must provide either named_tensors or both flattened_tensor and metadata"),
        ),
        ({"flattened_tensor": None}, "flattened_bucket", ("KeyError", "'metadata'")),
        (None, None, ("TypeError", "'NoneType' object is not iterable")),
        ([1], None, ("TypeError", "cannot unpack non-iterable int object")),
        ("abc", None, ("ValueError", "not enough values to unpack (expected 2, got 1)")),
        ([("a", "b")], None, ("AttributeError", "'str' object has no attribute 'to'")),
        (
            {"flattened_tensor": None, "metadata": [{"name": "a"}]},
            "flattened_bucket",
            ("AttributeError", "'dict' object has no attribute 'name'"),
        ),
    ],
)
def test_the_wrong_kind_of_object_dies_of_what_python_says(value, load_format, error):
    assert said(dumps(value), load_format=load_format) == error


def test_a_bucket_object_in_place_of_its_dict_cannot_be_subscripted():
    bucket = Object(Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorBucket"), {"metadata": []})
    assert said(dumps(bucket), load_format="flattened_bucket") == (
        "TypeError",
        "'FlattenedTensorBucket' object is not subscriptable",
    )


def test_the_load_format_is_judged_after_the_tensors_were_opened(registry):
    export = export_list(registry, 0, NAMED)
    assert said(raw(export), registry, load_format="bogus")[0] == "NotImplementedError"
    assert export.opened == 3  # the empty tensor has nothing to open


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ("EOFError", "Ran out of input")),
        (b"hello world", ("_pickle.UnpicklingError", "Memo value not found at index 101")),
        (dumps("x" * 100)[:50], ("_pickle.UnpicklingError", "pickle data was truncated")),
        (b"\x80\x63.", ("ValueError", "unsupported pickle protocol: 99")),
        (b"\xff\xff", ("_pickle.UnpicklingError", "invalid load key, '\\xff'.")),
    ],
)
def test_garbage_dies_of_what_the_unpickler_says(data, error):
    assert said(data) == error


def rebuilt(metadata, registry, size=16):
    """A bucket whose metadata is made up."""
    block = raw(export_bucket(registry, 0, [("x", np.zeros(size, np.uint8))]))
    tensor = _tensor_reduce(registry, block)
    items = [
        Object(
            METADATA,
            {
                "name": name,
                "shape": Reduce(Global("torch", "Size"), (tuple(shape),)),
                "dtype": Global("torch", dtype),
                "start_idx": start,
                "end_idx": end,
                "numel": end - start,
            },
        )
        for name, shape, dtype, start, end in metadata
    ]
    return dumps({"flattened_tensor": tensor, "metadata": items})


def _tensor_reduce(registry, block):
    from fakes.trainer.wire import _tensor

    item = next(reversed(registry.handles.values()))
    return _tensor(item, "uint8", (item.block.data.size,))


ODD = [
    (("x", (1,), "bfloat16", 1, 3), "self.storage_offset() must be divisible by 2 to view Byte as BFloat16"),
    (("x", (2,), "float32", 2, 10), "self.storage_offset() must be divisible by 4 to view Byte as Float"),
    (("x", (1,), "int64", 4, 12), "self.storage_offset() must be divisible by 8 to view Byte as Long"),
    (("x", (2,), "bfloat16", 0, 5), "self.size(-1) must be divisible by 2 to view Byte as BFloat16"),
    (("x", (3, 5), "bfloat16", 0, 4), "shape '[3, 5]' is invalid for input of size 2"),
    (("x", (2,), "bfloat16", 0, 99), "shape '[2]' is invalid for input of size 8"),
]


@pytest.mark.parametrize(("meta", "text"), ODD)
def test_a_bucket_that_does_not_fit_its_metadata_dies_of_torchs_words(registry, meta, text):
    kind, message = said(rebuilt([meta], registry), registry, load_format="flattened_bucket")
    assert kind == "RuntimeError"
    assert message.startswith(text)


@pytest.mark.parametrize(("meta", "text"), ODD)
def test_torch_says_the_same_words(meta, text):
    torch = pytest.importorskip("torch", reason="payloads of real torch; without it the fakes need none")
    _, shape, dtype, start, end = meta
    with pytest.raises(RuntimeError) as error:
        torch.zeros(16, dtype=torch.uint8)[start:end].view(getattr(torch, dtype)).reshape(torch.Size(shape))
    assert str(error.value).startswith(text)


def test_every_rank_opens_its_own_part_of_a_local_serialized_tensor(registry):
    parts = [raw(_single(registry, rank)) for rank in (0, 1)]
    module = "sglang.srt.model_executor.model_runner_components.weight_updater"
    data = dumps([("w", Object(Global(module, "LocalSerializedTensor"), {"values": parts}))])
    for rank in (0, 1):
        ((name, array),) = opened(data, registry, rank=rank)
        assert (name, array.tolist()) == ("w", [rank] * 4)
    assert said(data, registry, rank=2) == ("IndexError", "list index out of range")


@pytest.mark.parametrize(("allow", "there"), [(PREFIX30, "old"), (PREFIX33, "new"), (EXACT202, "new")])
def test_local_serialized_tensor_lives_where_its_version_has_it(registry, allow, there):
    names = {
        "old": "sglang.srt.model_executor.model_runner",
        "new": "sglang.srt.model_executor.model_runner_components.weight_updater",
    }
    for which, module in names.items():
        data = dumps([("w", Object(Global(module, "LocalSerializedTensor"), {"values": [raw(_single(registry, 0))]}))])
        if which == there:
            assert len(opened(data, registry, allow=allow)) == 1
        else:
            assert said(data, registry, allow=allow)[0] in ("AttributeError", "RuntimeError")


def _single(registry, rank):
    """A pickle of one bare tensor."""
    export = export_list(registry, rank, [("w", np.full(4, rank, np.float32))])

    class Bare:
        payload = base64.b64encode(
            dumps(_bare(next(reversed(registry.handles.values())))),
        ).decode()

    del export
    return Bare


def _bare(item):
    from fakes.trainer.wire import _tensor

    return _tensor(item, "float32", (4,))


def test_without_a_resolver_no_handle_opens(registry):
    kind, _ = said(raw(export_bucket(registry, 0, UINT8)), None, load_format="flattened_bucket")
    assert kind == "RuntimeError"


def test_what_a_python_trainer_pickles_is_read_too():
    data = pickle.dumps([("a", 1.5)])
    assert said(data) == ("AttributeError", "'float' object has no attribute 'to'")
