"""What a receiver says before a broadcast begins, and how many it has posted by then."""

from __future__ import annotations

import itertools

import pytest

from fakes.engine.groups import receive_error

NAMES, TYPES, SHAPES = ["a", "b"], ["float32", "bfloat16"], [[2, 3], [4]]


def said(names=NAMES, dtypes=TYPES, shapes=SHAPES, bucket=False, strict=True):
    return receive_error(names, dtypes, shapes, "flattened_bucket" if bucket else None, strict=strict)


@pytest.mark.parametrize(("bucket", "strict"), list(itertools.product([True, False], repeat=2)))
def test_what_fits_starts(bucket, strict):
    assert said(bucket=bucket, strict=strict) == ("", 0)


@pytest.mark.parametrize(("names", "dtypes", "shapes"), list(itertools.product([1, 2, 3], repeat=3)))
def test_a_strict_bucket_says_what_zip_says(names, dtypes, shapes):
    """weight_sync/tensor_bucket.py@0.5.23 zips strictly; everything else cuts to the shortest."""
    given = (["n"] * names, ["uint8"] * dtypes, [[1]] * shapes)
    try:
        list(zip(*given, strict=True))
        wanted = ""
    except ValueError as error:
        wanted = str(error)
    assert said(*given, bucket=True) == (wanted, 0)
    assert said(*given, bucket=True, strict=False) == ("", 0)
    assert said(*given) == ("", 0)


@pytest.mark.parametrize("at", [0, 1])
def test_an_unknown_dtype_is_told_when_its_turn_comes(at):
    dtypes = ["float32", "float32"]
    dtypes[at] = "bf16"
    text = "module 'torch' has no attribute 'bf16'"
    assert said(dtypes=dtypes) == (text, at), "the broadcasts before it are under way"
    assert said(dtypes=dtypes, bucket=True) == (text, 0)


@pytest.mark.parametrize("shape", [[-1], [2, -1], [-1, 2]])
def test_a_negative_size(shape):
    shapes = [[2], shape]
    bucket = f"Negative dimension in received tensor b: torch.Size({shape})"
    assert said(shapes=shapes, bucket=True) == (bucket, 0)
    plain = f"Trying to create tensor with negative dimension -1: {shape}"
    assert said(shapes=shapes) == (plain, 1)
    assert said(shapes=shapes, bucket=True, strict=False) == (plain, 0)


@pytest.mark.parametrize(
    ("dtypes", "shapes", "offset"),
    [
        (["uint8", "bfloat16"], [[3], [1]], 3),
        (["uint8", "bfloat16"], [[2], [1]], None),
        (["uint8", "float32"], [[2], [1]], 2),
        (["bfloat16", "float64"], [[2, 3], [1]], 12),
        (["bfloat16", "float64"], [[2, 4], [1]], None),
        (["bfloat16", "float64"], [[0], [1]], None),
        (["bfloat16", "float64"], [[], [1]], 2),
    ],
)
def test_a_strict_bucket_wants_every_tensor_aligned(dtypes, shapes, offset):
    text = f"Unaligned received tensor b: byte offset {offset}, dtype torch.{dtypes[1]}"
    assert said(dtypes=dtypes, shapes=shapes, bucket=True) == ("" if offset is None else text, 0)
    assert said(dtypes=dtypes, shapes=shapes, bucket=True, strict=False) == ("", 0)
    assert said(dtypes=dtypes, shapes=shapes) == ("", 0)


@pytest.mark.parametrize("strict", [True, False])
def test_a_bucket_of_nothing_cannot_be_made(strict):
    assert said([], [], [], bucket=True, strict=strict) == ("Cannot create empty tensor bucket", 0)
    assert said([], [], [], strict=strict) == ("", 0)
    if not strict:
        assert said(["a"], [], [[1]], bucket=True, strict=False) == ("Cannot create empty tensor bucket", 0)
