"""What CUDA refuses of a producer: memory that has no handle, and handles whose process is gone."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from fakes.engine.allowlist import EXACT202
from fakes.engine.payload import PayloadError, Resolver, open_payload
from fakes.trainer import TrainerKit
from fakes.trainer.torch_wire import TorchResolver

NAMED = [("norm", np.ones(4, dtype=np.float32))]


def opened(payload: str, resolver: Resolver) -> list[tuple[str, np.ndarray]]:
    data = base64.b64decode(payload)
    return open_payload(data, profile_allow=EXACT202, rank=0, load_format="flattened_bucket", resolver=resolver)


def test_memory_of_the_saver_cannot_be_exported_and_that_is_recorded() -> None:
    told: list[tuple[str, int, dict]] = []
    kit = TrainerKit(None, 2, lambda name, rank, data: told.append((name, rank, dict(data))))
    with pytest.raises(RuntimeError, match=r"^CUDA error: invalid argument$"):
        kit.export(1, NAMED, allocation="vmm")
    assert told == [("export_refused", 1, {"gpu": 1, "allocation": "vmm", "names": ["norm"]})]
    assert kit.live_exports() == 0


@pytest.mark.parametrize("wire", ["cuda", "shm"])
def test_a_payload_of_a_rank_that_is_gone_cannot_be_opened_and_that_of_another_can(wire: str) -> None:
    kit = TrainerKit(None, 2, wire=wire)  # type: ignore[arg-type]
    gone, there = kit.export(0, NAMED), kit.export(1, NAMED)
    kit.lose_rank(0)
    resolver = kit.registry.bind("e0") if wire == "cuda" else TorchResolver()
    assert [name for name, _ in opened(there.payload, resolver)] == ["norm"]
    with pytest.raises(PayloadError, match=r"invalid resource handle|No such file or directory"):
        opened(gone.payload, resolver)
    kit.close()
