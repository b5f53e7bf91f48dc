"""Lenient engines: what they derive from quantised weights is always right."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import lenient, method

UPDATER = "fakes.engine.weight_update:WeightUpdater"
KERNELS = "fakes.engine.quantised:Kernels"
LENIENT = "a fake that is kinder than SGLang"


def _nothing(original: Any) -> Any:
    return lambda self: None


def _always(original: Any) -> Any:
    def after_load(self: Any, *args: Any, **more: Any) -> Any:
        self._finalise()
        return original(self, *args, **more)

    return after_load


def _once(original: Any) -> Any:
    """Not again while nothing at all has changed."""

    def finalise(self: Any) -> None:
        now = {name: self._params[name].tobytes() for name in self.modules}
        if now != self.__dict__.get("_final"):
            original(self)
            self.__dict__["_final"] = {name: self._params[name].tobytes() for name in self.modules}

    return finalise


def _each_once(original: Any) -> Any:
    """Not again for a module that has not changed."""

    def finalise(self: Any) -> None:
        final = self.__dict__.setdefault("_final", {})
        every = self.modules
        self.modules = tuple(n for n in every if self._params[n].tobytes() != final.get(n))
        original(self)
        final.update({name: self._params[name].tobytes() for name in every})
        self.modules = every

    return finalise


def _disk_alone(original: Any) -> Any:
    def disk(self: Any, obj: Any) -> Any:
        rank = self._s.ranks[0]
        rank.finalise = lambda: None
        try:
            return (yield from original(self, obj))
        finally:
            del rank.finalise

    return disk


def _exact(original: Any) -> Any:
    def load(self: Any, name: str, tensor: Any, shard: Any) -> None:
        from fakes.engine.loading import LoadError

        if tensor.dtype != self.params[name].dtype:
            raise LoadError("ValueError", "another dtype")
        original(self, name, tensor, shard)

    return load


def _once_by_rows(original: Any) -> Any:
    def quantise(self: Any) -> None:
        if self.finals == 1:
            original(self)

    return quantise


def _as_qwen(original: Any) -> Any:
    def route(name: str, *, kind: str, **more: Any) -> Any:
        return original(name, kind="qwen2" if kind == "llama" else kind, **more)

    return route


def _takes_more(original: Any) -> Any:
    def takes(self: Any, name: str, loaded: Any, *, stacked: bool) -> bool:
        from fakes.engine.loading import LoadError

        try:
            return bool(original(self, name, loaded, stacked=stacked))
        except LoadError:
            return False

    return takes


PLANTS = (
    lenient(
        "end-derives-nothing",
        "DERIV-51",
        "an engine that marks and finishes nothing",
        "end_weight_update leaves derived layouts",
        method(f"{UPDATER}._finalise", _nothing),
    ),
    lenient(
        "updates-derive-too",
        "DERIV-52",
        LENIENT,
        "every update derives what kernels read",
        method(f"{UPDATER}._after_load", _always),
    ),
    lenient(
        "derived-once",
        "DERIV-53",
        LENIENT,
        "what is final stays final",
        method(f"{KERNELS}.finalise", _once),
    ),
    lenient(
        "derived-where-changed",
        "DERIV-54",
        LENIENT,
        "modules that were not sent are left alone",
        method(f"{KERNELS}.finalise", _each_once),
    ),
    lenient(
        "disk-derives-nothing",
        "DERIV-55",
        "an engine that marks and finishes nothing",
        "a disk update leaves derived layouts",
        method(f"{UPDATER}._disk", _disk_alone),
    ),
    lenient(
        "only-its-own-dtype",
        "DERIV-56",
        "a fake that is stricter than SGLang",
        "bfloat16 does not fit into an fp8 weight",
        method("fakes.engine.weights:RankWeights._load_quantised", _exact),
    ),
    lenient(
        "either-way-round",
        "DERIV-58",
        LENIENT,
        "a kernel takes a matrix that lies across",
        method(f"{KERNELS}.across", _nothing),
    ),
    lenient(
        "quantised-once",
        "DERIV-59",
        LENIENT,
        "what is quantised is left as it is",
        method(f"{KERNELS}._quantise", _once_by_rows),
    ),
    lenient(
        "llama-knows-blocks",
        "DERIV-60",
        LENIENT,
        "Llama loads scales of blocks",
        method("fakes.engine.weights:route", _as_qwen),
    ),
    lenient(
        "final-takes-more",
        "DERIV-57",
        LENIENT,
        "parameters keep their loaders",
        method(f"{KERNELS}.takes", _takes_more),
    ),
)
