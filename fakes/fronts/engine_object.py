"""SGLang's Engine object, in process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes.fronts.caller import Caller, Death, FlushCacheReqOutput, flushed, pair
from fakes.fronts.lora_object import LoraCalls
from fakes.fronts.requests import generate_fields
from fakes.fronts.tensors import serialise_named
from fakes.fronts.tokenizer_object import TokenizerManager
from fakes.world.fleet import WorldEngine
from fakes.world.world import World


class Engine(LoraCalls):
    """SGLang's Engine object over one engine of the world (entrypoints/engine.py:433-1842@0.5.23).

    Returns SGLang's tuples. Death raises `EngineDied`, and so does every later call; `death="process"` kills the
    calling process with SIGKILL, as SGLang does. Calls have no timeout, as SGLang's: one that nothing will ever end
    is a deadlock. `serialise(named_tensors, tp_size)` makes the per-rank payloads of full tensors.
    """

    def __new__(cls, world: World, engine: WorldEngine, **kwargs: Any) -> Engine:
        """Only the versions that have them get get_model_info, begin_weight_update and end_weight_update."""
        if cls is Engine:
            cls = _class_of(engine.config.profile)
        return object.__new__(cls)

    def __init__(
        self,
        world: World,
        engine: WorldEngine,
        *,
        death: Death = "raise",
        serialise: Callable[[Any, int], list[Any]] | None = None,
    ) -> None:
        if death not in ("raise", "process"):
            raise ValueError(f"death must be 'raise' or 'process', not {death!r}")
        self.world = world
        self.engine = engine
        self._serialise = serialise or (lambda named, tp_size: serialise_named(world, named, tp_size))
        self._caller = Caller(world, engine, death)
        self.tokenizer_manager = TokenizerManager(self._caller)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def generate(self, prompt: Any = None, sampling_params: Any = None, input_ids: Any = None, **more: Any) -> Any:
        """The answer as a dict (a list for a batch); with `stream=True` an iterator of chunks."""
        fields = generate_fields(prompt, sampling_params, input_ids, more)
        return self._caller.stream(fields) if fields.get("stream") else self._caller.sync("generate", fields)

    async def async_generate(
        self, prompt: Any = None, sampling_params: Any = None, input_ids: Any = None, **more: Any
    ) -> Any:
        """The same on an event loop (the world's own, best); with `stream=True` an async iterator."""
        fields = generate_fields(prompt, sampling_params, input_ids, more)
        return self._caller.astream(fields) if fields.get("stream") else await self._caller.wait("generate", fields)

    def update_weights_from_tensor(
        self, named_tensors: Any, load_format: str | None = None, flush_cache: bool = True
    ) -> tuple[bool, str]:
        """(success, message). `named_tensors`: [(name, tensor)]; for flattened_bucket one payload per tp_rank."""
        if load_format == "flattened_bucket":
            payloads = list(named_tensors)
        else:
            payloads = self._serialise(named_tensors, self.engine.config.tp_size)
        fields = {"serialized_named_tensors": payloads, "load_format": load_format, "flush_cache": flush_cache}
        return pair(self._caller.sync("update_weights_from_tensor", fields))

    def update_weights_from_distributed(
        self,
        names: list[str],
        dtypes: list[str],
        shapes: list[list[int]],
        group_name: str = "weight_update_group",
        flush_cache: bool = True,
        load_format: str | None = None,
    ) -> tuple[bool, str]:
        """(success, message)."""
        fields = {"names": names, "dtypes": dtypes, "shapes": shapes, "group_name": group_name}
        fields |= {"flush_cache": flush_cache, "load_format": load_format}
        return pair(self._caller.sync("update_weights_from_distributed", fields))

    def update_weights_from_disk(self, model_path: str, load_format: str | None = None) -> Any:
        """(success, message, num_paused_requests)."""
        return self._caller.sync("update_weights_from_disk", {"model_path": model_path, "load_format": load_format})

    def get_weights_by_name(self, name: str, truncate_size: int = 100) -> Any:
        """The parameter as nested lists of float, cut at `truncate_size` rows."""
        return self._caller.sync("get_weights_by_name", {"name": name, "truncate_size": truncate_size})

    def init_weights_update_group(
        self,
        master_address: str,
        master_port: int,
        rank_offset: int,
        world_size: int,
        group_name: str,
        backend: str = "nccl",
    ) -> tuple[bool, str]:
        """(success, message). Blocks the scheduler until every member has joined."""
        fields = {"master_address": master_address, "master_port": master_port, "rank_offset": rank_offset}
        fields |= {"world_size": world_size, "group_name": group_name, "backend": backend}
        return pair(self._caller.sync("init_weights_update_group", fields))

    def destroy_weights_update_group(self, group_name: str) -> tuple[bool, str]:
        """(success, message)."""
        return pair(self._caller.sync("destroy_weights_update_group", {"group_name": group_name}))

    def release_memory_occupation(self, tags: list[str] | None = None) -> None:
        """None = all of kv_cache, weights, cuda_graph."""
        self._caller.sync("release_memory_occupation", {"tags": tags})

    def resume_memory_occupation(self, tags: list[str] | None = None) -> None:
        """A tag that was not released kills the engine."""
        self._caller.sync("resume_memory_occupation", {"tags": tags})

    def flush_cache(self) -> FlushCacheReqOutput:
        """Success, or why not."""
        return flushed(self._caller.sync("flush_cache", {}))

    def get_server_info(self) -> Any:
        """Launch arguments, internal states and the version."""
        return self._caller.sync("server_info", {}, method="GET")

    def shutdown(self) -> None:
        """End the scheduler processes; the calling process lives on."""
        self.engine.kill("shutdown")


class ModelInfoEngine(Engine):
    """An Engine with get_model_info: 0.5.18 and later (entrypoints/engine.py:1375@0.5.18)."""

    def get_model_info(self) -> dict[str, Any]:
        """What is served right now, with the live weight version; a part of /model_info."""
        info = self._caller.sync("model_info", {}, method="GET")
        return {name: info[name] for name in _MODEL_INFO if name in info}


_MODEL_INFO = (
    "model_path",
    "served_model_name",
    "is_generation",
    "weight_version",
    "load_format",
    "reasoning_parser",
    "tool_call_parser",
    "disaggregation_mode",
)


class SessionEngine(ModelInfoEngine):
    """An Engine with weight-update sessions: 0.5.21 and later, and miles (entrypoints/engine.py:1643-1655@0.5.23)."""

    def begin_weight_update(self, selector: str = "all") -> tuple[bool, str]:
        """Open a session: (success, message)."""
        return pair(self._caller.sync("begin_weight_update", {"selector": selector}))

    def end_weight_update(self) -> tuple[bool, str]:
        """Close it: (success, message)."""
        return pair(self._caller.sync("end_weight_update", {}))


def _class_of(version: str) -> type[Engine]:
    from fakes.engine.profiles import PROFILES

    profile = PROFILES.get(version)
    if profile is not None and profile.engine_session_calls:
        return SessionEngine
    # The calls came with the keys: served_model_name joined /model_info in 0.5.18, too.
    return ModelInfoEngine if profile is not None and "served_model_name" in profile.model_info else Engine
