"""The stand-in for torch's tensor: views against numpy's, refusals in torch's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.engine.tensors import (
    MAX_DIMENSIONS,
    Dtype,
    PayloadError,
    Size,
    Storage,
    Tensor,
    TypedStorage,
    contiguous_stride,
    dtype_named,
    integers,
    make_tensor,
)

LONG = 2**63


def dtype(name: str) -> Dtype:
    found = dtype_named(name)
    assert found is not None
    return found


BYTES = np.arange(96, dtype=np.uint8)
F32, U8, I16, I64, F8 = (dtype(n) for n in ("float32", "uint8", "int16", "int64", "float8_e8m0fnu"))


def made(kind: Dtype, shape: Any, stride: Any = None, offset: Any = 0) -> Tensor:
    return make_tensor(
        Storage(BYTES), kind, offset, shape, contiguous_stride(tuple(shape)) if stride is None else stride
    )


def said(kind: type[Exception], call: Any) -> str:
    with pytest.raises(kind) as error:
        call()
    if isinstance(error.value, PayloadError):
        return f"{error.value.type}: {error.value.message}"
    return str(error.value)


def test_an_error_carries_class_and_words() -> None:
    error = PayloadError("KeyError", "'x'")
    assert (error.type, error.message, str(error)) == ("KeyError", "'x'", "KeyError: 'x'")


@pytest.mark.parametrize("value", [(), [1, 2], (0, -1), [LONG - 1, -(LONG - 1)], list(range(MAX_DIMENSIONS))])
def test_integers(value: Any) -> None:
    assert integers(value, "f", "size") == tuple(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5, "TypeError: f(): argument 'size' (position 1) must be tuple of ints, not int"),
        ([0] * (MAX_DIMENSIONS + 1), "MemoryError: f(): a tensor of more than 64 dimensions"),
        (
            ["x", 1],
            "TypeError: f(): argument 'size' (position 1) must be tuple of ints, "
            "but found element of type str at pos 0",
        ),
        (
            [1, 2.0],
            "TypeError: f(): argument 'size' (position 1) must be tuple of ints, "
            "but found element of type float at pos 1",
        ),
        (
            [1, LONG],
            "TypeError: f(): argument 'size' failed to unpack the object at pos 2 with error "
            '"Overflow when unpacking long long"',
        ),
    ],
)
def test_what_are_no_integers(value: Any, words: str) -> None:
    assert said(PayloadError, lambda: integers(value, "f", "size")) == words


def test_a_size() -> None:
    assert Size() == ()
    assert Size([2, 3]) == (2, 3)
    assert repr(Size((2, 3, 4))) == "torch.Size([2, 3, 4])"
    assert len(Size(range(MAX_DIMENSIONS))) == MAX_DIMENSIONS
    too_many = "MemoryError: a torch.Size of more than 64 dimensions"
    assert said(PayloadError, lambda: Size(range(MAX_DIMENSIONS + 1))) == too_many
    wrong = "TypeError: torch.Size() takes an iterable of 'int' (item 1 is 'str')"
    assert said(PayloadError, lambda: Size([1, "x"])) == wrong
    assert said(PayloadError, lambda: Size([LONG])) == "ValueError: Overflow when unpacking long long"


def test_nothing_can_be_patched_by_a_pickle() -> None:
    """BUILD of a pickle sets attributes: of a class, a dtype, a storage, a tensor."""
    storage = Storage(BYTES)
    typed, tensor = TypedStorage(storage, F32), made(F32, (2,))
    for thing, words in (
        (Size, "cannot set 'x' of Size"),
        (F32, "cannot set 'x' of a dtype"),
        (storage, "cannot set 'x' of a storage"),
        (typed, "cannot set 'x' of a storage"),
        (tensor, "cannot set 'x' of a tensor"),
    ):
        assert said(PayloadError, lambda thing=thing: setattr(thing, "x", 1)) == f"AttributeError: {words}"
    assert said(PayloadError, lambda: delattr(Tensor, "array")) == "AttributeError: cannot delete 'array' of Tensor"
    assert (typed.untyped, typed.dtype) == (storage, F32)


@pytest.mark.parametrize(
    ("name", "scalar", "itemsize"),
    [
        ("bfloat16", "BFloat16", 2),
        ("float32", "Float", 4),
        ("int64", "Long", 8),
        ("float8_e8m0fnu", "Float8_e8m0fnu", 1),
    ],
)
def test_dtypes(name: str, scalar: str, itemsize: int) -> None:
    found = dtype(name)
    assert (found.name, found.scalar, found.itemsize, repr(found)) == (name, scalar, itemsize, f"torch.{name}")
    assert (found.numpy is None) == (name == "float8_e8m0fnu")
    fresh = Dtype(name)
    assert (fresh.name, fresh.scalar, fresh.itemsize, fresh.numpy) == (name, scalar, itemsize, found.numpy)


def test_names_that_torch_has_twice_and_one_that_it_has_not() -> None:
    pairs = {"half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32"}
    assert all(dtype(short) is dtype(name) for short, name in pairs.items())
    assert dtype("long") is I64
    assert dtype_named("complex9") is None
    unknown = Dtype("quint4x2")
    assert (unknown.scalar, unknown.itemsize, unknown.numpy) == ("quint4x2", 1, None)


STRIDED = [
    ((2, 3), (3, 1), 0),
    ((2, 3), (4, 1), 5),
    ((3, 2), (1, 3), 1),
    ((4,), (2,), 3),
    ((), (), 7),
    ((2, 0), (1, 1), 0),
]
WORDS = BYTES.view(np.float32)


@pytest.mark.parametrize(("shape", "stride", "offset"), STRIDED)
def test_a_tensor_is_a_view_of_its_storage(shape: Any, stride: Any, offset: int) -> None:
    tensor = made(F32, shape, stride, offset)
    steps = tuple(4 * step for step in stride)
    wanted = np.lib.stride_tricks.as_strided(WORDS[offset:], shape, steps)
    assert tensor.array().shape == shape
    assert tensor.array().dtype == np.float32
    assert (tensor.array() == wanted).all()
    if shape and 0 not in shape:
        assert np.shares_memory(tensor.array(), BYTES)
        for index, row in enumerate(tensor):
            assert (row.array() == wanted[index]).all()
        assert len(list(tensor)) == shape[0]
        assert (tensor.select(1).array() == wanted[1]).all()
        for cut in (slice(None), slice(1, None), slice(0, 1), slice(2, 1), slice(-1, 99)):
            assert tensor[cut].array().shape == wanted[cut].shape
            assert (tensor[cut].array() == wanted[cut]).all()


def test_what_a_tensor_cannot_be_asked() -> None:
    plain, scalar = made(F32, (4,)), made(F32, ())
    assert said(TypeError, lambda: iter(scalar)) == "iteration over a 0-d tensor"
    assert said(TypeError, lambda: plain["x"]) == "new(): invalid data type 'str'"
    assert said(IndexError, lambda: scalar[0:1]) == "slice() cannot be applied to a 0-dim tensor."
    assert said(ValueError, lambda: plain[::2]) == "step must be greater than zero"
    none = "NotImplementedError: a tensor of torch.float8_e8m0fnu cannot be loaded here"
    assert said(PayloadError, made(F8, (2,)).array) == none


@pytest.mark.parametrize(
    ("old", "shape", "stride", "offset", "new"),
    [
        (F32, (2, 3), (3, 1), 1, U8),
        (F32, (2, 3), (4, 1), 2, I16),
        (U8, (2, 8), (16, 1), 4, F32),
        (U8, (2, 8), (8, 1), 0, I64),
        (I16, (2, 2, 4), (8, 4, 1), 4, I64),
        (F32, (2, 3), (1, 2), 3, dtype("int32")),
        (U8, (16,), (1,), 8, I64),
    ],
)
def test_a_view_of_another_dtype_is_numpys(old: Dtype, shape: Any, stride: Any, offset: int, new: Dtype) -> None:
    tensor = made(old, shape, stride, offset)
    assert new.numpy is not None
    wanted = tensor.array().view(new.numpy)
    got = tensor.view(new)
    assert got.dtype is new
    assert got.array().shape == wanted.shape
    assert got.array().tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("tensor", "new", "words"),
    [
        (made(F32, ()), U8, "self.dim() cannot be 0 to view Float as Byte (different element sizes)"),
        (
            made(F32, (2, 3), (1, 2)),
            U8,
            "self.stride(-1) must be 1 to view Float as Byte (different element sizes), but got 2",
        ),
        (
            made(U8, (2, 6)),
            F32,
            "self.size(-1) must be divisible by 4 to view Byte as Float (different element sizes), but got 6",
        ),
        (
            made(U8, (2, 8), None, 2),
            F32,
            "self.storage_offset() must be divisible by 4 to view Byte as Float (different element sizes), but got 2",
        ),
        (
            made(U8, (2, 2, 8), (20, 10, 1), 4),
            F32,
            "self.stride(1) must be divisible by 4 to view Byte as Float (different element sizes), but got 10",
        ),
        (
            made(U8, (2, 2, 8), (10, 8, 1), 4),
            F32,
            "self.stride(0) must be divisible by 4 to view Byte as Float (different element sizes), but got 10",
        ),
    ],
)
def test_views_that_torch_refuses(tensor: Tensor, new: Dtype, words: str) -> None:
    assert said(RuntimeError, lambda: tensor.view(new)) == words


def test_a_view_wants_a_dtype() -> None:
    text = "view() received an invalid combination of arguments - got (str)"
    assert said(TypeError, lambda: made(F32, (2,)).view("int8")) == text


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((3, 2), (3, 2)),
        ([6], (6,)),
        (6, (6,)),
        (-1, (6,)),
        ((2, -1), (2, 3)),
        ((-1, 1, 6), (1, 1, 6)),
        ((1, 6, 1), (1, 6, 1)),
    ],
)
def test_reshapes(shape: Any, wanted: tuple[int, ...]) -> None:
    got = made(F32, (2, 3), None, 4).reshape(shape)
    assert got.shape == wanted
    assert (got.array() == WORDS[4:10].reshape(wanted)).all()


@pytest.mark.parametrize(
    ("have", "shape", "words"),
    [
        ((2, 3), (4,), "shape '[4]' is invalid for input of size 6"),
        ((2, 3), (-1, 4), "shape '[-1, 4]' is invalid for input of size 6"),
        ((2, 3), (-1, 0), "shape '[-1, 0]' is invalid for input of size 6"),
        ((2, 3), (-1, -1), "only one dimension can be inferred"),
        ((2, 3), (-2, 3), "invalid shape dimension -2 at index 0 of shape [-2, 3]"),
        ((2, 3), (1, -3), "invalid shape dimension -3 at index 1 of shape [1, -3]"),
        ((0,), (-1, 0), "shape '[-1, 0]' is invalid for input of size 0"),
    ],
)
def test_reshapes_that_torch_refuses(have: Any, shape: Any, words: str) -> None:
    assert said(RuntimeError, lambda: made(F32, have).reshape(shape)) == words


def test_a_reshape_of_words() -> None:
    text = "TypeError: reshape(): argument 'shape' (position 1) must be tuple of ints, not str"
    assert said(PayloadError, lambda: made(F32, (2,)).reshape("x")) == text


@pytest.mark.parametrize(("shape", "stride"), [((), ()), ((5,), (1,)), ((2, 3, 4), (12, 4, 1)), ((2, 0, 3), (3, 3, 1))])
def test_contiguous_strides(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    assert contiguous_stride(shape) == stride


@pytest.mark.parametrize(
    ("offset", "shape", "stride", "words"),
    [
        (0, "x", [1], "TypeError: set_(): argument 'size' (position 1) must be tuple of ints, not str"),
        (0, [1], "x", "TypeError: set_(): argument 'stride' (position 1) must be tuple of ints, not str"),
        ("0", [1], [1], "TypeError: set_() received an invalid combination of arguments"),
        (LONG, [1], [1], "TypeError: set_() received an invalid combination of arguments"),
        (0, [1, 2], [1], "RuntimeError: unequal size length (2) and stride length (1)"),
        (-1, [1], [1], "RuntimeError: Tensor: invalid storage offset -1"),
        (0, [-1], [1], "RuntimeError: numel: integer multiplication overflow"),
        (0, [2, 1], [-1, 1], "RuntimeError: Storage size calculation overflowed with sizes=[2, 1] and strides=[-1, 1]"),
        (0, [1, 2], [1, -1], "RuntimeError: Storage size calculation overflowed with sizes=[1, 2] and strides=[1, -1]"),
        (
            3,
            [2, 3],
            [20, 1],
            "RuntimeError: setStorage: sizes [2, 3], strides [20, 1], storage offset 3, and itemsize 4 requiring a "
            "storage size of 104 are out of bounds for storage of size 96",
        ),
    ],
)
def test_tensors_that_torch_refuses(offset: Any, shape: Any, stride: Any, words: str) -> None:
    """torch._utils._rebuild_tensor: storage.set_(offset, size, stride)."""
    assert said(PayloadError, lambda: made(F32, shape, stride, offset)) == words


@pytest.mark.parametrize(
    ("offset", "shape", "stride"), [(0, (24,), (1,)), (3, (2, 2), (19, 1)), (0, (3,), (0,)), (99, (0,), (1,))]
)
def test_tensors_that_just_fit(offset: int, shape: Any, stride: Any) -> None:
    assert made(F32, shape, stride, offset).array().shape == shape
