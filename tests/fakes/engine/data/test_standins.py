"""What a global of a payload resolves to, and what may be done with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.engine import standins
from fakes.engine.allowlist import EXACT200, EXACT202, LOAD_FROM_BYTES, PREFIX30, PREFIX33
from fakes.engine.standins import MAX_HANDLE, Table
from fakes.engine.tensors import (
    CudaHandle,
    Dtype,
    PayloadError,
    Sealed,
    Size,
    Storage,
    Tensor,
    TypedStorage,
    dtype_named,
)

OLD, NEW = "sglang.srt.model_executor.model_runner", PREFIX33.local_tensor_module
BUCKET = "sglang.srt.weight_sync.tensor_bucket"
REDUCTIONS = "torch.multiprocessing.reductions"


class Files:
    """A resolver that remembers what it was asked for."""

    def __init__(self, name: str | None = None) -> None:
        self.asked: list[Any] = []
        self.name = name
        self.bytes = np.arange(64, dtype=np.uint8)

    def cuda(self, handle: CudaHandle, rank: int) -> np.ndarray:
        self.asked.append((handle, rank))
        return self.bytes

    def shared(self, manager: bytes, handle: bytes, size: int) -> np.ndarray:
        self.asked.append((manager, handle, size))
        return self.bytes

    def torch_storage(self, data: bytes) -> tuple[np.ndarray, str | None]:
        self.asked.append(data)
        return self.bytes, self.name


def table(allow: Any = PREFIX33, rank: int = 3, resolver: Files | None = None) -> Table:
    return Table(allow, rank, resolver)


def said(call: Any) -> str:
    with pytest.raises(PayloadError) as error:
        call()
    return f"{error.value.type}: {error.value.message}"


def dtype(name: str) -> Dtype:
    found = dtype_named(name)
    assert found is not None
    return found


F32, U8 = dtype("float32"), dtype("uint8")


def test_globals_resolve_once_to_what_they_stand_for() -> None:
    made = table()
    assert made.find("torch", "float32") is F32
    assert made.find("torch", "half") is dtype("float16")
    assert made.find("torch", "Size") is Size
    assert made.find("builtins", "list")((1, 2)) == [1, 2]
    assert made.find("collections", "deque")((1, 2)).pop() == 2
    assert made.find(BUCKET, "FlattenedTensorMetadata") is standins.FlattenedTensorMetadata
    assert made.find(NEW, "LocalSerializedTensor") is standins.LocalSerializedTensor
    inert = made.find("transformers.models", "Anything")
    assert made.find("transformers.models", "Anything") is inert
    assert (inert.__name__, inert.__module__, isinstance(inert, Sealed)) == (
        "Anything",
        "transformers.models",
        True,
    )
    thing = inert(1, key=2)
    thing.__setstate__({"evil": 1})
    assert not hasattr(thing, "evil")


@pytest.mark.parametrize(("module", "name"), [("collections", "list"), ("builtins", "deque"), ("operator", "dict")])
def test_a_name_counts_in_its_own_module_only(module: str, name: str) -> None:
    assert issubclass(table().find(module, name), standins.Inert)


def test_what_the_list_does_not_admit_is_refused_in_its_words() -> None:
    blocked = "RuntimeError: Blocked unsafe global (os.system) during pickle deserialization"
    assert said(lambda: table(EXACT202).find("os", "system")) == blocked
    assert said(lambda: table().find("os", "system")).startswith(
        "RuntimeError: Blocked unsafe class loading (os.system)"
    )


@pytest.mark.parametrize("allow", [EXACT200, EXACT202])
def test_an_exact_list_admits_torchs_loader_which_sglang_replaces(allow: Any) -> None:
    """utils/common.py:3362@0.5.23: torch.storage._load_from_bytes with weights_only."""
    assert allow.admits(*LOAD_FROM_BYTES)
    assert LOAD_FROM_BYTES not in allow.exact


@pytest.mark.parametrize(
    ("allow", "there", "other"), [(PREFIX30, OLD, None), (PREFIX33, NEW, OLD), (EXACT202, NEW, OLD)]
)
def test_where_a_local_serialized_tensor_lives(allow: Any, there: str, other: str | None) -> None:
    assert table(allow).find(there, "LocalSerializedTensor") is standins.LocalSerializedTensor
    if other is not None:
        words = f"AttributeError: Can't get attribute 'LocalSerializedTensor' on <module {other!r}>"
        assert said(lambda: table(allow).find(other, "LocalSerializedTensor")) == words
    assert issubclass(table(PREFIX33).find("transformers.x", "LocalSerializedTensor"), standins.Inert)
    assert table(allow).find(there, "LocalSerializedTensor") is not table(PREFIX33).find(NEW, "Other")


def test_how_many_globals_a_pickle_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standins, "MAX_GLOBALS", 2)
    made = table()
    for name in ("A", "B", "A", "B"):
        made.find("transformers", name)
    assert said(lambda: made.find("transformers", "C")) == "MemoryError: the pickle names more than 2 globals"


def test_functions_have_no_state_and_classes_of_tensors_are_not_called() -> None:
    made = table()
    words = "TypeError: a function has no state"
    assert said(lambda: made.find("builtins", "int").__setstate__({})) == words
    words = "TypeError: a payload makes no tensor by calling its class"
    assert said(made.find("torch", "Tensor")) == words


def test_only_known_attributes_are_taken() -> None:
    part = standins.LocalSerializedTensor()
    part.__setstate__({"values": [1], "evil": 2})
    assert part.values == [1]
    assert not hasattr(part, "evil")
    words = "TypeError: the state of a LocalSerializedTensor must be a dict"
    assert said(lambda: part.__setstate__([1])) == words
    meta = standins.FlattenedTensorMetadata("n", 1, 2, 3, 4, 5)
    assert (meta.name, meta.shape, meta.dtype, meta.start_idx, meta.end_idx, meta.numel) == ("n", 1, 2, 3, 4, 5)
    meta.__setstate__({"name": "m", "numel": 9})
    assert (meta.name, meta.shape, meta.numel) == ("m", 1, 9)


def test_new_objects_are_made_of_classes_of_ours_only() -> None:
    """copyreg.__newobj__(cls, *args)."""
    make = table().find("copyreg", "__newobj__")
    assert make(Size, (2, 3)) == Size((2, 3))
    assert isinstance(make(standins.LocalSerializedTensor), standins.LocalSerializedTensor)
    assert said(lambda: make(print)) == "TypeError: 'builtin_function_or_method' object cannot be made by a payload"
    assert said(lambda: make(int)) == "TypeError: 'type' object cannot be made by a payload"


def test_old_pickles_spell_bytes_by_a_codec() -> None:
    made = table(EXACT202)
    encode = made.find("_codecs", "encode")
    left = made.budget.left
    assert encode("é", "latin1") == b"\xe9"
    assert left - made.budget.left == 1
    assert encode("x" * 2048) == b"x" * 2048
    assert left - made.budget.left == 1 + 3
    assert said(lambda: encode("x", "idna")) == "LookupError: unknown encoding: idna"
    assert said(lambda: encode(b"x", "latin1")) == "TypeError: encode() argument 1 must be str, not bytes"


def test_tensors_are_rebuilt_over_their_storage() -> None:
    made = table()
    typed = TypedStorage(Storage(np.arange(16, dtype=np.uint8)), F32)
    plain = made.rebuild_tensor(None, typed, (1, (3,), (1,), False))
    assert (plain.dtype, plain.offset, plain.shape, plain.stride) == (F32, 1, (3,), (1,))
    second = made.rebuild_tensor_v2(typed, 0, (2, 2), (2, 1), False, {})
    assert (second.dtype, second.shape) == (F32, (2, 2))
    third = made.rebuild_tensor_v2(typed, 0, (4,), (1,), U8, {}, "x")
    assert (third.dtype, third.storage) == (U8, typed.untyped)
    assert made.rebuild_tensor_v2(typed, 0, (2, 2), None).stride == (2, 1)
    words = "AttributeError: 'Storage' object has no attribute 'dtype'"
    assert said(lambda: made.rebuild_tensor_v2(typed.untyped, 0, (4,), (1,), U8)) == words
    assert said(lambda: made.rebuild_tensor_v2(typed, 0, "x", None)).startswith("TypeError: set_(): argument 'size'")
    assert made.rebuild_parameter("data", True, {}) == "data"


def test_typed_storages_need_a_storage_and_a_dtype() -> None:
    made, storage = table(), Storage(np.zeros(4, np.uint8))
    typed = made.rebuild_typed_storage(storage, F32)
    assert (typed.untyped, typed.dtype) == (storage, F32)
    words = "TypeError: rebuild_typed_storage needs a storage and a dtype"
    for wrong in ((storage, "float32"), ("x", F32), (None, None)):
        assert said(lambda wrong=wrong: made.rebuild_typed_storage(*wrong)) == words


def test_storages_by_file_name() -> None:
    files = Files()
    made = table(resolver=files)
    plain = made.rebuild_storage_filename(None, b"m", b"h", 16)
    assert isinstance(plain, Storage)
    typed = made.rebuild_storage_filename(None, b"m", b"h", 16, F32)
    assert isinstance(typed, TypedStorage)
    assert (typed.dtype, typed.untyped.data is files.bytes) == (F32, True)
    assert files.asked == [(b"m", b"h", 16), (b"m", b"h", 64)]
    for size in (-1, 1 << 63, "16", None):
        words = f"TypeError: {type(size).__name__!r} object is not a size in bytes"
        assert said(lambda size=size: made.rebuild_storage_filename(None, b"m", b"h", size)) == words
    made.rebuild_storage_filename(None, b"m" * MAX_HANDLE, b"h", (1 << 63) - 1)
    assert (
        said(lambda: made.rebuild_storage_filename(None, "m", b"h", 1))
        == "TypeError: a handle must be bytes, not 'str'"
    )
    assert said(lambda: made.rebuild_storage_filename(None, b"m", b"h" * (MAX_HANDLE + 1), 1)).startswith("TypeError")
    words = "RuntimeError: this engine can open no handle: it was started without a resolver"
    assert said(lambda: table().rebuild_storage_filename(None, b"m", b"h", 1)) == words


def test_storages_of_nothing_and_by_descriptor() -> None:
    assert table().rebuild_storage_empty(1, 2).data.size == 0
    words = "multiprocessing.context.AuthenticationError: digest received was wrong"
    assert said(table().rebuild_storage_fd) == words


@pytest.mark.parametrize("name", [None, "float32"])
def test_what_torch_saved(name: str | None) -> None:
    files = Files(name)
    made = table(EXACT202, resolver=files)
    load = made.find(*LOAD_FROM_BYTES)
    left = made.budget.left
    found = load(bytearray(b"N." + b"x" * 2046))
    assert left - made.budget.left == 3
    assert files.asked == [b"N." + b"x" * 2046]
    if name is None:
        assert isinstance(found, Storage)
    else:
        assert isinstance(found, TypedStorage)
        assert found.dtype is F32
    assert said(lambda: load("text")) == "TypeError: a bytes-like object is required, not 'str'"
    bomb = b"}" + b"X\xd0\xfb\0\0" + b"k" * 64464 + b"N" + b"s."
    assert said(lambda: load(bomb)).startswith("MemoryError")
    assert len(files.asked) == 1, "what is refused is not read"
    made.budget.left = 0
    assert said(lambda: load(bomb)) == "MemoryError: the pickle builds more than a payload may hold", "paid for first"


def cuda(made: Table, **more: Any) -> Tensor:
    given = {"dtype": F32, "device": 0, "handle": b"h" * 64, "nbytes": 64, "offset_bytes": 512, **more}
    return made.rebuild_cuda_tensor(None, (2, 2), (2, 1), 1, None, *given.values(), "ref", "counter")


def test_cuda_handles_are_opened_in_the_engines_rank() -> None:
    """utils/patch_torch.py:80@0.5.23: the device is an index or a uuid."""
    files = Files()
    made = table(rank=3, resolver=files)
    for device in (0, "GPU-1"):
        tensor = cuda(made, device=device)
        assert (tensor.dtype, tensor.offset, tensor.shape, tensor.stride) == (F32, 1, (2, 2), (2, 1))
        assert tensor.storage.data is files.bytes
    assert files.asked == [(CudaHandle(device, b"h" * 64, 64, 512), 3) for device in (0, "GPU-1")]
    assert said(lambda: cuda(made, dtype="float32")) == "TypeError: 'str' object is not a dtype"
    assert said(lambda: cuda(made, device=None)) == (
        "Exception: Unknown type: type(device_maybe_uuid)=<class 'NoneType'>"
    )
    assert len(files.asked) == 2


@pytest.mark.parametrize("nothing", [{"handle": None}, {"nbytes": 0}, {"handle": None, "nbytes": "x"}])
def test_a_tensor_of_nothing_has_no_handle_to_open(nothing: dict[str, Any]) -> None:
    files = Files()
    assert said(lambda: cuda(table(resolver=files), **nothing)).startswith("RuntimeError: setStorage")
    assert files.asked == []


@pytest.mark.parametrize("allow", [PREFIX30, PREFIX33])
def test_the_old_lists_deny_a_few_names_of_the_modules_that_they_admit(allow: Any) -> None:
    """utils/common.py:2797@0.5.17: DENY_CLASSES before ALLOWED_MODULE_PREFIXES."""
    for module, name in (("builtins", "eval"), ("builtins", "exec"), ("types", "CodeType"), ("types", "FunctionType")):
        assert not allow.admits(module, name)
        assert allow.admits(module, "Other")
