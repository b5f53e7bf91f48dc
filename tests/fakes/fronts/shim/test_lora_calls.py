"""Adapters through the shim's tokenizer manager: a refusal is a result, what is no answer of SGLang's an error."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from fakes.fronts.lora_object import LoRAUpdateOutput
from fakes.fronts.sglang_shim import engine as shim


@pytest.mark.parametrize("op", ["load_lora_adapter", "load_lora_adapter_from_tensors", "unload_lora_adapter"])
def test_a_load_and_an_unload(monkeypatch, op):
    asked = []
    replies = [
        httpx.Response(200, json={"success": True, "error_message": "", "loaded_adapters": {"a": "/a"}}),
        httpx.Response(400, json={"success": False, "error_message": "no", "loaded_adapters": None}),
        httpx.Response(500, text="Internal Server Error"),
    ]

    async def post(url, name, fields):
        asked.append((url, name, fields))
        return replies[len(asked) - 1]

    monkeypatch.setattr(shim, "_apost", post)
    call = getattr(shim.TokenizerManager("http://e"), op)
    assert asyncio.run(call({"lora_name": "a"})) == LoRAUpdateOutput(True, "", {"a": "/a"})
    assert asyncio.run(call({"lora_name": "a"})) == LoRAUpdateOutput(False, "no", None)
    with pytest.raises(RuntimeError, match=r"^500 Internal Server Error$"):
        asyncio.run(call({"lora_name": "a"}))
    assert asked == [("http://e", op, {"lora_name": "a"})] * 3
