"""Where GPUs are shared every engine rank is fed by the trainer rank on its GPU; elsewhere nobody is counted."""

from __future__ import annotations

import pytest

from harness.reference.adapter import ReferenceSut
from tests.harness.reference.fleet import Rig


def test_an_engine_on_a_gpu_without_a_trainer_rank_is_refused_where_gpus_are_shared() -> None:
    with pytest.raises(ValueError, match=r"^e0 is on GPUs \(0, 1\), but the trainer has 1 ranks$"):
        ReferenceSut(transport="tensor").setup(Rig(tp=2, spare=-1).fleet)


@pytest.mark.parametrize("transport", ["disk"])
def test_engines_with_gpus_of_their_own_may_have_more_of_them(transport: str) -> None:
    rig = Rig(tp=2, spare=-1)
    ReferenceSut(transport=transport).setup(rig.fleet)
    assert rig.names() == []
