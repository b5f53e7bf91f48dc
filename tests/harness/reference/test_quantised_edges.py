"""Quantised refits at their edges: the smallest numbers, groups that fill a parcel, several halves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.reference.adapter import ReferenceSut, _plan
from harness.reference.errors import BadSetup, BadState
from harness.reference.quantised import NONE, Plan, groups, pair, parcels
from harness.reference.setup import TABLE, transport_of
from tests.harness.reference.fleet import Rig
from tests.harness.reference.test_quantised import DOWN, MX, matrix
from tests.harness.reference.test_setup import PLAIN, SIZES

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


ALONE = "^quantisation is sent by the tensor path alone, not by {}$"


def test_a_set_up_may_quantise_the_tensor_path_alone():
    for (colocated, trainer, asked), transport in TABLE.items():
        setup = {
            **PLAIN,
            "colocated": colocated,
            "trainer": trainer,
            "transport": asked,
            "quantisation": {"scheme": "fp8"},
        }
        if trainer == "fsdp2":
            continue
        if transport == "tensor":
            assert transport_of(setup, SIZES) == "tensor"
        else:
            with pytest.raises(BadSetup, match=ALONE.format(transport)):
                transport_of(setup, SIZES)


@pytest.mark.parametrize("transport", ["", "tensor", "disk", "distributed", "checkpoint-engine"])
def test_who_offers_quantisation(transport):
    assert ("quantisation" in ReferenceSut(transport=transport).capabilities().optional) is (
        transport in ("", "tensor")
    )


def test_quantised_engines_are_not_fed_by_another_path():
    rig = Rig()
    rig.fleet = replace(rig.fleet, options={"quantisation": {"scheme": "mxfp8"}})
    with pytest.raises(BadSetup, match=ALONE.format("disk")):
        ReferenceSut(transport="disk").setup(rig.fleet)


def test_a_set_up_decides_and_else_what_the_engines_hold():
    fleet = Rig().fleet
    asked = {"quantisation": {"scheme": "mxfp8"}}
    assert _plan(replace(fleet, options={})) == NONE
    assert _plan(replace(fleet, options=asked)) == MX
    assert _plan(replace(fleet, options={**asked, "setup": {**PLAIN, "quantisation": {"scheme": "fp8"}}})) == Plan(
        "fp8"
    )
