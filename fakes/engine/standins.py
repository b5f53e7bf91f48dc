"""What every global of a payload resolves to: a stand-in that computes on numpy, or an inert object.

`Table` belongs to one unpickling: it knows the rank and the resolver, and has a budget for what containers may hold.
"""

from __future__ import annotations

import builtins
import collections
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fakes.engine.allowlist import LOAD_FROM_BYTES, AllowList
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
    make_tensor,
)

if TYPE_CHECKING:
    from fakes.engine.payload import Resolver

CONTAINER_BUDGET = 4_000_000


class Function(metaclass=Sealed):
    """A callable that a pickle can call and nothing else."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self._name = name
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        return self._call(*args, **kwargs)

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

    values: list[bytes]


class FlattenedTensorMetadata(metaclass=Sealed):
    """name, shape, dtype, start_idx, end_idx, numel; the last three in bytes (weight_sync/tensor_bucket.py:8
    @0.5.23)."""

    def __init__(self, name: Any, shape: Any, dtype: Any, start_idx: Any, end_idx: Any, numel: Any) -> None:
        self.name, self.shape, self.dtype = name, shape, dtype
        self.start_idx, self.end_idx, self.numel = start_idx, end_idx, numel


class FlattenedTensorBucket(metaclass=Sealed):
    """The bucket object itself: a payload must hold a dict instead, so subscripting it fails as in SGLang."""


class Parameter(metaclass=Sealed):
    """The class argument torch.nn.Parameter; tensors do not care."""


@dataclass
class Table:
    """find(module, name) for one unpickling. `budget` is how many more elements containers may be given."""

    allow: AllowList
    rank: int
    resolver: Resolver | None
    budget: int = CONTAINER_BUDGET
    _made: dict[tuple[str, str], Any] = field(default_factory=dict)

    def find(self, module: str, name: str) -> Any:
        """The stand-in of a global; RuntimeError with SGLang's text when the list does not admit it."""
        if not self.allow.admits(module, name):
            raise PayloadError("RuntimeError", self.allow.refusal(module, name))
        key = (module, name)
        if key not in self._made:
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
        if module == "builtins" and name in _CONTAINERS:
            return Function(name, self._guarded(_CONTAINERS[name]))
        if module == "collections" and name in _COLLECTIONS:
            return Function(name, self._guarded(_COLLECTIONS[name]))
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        method = _METHODS.get((module, name))
        if method is not None:
            return Function(name, getattr(self, method))
        return Sealed(name, (Inert,), {"__module__": module, "__slots__": ()})

    def _guarded(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            for argument in args:
                size = argument if isinstance(argument, int) else len(argument) if hasattr(argument, "__len__") else 1
                if make in _SIZED or not isinstance(argument, int):
                    self.budget -= abs(size)
            if self.budget < 0:
                raise PayloadError("MemoryError", "the pickle builds more than a payload may hold")
            return make(*args)

        return call

    def new_object(self, cls: Any, *args: Any) -> Any:
        """copyreg.__newobj__."""
        if not isinstance(cls, Sealed):
            raise PayloadError("TypeError", f"{cls!r} cannot be made by a payload")
        made: Any = cls.__new__
        return made(cls, *args)

    def encode(self, text: Any, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """_codecs.encode, as old pickles spell bytes."""
        if not isinstance(text, str) or encoding.lower() not in ("latin1", "latin-1", "utf-8", "ascii"):
            raise PayloadError("LookupError", f"unknown encoding: {encoding}")
        return text.encode(encoding, "strict" if errors not in ("ignore", "replace") else errors)

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
        nbytes = int(size) * (dtype.itemsize if isinstance(dtype, Dtype) else 1)
        storage = Storage(self._resolver().shared(bytes(manager), bytes(handle), nbytes))
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
            raise PayloadError("TypeError", f"{dtype!r} is not a dtype")
        if not isinstance(device, int | str):
            raise PayloadError("Exception", f"Unknown type: device_maybe_uuid={device!r}")
        if handle is None or int(nbytes) == 0:
            storage = self.rebuild_storage_empty()
        else:
            ipc = CudaHandle(device, bytes(handle), int(nbytes), int(offset_bytes))
            storage = Storage(self._resolver().cuda(ipc, self.rank))
        return make_tensor(storage, dtype, int(offset), tuple(size), tuple(stride))

    def _strided(self, storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
        if not isinstance(storage, TypedStorage):
            raise PayloadError("AttributeError", f"{type(storage).__name__!r} object has no attribute 'dtype'")
        steps = tuple(stride) if stride is not None else contiguous_stride(tuple(size))
        return make_tensor(storage.untyped, storage.dtype, int(offset), tuple(size), steps)

    def _resolver(self) -> Resolver:
        if self.resolver is None:
            raise PayloadError("RuntimeError", "this engine can open no handle: it was started without a resolver")
        return self.resolver


_SIZED: tuple[Any, ...] = (bytes, bytearray, range)
_CONTAINERS: dict[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in [
        "bool",
        "bytearray",
        "bytes",
        "complex",
        "dict",
        "float",
        "frozenset",
        "int",
        "list",
        "range",
        "set",
        "slice",
        "str",
        "tuple",
    ]
}
_COLLECTIONS: dict[str, Callable[..., Any]] = {
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda *args: collections.defaultdict(None, *args[1:]),
    "deque": collections.deque,
    "Counter": collections.Counter,
}
_PLAIN: dict[tuple[str, str], Any] = {
    ("torch", "Size"): Size,
    ("torch", "Tensor"): Tensor,
    ("torch", "UntypedStorage"): Storage,
    ("torch.storage", "UntypedStorage"): Storage,
    ("torch.storage", "_UntypedStorage"): Storage,
    ("torch.storage", "TypedStorage"): TypedStorage,
    ("torch.nn.parameter", "Parameter"): Parameter,
    ("types", "SimpleNamespace"): types.SimpleNamespace,
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
