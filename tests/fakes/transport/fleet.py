"""Engines in a world, and the trainer's side of their groups."""

from __future__ import annotations

from fakes.engine.protocol import EngineConfig
from fakes.tiny import tiny_config, tiny_weights
from fakes.transport.groups import WorldGroups
from fakes.world import World

CONFIG = tiny_config("llama")
OLD, NEW = tiny_weights(CONFIG, 0), tiny_weights(CONFIG, 1)


class Fleet:
    """Engines, and the trainer's side of their groups."""

    def __init__(self, world: World, engines: int, tp: int, profile: str, **config) -> None:
        self.world = world
        self.records: list[tuple[str, dict]] = []
        self.tp = tp
        backend = "nccl" if config.get("device") == "cuda" else "gloo"
        self.groups = WorldGroups(world, lambda name, rank, data: self.records.append((name, data)), backend=backend)
        self.groups.env["NCCL_CUMEM_ENABLE"] = "0"
        self.groups.default.bound_device_id = None
        for i in range(engines):
            world.add_engine(f"e{i}", EngineConfig(profile=profile, tp_size=tp, **config), OLD, CONFIG)

    @property
    def size(self) -> int:
        return 1 + self.tp * len(self.world.engines)

    def init(self, group, offset=None, engines=None, **more):
        tickets = []
        for i, name in enumerate(engines or self.world.engines):
            body = {
                "master_address": group.address,
                "master_port": group.port,
                "rank_offset": 1 + i * self.tp if offset is None else offset,
                "world_size": group.world_size,
                "group_name": group.name,
                "backend": group.backend,
                **more,
            }
            tickets.append(self.world.submit(name, "POST", "/init_weights_update_group", body))
        return tickets

    def formed(self, name="g"):
        group = self.groups.open(name, self.size)
        tickets = self.init(group)
        assert group.join(5.0)
        assert [self.world.run_until(t).status for t in tickets] == [200] * len(tickets)
        return group

    def begin(self):
        for name in self.world.engines:
            assert self.world.call(name, "POST", "/begin_weight_update", {}).status == 200

    def announce(self, named, name="g", **more):
        body = {
            "names": list(named),
            "dtypes": [str(a.dtype) for a in named.values()],
            "shapes": [list(a.shape) for a in named.values()],
            "group_name": name,
            "flush_cache": False,
            **more,
        }
        return [self.world.submit(e, "POST", "/update_weights_from_distributed", body) for e in self.world.engines]

    def norm(self, engine="e0"):
        found = self.world.call(engine, "POST", "/get_weights_by_name", {"name": "model.norm.weight"})
        return found.body
