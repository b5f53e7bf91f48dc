"""Loading and unloading adapters: what is answered, by version."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from fakes.engine.lora_messages import HUB_OFFLINE, lora_catalogue
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.routes import routes
from fakes.tiny import write_tensors
from fakes.trainer.pickling import dumps
from tests.fakes.engine.lora.served import ADAPTER, PEFT, Served, adapter, said, sha256


def test_messages_are_sentences_with_sources_of_versions_that_exist() -> None:
    for message in lora_catalogue().values():
        assert set(message.versions) <= set(ORDER)
        assert "@" in message.source or message.source.startswith(("torch", "observed"))


@pytest.mark.parametrize("version", ORDER)
def test_an_adapter_is_loaded_listed_and_unloaded(version: str) -> None:
    served = Served(version, tp=2)
    one = served.load("one", adapter(1))
    assert (one.status, one.body) == (
        200,
        {
            "rid": None,
            "http_worker_ipc": None,
            "success": True,
            "error_message": "",
            "loaded_adapters": {"one": "__tensor__"},
        },
    )
    assert served.load("two", adapter(2)).body["loaded_adapters"] == {"one": "__tensor__", "two": "__tensor__"}
    gone = served.call("unload_lora_adapter", {"lora_name": "one"})
    assert (gone.status, gone.body["loaded_adapters"]) == (200, {"two": "__tensor__"})
    text = said(served.call("unload_lora_adapter", {"lora_name": "one"}))
    assert text == "LoRA with name one does not exist. Loaded LoRAs: odict_keys(['two'])"


@pytest.mark.parametrize("version", ORDER)
def test_who_may_load(version: str) -> None:
    table = routes(PROFILES[version])
    assert table["/load_lora_adapter"].auth == table["/unload_lora_adapter"].auth == "admin"
    admin = version in ("0.5.22", "0.5.23")
    assert table["/load_lora_adapter_from_tensors"].auth == ("admin" if admin else "normal")


CHANGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"r": 9}, "LoRA adapter x with rank 9 is incompatible with the current LoRA memory pool configuration."),
    ({"target_modules": ["q_proj", "fc1"]}, "LoRA adapter x with rank 4 is incompatible"),
    ({"target_modules": "every"}, "Only 'all' or 'all-linear' can be used as the string for target module"),
    ({"use_dora": True}, "Failed to load x because LoRA serving currently doesn't support DoRA adapters"),
    ({"r": 0}, "division by zero"),
    ({"target_modules": None}, "'NoneType' object is not iterable"),
)


@pytest.mark.parametrize(("change", "says"), CHANGES, ids=[next(iter(change)) + says[:9] for change, says in CHANGES])
def test_a_configuration_that_is_refused(change: dict[str, Any], says: str) -> None:
    served = Served()
    assert said(served.load("x", adapter(1), config_dict={**ADAPTER, **change})).startswith(says)
    assert served.load("y", adapter(1), config_dict={**ADAPTER, "target_modules": "all-linear"}).status == 200


@pytest.mark.parametrize("key", ["target_modules", "r", "lora_alpha", "peft_type"])
def test_a_key_that_is_missing(key: str) -> None:
    settings = {name: value for name, value in ADAPTER.items() if name != key}
    assert said(Served().load("x", adapter(1), config_dict=settings)) == repr(key)


def test_another_kind_of_adapter_is_refused_without_a_word() -> None:
    assert said(Served().load("x", adapter(1), config_dict={**ADAPTER, "peft_type": "IA3"})) == ""


def test_tokens_beyond_the_vocabulary_are_refused_and_others_are_not() -> None:
    served = Served()
    text = said(served.load("x", adapter(1), added_tokens_config={"<x>": 512}))
    assert text.endswith("doesn't support adapters that add tokens to the vocabulary")
    assert served.load("x", adapter(1), added_tokens_config={"<x>": 511}).status == 200


def test_pinned_adapters_leave_a_slot() -> None:
    served = Served(max_loras_per_batch=2)
    assert served.load("a", adapter(1), pinned=True).status == 200
    assert "It is not allowed to pin all slots" in said(served.load("b", adapter(2), pinned=True))
    served.call("unload_lora_adapter", {"lora_name": "a"})
    assert served.load("b", adapter(2), pinned=True).status == 200


def names(kind: str, module: str) -> list[str]:
    return [PEFT.format(0, module, kind)]


def test_tensors_that_cannot_be_joined() -> None:
    served, named = Served(), adapter(1)
    short = {**named, PEFT.format(0, "self_attn.k_proj", "A"): np.zeros((4, 32), np.float32)}
    says = said(served.load("x", short))
    assert says.startswith("Sizes of tensors must match except in dimension 0. Expected size 64 but got size 32 for ")
    lost = {name: tensor for name, tensor in named.items() if "v_proj" not in name}
    assert said(served.load("x", lost)) == repr(PEFT.format(0, "self_attn.v_proj", "A"))
    beyond = {**named, PEFT.format(7, "mlp.down_proj", "A"): np.zeros((4, 128), np.float32)}
    assert said(served.load("x", beyond)) == "index 7 is out of range"


def test_a_payload_that_is_no_dict() -> None:
    bad: tuple[tuple[Any, str], ...] = (
        ([], "'list' object has no attribute 'items'"),
        ({PEFT.format(0, "mlp.down_proj", "A"): 3}, "'int' object has no attribute 'cpu'"),
        ({5: 3}, "argument of type 'int' is not iterable"),
    )
    served = Served()
    for value, says in (*bad, ({"a": 3}, "")):
        text = base64.b64encode(dumps(value)).decode()
        body = served.body("x", adapter(1), load_format=None, serialized_named_tensors=[text])
        outcome = served.call("load_lora_adapter_from_tensors", body)
        if says:
            assert said(outcome) == says
        else:
            assert outcome.status == 200, "nobody looks at what has no layer"


def test_a_list_that_is_too_short_kills() -> None:
    served = Served(tp=2)
    outcome = served.call("load_lora_adapter_from_tensors", {**served.body("x", [adapter(1)])})
    assert outcome.ending == "dropped"


@pytest.mark.parametrize("spoil", ["value", "missing", "extra"])
def test_checksums_that_differ_kill(spoil: str) -> None:
    named = adapter(1)
    sums = {name: sha256(tensor) for name, tensor in named.items()}
    served = Served()
    assert served.load("x", named, expected_checksums=dict(sums)).status == 200
    first = next(iter(sums))
    if spoil == "value":
        sums[first] = "0" * 64
    elif spoil == "missing":
        sums["more"] = "0" * 64
    else:
        del sums[first]
    assert served.load("y", named, expected_checksums=sums).ending == "dropped"


def test_without_the_option_everything_is_refused() -> None:
    served = Served(enable_lora=False)
    says = "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."
    assert said(served.load("x", adapter(1))) == says
    assert said(served.call("unload_lora_adapter", {"lora_name": "x"})) == says
    assert said(served.call("load_lora_adapter", {"lora_name": "x", "lora_path": "/x"})) == says


@pytest.mark.parametrize("version", ORDER)
def test_replicas_are_a_bare_500(version: str) -> None:
    served = Served(version, dp_size=2)
    outcome = served.call("unload_lora_adapter", {"lora_name": "x"})
    assert (outcome.status, outcome.body) == (500, "Internal Server Error")


def test_an_adapter_from_a_folder(tmp_path: Any) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    served = Served(tp=2)
    body = {"lora_name": "x", "lora_path": str(folder)}
    missing = f"[Errno 2] No such file or directory: '{folder}/adapter_config.json'"
    assert said(served.call("load_lora_adapter", body)) == missing
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    assert said(served.call("load_lora_adapter", body)) == f"Cannot find any model weights with `{folder}`"
    write_tensors(folder / "adapter_model.safetensors", adapter(1))
    assert served.call("load_lora_adapter", body).body["loaded_adapters"] == {"x": str(folder)}
    served.load("y", adapter(1))
    assert served.tokens("x") == served.tokens("y") != served.tokens()
    served.call("unload_lora_adapter", {"lora_name": "x"})
    assert served.tokens("x") == served.tokens("y"), "what has a path is loaded again when a request names it"


def test_a_path_that_is_no_folder() -> None:
    served = Served()
    for path, says in (("/a/b/c", "Repo id must be in the form"), ("org/name", HUB_OFFLINE.text)):
        assert said(served.call("load_lora_adapter", {"lora_name": "x", "lora_path": path})).startswith(says)
