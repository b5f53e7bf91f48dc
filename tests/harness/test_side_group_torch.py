"""What torch makes of a default group bound to no device. Apart from the client's other tests: it needs torch."""

from __future__ import annotations

import pytest

from harness.reference.transports.side_group import unbound


def test_torch_makes_no_split_of_an_unbound_default_group(tmp_path):
    torch = pytest.importorskip("torch", reason="a default group of real torch")
    dist = torch.distributed
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        default = dist.distributed_c10d._get_default_group()
        default.bound_device_id = torch.device("cuda:0")
        seen = []
        real = dist.distributed_c10d._get_split_source
        dist.distributed_c10d._get_split_source = lambda pg: seen.append(pg)
        try:
            side = dist.FileStore(str(tmp_path / "side"), 1)
            with unbound(default):
                made, _ = dist.distributed_c10d._new_process_group_helper(
                    1, 0, [], dist.Backend("gloo"), side, group_name="side", timeout=dist.default_pg_timeout
                )
        finally:
            dist.distributed_c10d._get_split_source = real
        assert made is not None
        assert seen == []
        assert default.bound_device_id == torch.device("cuda:0")
        assert dist.distributed_c10d._get_default_group() is default
    finally:
        default.bound_device_id = None
        dist.destroy_process_group()
