"""Quantised refits at their edges: the smallest numbers, groups that fill a parcel, several halves."""

from __future__ import annotations

import numpy as np
import pytest

from harness.reference.errors import BadState
from harness.reference.quantised import Plan, groups, pair, parcels
from tests.harness.reference.test_quantised import DOWN, MX, matrix

UP = "model.layers.0.mlp.up_proj.weight"


def test_a_whole_refit_of_one_matrix_is_two_names():
    assert MX.names({DOWN: matrix()}) == {DOWN, DOWN + "_scale_inv"}


def test_the_smallest_numbers_have_the_smallest_scale():
    (_, weight), (_, scale) = pair("w", np.full((1, 32), 1e-44, np.float32), "mxfp8")
    assert scale.tolist() == [[0]]
    assert not weight.astype(np.float32).any()


def test_every_half_is_named():
    halves = [pair(name, matrix(), "mxfp8")[0] for name in (UP, DOWN)]
    with pytest.raises(BadState, match=f"^the export has incomplete pairs: {DOWN}, {UP}$"):
        list(groups(halves, MX))


def test_a_group_that_is_larger_than_a_parcel_is_one():
    group = pair(DOWN, matrix(), "mxfp8")
    assert [len(parcel.named) for parcel in parcels([group, group], 1)] == [2, 2]


def test_every_parcel_is_filled_alike():
    group = pair(DOWN, matrix(), "fp8")
    size = sum(tensor.nbytes for _, tensor in group)
    assert [len(parcel.named) for parcel in parcels([group] * 5, 2 * size)] == [4, 4, 2]


def test_a_module_is_left_out_by_its_very_name():
    assert Plan("mxfp8", ("down_proj~",)).covers(DOWN, matrix())
