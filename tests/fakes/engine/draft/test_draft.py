"""An EAGLE draft beside the target: which calls load it, finalise it, lose it, by version. Seen by its checksums."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from fakes.engine.draft import PREFIX, draft_weights
from fakes.engine.messages import RELEASED_UPDATE
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import EngineConfig
from fakes.tiny import tiny_config, tiny_weights, write_tensors
from fakes.trainer import ExportRegistry
from fakes.trainer.wire import export_bucket
from fakes.world import World

CONFIG = tiny_config("llama", False, "float32")
MSGSPEC = [v for v in ORDER if v != "0.5.12.post1"]
SELECTS = [v for v in ORDER if PROFILES[v].selector]


class Engine:
    def __init__(self, version: str, tp: int = 2, **options: Any) -> None:
        self.version, self.tp = version, tp
        self.registry = ExportRegistry()
        self.world = World(0, None, resolver=self.registry)
        launch = {"eagle_draft": True, "device": "cuda", **options}
        config = EngineConfig(profile=version, tp_size=tp, dtype="float32", **launch)
        self.world.add_engine("e0", config, tiny_weights(CONFIG, 0), CONFIG)

    def call(self, op: str, body: Any = None) -> Any:
        return self.world.run_until(self.world.submit("e0", "POST", "/" + op, body or {}), 30.0)

    def update(self, named: dict[str, np.ndarray], begin: str = "all", **fields: Any) -> None:
        sessions = PROFILES[self.version].session != "none"
        if sessions:
            assert self.call("begin_weight_update", {"selector": begin}).status == 200
        payloads = [
            export_bucket(self.registry, r, list(named.items()), recorded=False).payload for r in range(self.tp)
        ]
        body = {"serialized_named_tensors": payloads, "load_format": "flattened_bucket", **fields}
        assert self.call("update_weights_from_tensor", body).status == 200
        if sessions:
            assert self.call("end_weight_update").status == 200

    def sums(self, **fields: Any) -> list[dict[str, str]]:
        found = self.call("weights_checker", {"action": "checksum", **fields})
        assert found.status == 200, found
        return [rank["checksums"] for rank in found.body["ranks"]]

    def changed(self, before: list[dict[str, str]]) -> set[str]:
        """Which of target and draft are other than before, on any rank."""
        after = self.sums()
        names = {n for old, new in zip(before, after, strict=True) for n in new if old[n] != new[n]}
        return {"draft" if n.startswith(PREFIX) else "target" for n in names if "embed" not in n and "lm_head" not in n}


def both(seed: int) -> dict[str, np.ndarray]:
    return {**tiny_weights(CONFIG, seed), **draft_weights(CONFIG, seed)}


def test_a_draft_lies_beside_the_target_and_shares_its_embedding_and_head() -> None:
    engine = Engine("0.5.23")
    for rank in engine.sums():
        mine = {name.removeprefix(PREFIX): found for name, found in rank.items() if name.startswith(PREFIX)}
        assert mine["model.embed_tokens.weight"] == rank["model.embed_tokens.weight"]
        assert mine["lm_head.weight"] == rank["lm_head.weight"]
        fc = draft_weights(CONFIG, 0)["fc.weight"]
        assert mine["model.fc.weight"] == hashlib.sha256(fc.tobytes()).hexdigest()[:16]
        assert "model.layers.0.self_attn.qkv_proj.weight" in mine
        assert not {"model.norm.weight", "model.layers.0.input_layernorm.weight"} & set(mine)


@pytest.mark.parametrize("version", SELECTS)
@pytest.mark.parametrize(
    ("selector", "hits"), [("all", {"target", "draft"}), ("target", {"target"}), ("draft", {"draft"})]
)
def test_the_selector_says_who_loads(version: str, selector: str, hits: set[str]) -> None:
    engine = Engine(version)
    before = engine.sums()
    engine.update(both(1), selector=selector)
    assert engine.changed(before) == hits


@pytest.mark.parametrize("version", [v for v in MSGSPEC if v not in SELECTS])
@pytest.mark.parametrize(
    ("field", "hits"), [(None, {"target", "draft"}), (False, {"target", "draft"}), (True, {"target"})]
)
def test_before_there_was_one_field_to_leave_the_draft_alone(version: str, field: bool | None, hits: set[str]) -> None:
    engine = Engine(version)
    before = engine.sums()
    engine.update(both(1), disable_draft_model=field)
    assert engine.changed(before) == hits


@pytest.mark.parametrize("version", ["0.5.20", "0.5.23"])
def test_a_field_of_another_version_is_not_read(version: str) -> None:
    engine = Engine(version)
    before = engine.sums()
    engine.update(both(1), **({"selector": "target"} if version == "0.5.20" else {"disable_draft_model": True}))
    assert engine.changed(before) == {"target", "draft"}


def test_each_takes_its_own_names_alone() -> None:
    engine = Engine("0.5.23")
    before = engine.sums()
    engine.update(tiny_weights(CONFIG, 1))
    assert engine.changed(before) == {"target"}
    engine.update(draft_weights(CONFIG, 1))
    want = hashlib.sha256(draft_weights(CONFIG, 1)["fc.bias"].tobytes()).hexdigest()[:16]
    assert all(rank[PREFIX + "model.fc.bias"] == want for rank in engine.sums())


def test_whom_the_checker_asks() -> None:
    engine = Engine("0.5.23")
    roles = {
        selector: engine.call("weights_checker", {"selector": selector}).body["ranks"] for selector in ("all", "draft")
    }
    assert [info["role"] for info in roles["all"][1]["parallelism_info"]] == ["target", "draft"]
    assert [info["role"] for info in roles["draft"][1]["parallelism_info"]] == ["draft"]
    assert all(name.startswith(PREFIX) for name in roles["draft"][0]["checksums"])
    assert not [name for name in engine.sums(selector="target")[0] if name.startswith(PREFIX)]
    assert Engine("0.5.20").call("weights_checker", {}).body["ranks"][0]["parallelism_info"]["tp_rank"] == 0
    old = Engine("0.5.12.post1").call("weights_checker", {"action": "checksum"}).body["ranks"]
    assert not [name for name in old[0]["checksums"] if name.startswith(PREFIX)]


def test_a_draft_of_another_shape_kills() -> None:
    engine = Engine("0.5.20", tp=1)
    short = {**draft_weights(CONFIG, 1), "fc.bias": np.zeros(3, np.float32)}
    payload = export_bucket(engine.registry, 0, list(short.items()), recorded=False).payload
    body = {"serialized_named_tensors": [payload], "load_format": "flattened_bucket"}
    assert engine.call("update_weights_from_tensor", body).ending == "dropped"


def test_released_memory_and_a_backup_of_its_own() -> None:
    for flags, lost in (
        ({}, {"target", "draft"}),
        ({"enable_weights_cpu_backup": True}, {"draft"}),
        ({"enable_weights_cpu_backup": True, "enable_draft_weights_cpu_backup": True}, set()),
    ):
        engine = Engine("0.5.23", enable_memory_saver=True, **flags)
        before = engine.sums()
        engine.call("release_memory_occupation", {"tags": ["weights"]})
        assert engine.call("weights_checker", {}).body["message"] == RELEASED_UPDATE.text
        engine.call("resume_memory_occupation", {"tags": ["weights"]})
        assert engine.changed(before) == lost
        engine.update(both(0))
        assert engine.changed(before) == set()


def test_a_folder_of_the_target_leaves_it_and_one_of_both_does_not(tmp_path: Any) -> None:
    for named, hits in ((tiny_weights(CONFIG, 1), {"target"}), (both(2), {"target", "draft"})):
        engine = Engine("0.5.23", tp=1)
        before = engine.sums()
        folder = tmp_path / str(len(hits))
        folder.mkdir()
        write_tensors(folder / "model.safetensors", named)
        assert engine.call("update_weights_from_disk", {"model_path": str(folder)}).status == 200
        assert engine.changed(before) == hits
