"""Broken clients and lenient engines of LoRA adapters."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import broken, forgotten, lenient, method, profile

CLIENT = "harness.reference.lora:LoraClient"
TRANSFER = "harness.reference.lora:AdapterTransfer"
MANAGER = "fakes.engine.lora_manager:LoraManager"
REGISTRY = "fakes.engine.lora_registry:LoraRegistry"
AREAL = "areal-project/AReaL#1385"
LENIENT = "a fake that is kinder than SGLang"


def _name_of_the_policy(original: Any) -> Any:
    def refit(self: Any, state: Any, version: str, deadline: Any) -> Any:
        result = original(self, state, version, deadline)
        self.serving = "default_lora"
        return result

    return refit


def _nobody_gives_back(original: Any) -> Any:
    return lambda self, engines, names, timeout_s: None


def _paused_first(original: Any) -> Any:
    def unload(self: Any, engines: Any, names: Any, timeout_s: float) -> Any:
        from harness.reference.engines import ask

        ask(engines, "pause_generation", {"mode": "retract"}, timeout_s)
        try:
            return original(self, engines, names, timeout_s)
        finally:
            ask(engines, "continue_generation", {}, timeout_s)

    return unload


def _status_is_not_read(original: Any) -> Any:
    def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
        from harness.reference.errors import CallFailed

        try:
            original(self, engine, parcel, payloads)
        except CallFailed as failed:
            del failed

    return post


def _alpha_is_rank(original: Any) -> Any:
    def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
        self.config = {**self.config, "lora_alpha": self.config["r"]}
        original(self, engine, parcel, payloads)

    return post


def _without_b(original: Any) -> Any:
    def with_adapter(self: Any, rank: Any, name: str, x: Any, y: Any) -> Any:
        return y if "down_proj" in name else original(self, rank, name, x, y)

    return with_adapter


def _replaces(original: Any) -> Any:
    def validate(self: Any, rank: int, config: Any, ref: Any) -> None:
        held = self.refs[rank]
        for lora_id in [known for known, other in held.items() if other.name == ref.name]:
            del held[lora_id]
        original(self, rank, config, ref)

    return validate


def _at_once(original: Any) -> Any:
    async def unload(self: Any, name: str) -> Any:
        ref = self._names[name]
        self._used[ref.lora_id] = 0
        return await original(self, name)

    return unload


def _base_for_unknown(original: Any) -> Any:
    async def acquire(self: Any, names: Any) -> Any:
        known = [name if name is None or name in self._ever else None for name in names]
        return await original(self, known)

    return acquire


def _any_rank(original: Any) -> Any:
    def validate(self: Any, rank: int, config: Any, ref: Any) -> None:
        self._max_rank = 1 << 20
        original(self, rank, config, ref)

    return validate


def _shapes_at_once(original: Any) -> Any:
    def keep(self: Any, rank: int, ref: Any, *rest: Any) -> Any:
        from fakes.engine.crash import Crash

        found = original(self, rank, ref, *rest)
        if found is None:
            try:
                self._adapters[rank][ref.lora_id].shard(self._s.ranks[rank], self._modules)
            except Crash as crash:
                del self._adapters[rank][ref.lora_id], self.refs[rank][ref.lora_id]
                return crash.raised.message
        return found

    return keep


def _refuses_the_last(original: Any) -> Any:
    async def load(self: Any, obj: Any, path: Any = None) -> Any:
        limit = self._tm.config.max_loaded_loras
        if limit is not None and len(self._names) >= limit:
            return {"success": False, "error_message": "too many adapters", "loaded_adapters": None}
        return await original(self, obj, path)

    return load


def _gone_with_the_base(original: Any) -> Any:
    def tensor(self: Any, obj: Any) -> Any:
        answer = original(self, obj)
        lora = self._s.lora
        if lora is not None:
            for adapters in lora._adapters:
                for adapter in adapters.values():
                    adapter.scaling = 0.0
            for pool in lora._pool:
                pool.clear()
        return answer

    return tensor


def _one_cache(original: Any) -> Any:
    def generate(self: Any, obj: Any) -> Any:
        obj["req"].extra_key = None
        return original(self, obj)

    return generate


def _always_on(original: Any) -> Any:
    return lambda self: {"success": True, "error_message": "", "loaded_adapters": {}}


def _ignores_the_count(original: Any) -> Any:
    async def unload(self: Any, name: str) -> Any:
        if self._tm.is_pause:
            self._used[self._names[name].lora_id] = 0
        return await original(self, name)

    return unload


PLANTS = (
    broken(
        "name-of-no-adapter",
        "LORA-1",
        AREAL,
        "requests use another name than the one that was loaded",
        method(f"{CLIENT}.refit", _name_of_the_policy),
    ),
    broken(
        "adapters-pile-up",
        "LORA-2",
        AREAL,
        "a new version at every step, and none is ever unloaded",
        method(f"{CLIENT}._unload", _nobody_gives_back),
    ),
    broken(
        "unload-under-a-pause",
        "LORA-3",
        "a refit's envelope around adapters, too",
        "the engine is paused for the unload",
        method(f"{CLIENT}._unload", _paused_first),
    ),
    broken(
        "load-is-not-read",
        "LORA-4",
        AREAL,
        "a load that was refused is taken for done",
        method(f"{TRANSFER}._post", _status_is_not_read),
    ),
    broken(
        "alpha-of-the-trainer-is-lost",
        "LORA-5",
        "an adapter_config.json that is made up anew",
        "alpha is sent as the rank",
        method(f"{TRANSFER}._post", _alpha_is_rank),
    ),
    lenient(
        "adapter-without-its-down-projection",
        "LORA-51",
        LENIENT,
        "one of the modules is left out",
        method("fakes.engine.model:Model._with_adapter", _without_b),
        forgotten,
    ),
    lenient(
        "a-name-is-replaced",
        "LORA-52",
        LENIENT,
        "a second load under a name takes its place",
        method(f"{MANAGER}._validate", _replaces),
    ),
    lenient(
        "unloaded-at-once", "LORA-53", LENIENT, "an unload waits for nobody", method(f"{REGISTRY}._unload", _at_once)
    ),
    lenient(
        "unknown-adapters-are-none",
        "LORA-54",
        LENIENT,
        "a request for an unknown adapter is answered by the base",
        method(f"{REGISTRY}.acquire", _base_for_unknown),
    ),
    lenient(
        "any-rank-will-do",
        "LORA-55",
        LENIENT,
        "a rank above the launch's is taken",
        method(f"{MANAGER}._validate", _any_rank),
    ),
    lenient(
        "shapes-are-looked-at-first",
        "LORA-56",
        LENIENT,
        "a shape that does not fit is refused by the load",
        method(f"{MANAGER}._keep", _shapes_at_once),
    ),
    lenient(
        "full-is-full",
        "LORA-57",
        LENIENT,
        "one adapter too many is refused, none is unloaded",
        method(f"{REGISTRY}.load", _refuses_the_last),
    ),
    lenient(
        "adapters-fall-off",
        "LORA-58",
        LENIENT,
        "an update of the base takes the adapters along",
        method("fakes.engine.weight_update:WeightUpdater._tensor", _gone_with_the_base),
        forgotten,
    ),
    lenient(
        "one-cache-for-all-adapters",
        "LORA-59",
        LENIENT,
        "prefixes are cached by tokens alone",
        method("fakes.engine.scheduler:Scheduler._generate", _one_cache),
    ),
    lenient(
        "adapters-without-the-option",
        "LORA-60",
        LENIENT,
        "loads are answered 200 without --enable-lora",
        method("fakes.engine.lora_registry:LoraRegistry._refused", _always_on),
    ),
    lenient(
        "a-queued-abort-is-counted",
        "LORA-61",
        LENIENT,
        "an abort in the queue gives the adapter back in every version",
        profile(lora_release="every"),
    ),
    lenient(
        "a-queued-abort-is-forgotten",
        "LORA-62",
        "sgl-project/sglang up to 0.5.21",
        "an abort in the queue keeps the adapter in use",
        profile(lora_release="finished"),
    ),
    lenient(
        "unloads-under-a-pause",
        "LORA-63",
        LENIENT,
        "an unload does not wait for requests that were retracted",
        method(f"{REGISTRY}._unload", _ignores_the_count),
    ),
)
