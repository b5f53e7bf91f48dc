"""LoRA adapters: loaded, used, unloaded, refused, and what becomes of requests that use them."""

from __future__ import annotations

from typing import Any

from conformance.adapters import LOAD, UNLOAD, ask, config, engine, know, load, tensors
from conformance.adapters import body as load_body
from conformance.engine.steps import begin, bucket, end
from harness.bench import Bench, generation
from harness.lanes.base import EngineHandle, Pending
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/lora")
LEAKS = "<0.5.22,!=miles"
READ = "not yet: LoRA's buffers need pinned memory, which an engine on a CPU has not"
SEEN = "not yet: held on an H200 (0.5.23, 2026-11-30), of which no bundle is kept"
GPU = "sglang-gpu"  # in bfloat16, so that what compares tokens with a truth in float32 stays with the fakes


def using(bench: Bench, e: EngineHandle, name: str, n: int) -> Pending:
    """A generation of `n` tokens under an adapter that is under way when this returns."""
    pending = bench.traffic(e, "long", n=n, lora_path=name, return_logprob=False)
    e.sleep(0.1)
    return pending


@scenarios.add("LORA-51", "LORA-59", relation=READ, lanes=["fake", "http"])
def two_adapters_and_none(bench: Bench) -> None:
    """The same prompt three times over, each twice."""
    e = engine(bench)
    know(bench, e, "same")
    load(bench, e, "one", 1)
    load(bench, e, "two", 2)
    for name in ("", "one", "two", "one", ""):
        ask(bench, e, "same", name)


@scenarios.add("LORA-52", relation=READ, lanes=["fake", "http"])
def a_name_that_is_taken(bench: Bench) -> None:
    """The first keeps it."""
    e = engine(bench)
    know(bench, e, "taken")
    load(bench, e, "one", 1)
    bench.note("asked", e, kind="taken")
    e.call(LOAD, load_body(bench, e, "one", tensors(bench.weights(0, e), 2), config()))
    ask(bench, e, "taken", "one")


@scenarios.add("LORA-53", relation=SEEN, lanes=["fake", GPU])
def unloaded_while_it_is_used(bench: Bench) -> None:
    """And gone afterwards."""
    e = engine(bench)
    load(bench, e, "one", 1)
    running = using(bench, e, "one", 60)
    bench.note("asked", e, kind="in-use")
    e.call(UNLOAD, {"lora_name": "one"})
    running.result(5.0)
    bench.note("asked", e, kind="gone")
    ask(bench, e, "gone", "one", origin="probe")


@scenarios.add("LORA-54", relation=SEEN, lanes=["fake", "http", GPU])
def names_that_nobody_loaded(bench: Bench) -> None:
    """In a request, and in an unload."""
    e = engine(bench)
    bench.note("asked", e, kind="unknown")
    ask(bench, e, "unknown", "nobody", origin="probe")
    bench.note("asked", e, kind="unload-unknown")
    e.call(UNLOAD, {"lora_name": "nobody"})


@scenarios.add("LORA-55", relation=SEEN, lanes=["fake", "http", GPU])
def adapters_that_do_not_fit(bench: Bench) -> None:
    """A rank above the launch's, a module beside the launch's, DoRA."""
    e = engine(bench, lora_target_modules=("q_proj", "k_proj", "v_proj"))
    only = ["q_proj", "k_proj", "v_proj"]
    unfit: dict[str, dict[str, Any]] = {
        "rank": {"r": 16, "target_modules": only},
        "modules": {},
        "dora": {"use_dora": True, "target_modules": only},
    }
    for kind, changes in unfit.items():
        bench.note("asked", e, kind=f"unfit-{kind}")
        load(bench, e, kind, 1, **changes)


@scenarios.add("LORA-56", relation=SEEN, lanes=["fake", GPU], fatal=True)
def tensors_of_another_rank(bench: Bench) -> None:
    """Two rows, where the configuration says four."""
    e = engine(bench)
    named = tensors(bench.weights(0, e), 1, rank=2)
    bench.note("asked", e, kind="shape-load")
    load(bench, e, "small", 1, named=named)
    bench.note("asked", e, kind="shape-use")
    e.call("generate", generation(bench.prompt("shape"), 2, lora_path="small"))


@scenarios.add("LORA-57", relation=READ, lanes=["fake", "http"])
def more_than_may_be_loaded(bench: Bench) -> None:
    """The third of two; the second was used last."""
    e = engine(bench, max_loaded_loras=2, max_loras_per_batch=2)
    know(bench, e, "kept", adapters=(1, 3))
    load(bench, e, "one", 1)
    load(bench, e, "two", 2)
    ask(bench, e, "kept", "one")
    bench.note("asked", e, kind="one-too-many")
    load(bench, e, "three", 3)
    ask(bench, e, "kept", "three")
    ask(bench, e, "kept", "one")
    bench.note("asked", e, kind="evicted")
    ask(bench, e, "evicted", "two", origin="probe")


@scenarios.add("LORA-58", relation=READ, lanes=["fake", "http"])
def base_weights_under_an_adapter(bench: Bench) -> None:
    """A whole new set, flushed."""
    e = engine(bench)
    know(bench, e, "base")
    know(bench, e, "base", base=1)
    load(bench, e, "one", 1)
    ask(bench, e, "base", "one")
    begin(bench, e)
    bench.note("base", e, seed=1)
    bucket(bench, e, 1, flush_cache=True)
    end(bench, e)
    ask(bench, e, "base", "one")
    ask(bench, e, "base")


@scenarios.add("LORA-60", relation=SEEN, lanes=["fake", "http", GPU])
def an_engine_without_adapters(bench: Bench) -> None:
    """Launched without --enable-lora."""
    e = bench.e0
    for op, kind in ((LOAD, "off-load"), (UNLOAD, "off-unload")):
        bench.note("asked", e, kind=kind)
        named = tensors(bench.weights(0, e), 1)
        e.call(op, load_body(bench, e, "one", named, config()) if op == LOAD else {"lora_name": "one"})


def aborted_in_the_queue(bench: Bench) -> EngineHandle:
    """A request under an adapter that was queued while another ran, and was aborted there."""
    e = engine(bench, max_running_requests=1)
    load(bench, e, "one", 1)
    running = bench.traffic(e, "first", n=200, return_logprob=False)
    e.sleep(0.1)
    queued = bench.traffic(e, "second", n=4, lora_path="one", rid="queued", return_logprob=False)
    e.sleep(0.1)
    e.call("abort_request", {"rid": "queued"})
    queued.result(5.0)
    running.result(10.0)
    bench.note("asked", e, kind="after-a-queued-abort")
    e.call(UNLOAD, {"lora_name": "one"}, timeout_s=5.0)
    return e


@scenarios.add("LORA-61", relation=READ, lanes=["fake"], versions=LEAKS)
def an_abort_in_the_queue(bench: Bench) -> None:
    """Its adapter counts as used ever after."""
    aborted_in_the_queue(bench)


@scenarios.add("LORA-62", relation=SEEN, lanes=["fake", GPU], versions=">=0.5.22")
def an_abort_in_the_queue_that_is_counted(bench: Bench) -> None:
    """Its adapter is free again."""
    aborted_in_the_queue(bench)


@scenarios.add("LORA-63", relation=SEEN, lanes=["fake", GPU], versions=">=0.5.21")
def unloaded_under_a_pause(bench: Bench) -> None:
    """The request that uses it is retracted, and cannot end; other loads wait for that unload."""
    e = engine(bench)
    load(bench, e, "one", 1)
    running = using(bench, e, "one", 40)
    e.call("pause_generation", {"mode": "retract"})
    bench.note("asked", e, kind="paused")
    e.call(UNLOAD, {"lora_name": "one"}, timeout_s=3.0)
    bench.note("asked", e, kind="behind-it")
    named = tensors(bench.weights(0, e), 2)
    e.call(LOAD, load_body(bench, e, "two", named, config()), timeout_s=3.0)
    e.call("continue_generation", {})
    running.result(10.0)
    e.sleep(0.5)
    bench.note("asked", e, kind="after-it")
    e.call(UNLOAD, {"lora_name": "one"}, timeout_s=3.0)
