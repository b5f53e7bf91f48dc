"""Adapters through SGLang's Engine object and its tokenizer manager."""

from __future__ import annotations

import json

import pytest

from fakes.engine.protocol import EngineConfig
from fakes.fronts.inprocess import Engine
from fakes.fronts.lora_object import LoRAUpdateOutput
from fakes.tiny import write_tensors
from fakes.trainer.wire import probe_payloads
from fakes.world import World
from tests.fakes.engine.lora.served import ADAPTER, CONFIG, PROMPT, WEIGHTS, adapter

SAMPLING = {"max_new_tokens": 6, "temperature": 0}


@pytest.fixture(params=["0.5.12.post1", "0.5.23"])
def engine(request):
    with World() as world:
        launch = {"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": ["all"]}
        config = EngineConfig(profile=request.param, tp_size=2, dtype="float32", **launch)
        yield Engine(world, world.add_engine("e0", config, WEIGHTS, CONFIG))


def tokens(engine, name=None):
    return engine.generate(input_ids=PROMPT, sampling_params=SAMPLING, lora_path=name)["output_ids"]


def test_tensors_payloads_and_folders_are_the_same_adapter(engine, tmp_path):
    loaded = engine.load_lora_adapter_from_tensors("dict", adapter(1), ADAPTER)
    assert loaded == LoRAUpdateOutput(True, "", {"dict": "__tensor__"})
    payloads = probe_payloads(engine.world.resolver, [adapter(1)] * 2)
    one = engine.engine.config.profile == "0.5.12.post1"
    sent = payloads[0] if one else payloads
    assert engine.load_lora_adapter_from_tensors("bucket", sent, ADAPTER, "flattened_bucket").success
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER))
    write_tensors(tmp_path / "adapter_model.safetensors", adapter(1))
    assert engine.load_lora_adapter("folder", str(tmp_path)).loaded_adapters["folder"] == str(tmp_path)
    assert tokens(engine, "dict") == tokens(engine, "bucket") == tokens(engine, "folder") != tokens(engine)
    assert sorted(engine.unload_lora_adapter("dict").loaded_adapters) == ["bucket", "folder"]


def test_a_refusal_is_a_result_and_no_exception(engine):
    engine.load_lora_adapter_from_tensors("one", adapter(1), ADAPTER)
    again = engine.load_lora_adapter_from_tensors("one", adapter(1), ADAPTER)
    assert (again.success, again.loaded_adapters) == (False, {"one": "__tensor__"})
    missing = engine.unload_lora_adapter("two")
    assert missing == LoRAUpdateOutput(False, "LoRA with name two does not exist. Loaded LoRAs: odict_keys(['one'])")


def test_on_an_event_loop(engine):
    async def main():
        manager = engine.tokenizer_manager
        payloads = probe_payloads(engine.world.resolver, [adapter(1)] * 2)
        one = engine.engine.config.profile == "0.5.12.post1"
        body = {"lora_name": "one", "config_dict": ADAPTER, "load_format": "flattened_bucket"}
        body |= {"serialized_tensors": payloads[0]} if one else {"serialized_named_tensors": payloads}
        told = [
            await manager.load_lora_adapter_from_tensors(body),
            await manager.unload_lora_adapter({"lora_name": "one"}),
        ]
        told.append(await manager.load_lora_adapter({"lora_name": "x", "lora_path": "/a/b/c"}))
        told += [await engine.async_load_lora_adapter("x", "/a/b/c"), await engine.async_unload_lora_adapter("x")]
        return told

    engine.load_lora_adapter_from_tensors("two", adapter(2), ADAPTER)  # the world has a registry from now on
    first, *rest = engine.world.run(main())
    assert first.loaded_adapters == {"one": "__tensor__", "two": "__tensor__"}
    assert [told.success for told in rest] == [True, False, False, False]
    assert rest[1].error_message.startswith("Repo id must be in the form")
