"""The in-process fronts: an HTTP-shaped one, and SGLang's Engine object."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

import pytest

from fakes.engine.protocol import EngineConfig
from fakes.fronts.inprocess import Engine, EngineDied, Server, SessionEngine
from fakes.fronts.requests import fields_of
from fakes.world import DeadlockError, World
from tests.fakes.fronts.conftest import ended
from tests.fakes.scripted import ScriptedCore


@pytest.fixture
def world():
    with World(make_core=ScriptedCore) as w:
        yield w


def engine_of(world, profile="0.5.23", **kwargs):
    return Engine(world, world.add_engine("e0", EngineConfig(profile=profile), {}, {}), **kwargs)


@pytest.fixture
def engine(world):
    return engine_of(world)


@pytest.fixture
def server(world):
    return Server(world, world.add_engine("e0", EngineConfig(), {}, {}))


def test_a_request_is_an_outcome(server):
    outcome = server.request("POST", "echo", {"a": 1})
    assert (outcome.status, outcome.body) == (200, {"path": "/echo", "body": {"a": 1}})


def test_raw_content_goes_raw(server):
    assert server.request("POST", "/echo", content=b"{").body["body"] == b"{"


def test_a_request_in_the_background(server, world):
    pending = server.start("POST", "/in", {"s": 3.0})
    assert not pending.done
    assert pending.result(1.0).ending == "timeout"
    assert pending.result().body == {"after": 3.0}


def test_a_cancelled_request_closes_its_connection(server, world):
    pending = server.start("POST", "/hang")
    world.sleep(1.0)
    pending.cancel()
    assert pending.result().ending == "timeout"
    assert server.engine.core.cancelled == [pending.ticket.id]


def test_every_ending_is_an_outcome(server):
    assert server.request("POST", "/hang", timeout_s=1.0).ending == "timeout"
    assert server.request("POST", "/die", {"after": 1.0}).ending == "dropped"
    assert server.request("POST", "/echo").ending == "refused"
    assert not server.alive


@pytest.mark.parametrize(
    ("profile", "sessions"), [("0.5.12.post1", False), ("0.5.20", False), ("miles", True), ("0.5.21", True)]
)
def test_only_some_versions_have_sessions(world, profile, sessions):
    engine = engine_of(world, profile)
    assert isinstance(engine, SessionEngine) is sessions
    assert hasattr(engine, "begin_weight_update") is sessions
    assert hasattr(engine, "end_weight_update") is sessions


def test_the_engine_returns_sglangs_tuples(engine):
    assert engine.begin_weight_update() == (True, "engine")
    assert engine.update_weights_from_tensor([b"p0"], load_format="flattened_bucket") == (True, "engine")
    assert engine.init_weights_update_group("127.0.0.1", 1, 1, 2, "g") == (True, "engine")
    flushed = engine.flush_cache()
    assert (flushed.success, flushed.message) == (True, "engine")


def test_the_engine_fills_in_sglangs_defaults(engine):
    engine.update_weights_from_distributed(["w"], ["bfloat16"], [[1]])
    call = engine.engine.core.events[-1][1]
    assert call.via == "engine"
    assert call.body == {
        "names": ["w"],
        "dtypes": ["bfloat16"],
        "shapes": [[1]],
        "group_name": "weight_update_group",
        "flush_cache": True,
        "load_format": None,
    }


def test_full_tensors_are_serialised_once_per_rank(world):
    made = world.add_engine("e0", EngineConfig(tp_size=2), {}, {})
    engine = Engine(world, made, serialise=lambda named, tp: [f"{named}@{rank}" for rank in range(tp)])
    engine.update_weights_from_tensor("all")
    assert made.core.events[-1][1].body["serialized_named_tensors"] == ["all@0", "all@1"]


def test_generate_takes_sglangs_arguments(engine):
    answer = engine.generate(input_ids=[1, 2], sampling_params={"max_new_tokens": 2}, return_logprob=True, rid="r")
    assert answer["fields"] == {
        "input_ids": [1, 2],
        "sampling_params": {"max_new_tokens": 2},
        "return_logprob": True,
        "rid": "r",
    }
    with pytest.raises(TypeError, match="unexpected keyword argument 'temperature'"):
        engine.generate(temperature=1.0)


def test_generate_streams(engine, world):
    times = []
    for chunk in engine.generate(input_ids=[1], sampling_params={"max_new_tokens": 3}, stream=True):
        times.append((round(world.now, 2), len(chunk["output_ids"])))
    assert times == [(1.0, 1), (2.0, 2), (3.0, 3)]


def test_an_exception_of_the_tokenizer_manager_is_raised(engine):
    with pytest.raises(ValueError, match="no such parameter"):
        engine.get_weights_by_name("ValueError")
    with pytest.raises(RuntimeError, match="HFValidationError: no such parameter"):
        engine.get_weights_by_name("HFValidationError")


def test_death_passes_every_except_exception(engine):
    def client():
        try:
            engine.release_memory_occupation()
        except Exception:
            return "survived"

    with pytest.raises(EngineDied, match="engine e0 died of AssertionError: boom"):
        client()


def test_every_call_after_death_dies_too(engine, world):
    for _ in range(2):
        with pytest.raises(EngineDied):
            engine.release_memory_occupation()
    with pytest.raises(EngineDied):
        world.run(engine.async_generate(input_ids=[1], sampling_params={"max_new_tokens": 1}))


def test_a_call_without_end_is_a_deadlock(engine):
    with pytest.raises(DeadlockError, match="main waits for e0 POST /hang"):
        engine._caller.sync("hang", {})


def test_shutdown_leaves_the_caller_alive(world):
    with engine_of(world) as engine:
        pass
    assert not engine.engine.alive


def test_an_unknown_way_to_die_is_refused(world):
    with pytest.raises(ValueError, match="death must be"):
        engine_of(world, death="politely")


def test_async_generations_overlap_in_virtual_time(engine, world):
    async def main():
        two, three = await asyncio.gather(
            engine.async_generate(input_ids=[1], sampling_params={"max_new_tokens": 2}),
            engine.async_generate(input_ids=[1], sampling_params={"max_new_tokens": 3}),
        )
        await asyncio.sleep(10)
        return len(two["output_ids"]), len(three["output_ids"])

    assert world.run(main()) == (2, 3)
    assert world.now == pytest.approx(13.0 + world.transit_s)


def test_a_virtual_timeout_cancels_the_call(engine, world):
    async def main():
        await asyncio.wait_for(engine._caller.wait("hang", {}), timeout=5)

    with pytest.raises(asyncio.TimeoutError):
        world.run(main())
    assert world.now == 5.0
    assert engine.engine.core.cancelled == [1]


def test_async_streams(engine, world):
    async def main():
        stream = await engine.async_generate(input_ids=[1], sampling_params={"max_new_tokens": 3}, stream=True)
        return [len(chunk["output_ids"]) async for chunk in stream]

    assert world.run(main()) == [1, 2, 3]


def test_a_loop_that_knows_nothing_of_the_world_works_too(engine, world):
    async def main():
        return await asyncio.gather(
            *[engine.async_generate(input_ids=[1], sampling_params={"max_new_tokens": n}) for n in (3, 1, 2)]
        )

    assert [len(answer["output_ids"]) for answer in asyncio.run(main())] == [3, 1, 2]
    assert world.now == pytest.approx(3.0 + world.transit_s)


@pytest.mark.parametrize(
    "run", [lambda world, coroutine: world.run(coroutine), lambda _, coroutine: asyncio.run(coroutine)]
)
def test_a_deadlock_reaches_who_awaits(engine, world, run):
    async def main():
        await engine._caller.wait("hang", {})

    with pytest.raises(DeadlockError):
        run(world, main())


def test_an_executor_of_the_loop_is_a_participant(engine, world):
    async def main():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            loop.run_in_executor(None, world.sleep, 2.0), loop.run_in_executor(None, engine.flush_cache)
        )

    assert world.run(main())[1].success
    assert world.now == 2.0


def test_the_tokenizer_manager_takes_structs_and_mappings(engine, world):
    class PauseGenerationReqInput:
        def __init__(self, mode):
            self.mode = mode

    manager = engine.tokenizer_manager
    world.run(manager.pause_generation(PauseGenerationReqInput("retract")))
    assert engine.engine.core.events[-1][1].body == {"mode": "retract"}
    assert world.run(manager.update_weights_from_tensor({"flush_cache": False}, None)) == (True, "engine")
    manager.abort_request(abort_all=True)
    world.sleep(1.0)
    assert engine.engine.core.events[-1][1].body == {"rid": "", "abort_all": True}


def test_fields_of_whatever_a_trainer_hands_over():
    assert fields_of(None) == {}
    assert fields_of(EngineConfig())["profile"] == "0.5.23"


@pytest.mark.parametrize(
    "fatal",
    [
        "engine.resume_memory_occupation()",
        "engine.begin_weight_update(); engine.update_weights_from_tensor([b'x', b'x'], load_format='flattened_bucket')",
        "world.run(engine.async_generate(input_ids=[10**6], sampling_params={'max_new_tokens': 2}))",
        "list(engine.generate(input_ids=[10**6], sampling_params={'max_new_tokens': 2}, stream=True))",
    ],
)
def test_process_death_really_kills_the_caller(fatal):
    """SGLang's Engine sends SIGKILL to its own process tree: no except and no finally of the caller runs."""
    script = f"""
        import subprocess, sys
        from fakes.engine.protocol import EngineConfig
        from fakes.fronts.inprocess import Engine
        from fakes.tiny import tiny_config, tiny_weights
        from fakes.world import World

        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.alarm(60); signal.pause()"])
        print(child.pid, flush=True)
        world, config = World(), tiny_config()
        engine = world.add_engine("e0", EngineConfig(tp_size=2), tiny_weights(config, 0), config)
        engine = Engine(world, engine, death="process")
        try:
            {fatal}
        except BaseException as error:
            print("survived", repr(error), flush=True)
        finally:
            print("finally", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -9, done.stderr
    [child] = done.stdout.split()
    assert ended(int(child), 20)
