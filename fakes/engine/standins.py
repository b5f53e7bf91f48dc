"""What every global of a payload resolves to: a stand-in that computes on numpy, or an inert object.

`Table` belongs to one unpickling: it knows the rank and the resolver, and has a budget for what containers may hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.engine.allowlist import LOAD_FROM_BYTES, AllowList
from fakes.engine.containers import BUILTINS, COLLECTIONS, Budget, check_codec
from fakes.engine.pickle_limits import check_torch_file
from fakes.engine.tensors import (
    CudaHandle,
    Dtype,
    PayloadError,
    Sealed,
    Size,
    Storage,
    Tensor,
    TypedStorage,
    contiguous_stride,
    dtype_named,
    integers,
    make_tensor,
)

if TYPE_CHECKING:
    from fakes.engine.payload import Resolver

MAX_HANDLE = 4096
"""Bytes of a handle; a CUDA-IPC handle has 64, a file name at most 255."""

_COPY_CHUNK = 1024
"""Bytes that are copied for the price of one element."""

MAX_GLOBALS = 10_000
"""How many different globals one pickle may name."""


class Function(metaclass=Sealed):
    """A callable that a pickle can call and nothing else."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._name = name
        self._call = call

    def __call__(self, *args: Any) -> Any:
        """Run it."""
        return self._call(*args)

    def __setstate__(self, state: object) -> None:
        raise PayloadError("TypeError", "a function has no state")


class Inert(metaclass=Sealed):
    """Something that the list admits but that no weight payload needs: made, kept, never run."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        """Takes anything."""
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class LocalSerializedTensor(metaclass=Sealed):
    """One pickle per rank (model_runner_components/weight_updater.py:451 @0.5.23)."""

    __slots__ = ("values",)
    values: Any

    def __setstate__(self, state: object) -> None:
        _set_known(self, state)


class FlattenedTensorMetadata(metaclass=Sealed):
    """name, shape, dtype, start_idx, end_idx, numel; the last three in bytes (weight_sync/tensor_bucket.py:8
    @0.5.23)."""

    def __init__(self, name: Any, shape: Any, dtype: Any, start_idx: Any, end_idx: Any, numel: Any) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.start_idx, self.end_idx, self.numel = start_idx, end_idx, numel

    __slots__ = ("dtype", "end_idx", "name", "numel", "shape", "start_idx")

    def __setstate__(self, state: object) -> None:
        _set_known(self, state)


def _set_known(target: Any, state: object) -> None:
    """Take the attributes that a class has from a pickled __dict__; others would be copied for nobody."""
    if not isinstance(state, dict):
        raise PayloadError("TypeError", f"the state of a {type(target).__name__} must be a dict")
    for name in type(target).__slots__:
        if name in state:
            setattr(target, name, state[name])


class FlattenedTensorBucket(metaclass=Sealed):
    """The bucket object itself: a payload must hold a dict instead, so subscripting it fails as in SGLang."""


class ClassArgument(metaclass=Sealed):
    """torch.Tensor, a storage class or torch.nn.Parameter: pickles name them as arguments of functions that do not
    care here. They cannot be called."""

    def __new__(cls) -> ClassArgument:
        """TypeError."""
        raise PayloadError("TypeError", "a payload makes no tensor by calling its class")


class SimpleNamespace(Inert):
    """types.SimpleNamespace: keeps nothing, no weight payload reads one."""


@dataclass
class Table:
    """find(module, name) for one unpickling."""

    allow: AllowList
    rank: int
    resolver: Resolver | None
    budget: Budget = field(default_factory=Budget)
    _made: dict[tuple[str, str], Any] = field(default_factory=dict)

    def find(self, module: str, name: str) -> Any:
        """The stand-in of a global; RuntimeError with SGLang's text when the list does not admit it."""
        if not self.allow.admits(module, name):
            raise PayloadError("RuntimeError", self.allow.refusal(module, name))
        key = (module, name)
        if key not in self._made:
            if len(self._made) >= MAX_GLOBALS:
                raise PayloadError("MemoryError", f"the pickle names more than {MAX_GLOBALS} globals")
            self._made[key] = self._make(module, name)
        return self._made[key]

    def _make(self, module: str, name: str) -> Any:
        if name == "LocalSerializedTensor" and module.startswith("sglang.srt.model_executor.model_runner"):
            if module != self.allow.local_tensor_module:
                raise PayloadError(
                    "AttributeError", f"Can't get attribute 'LocalSerializedTensor' on <module {module!r}>"
                )
            return LocalSerializedTensor
        if module == "torch" and (dtype := dtype_named(name)) is not None:
            return dtype
        if (module == "builtins" and name in BUILTINS) or (module == "collections" and name in COLLECTIONS):
            return Function(name, self.budget.function(name))
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        method = _METHODS.get((module, name))
        if method is not None:
            return Function(name, getattr(self, method))
        return Sealed(name, (Inert,), {"__module__": module, "__slots__": ()})

    def new_object(self, cls: Any, *args: Any) -> Any:
        """copyreg.__newobj__."""
        if not isinstance(cls, Sealed):
            raise PayloadError("TypeError", f"{type(cls).__name__!r} object cannot be made by a payload")
        made: Any = cls.__new__
        return made(cls, *args)

    def encode(self, text: Any, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """_codecs.encode, as old pickles spell bytes."""
        check_codec(encoding, errors)
        if not isinstance(text, str):
            raise PayloadError("TypeError", f"encode() argument 1 must be str, not {type(text).__name__}")
        self.budget.spend(len(text) // _COPY_CHUNK + 1)
        return text.encode(encoding, errors)

    def rebuild_tensor(self, cls: Any, storage: Any, metadata: Any) -> Tensor:
        """torch.multiprocessing.reductions.rebuild_tensor."""
        offset, size, stride, _ = metadata
        return self._strided(storage, offset, size, stride)

    def rebuild_tensor_v2(self, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
        """torch._utils._rebuild_tensor and its later versions; version 3 names the dtype at the end."""
        dtype = next((item for item in rest if isinstance(item, Dtype)), None)
        if dtype is not None and isinstance(storage, TypedStorage):
            storage = TypedStorage(storage.untyped, dtype)
        return self._strided(storage, offset, size, stride)

    def rebuild_parameter(self, data: Any, *rest: Any) -> Any:
        """torch._utils._rebuild_parameter: the tensor."""
        return data

    def rebuild_typed_storage(self, storage: Any, dtype: Any) -> TypedStorage:
        """torch.multiprocessing.reductions.rebuild_typed_storage."""
        if not isinstance(storage, Storage) or not isinstance(dtype, Dtype):
            raise PayloadError("TypeError", "rebuild_typed_storage needs a storage and a dtype")
        return TypedStorage(storage, dtype)

    def rebuild_storage_filename(
        self, cls: Any, manager: Any, handle: Any, size: Any, dtype: Any = None
    ) -> Storage | TypedStorage:
        """A CPU storage shared by file name."""
        nbytes = _number(size) * (dtype.itemsize if isinstance(dtype, Dtype) else 1)
        names = _handle(manager), _handle(handle)
        storage = Storage(self._resolver().shared(*names, nbytes))
        return TypedStorage(storage, dtype) if isinstance(dtype, Dtype) else storage

    def rebuild_storage_fd(self, *args: Any) -> Storage:
        """A CPU storage shared by file descriptor: between unrelated processes its resource sharer refuses the
        receiver."""
        raise PayloadError("multiprocessing.context.AuthenticationError", "digest received was wrong")

    def rebuild_storage_empty(self, *args: Any) -> Storage:
        """A storage of no bytes."""
        return Storage(np.empty(0, dtype=np.uint8))

    def load_from_bytes(self, data: Any) -> Any:
        """torch.storage._load_from_bytes."""
        if not isinstance(data, bytes | bytearray):
            raise PayloadError("TypeError", f"a bytes-like object is required, not {type(data).__name__!r}")
        self.budget.spend(len(data) // _COPY_CHUNK + 1)
        check_torch_file(data)
        array, name = self._resolver().torch_storage(bytes(data))
        dtype = dtype_named(name) if name else None
        return TypedStorage(Storage(array), dtype) if dtype else Storage(array)

    def rebuild_cuda_tensor(
        self,
        cls: Any,
        size: Any,
        stride: Any,
        offset: Any,
        storage_cls: Any,
        dtype: Any,
        device: Any,
        handle: Any,
        nbytes: Any,
        offset_bytes: Any,
        *rest: Any,
    ) -> Tensor:
        """rebuild_cuda_tensor(_modified): maps the whole storage once per handle (utils/patch_torch.py:80 @0.5.23)."""
        if not isinstance(dtype, Dtype):
            raise PayloadError("TypeError", f"{type(dtype).__name__!r} object is not a dtype")
        if not isinstance(device, int | str):
            raise PayloadError("Exception", f"Unknown type: type(device_maybe_uuid)={type(device)}")
        if handle is None or _number(nbytes) == 0:
            storage = self.rebuild_storage_empty()
        else:
            ipc = CudaHandle(device, _handle(handle), _number(nbytes), _number(offset_bytes))
            storage = Storage(self._resolver().cuda(ipc, self.rank))
        return make_tensor(storage, dtype, offset, size, stride)

    def _strided(self, storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
        if not isinstance(storage, TypedStorage):
            raise PayloadError("AttributeError", f"{type(storage).__name__!r} object has no attribute 'dtype'")
        steps = stride if stride is not None else contiguous_stride(integers(size, "set_", "size"))
        return make_tensor(storage.untyped, storage.dtype, offset, size, steps)

    def _resolver(self) -> Resolver:
        if self.resolver is None:
            raise PayloadError("RuntimeError", "this engine can open no handle: it was started without a resolver")
        return self.resolver


def _number(value: Any) -> int:
    """A size in bytes."""
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise PayloadError("TypeError", f"{type(value).__name__!r} object is not a size in bytes")
    return value


def _handle(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) > MAX_HANDLE:
        raise PayloadError("TypeError", f"a handle must be bytes, not {type(value).__name__!r}")
    return value


_PLAIN: dict[tuple[str, str], Any] = {
    ("torch", "Size"): Size,
    ("torch", "Tensor"): ClassArgument,
    ("torch", "UntypedStorage"): ClassArgument,
    ("torch.storage", "UntypedStorage"): ClassArgument,
    ("torch.storage", "_UntypedStorage"): ClassArgument,
    ("torch.storage", "TypedStorage"): ClassArgument,
    ("torch.nn.parameter", "Parameter"): ClassArgument,
    ("types", "SimpleNamespace"): SimpleNamespace,
    ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"): FlattenedTensorMetadata,
    ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorBucket"): FlattenedTensorBucket,
}
_METHODS: dict[tuple[str, str], str] = {
    ("copyreg", "__newobj__"): "new_object",
    ("_codecs", "encode"): "encode",
    LOAD_FROM_BYTES: "load_from_bytes",
    ("torch._utils", "_rebuild_tensor"): "rebuild_tensor_v2",
    ("torch._utils", "_rebuild_tensor_v2"): "rebuild_tensor_v2",
    ("torch._utils", "_rebuild_tensor_v3"): "rebuild_tensor_v2",
    ("torch._utils", "_rebuild_parameter"): "rebuild_parameter",
    ("torch.multiprocessing.reductions", "rebuild_tensor"): "rebuild_tensor",
    ("torch.multiprocessing.reductions", "rebuild_typed_storage"): "rebuild_typed_storage",
    ("torch.multiprocessing.reductions", "rebuild_storage_filename"): "rebuild_storage_filename",
    ("torch.multiprocessing.reductions", "rebuild_storage_fd"): "rebuild_storage_fd",
    ("torch.multiprocessing.reductions", "rebuild_storage_empty"): "rebuild_storage_empty",
    ("torch.multiprocessing.reductions", "rebuild_cuda_tensor"): "rebuild_cuda_tensor",
    ("sglang.srt.utils.patch_torch", "_rebuild_cuda_tensor_modified"): "rebuild_cuda_tensor",
}
