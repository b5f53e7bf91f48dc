"""Requests under adapters: their tokens, what kills, who waits for whom."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.engine.model import Model
from fakes.engine.profiles import ORDER
from fakes.engine.weights import RankWeights
from tests.fakes.engine.lora.served import ADAPTER, CONFIG, PEFT, PROMPT, WEIGHTS, Served, adapter, merged, said


def clean(weights: dict[str, np.ndarray], n: int = 6) -> list[int]:
    rank = RankWeights(CONFIG, 0, 1, "float32")
    rank.load(weights.items())
    return Model(CONFIG, [rank]).generate(PROMPT, n)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_tokens_are_those_of_the_merged_weights(tp: int) -> None:
    served, named = Served(tp=tp), adapter(1)
    served.load("one", named)
    served.load("two", adapter(2))
    assert served.tokens("one") == clean(merged(named))
    assert served.tokens("two") == clean(merged(adapter(2)))
    assert served.tokens() == served.tokens("") == clean(dict(WEIGHTS))


@pytest.mark.parametrize(
    "modules",
    [
        ("self_attn.q_proj", "self_attn.v_proj"),
        ("self_attn.o_proj",),
        ("mlp.gate_proj",),
        ("mlp.gate_proj", "mlp.up_proj"),
        ("mlp.down_proj",),
    ],
    ids="+".join,
)
def test_an_adapter_of_some_modules(modules: tuple[str, ...]) -> None:
    served, named = Served(tp=2), adapter(3, *modules, r=8)
    short = [name.split(".")[1] for name in modules]
    settings = {**ADAPTER, "r": 8, "lora_alpha": 24, "target_modules": short}
    assert served.load("one", named, config_dict=settings).status == 200
    assert served.tokens("one") == clean(merged(named, 3.0)) != clean(dict(WEIGHTS))


def test_fused_names_are_taken_with_one_a_for_all() -> None:
    named = {}
    rng = np.random.default_rng(5)
    for layer in range(int(CONFIG["num_hidden_layers"])):
        for module, rows in (("self_attn.qkv_proj", 128), ("mlp.gate_up_proj", 256)):
            named[PEFT.format(layer, module, "A")] = rng.normal(0, 0.3, (4, 64)).astype(np.float32)
            named[PEFT.format(layer, module, "B")] = rng.normal(0, 0.3, (rows, 4)).astype(np.float32)
    apart = {}
    cuts = {
        "self_attn.qkv_proj": (("q", 0, 64), ("k", 64, 96), ("v", 96, 128)),
        "mlp.gate_up_proj": (("gate", 0, 128), ("up", 128, 256)),
    }
    for name, tensor in named.items():
        module = next(fused for fused in cuts if fused in name)
        for part, start, end in cuts[module]:
            own = name.replace(module.split(".")[1], f"{part}_proj")
            apart[own] = tensor if ".lora_A." in name else tensor[start:end]
    served = Served(tp=2)
    served.load("fused", named)
    served.load("apart", apart)
    assert served.tokens("fused") == served.tokens("apart") == clean(merged(apart))


def test_requests_of_a_batch_have_adapters_of_their_own() -> None:
    served = Served(tp=2)
    served.load("one", adapter(1))
    alone = [served.tokens("one"), served.tokens()]
    assert served.tokens(["one", None, "one"], prompt=[PROMPT] * 3) == [alone[0], alone[1], alone[0]]


@pytest.mark.parametrize("rank", [2, 8])
def test_tensors_of_another_rank_are_loaded_and_kill_at_their_first_use(rank: int) -> None:
    served = Served()
    assert served.load("bad", adapter(1, r=rank)).status == 200
    assert served.tokens() == clean(dict(WEIGHTS))
    outcome = served.world.run_until(served.ask("bad"), 30.0)
    assert outcome.ending == "dropped"


def test_what_one_rank_refused_kills_there() -> None:
    served = Served(tp=2)
    other = {**adapter(1), PEFT.format(0, "self_attn.k_proj", "A"): np.zeros((4, 8), np.float32)}
    assert served.load("torn", [adapter(1), other]).status == 200
    assert served.world.run_until(served.ask("torn"), 30.0).ending == "dropped"


def test_a_module_that_the_launch_did_not_name_kills_at_its_first_use() -> None:
    served = Served(lora_target_modules=["q_proj", "k_proj", "v_proj"])
    settings = {**ADAPTER, "target_modules": ["q_proj"]}
    assert served.load("more", adapter(1), config_dict=settings).status == 200
    assert served.world.run_until(served.ask("more"), 30.0).ending == "dropped"


def test_names_that_are_not_loaded() -> None:
    served = Served()
    status, text = served.tokens("nobody")
    assert (status, text) == (
        400,
        "Got LoRA adapter that has never been loaded: nobody\nAll loaded adapters: dict_keys([]).",
    )
    served.load("one", adapter(1))
    served.call("unload_lora_adapter", {"lora_name": "one"})
    status, text = served.tokens("one")
    assert status == 400
    assert text.startswith("Failed to implicitly load LoRA adapter one: Cannot find an appropriate cached snapshot")


def test_more_names_at_once_than_may_be_loaded() -> None:
    served = Served(max_loaded_loras=2, max_loras_per_batch=2)
    status, text = served.tokens(["a", "b", "c"], prompt=[PROMPT] * 3)
    assert (status, text) == (400, "Received request with 3 unique loras requested but max loaded loras is 2")


def test_the_adapter_that_was_used_longest_ago_goes() -> None:
    served = Served(max_loaded_loras=2, max_loras_per_batch=2)
    served.load("a", adapter(1))
    served.load("b", adapter(2))
    served.tokens("a")
    assert served.load("c", adapter(3)).body["loaded_adapters"] == {"a": "__tensor__", "c": "__tensor__"}
    served.load("d", adapter(3), pinned=True)
    assert sorted(served.load("e", adapter(3)).body["loaded_adapters"]) == ["d", "e"]


def test_a_load_waits_for_the_requests_of_what_it_unloads() -> None:
    served = Served(max_loaded_loras=1, max_loras_per_batch=1)
    served.load("a", adapter(1))
    running = served.ask("a", 100)
    served.world.sleep(0.05)
    load = served.start("load_lora_adapter_from_tensors", served.body("b", adapter(2)))
    served.world.sleep(0.1)
    assert not load.done
    served.world.run_until(running, 30.0)
    assert served.world.run_until(load, 30.0).body["loaded_adapters"] == {"b": "__tensor__"}


@pytest.mark.parametrize("version", ORDER)
def test_an_unload_waits_for_requests_and_takes_the_name_at_once(version: str) -> None:
    served = Served(version)
    served.load("a", adapter(1))
    running = served.ask("a", 100)
    served.world.sleep(0.05)
    unload = served.start("unload_lora_adapter", {"lora_name": "a"})
    served.world.sleep(0.05)
    assert not unload.done
    late = served.ask("a")
    served.world.sleep(0.05)
    assert not late.done, "it would load it again, and waits for the unload"
    whole = served.world.run_until(running, 30.0)
    assert len(whole.body["output_ids"]) == 100
    assert served.world.run_until(unload, 30.0).status == 200
    assert served.world.run_until(late, 30.0).status == 400


def ends(served: Served) -> str:
    return served.call("unload_lora_adapter", {"lora_name": "a"}, 3.0).ending


@pytest.mark.parametrize("version", ORDER)
def test_which_ends_give_an_adapter_back(version: str) -> None:
    counts_all = version in ("0.5.22", "0.5.23")
    served = Served(version, max_running_requests=1)
    served.load("a", adapter(1))
    long = served.ask(None, 100)
    served.world.sleep(0.05)
    queued = served.ask("a", rid="queued")
    served.world.sleep(0.05)
    served.call("abort_request", {"rid": "queued"})
    served.world.run_until(queued, 5.0)
    served.world.run_until(long, 5.0)
    assert ends(served) == ("reply" if counts_all else "timeout")


@pytest.mark.parametrize("version", ["0.5.21", "0.5.22"])
def test_a_refusal_after_the_name_was_found(version: str) -> None:
    served = Served(version)
    served.load("a", adapter(1))
    assert served.tokens("a", custom_logit_processor="x")[0] == 400
    assert ends(served) == ("timeout" if version == "0.5.21" else "reply")


@pytest.mark.parametrize("version", ["0.5.21", "0.5.23"])
def test_several_answers_to_a_prompt(version: str) -> None:
    served = Served(version)
    served.load("a", adapter(1))
    both = served.tokens("a", sampling={"n": 2})
    assert both == [clean(merged(adapter(1)))] * 2
    assert ends(served) == ("timeout" if version == "0.5.21" else "reply"), "the warm request gave one back, too"


def test_a_running_request_that_is_aborted_gives_its_adapter_back() -> None:
    served = Served("0.5.17")
    served.load("a", adapter(1))
    running = served.ask("a", 100, rid="running")
    served.world.sleep(0.05)
    served.call("abort_request", {"rid": "running"})
    served.world.run_until(running, 5.0)
    assert ends(served) == "reply"


def test_under_a_retract_pause_an_unload_waits_and_loads_wait_behind_it() -> None:
    served = Served()
    served.load("a", adapter(1))
    running = served.ask("a", 30)
    served.world.sleep(0.05)
    served.call("pause_generation", {"mode": "retract"})
    assert ends(served) == "timeout"
    assert served.call("load_lora_adapter_from_tensors", served.body("b", adapter(2)), 3.0).ending == "timeout"
    served.call("continue_generation", {})
    assert len(served.world.run_until(running, 5.0).body["output_ids"]) == 30
    assert said(served.call("unload_lora_adapter", {"lora_name": "a"})).endswith("odict_keys(['b'])")


def test_a_batch_holds_no_more_adapters_than_the_pool_and_lets_others_go_first() -> None:
    served = Served(max_loras_per_batch=1)
    served.load("a", adapter(1))
    served.load("b", adapter(2))
    first, second, third = served.ask("a", 50), served.ask("b", 2), served.ask("a", 2)
    served.world.run_until(third, 5.0)
    assert not second.done
    assert not first.done
    served.world.run_until(second, 5.0)
    assert first.done


def test_prefixes_are_cached_by_adapter() -> None:
    served = Served()
    served.load("a", adapter(1))

    def cached(name: str | None, **more: str) -> int:
        outcome = served.world.run_until(served.ask(name, **more), 5.0)
        return int(outcome.body["meta_info"]["cached_tokens"])

    assert [cached(None), cached("a"), cached("a"), cached(None)] == [0, 0, 4, 4]
    assert [cached("a", extra_key="x"), cached("a", extra_key="x")] == [0, 4]
    served.call("unload_lora_adapter", {"lora_name": "a"})
    served.load("a", adapter(1))
    assert cached("a") == 0, "a new id, whatever the name"


def test_new_base_weights_leave_adapters_alone() -> None:
    served = Served("0.5.20", tp=2)
    served.load("a", adapter(1))
    served.tokens("a")
    half = {name: tensor * 0.5 if name == "lm_head.weight" else tensor for name, tensor in WEIGHTS.items()}
    body = served.body("", half)
    fields = {"serialized_named_tensors": body["serialized_named_tensors"], "load_format": "flattened_bucket"}
    assert served.call("update_weights_from_tensor", fields).status == 200
    want = {**merged(adapter(1)), "lm_head.weight": half["lm_head.weight"]}
    assert served.tokens("a") == clean(want)


def test_the_launch_shows() -> None:
    served = Served(max_loaded_loras=9)
    info = served.world.run_until(served.world.submit("e0", "GET", "/server_info"), 5.0).body
    shown = {name: info[name] for name in ("enable_lora", "max_lora_rank", "lora_target_modules", "max_loaded_loras")}
    assert shown == {"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": ["all"], "max_loaded_loras": 9}
