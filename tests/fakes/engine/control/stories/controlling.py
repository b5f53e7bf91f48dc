"""Stories of pauses, flushes, memory, health, keys and deaths."""

from __future__ import annotations

from tests.fakes.engine.control.driver import generate_body
from tests.fakes.engine.control.stories.generating import body
from tests.fakes.engine.control.stories.teller import Teller


def pauses(version: str) -> Teller:
    """Every mode over a running and a waiting request, what the engine then answers, and going on."""
    engine = Teller(version, max_running_requests=1)
    for mode in ("retract", "in_place", "abort"):
        running = engine.start("generate", body(12))
        queued = engine.start("generate", body(2, [1, 2]))
        engine.advance(0.02)
        engine.call("pause_generation", {"mode": mode})
        late = engine.start("generate", body(1, [7]))
        engine.call("flush_cache")
        engine.call("flush_cache", query={"timeout": "0.05"})
        engine.call("ready", method="GET")
        engine.advance(1.0)
        if mode != "in_place":  # there it would wait for ever
            engine.call("pause_generation", {})
        engine.call("continue_generation", {"torch_empty_cache": False})
        for call in (running, queued, late):
            engine.result(call)
        engine.call("ready", method="GET")
    return engine


def flushes(version: str) -> Teller:
    """Idle, busy, with a timeout that is met and one that is not, two at once, and of a batch that lingers."""
    engine = Teller(version, stale_batch_steps=2)
    engine.call("generate", body(2))
    engine.call("flush_cache")
    engine.advance(0.1)
    engine.call("flush_cache", method="GET")
    running = engine.start("generate", body(12))
    engine.advance(0.01)
    engine.call("flush_cache", query={"timeout": "0.02"})
    first = engine.start("flush_cache", query={"timeout": "9"})
    second = engine.start("flush_cache", query={"timeout": "9"})
    third = engine.start("flush_cache", query={"timeout": "0"})
    for call in (running, first, second, third):
        engine.result(call)
    engine.call("flush_cache", query={"timeout": "1e-9"})
    for text in ("x", "-1", "nan", "inf", "2.5", ""):
        engine.call("flush_cache", query={"timeout": text}, timeout=1.0)
    return engine


def memory(version: str) -> Teller:
    """Tags one by one with the memory saver, content zeroed, poisoned or backed up, and what dies of it."""
    lines: list[str] = []
    for config in (
        {"enable_memory_saver": True, "device": "cuda"},
        {"enable_memory_saver": True, "enable_weights_cpu_backup": True, "device": "cuda"},
        {"enable_memory_saver": True, "strict_memory": True, "device": "cuda", "tp_size": 2},
        {},
    ):
        engine = Teller(version, **config)
        engine.call("generate", body(1))
        engine.call("release_memory_occupation", {"tags": ["weights"]})
        engine.call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": 2})
        engine.call("weights_checker", {"action": "snapshot"})
        engine.call("resume_memory_occupation", {"tags": ["weights"]})
        engine.call("generate", body(1))
        engine.call("release_memory_occupation", {"tags": ["kv_cache", "cuda_graph", "unknown"]})
        engine.call("resume_memory_occupation", {"tags": ["kv_cache"]})
        engine.call("resume_memory_occupation", {"tags": ["cuda_graph", "unknown"]})
        engine.call("release_memory_occupation", {"tags": []})
        engine.call("release_memory_occupation", {})
        engine.advance(80.0)
        lines += engine.lines
    engine.lines = lines
    return engine


def released(version: str) -> Teller:
    """What is done to memory that is gone kills, and so does a resume of what is not."""
    lines: list[str] = []
    for tags, op in (
        (["kv_cache"], "generate"),
        (["weights"], "generate"),
        (["weights"], "update"),
        (["weights"], "update_weights_from_disk"),
        (["cuda_graph"], "resume_memory_occupation"),
    ):
        engine = Teller(version, enable_memory_saver=True, device="cuda")
        engine.disk["/m"] = list(engine.weights(1).items())
        if version == "miles" or version > "0.5.20":
            engine.call("begin_weight_update", {})
        engine.call("release_memory_occupation", {"tags": tags})
        if op == "update":
            engine.update()
        else:
            engine.call(op, {"generate": body(1), "update_weights_from_disk": {"model_path": "/m"}}.get(op, {}))
        engine.advance(80.0)
        lines += engine.lines
    engine.lines = lines
    return engine


def health(version: str) -> Teller:
    """Idle, busy, paused, blocked, without generation; /ready and /ping after each."""
    engine = Teller(version)
    for state in ("idle", "busy", "paused"):
        if state == "busy":
            engine.start("generate", body(90))
            engine.advance(0.05)
        if state == "paused":
            engine.call("pause_generation", {"mode": "abort"})
        for op in ("health", "health_generate", "ready", "ping"):
            engine.call(op, method="GET")
    quiet = Teller(version, health_generation=False)
    for op in ("health", "health_generate"):
        quiet.call(op, method="GET")
    engine.lines += quiet.lines
    return engine


def doors(version: str) -> Teller:
    """Keys, methods, slashes, unknown paths, bodies that are none."""
    lines: list[str] = []
    for keys in ({}, {"api_key": "u"}, {"admin_api_key": "a"}, {"api_key": "u", "admin_api_key": "a"}):
        engine = Teller(version, **keys)
        for bearer in (None, "u", "a"):
            for op, method in (
                ("model_info", "GET"),
                ("flush_cache", "GET"),
                ("health", "POST"),
                ("ready", "GET"),
                ("metrics", "GET"),
                ("nope", "POST"),
                ("flush_cache/", "POST"),
                ("pause_generation", "GET"),
            ):
                engine.call(op, method=method, bearer=bearer)
        lines += engine.lines
    for raw in (b"", b"null", b"[]", b"{", b"{}", b'"x"'):
        for op in ("pause_generation", "generate", "weights_checker"):
            engine.call(op, raw=raw, bearer="a" if op != "generate" else "u")
    engine.call("pause_generation", raw=b"{}", bearer="a", content_type="text/plain")
    engine.call("pause_generation", raw=b"", bearer="a", content_type="text/plain")
    engine.call("weights_checker", raw=b"{}", bearer="a", method="GET")
    engine.lines = lines + engine.lines[-21:]
    return engine


def in_process(version: str) -> Teller:
    """What `sglang.Engine` returns or raises."""
    engine = Teller(version)
    engine.call("generate", body(2), via="engine")
    engine.call("generate", body(2, stream=True), via="engine")
    engine.call("generate", {}, via="engine")
    engine.call("flush_cache", {}, via="engine")
    engine.call("flush_cache", {"timeout_s": 0.5}, via="engine")
    engine.call("pause_generation", {"mode": "retract"}, via="engine")
    engine.call("continue_generation", via="engine")
    engine.call("nothing", {}, via="engine")
    engine.call("pause_generation", {"bogus": 1}, via="engine")
    engine.call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": 1}, via="engine")
    engine.call("begin_weight_update", {"selector": "bogus"}, via="engine")
    engine.advance(80.0)
    return engine


def deaths(version: str) -> Teller:
    """What an engine that is dying still does, second by second."""
    engine = Teller(version)
    running = engine.start("generate", body(80, stream=True))
    engine.advance(0.02)
    fatal = engine.start("resume_memory_occupation", {})
    engine.call("model_info", method="GET")
    engine.start("flush_cache")
    engine.cancel(running)
    engine.advance(1.0)
    engine.start("model_info", method="GET")
    engine.start("nope", method="GET")
    engine.advance(80.0)
    engine.result(fatal)
    for config, message in (({}, [600]), ({"device": "cuda"}, [-1])):
        other = Teller(version, **config)
        other.call("generate", generate_body(2, message))
        other.advance(80.0)
        engine.lines += other.lines
    paused = Teller(version)
    paused.call("pause_generation", {})
    paused.start("generate", body(2, [600]))
    paused.call("continue_generation", {})
    paused.advance(80.0)
    frozen = Teller(version, watchdog_timeout=2.0)
    frozen.start("generate", body(80))
    frozen.advance(0.02)
    frozen.call("pause_generation", {"mode": "in_place"})
    frozen.advance(100.0)
    spared = Teller(version, watchdog_timeout=2.0)
    spared.start("generate", body(80))
    spared.advance(0.02)
    spared.call("pause_generation", {"mode": "in_place"})
    spared.advance(2.0)
    spared.call("pause_generation", {"mode": "retract"})
    spared.advance(100.0)
    spared.call("continue_generation", {})
    spared.advance(1.0)
    engine.lines += paused.lines + frozen.lines + spared.lines
    return engine


STORIES = (pauses, flushes, memory, released, health, doors, in_process, deaths)
