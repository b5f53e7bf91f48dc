"""What kills an engine and with which words, what is looked at in which order, and what tells adapters apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fakes.engine.lora_adapter import Adapter, AdapterConfig, Refused, normalised
from fakes.engine.lora_manager import LoraManager, Ref
from fakes.engine.lora_messages import DP_12, DP_17, DP_22
from fakes.engine.profiles import ORDER
from tests.fakes.engine.lora.served import ADAPTER, CONFIG, PEFT, PROMPT, Served, adapter, request, said, sha256

DOWN, Q, K = "mlp.down_proj", "self_attn.q_proj", "self_attn.k_proj"


def death(served: Served) -> tuple[int, str, str]:
    """Rank, class and words of what killed it."""
    served.world.sleep(10.0)
    died = served.engine.shell.dead
    assert died is not None
    return died.rank, died.error.type, died.error.message


def used(named: Any, tp: int = 1, **options: Any) -> tuple[int, str, str]:
    served = Served(tp=tp, **options)
    assert served.load("x", named).status == 200
    served.world.run_until(served.ask("x"), 30.0)
    return death(served)


def shape(buffer: list[int], weight: list[int]) -> str:
    return f"LoRA buffer shape torch.Size({buffer}) does not match weight shape torch.Size({weight})."


def test_the_shape_of_the_buffer_and_of_the_weight() -> None:
    bad = {**adapter(1), PEFT.format(1, DOWN, "A"): np.zeros((4, 120), np.float32)}
    assert used(bad, tp=2) == (1, "AssertionError", shape([4, 64], [4, 56]))
    bad = {**adapter(1), PEFT.format(0, DOWN, "B"): np.zeros((64, 3), np.float32)}
    assert used(bad, tp=2) == (0, "AssertionError", shape([64, 4], [64, 3]))
    assert used(adapter(1, Q, K, "self_attn.v_proj", r=2)) == (0, "AssertionError", shape([12, 64], [6, 64]))


def test_half_of_a_pair() -> None:
    down = {name: tensor for name, tensor in adapter(1, DOWN).items() if "lora_A" in name}
    served = Served(tp=2)
    assert served.load("a", down).status == 200
    assert served.tokens("a") == served.tokens(), "without a B there is nothing to add"
    rest = {name: tensor for name, tensor in adapter(1, DOWN).items() if "lora_B" in name}
    assert served.load("b", rest).status == 200
    assert served.tokens("b") == served.tokens()
    gate = {name: tensor for name, tensor in adapter(1, "mlp.gate_proj").items() if "lora_A" in name}
    assert used(gate)[1:] == ("TypeError", "'NoneType' object is not subscriptable")


def test_a_name_of_another_module() -> None:
    more = {"base_model.model.model.layers.0.mlp.router.lora_A.weight": np.zeros((4, 64), np.float32)}
    known = "{'down_proj', 'gate_up_proj', 'o_proj', 'qkv_proj'}"
    assert used(more) == (0, "ValueError", f"Cannot find target module name for {next(iter(more))} in {known}")
    alone = adapter(1, K)
    assert used(alone)[2].startswith(f"Cannot find target module name for {PEFT.format(0, K, 'A')} in")


def test_a_rank_that_refused_has_none() -> None:
    served = Served(tp=2)
    lost = {name: tensor for name, tensor in adapter(1).items() if "v_proj" not in name}
    assert served.load("x", [adapter(1), lost]).status == 200
    served.world.run_until(served.ask("x"), 30.0)
    assert death(served) == (1, "AssertionError", "")


def test_lists_that_are_too_short_and_payloads_that_are_none() -> None:
    served = Served(tp=2)
    served.call("load_lora_adapter_from_tensors", served.body("x", [adapter(1)]))
    assert death(served) == (1, "IndexError", "list index out of range")
    served = Served("0.5.12.post1")
    served.call("load_lora_adapter_from_tensors", {**served.body("x", adapter(1)), "serialized_tensors": "a=b"})
    assert death(served)[1] == "binascii.Error"


def test_checksums_name_five_of_each() -> None:
    served, named = Served(), adapter(1)
    names = list(named)
    sums = {name: sha256(tensor) for name, tensor in named.items()}
    wanted = {**dict.fromkeys(names[:6], "0"), **{n: sums[n] for n in names[6:12]}, **{f"m{i}": "0" for i in range(6)}}
    served.load("x", named, expected_checksums=wanted)
    missing = [f"m{i}" for i in range(5)]
    extra = names[12:]
    assert death(served) == (
        0,
        "RuntimeError",
        f"[LORA-CHECK] rank0 adapter sync MISMATCH of 18 expected: 6 value-diff {names[:5]}, 6 missing {missing}, "
        f"{len(extra)} extra {extra[:5]}",
    )


def test_embeddings_are_refused_where_they_are_targets_and_skipped_where_they_are_not() -> None:
    served = Served()
    for name, module in (("embed_tokens", "embed_tokens"), ("lm_head", "lm_head"), ("unembed_tokens", "lm_head")):
        named = {**adapter(1), f"base_model.model.{name}.lora_A.weight": np.zeros((4, 64), np.float32)}
        everything = {**ADAPTER, "target_modules": "all-linear"}
        assert said(served.load(name, named, config_dict=everything)) == f"the fake has no LoRA of {module}"
        assert served.load(name, named).status == 200


def test_names_of_modules() -> None:
    assert normalised(["model.layers.0.self_attn.q_proj", "up_proj", "o_proj"]) == {
        "qkv_proj",
        "gate_up_proj",
        "o_proj",
    }
    assert normalised("all") == normalised("all-linear") == {"all"}
    with pytest.raises(Refused):
        normalised("q_proj")
    assert normalised(["word_embeddings", "output"]) == {"embed_tokens", "lm_head"}


def made(named: dict[str, np.ndarray], **changes: Any) -> Adapter:
    return Adapter(AdapterConfig.read({**ADAPTER, **changes}, None, 512), named, int(CONFIG["num_hidden_layers"]))


def test_the_number_of_added_tokens() -> None:
    counted = AdapterConfig.read(ADAPTER, {"a": 511, "b": 512, "c": 513}, 512)
    assert counted.added_tokens == 2


def test_content_tells_adapters_apart() -> None:
    one = adapter(1, DOWN)
    first, last = PEFT.format(0, DOWN, "A"), PEFT.format(1, DOWN, "B")
    others = [
        {**one, first: one[first] + 1},
        {**one, last: one[last] + 1},
        {**one, first: one[first].reshape(8, 64)},
        {**one, first: one[first].view(np.int32)},
        {name.replace("down", "o"): tensor for name, tensor in one.items()},
        {PEFT.format(0, DOWN, "A"): one[first]},
        {PEFT.format(1, DOWN, "A"): one[first]},
    ]
    digests = {made(named).digest for named in (one, *others)} | {made(one, lora_alpha=9).digest}
    assert len(digests) == 9
    assert {len(digest) for digest in digests} == {16}
    assert made(dict(reversed(one.items()))).digest == made(one).digest


def test_k_is_zeros_where_nobody_speaks_of_it_and_an_empty_up_is_none() -> None:
    attention = adapter(1, Q, "self_attn.v_proj")
    (weights, _) = made({n: np.repeat(t, 1, 0) for n, t in attention.items()}).layers
    joined = weights[PEFT.format(0, "self_attn.qkv_proj", "A")]
    assert joined.shape == (12, 64)
    assert not joined[4:8].any()
    gate = {**adapter(1, "mlp.gate_proj"), PEFT.format(0, "mlp.up_proj", "A"): np.zeros((0,), np.float32)}
    for kind in "AB":
        assert not made(gate).layers[0][PEFT.format(0, "mlp.gate_up_proj", kind)][-4:].any()
    assert PEFT.format(0, "mlp.up_proj", "A") not in made(gate).layers[0]


def test_a_layer_too_many() -> None:
    with pytest.raises(Refused, match=r"^index 2 is out of range$"):
        made({PEFT.format(2, DOWN, "A"): np.zeros((4, 128), np.float32)})


def manager(limit: int, *pinned: bool) -> LoraManager:
    found = LoraManager.__new__(LoraManager)
    found._limit = limit
    found.refs = [{str(n): Ref(str(n), str(n), "", one) for n, one in enumerate(pinned)}]
    return found


def test_what_fits_into_a_batch() -> None:
    plain = manager(2, False, False, False)
    assert plain.fits({"0", "1"})
    assert plain.fits({None, "0"})
    assert not plain.fits({None, "0", "1"})
    held = manager(3, True, True, False, False)
    assert held.fits({"0", "1", "2"})
    assert held.fits({None, "0"})
    assert not held.fits({"2", "3"}), "one slot is left beside the pinned"
    assert not held.fits({None, "2"})


@pytest.mark.parametrize("version", ORDER)
def test_replicas_are_told_in_the_words_of_the_version(version: str) -> None:
    served = Served(version, dp_size=2)
    ticket = served.world.submit("e0", "POST", "/unload_lora_adapter", {"lora_name": "x"}, via="engine")
    told = served.world.run_until(ticket, 5.0).value
    want = DP_12 if version == ORDER[0] else DP_22 if version in ("0.5.22", "0.5.23") else DP_17
    assert (told.type, told.message) == ("AssertionError", want.text)


def test_base64_that_does_not_decode_in_process() -> None:
    served = Served()
    fields = {"lora_name": "x", "config_dict": ADAPTER, "serialized_named_tensors": ["a=b"]}
    ticket = served.world.submit("e0", "POST", "/load_lora_adapter_from_tensors", fields, via="engine")
    told = served.world.run_until(ticket, 5.0)
    assert (told.status, told.body["loaded_adapters"]) == (400, None)
    assert "adding" in told.body["error_message"] or "base64" in told.body["error_message"]


def test_the_second_of_two_names_is_taken_too() -> None:
    served = Served()
    for name in ("a", "b"):
        served.load(name, adapter(1))
    for name in ("a", "b"):
        assert said(served.load(name, adapter(2))).endswith("because it is already loaded")


def test_two_requests_that_bring_an_adapter_back_at_once(tmp_path: Any) -> None:
    import json

    from fakes.tiny import write_tensors

    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER))
    write_tensors(tmp_path / "adapter_model.safetensors", adapter(1))
    served = Served()
    served.call("load_lora_adapter", {"lora_name": "x", "lora_path": str(tmp_path)})
    want = served.tokens("x")
    served.call("unload_lora_adapter", {"lora_name": "x"})
    both = [served.start("generate", request("x", 6, PROMPT, rid=str(n))) for n in range(2)]
    outcomes = [served.world.run_until(one, 5.0) for one in both]
    assert [one.body["output_ids"] for one in outcomes] == [want, want]


def test_ids_are_never_used_twice() -> None:
    served = Served()
    registry = SimpleNamespace(_tm=SimpleNamespace(config=SimpleNamespace(random_seed=7)), _made=0)
    made_ids = [type(served.engine.shell.core._tm.lora)._new_id(registry) for _ in range(3)]  # type: ignore[attr-defined]
    assert len(set(made_ids)) == 3
    assert {len(one) for one in made_ids} == {32}
