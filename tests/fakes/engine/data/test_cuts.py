"""How one tensor of any shape gets into one parameter: what fits, what is padded, and torch's words for the rest.

What the CPU engine does is validated in test_loading.py; what a GPU engine does differently was read from
layers/linear.py:1373-1700, layers/utils/common.py:20 and model_loader/weight_utils.py:1574,1995 @0.5.23.
"""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.layout import Param, Part
from fakes.engine.loading import LoadError, load_into

Q = Param((4, 2), "fused", {"q": Part(0, 4, 4, 8)})
UP = Param((4, 2), "fused", {0: Part(0, 4, 4, 8)}, bare_assert=True)
ROW = Param((3, 2), "row", source=2)
BIAS = Param((3,), "row", source=-1)
VOCAB = Param((4, 2), "vocab", source=1, rows=3, vocab=5)
PLAIN = Param((3,))
ONE = Param((1,))
OLD = 7.0


def numbered(*shape):
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float64).reshape(shape)


def load(param, loaded, shard=None, *, cpu=False):
    """The parameter afterwards, as nested lists, or (class, text) of the error."""
    target = np.full(param.shape, OLD, np.float32)
    before = np.geterr()
    try:
        load_into(target, param, loaded, shard, cpu=cpu)
    except LoadError as error:
        return error.type, error.message
    finally:
        assert np.geterr() == before
    return target.tolist()


def narrow(start, length, size):
    return ("RuntimeError", f"start ({start}) + length ({length}) exceeds dimension size ({size}).")


def out_of_range(size, start):
    return ("IndexError", f"start out of range (expected to be in range of [-{size}, {size}], but got {start})")


def shapes(data, loaded):
    text = f"param_data.shape=torch.Size({list(data)}) loaded_weight.shape=torch.Size({list(loaded)})"
    return ("AssertionError", text)


ZERO = [0, 0]
NO_TUPLE = ("IndexError", "tuple index out of range")
NO_DIM = ("IndexError", "Dimension specified as {} but tensor has no dimensions")
SCALAR = ("RuntimeError", "narrow() cannot be applied to a 0-dim tensor.")


@pytest.mark.parametrize(
    ("param", "shard", "shape", "gpu", "cpu"),
    [
        # a part of a fused parameter: rows 4 to 8
        (Q, "q", (8, 2), [[9, 10], [11, 12], [13, 14], [15, 16]], "same"),
        (Q, "q", (10, 2), [[9, 10], [11, 12], [13, 14], [15, 16]], "same"),
        (Q, "q", (7, 2), narrow(4, 4, 7), [[9, 10], [11, 12], [13, 14], ZERO]),
        (Q, "q", (5, 2), narrow(4, 4, 5), [[9, 10], ZERO, ZERO, ZERO]),
        (Q, "q", (4, 2), narrow(4, 4, 4), [ZERO] * 4),
        (Q, "q", (3, 2), out_of_range(3, 4), [ZERO] * 4),
        (Q, "q", (8, 3), shapes((4, 2), (4, 3)), "same"),
        (Q, "q", (8,), shapes((4, 2), (4,)), "same"),
        (Q, "q", (), SCALAR, (NO_DIM[0], NO_DIM[1].format(0))),
        # gate_up: a GPU pads, and asserts without a text
        (UP, 0, (8, 2), [[9, 10], [11, 12], [13, 14], [15, 16]], "same"),
        (UP, 0, (9, 2), [[9, 10], [11, 12], [13, 14], [15, 16]], "same"),
        (UP, 0, (6, 2), [[9, 10], [11, 12], ZERO, ZERO], "same"),
        (UP, 0, (5, 2), [[9, 10], ZERO, ZERO, ZERO], "same"),
        (UP, 0, (4, 2), [ZERO] * 4, "same"),
        (UP, 0, (1, 2), [ZERO] * 4, "same"),
        (UP, 0, (8, 3), ("AssertionError", ""), "same"),
        (UP, 0, (), NO_TUPLE, (NO_DIM[0], NO_DIM[1].format(0))),
        # row-parallel: columns 2 to 4
        (ROW, None, (3, 4), [[3, 4], [7, 8], [11, 12]], "same"),
        (ROW, None, (3, 5), [[3, 4], [8, 9], [13, 14]], "same"),
        (ROW, None, (3, 3), [[3, 0], [6, 0], [9, 0]], "same"),
        (ROW, None, (3, 2), [ZERO] * 3, "same"),
        (ROW, None, (3, 1), [ZERO] * 3, "same"),
        (ROW, None, (2, 4), shapes((3, 2), (2, 2)), "same"),
        (ROW, None, (3, 4, 1), shapes((3, 2), (3, 2, 1)), "same"),
        (
            ROW,
            None,
            (3,),
            NO_TUPLE,
            ("IndexError", "Dimension out of range (expected to be in range of [-1, 0], but got 1)"),
        ),
        (ROW, None, (), NO_TUPLE, (NO_DIM[0], NO_DIM[1].format(1))),
        (BIAS, None, (3,), [1, 2, 3], "same"),
        (BIAS, None, (), shapes((3,), (1,)), "same"),
        (BIAS, None, (4,), shapes((3,), (4,)), "same"),
        # vocabulary: rows 1 to 4 of 5, the rest is padding
        (VOCAB, None, (5, 2), [[3, 4], [5, 6], [7, 8], ZERO], "same"),
        (VOCAB, None, (5, 1), [[2, 2], [3, 3], [4, 4], ZERO], "same"),
        (VOCAB, None, (), NO_TUPLE, "same"),
        (
            VOCAB,
            None,
            (4, 2),
            (
                "AssertionError",
                "self.org_vocab_size=5 self.use_presharded_weights=False loaded_weight.shape[output_dim]=4",
            ),
            "same",
        ),
        (
            VOCAB,
            None,
            (5, 3),
            (
                "RuntimeError",
                "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
            ),
            "same",
        ),
        (
            VOCAB,
            None,
            (5,),
            (
                "RuntimeError",
                "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 1",
            ),
            "same",
        ),
        (
            VOCAB,
            None,
            (5, 4, 2),
            (
                "RuntimeError",
                "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
            ),
            "same",
        ),
        (
            VOCAB,
            None,
            (5, 1, 2),
            ("RuntimeError", "output with shape [3, 2] doesn't match the broadcast shape [3, 3, 2]"),
            "same",
        ),
        # everything else is copied whole
        (PLAIN, None, (3,), [1, 2, 3], "same"),
        (
            PLAIN,
            None,
            (4,),
            (
                "AssertionError",
                "Attempted to load weight (torch.Size([4])) into parameter (torch.Size([3]))",
            ),
            "same",
        ),
        (
            PLAIN,
            None,
            (1,),
            (
                "AssertionError",
                "Attempted to load weight (torch.Size([1])) into parameter (torch.Size([3]))",
            ),
            "same",
        ),
        (ONE, None, (), [1], "same"),
        (ONE, None, (1, 1), [1], "same"),
        (
            ONE,
            None,
            (2,),
            (
                "AssertionError",
                "Attempted to load weight (torch.Size([2])) into parameter (torch.Size([1]))",
            ),
            "same",
        ),
    ],
)
def test_every_shape(param, shard, shape, gpu, cpu):
    loaded = numbered(*shape)
    assert load(param, loaded, shard) == gpu
    assert load(param, loaded, shard, cpu=True) == (gpu if cpu == "same" else cpu)


@pytest.mark.parametrize(
    ("rank", "rows", "cpu", "wanted"),
    [
        (0, 8, True, [1, 2, 5, 6]),
        (1, 8, True, [3, 4, 7, 8]),
        (0, 8, False, [1, 2, 5, 6]),
        (1, 8, False, [3, 4, 7, 8]),
        (0, 6, True, [1, 2, 4, 5]),
        (1, 6, True, [3, 0, 6, 0]),
        (0, 6, False, narrow(4, 4, 6)),
        (0, 10, True, [1, 2, 6, 7]),
        (0, 10, False, [1, 2, 5, 6]),
    ],
)
def test_a_fused_tensor_is_cut_into_its_parts_first(rank, rows, cpu, wanted):
    """The CPU engine scales the cuts to what came (linear.py:1373 @0.5.23); a GPU takes the places of a whole one."""
    parts = {0: Part(0, 2, 2 * rank, 4), 1: Part(2, 2, 2 * rank, 4)}
    param = Param((4, 1), "fused", parts)
    found = load(param, numbered(rows, 1), cpu=cpu)
    assert (found if isinstance(found, tuple) else [row[0] for row in found]) == wanted


def test_unequal_parts_are_scaled_alike():
    parts = {"q": Part(0, 4, 0, 4), "k": Part(4, 2, 0, 2)}
    found = load(Param((6, 1), "fused", parts), numbered(3, 1), cpu=True)
    assert [row[0] for row in found] == [1, 2, 0, 0, 3, 0]


def test_values_are_cast_silently():
    with np.errstate(all="raise"):
        assert load(PLAIN, np.array([1e300, 0.1, np.nan]))[0] == np.inf


def test_a_part_leaves_the_other_parts_alone():
    param = Param((4, 1), "fused", {"k": Part(1, 2, 0, 2)})
    assert load(param, numbered(2, 1), "k", cpu=True) == load(param, numbered(2, 1), "k") == [[OLD], [1], [2], [OLD]]
    assert load(param, numbered(1, 1), "k", cpu=True) == [[OLD], [1], [0], [OLD]]


def test_a_rank_without_vocabulary_is_all_padding():
    param = Param((2, 1), "vocab", source=5, rows=0, vocab=5)
    assert load(param, numbered(5, 1)) == [[0], [0]]
