"""Stand-ins for the torch objects inside a payload: enough of Tensor, Storage, dtype and Size to reconstruct a bucket.

numpy underneath, views without copies, torch's own errors. Nothing here can be patched by a pickle: the classes refuse
attributes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fakes.tiny import NUMPY_DTYPES


class PayloadError(Exception):
    """What SGLang would have raised while opening a payload: `type` as its log shows it, `message` is
    str(exception)."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


@dataclass(frozen=True)
class CudaHandle:
    """A CUDA-IPC handle as it stands in a payload. `device` is a GPU uuid or an index; `size` and `offset` are in
    bytes."""

    device: str | int
    handle: bytes
    size: int
    offset: int


def _fits(number: int) -> bool:
    return number.bit_length() < 64


def integers(value: Any, function: str, argument: str) -> tuple[int, ...]:
    """A list or tuple of at most MAX_DIMENSIONS 64-bit integers, as `function` of torch takes it for `argument`."""
    if not isinstance(value, tuple | list):
        text = f"{function}(): argument '{argument}' (position 1) must be tuple of ints, not {type(value).__name__}"
        raise PayloadError("TypeError", text)
    if len(value) > MAX_DIMENSIONS:
        raise PayloadError("MemoryError", f"{function}(): a tensor of more than {MAX_DIMENSIONS} dimensions")
    for index, item in enumerate(value):
        if not isinstance(item, int):
            text = (
                f"{function}(): argument '{argument}' (position 1) must be tuple of ints, "
                f"but found element of type {type(item).__name__} at pos {index}"
            )
            raise PayloadError("TypeError", text)
        if not _fits(item):
            text = f"{function}(): argument '{argument}' failed to unpack the object at pos {index + 1} with error "
            raise PayloadError("TypeError", f'{text}"Overflow when unpacking long long"')
    return tuple(value)


class Sealed(type):
    """A class whose attributes a pickle cannot set."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise PayloadError("AttributeError", f"cannot set {name!r} of {cls.__name__}")

    def __delattr__(cls, name: str) -> None:
        raise PayloadError("AttributeError", f"cannot delete {name!r} of {cls.__name__}")


MAX_DIMENSIONS = 64
"""Of a tensor here; numpy's own limit."""


class Size(tuple[int, ...], metaclass=Sealed):
    """torch.Size. TypeError and ValueError as torch's for what is no integer, or none of 64 bits."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        """From an iterable of at most MAX_DIMENSIONS integers."""
        items = tuple(itertools.islice(sizes, MAX_DIMENSIONS + 1))
        for index, item in enumerate(items):
            if not isinstance(item, int):
                text = f"torch.Size() takes an iterable of 'int' (item {index} is '{type(item).__name__}')"
                raise PayloadError("TypeError", text)
            if not _fits(item):
                raise PayloadError("ValueError", "Overflow when unpacking long long")
        if len(items) > MAX_DIMENSIONS:
            raise PayloadError("MemoryError", f"a torch.Size of more than {MAX_DIMENSIONS} dimensions")
        return super().__new__(cls, items)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"


# torch name -> (name inside torch's messages, bytes per element) of what numpy cannot hold but a payload may name.
_OTHER = {"float4_e2m1fn_x2": ("Float4_e2m1fn_x2", 1), "float8_e8m0fnu": ("Float8_e8m0fnu", 1)}
_SCALAR_NAMES = {
    "bfloat16": "BFloat16",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "uint8": "Byte",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "bool": "Bool",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
}
_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}


class Dtype(metaclass=Sealed):
    """torch.dtype; one object per name."""

    __slots__ = ("itemsize", "name", "numpy", "scalar")
    name: str
    scalar: str
    itemsize: int
    numpy: np.dtype[Any] | None

    def __init__(self, name: str) -> None:
        numpy = NUMPY_DTYPES.get(name)
        scalar, itemsize = _OTHER.get(name, (_SCALAR_NAMES.get(name, name), numpy.itemsize if numpy else 1))
        for key, value in (("name", name), ("scalar", scalar), ("itemsize", itemsize), ("numpy", numpy)):
            object.__setattr__(self, key, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise PayloadError("AttributeError", f"cannot set {name!r} of a dtype")

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_DTYPES: dict[str, Dtype] = {name: Dtype(name) for name in (*NUMPY_DTYPES, *_OTHER)}


def dtype_named(name: str) -> Dtype | None:
    """torch.<name>, when it is a dtype that a weight may have."""
    return _DTYPES.get(_ALIASES.get(name, name))


BYTE = _DTYPES["uint8"]


class Storage(metaclass=Sealed):
    """torch.UntypedStorage: bytes that live somewhere else."""

    __slots__ = ("data",)
    data: np.ndarray

    def __init__(self, data: np.ndarray) -> None:
        object.__setattr__(self, "data", data)

    def __setattr__(self, name: str, value: object) -> None:
        raise PayloadError("AttributeError", f"cannot set {name!r} of a storage")


class TypedStorage(metaclass=Sealed):
    """torch.TypedStorage: a storage and the dtype of its elements."""

    __slots__ = ("dtype", "untyped")
    untyped: Storage
    dtype: Dtype

    def __init__(self, untyped: Storage, dtype: Dtype) -> None:
        object.__setattr__(self, "untyped", untyped)
        object.__setattr__(self, "dtype", dtype)

    def __setattr__(self, name: str, value: object) -> None:
        raise PayloadError("AttributeError", f"cannot set {name!r} of a storage")


class Tensor(metaclass=Sealed):
    """A strided view of a storage. `offset` and `stride` are in elements, as in torch."""

    __slots__ = ("dtype", "offset", "shape", "storage", "stride")
    storage: Storage
    dtype: Dtype
    offset: int
    shape: Size
    stride: tuple[int, ...]

    def __init__(
        self, storage: Storage, dtype: Dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
    ) -> None:
        for key, value in (
            ("storage", storage),
            ("dtype", dtype),
            ("offset", offset),
            ("shape", Size(shape)),
            ("stride", tuple(stride)),
        ):
            object.__setattr__(self, key, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise PayloadError("AttributeError", f"cannot set {name!r} of a tensor")

    def array(self) -> np.ndarray:
        """A view in numpy. PayloadError for a dtype that numpy cannot hold."""
        if self.dtype.numpy is None:
            raise PayloadError("NotImplementedError", f"a tensor of {self.dtype!r} cannot be loaded here")
        size = self.dtype.itemsize
        if 0 in self.shape:
            return np.empty(self.shape, dtype=self.dtype.numpy)
        return np.ndarray(
            self.shape,
            dtype=self.dtype.numpy,
            buffer=self.storage.data,
            offset=self.offset * size,
            strides=tuple(step * size for step in self.stride),
        )

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self.select(index) for index in range(self.shape[0]))

    def select(self, index: int) -> Tensor:
        """tensor[index] along the first dimension."""
        return Tensor(self.storage, self.dtype, self.offset + index * self.stride[0], self.shape[1:], self.stride[1:])

    def __getitem__(self, key: Any) -> Tensor:
        if not isinstance(key, slice):
            raise TypeError(f"new(): invalid data type {type(key).__name__!r}")
        if not self.shape:
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        start, stop, step = key.indices(self.shape[0])
        length = max(0, stop - start)
        if step != 1:
            raise ValueError("step must be greater than zero")
        return Tensor(
            self.storage,
            self.dtype,
            self.offset + start * self.stride[0],
            (length, *self.shape[1:]),
            self.stride,
        )

    def view(self, dtype: Any) -> Tensor:
        """tensor.view(dtype): another element type over the same bytes, with torch's four refusals."""
        if not isinstance(dtype, Dtype):
            raise TypeError(f"view() received an invalid combination of arguments - got ({type(dtype).__name__})")
        old, new = self.dtype, dtype
        if old.itemsize == new.itemsize:
            return Tensor(self.storage, new, self.offset, self.shape, self.stride)
        to = f"to view {old.scalar} as {new.scalar} (different element sizes)"
        if not self.shape:
            raise RuntimeError(f"self.dim() cannot be 0 {to}")
        if self.stride[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {to}, but got {self.stride[-1]}")
        if new.itemsize < old.itemsize:
            ratio = old.itemsize // new.itemsize
            shape = (*self.shape[:-1], self.shape[-1] * ratio)
            stride = (*(step * ratio for step in self.stride[:-1]), 1)
            return Tensor(self.storage, new, self.offset * ratio, shape, stride)
        ratio = new.itemsize // old.itemsize
        if self.shape[-1] % ratio:
            raise RuntimeError(f"self.size(-1) must be divisible by {ratio} {to}, but got {self.shape[-1]}")
        if self.offset % ratio:
            raise RuntimeError(f"self.storage_offset() must be divisible by {ratio} {to}, but got {self.offset}")
        for dim, step in enumerate(self.stride[:-1]):
            if step % ratio:
                raise RuntimeError(f"self.stride({dim}) must be divisible by {ratio} {to}, but got {step}")
        shape = (*self.shape[:-1], self.shape[-1] // ratio)
        return Tensor(self.storage, new, self.offset // ratio, shape, (*(s // ratio for s in self.stride[:-1]), 1))

    def reshape(self, shape: Any) -> Tensor:
        """tensor.reshape(shape) of a contiguous tensor."""
        want = given = (shape,) if isinstance(shape, int) else integers(shape, "reshape", "shape")
        have = math.prod(self.shape)
        for index, size in enumerate(given):
            if size < -1:
                raise RuntimeError(f"invalid shape dimension {size} at index {index} of shape {list(given)}")
        if given.count(-1) > 1:
            raise RuntimeError("only one dimension can be inferred")
        if -1 in given and (rest := -math.prod(given)) and not have % rest:
            want = tuple(have // rest if size == -1 else size for size in given)
        if -1 in want or math.prod(want) != have:
            raise RuntimeError(f"shape '{list(given)}' is invalid for input of size {have}")
        return Tensor(self.storage, self.dtype, self.offset, want, contiguous_stride(want))


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    out, step = [], 1
    for dim in reversed(shape):
        out.append(step)
        step *= max(dim, 1)
    return tuple(reversed(out))


def make_tensor(storage: Storage, dtype: Dtype, offset: Any, shape: Any, stride: Any) -> Tensor:
    """torch._utils._rebuild_tensor: RuntimeError as torch's when the view leaves the storage."""
    sizes, steps = integers(shape, "set_", "size"), integers(stride, "set_", "stride")
    if not isinstance(offset, int) or not _fits(offset):
        raise PayloadError("TypeError", "set_() received an invalid combination of arguments")
    if len(sizes) != len(steps):
        raise PayloadError("RuntimeError", f"unequal size length ({len(sizes)}) and stride length ({len(steps)})")
    if offset < 0:
        raise PayloadError("RuntimeError", f"Tensor: invalid storage offset {offset}")
    if any(n < 0 for n in sizes):
        raise PayloadError("RuntimeError", "numel: integer multiplication overflow")
    if any(n < 0 for n in steps):
        text = f"Storage size calculation overflowed with sizes={list(sizes)} and strides={list(steps)}"
        raise PayloadError("RuntimeError", text)
    if 0 not in sizes:
        last = offset + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
        need = (last + 1) * dtype.itemsize
        if need > storage.data.nbytes:
            raise PayloadError(
                "RuntimeError",
                f"setStorage: sizes {list(sizes)}, strides {list(steps)}, storage offset {offset}, and itemsize "
                f"{dtype.itemsize} requiring a storage size of {need} are out of bounds for storage of size "
                f"{storage.data.nbytes}",
            )
    return Tensor(storage, dtype, offset, sizes, steps)
