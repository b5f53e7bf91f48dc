"""Lenient engines: payloads, names and content are treated otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.plants.make import Apply, forgotten, lenient, method

UPDATER = "fakes.engine.weight_update:WeightUpdater"
LENIENT = "a fake that is kinder than SGLang"
Named = list[tuple[str, Any]]


def payload_list(change: Callable[[Any, list[Any]], Any]) -> Apply:
    """`change(updater, payloads)` gives the list that is used, or a reply that is given instead."""

    def make(original: Any) -> Any:
        def tensor(self: Any, obj: Any) -> Any:
            other = change(self, list(obj["serialized_named_tensors"]))
            return original(self, {**obj, "serialized_named_tensors": other}) if isinstance(other, list) else other

        return tensor

    return method(f"{UPDATER}._tensor", make)


def loading(change: Callable[[Any, int, Named, Any], Named | None]) -> Apply:
    """`change(updater, rank, named, load_format)` gives what is loaded; None loads nothing."""

    def make(original: Any) -> Any:
        def load(self: Any, rank: int, named: Named, load_format: Any, **more: Any) -> None:
            other = change(self, rank, list(named), load_format)
            if other is not None:
                original(self, rank, other, load_format, **more)

        return load

    return method(f"{UPDATER}._load", make)


def forgiving(*types: str) -> Apply:
    """Payloads that fail to open with one of these errors hold nothing instead of killing."""

    def make(original: Any) -> Any:
        def tensor_io(self: Any, obj: Any) -> Any:
            from fakes.engine.protocol import Done

            io = original(self, obj)
            effects = next(io)
            results = dict((yield effects))
            for key, done in results.items():
                error = done.error
                if error is not None and any(t in f"{error.type}: {error.message}" for t in types):
                    results[key] = Done(key, value=[])
            try:
                io.send(results)
            except StopIteration as stop:
                return stop.value
            raise RuntimeError("an update waits for its payloads once")

        return tensor_io

    return method(f"{UPDATER}._tensor_io", make)


def _ranks(updater: Any) -> int:
    return len(updater._s.ranks)


def _crash(message: str) -> Exception:
    from fakes.engine.crash import Crash

    return Crash("AssertionError", message)


def _pad(updater: Any, payloads: list[Any]) -> Any:
    return payloads + payloads[-1:] * (_ranks(updater) - len(payloads))


def _same_length(updater: Any, payloads: list[Any]) -> Any:
    from fakes.engine.weight_update import failed

    return payloads if len(payloads) == _ranks(updater) else failed("one payload per rank, please")


def _first_for_all(updater: Any, payloads: list[Any]) -> Any:
    return payloads[:1] * _ranks(updater)


def _empty_is_fine(updater: Any, payloads: list[Any]) -> Any:
    from fakes.engine.weight_update import ok

    return payloads or ok("Success")


def _other_ranks_shard(original: Any) -> Any:
    def load(self: Any, rank: int, named: Named, load_format: Any, **more: Any) -> None:
        weights = self._s.ranks[rank]
        mine, weights.tp_rank = weights.tp_rank, (weights.tp_rank + 1) % _ranks(self)
        layout = weights.layout
        weights.layout = self._s.ranks[weights.tp_rank].layout
        try:
            original(self, rank, named, load_format, **more)
        finally:
            weights.tp_rank, weights.layout = mine, layout

    return load


def _known_only(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    if any("nothing" in name for name, _ in named):
        raise _crash("unknown parameter")
    return named


def _skip_unknown(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    return [(n, t) for n, t in named if load_format != "direct" or n in updater._s.ranks[rank].params]


def _complete_only(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    if len(named) < 15:
        raise _crash("some weights are missing")
    return named


def _no_cast(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    return [(n, t) for n, t in named if t.dtype != np.float32]


def _right_length_only(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    return [(n, t) for n, t in named if t.shape != (3,)]


def _mixed_up(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    wide = [i for i, (_, t) in enumerate(named) if t.dtype == np.float32]
    if not wide or len(wide) == len(named):
        return named
    out = list(named)
    for here, there in zip(wide, wide[1:] + wide[:1], strict=True):
        out[here] = (named[here][0], named[there][1])
    return out


def _something_at_least(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    if not named:
        raise _crash("nothing to load")
    return named


def _no_direct(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    return None if load_format == "direct" else named


def _known_formats(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    return named if load_format in (None, "direct", "flattened_bucket") else None


def _first_update_only(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    return named if updater._updates == 1 else None


def _keep(original: Any) -> Any:
    def begin(self: Any, obj: Any) -> Any:
        self.kept, self.came = [rank.snapshot() for rank in self._s.ranks], 0
        return original(self, obj)

    return begin


def _roll_back(original: Any) -> Any:
    def end(self: Any, obj: Any) -> Any:
        for rank, kept in zip(self._s.ranks, self.kept, strict=True):
            if self.came < 15 * _ranks(self):
                rank.restore(kept)
        return original(self, obj)

    return end


def _counted(updater: Any, rank: int, named: Named, load_format: Any) -> Named | None:
    updater.came += len(named)
    return named


def _unscaled(original: Any) -> Any:
    """A model whose last norm has no weight: it cannot tell whether that tensor came."""

    def norm(self: Any, hidden: Any, residual: Any, name: str) -> Any:
        if name != "model.norm.weight":
            return original(self, hidden, residual, name)
        ranks = list(self.ranks)
        kept = [rank.params[name].copy() for rank in ranks]
        for rank in ranks:
            rank.fill(name, 1.0)
        try:
            return original(self, hidden, residual, name)
        finally:
            for rank, value in zip(ranks, kept, strict=True):
                rank.fill(name, value)

    return norm


PLANTS = (
    lenient("short-list-padded", "RANK-51", LENIENT, "missing payloads are filled up", payload_list(_pad)),
    lenient("long-list-refused", "RANK-52", LENIENT, "the list's length is checked", payload_list(_same_length)),
    lenient("first-payload-for-all", "RANK-53", LENIENT, "every rank takes payload 0", payload_list(_first_for_all)),
    lenient(
        "another-rank's-shard",
        "RANK-54",
        LENIENT,
        "each rank cuts its neighbour's shard",
        method(f"{UPDATER}._load", _other_ranks_shard),
    ),
    lenient(
        "unknown-names-kill", "NAME-51", "sgl-project/sglang#9379", "an unknown name is an error", loading(_known_only)
    ),
    lenient("direct-skips-unknown", "NAME-52", LENIENT, "direct skips what it does not know", loading(_skip_unknown)),
    lenient("complete-sets-only", "NAME-53", "deepseek_ocr", "missing names are an error", loading(_complete_only)),
    lenient("no-cast", "NAME-54", LENIENT, "other dtypes are left out", loading(_no_cast)),
    lenient("wrong-length-skipped", "NAME-55", LENIENT, "a norm of three is left out", loading(_right_length_only)),
    lenient(
        "mixed-dtypes-mixed-up",
        "NAME-56",
        "NovaSky-AI/SkyRL#1816",
        "float32 tensors among bfloat16 get each other's names",
        loading(_mixed_up),
    ),
    lenient("empty-list-kills", "NAME-57", LENIENT, "no tensors is an error", loading(_something_at_least)),
    lenient("direct-without-effect", "NAME-58", LENIENT, "direct loads nothing", loading(_no_direct)),
    lenient(
        "rollback",
        "PART-51",
        "vllm-project/vllm#39212",
        "an incomplete session is undone at its end",
        loading(_counted),
        method(f"{UPDATER}._begin", _keep),
        method(f"{UPDATER}._end", _roll_back),
    ),
    lenient(
        "torn-for-ever", "PART-52", LENIENT, "after one update nothing more is loaded", loading(_first_update_only)
    ),
    lenient(
        "no-pickle-forgiven",
        "ERR-56",
        LENIENT,
        "a payload that is no pickle holds nothing",
        forgiving("Unpickling", "pickle", "EOF"),
    ),
    lenient("forbidden-forgiven", "ERR-57", LENIENT, "a forbidden global holds nothing", forgiving("Blocked")),
    lenient(
        "any-load-format",
        "ERR-58",
        LENIENT,
        "an unknown load_format loads nothing",
        forgiving("Unknown load_format"),
        loading(_known_formats),
    ),
    lenient(
        "wrong-format-forgiven",
        "ERR-59",
        LENIENT,
        "a payload of another format holds nothing",
        forgiving("TypeError", "ValueError"),
    ),
    lenient(
        "no-payload-is-fine", "ERR-60", LENIENT, "an empty payload list is a success", payload_list(_empty_is_fine)
    ),
    lenient(
        "blind-canary",
        "VERIF-2",
        "sgl-project/sglang#37557",
        "the model does not use its last norm",
        forgotten,
        method("fakes.engine.model:Model._norm", _unscaled),
    ),
)
