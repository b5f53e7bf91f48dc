"""Lenient engines: what they do with groups is not what SGLang and torch do."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from conformance.plants.make import Apply, lenient, method, profile

GROUPS = "fakes.engine.groups:Groups"
UPDATER = "fakes.engine.weight_update:WeightUpdater"
LENIENT = "a fake that is kinder than SGLang"
JOINED = {"success": True, "message": "Succeeded to initialize custom process group."}


def _init(when: Callable[[Any, Any], bool], answer: Any = JOINED) -> Apply:
    """init_weights_update_group answers at once where `when(groups, request)`."""

    def make(original: Any) -> Any:
        return lambda self, obj: dict(answer) if when(self, obj) else original(self, obj)

    return method(f"{GROUPS}._init", make)


def _anything_is_destroyed(original: Any) -> Any:
    def destroy(self: Any, obj: Any) -> Any:
        return {**original(self, obj), "success": True, "message": "Succeeded to destroy custom process group."}

    return destroy


def _received(change: Callable[[Any, Any], Any]) -> Apply:
    """What a receiver makes of a request's broadcasts goes through `change(effect, named)`."""

    def make(original: Any) -> Any:
        return lambda effect, buffers: change(effect, original(effect, buffers))

    return method("fakes.transport.collective:named_of", make)


def _first_of_a_bucket(effect: Any, named: Any) -> Any:
    return named[:1] if effect.load_format == "flattened_bucket" else named


def _module_stripped(original: Any) -> Any:
    def distributed(self: Any, obj: Any) -> Any:
        return original(self, {**obj, "dtypes": [str(dtype).removeprefix("torch.") for dtype in obj["dtypes"]]})

    return distributed


def _equal_lists_only(original: Any) -> Any:
    def refuse(names: Any, dtypes: Any, shapes: Any, load_format: Any, *, strict: bool) -> Any:
        if len({len(names), len(dtypes), len(shapes)}) > 1:
            return "lists of unequal length", 0
        return original(names, dtypes, shapes, load_format, strict=strict)

    return refuse


def _a_failed_load_is_fine(original: Any) -> Any:
    def distributed(self: Any, obj: Any) -> Any:
        running = original(self, obj)
        if not isinstance(running, Generator):
            return running

        def changed() -> Any:
            answer = yield from running
            return {**answer, "success": True} if "partially updated" in answer["message"] else answer

        return changed()

    return distributed


def _receives_all_the_same(original: Any) -> Any:
    def distributed(self: Any, obj: Any) -> Any:
        answer = original(self, obj)
        if not isinstance(answer, Generator) and self.groups.joined(obj["group_name"]):
            for effect in self._recv(obj, len(obj["names"]), waits=False):
                self._s.emit(effect)
        return answer

    return distributed


def _dies_with_the_trainer(original: Any) -> Any:
    def failed(self: Any, error: str) -> Any:
        if "Connection closed by peer" in error:
            from fakes.engine.crash import Crash

            raise Crash("RuntimeError", error)
        return original(self, error)

    return failed


PLANTS = (
    lenient(
        "receives-nothing", "COLL-51", LENIENT, "broadcasts are taken and thrown away", _received(lambda effect, n: [])
    ),
    lenient(
        "first-of-a-bucket", "COLL-52", LENIENT, "of a bucket the first tensor is kept", _received(_first_of_a_bucket)
    ),
    lenient(
        "name-taken-twice",
        "COLL-53",
        LENIENT,
        "a name that exists is joined again",
        _init(lambda groups, obj: groups.joined(obj["group_name"])),
    ),
    lenient(
        "destroys-anything",
        "COLL-54",
        LENIENT,
        "what does not exist is destroyed, too",
        method(f"{GROUPS}._destroy", _anything_is_destroyed),
    ),
    lenient(
        "no-group-is-partial",
        "COLL-55",
        LENIENT,
        "a missing group is called a partial update",
        profile(group_missing="partial"),
    ),
    lenient("no-group-is-refused", "COLL-56", LENIENT, "a missing group is refused", profile(group_missing="receive")),
    lenient(
        "no-group-received", "COLL-57", LENIENT, "a missing group is a failed receive", profile(group_missing="receive")
    ),
    lenient(
        "nameless-group",
        "COLL-58",
        LENIENT,
        "an empty name is refused",
        _init(lambda groups, obj: not obj["group_name"], {"success": False, "message": "Group name cannot be empty"}),
    ),
    lenient(
        "dtype-with-its-module",
        "COLL-59",
        LENIENT,
        "torch.bfloat16 is understood",
        method(f"{UPDATER}._distributed", _module_stripped),
    ),
    lenient(
        "equal-lists-only",
        "COLL-60",
        LENIENT,
        "lists of unequal length are refused",
        method("fakes.engine.weight_update:receive_error", _equal_lists_only),
    ),
    lenient("bucket-is-cut", "COLL-61", LENIENT, "unequal lists of a bucket are cut", profile(bucket_strict=False)),
    lenient(
        "failed-load-is-fine",
        "COLL-62",
        LENIENT,
        "a load that failed is a success",
        method(f"{UPDATER}._distributed", _a_failed_load_is_fine),
    ),
    lenient(
        "receives-all-the-same",
        "COLL-63",
        LENIENT,
        "a refused update takes its broadcasts",
        method(f"{UPDATER}._distributed", _receives_all_the_same),
    ),
    lenient("joins-alone", "COLL-64", LENIENT, "nobody is waited for", _init(lambda groups, obj: True)),
    lenient(
        "dies-with-the-trainer",
        "COLL-65",
        LENIENT,
        "a receive that fails kills the engine",
        method(f"{UPDATER}._receive_failed", _dies_with_the_trainer),
    ),
    lenient(
        "nccl-on-a-cpu",
        "COLL-66",
        LENIENT,
        "an engine without a GPU joins with NCCL",
        _init(lambda groups, obj: obj["backend"] == "nccl"),
    ),
    lenient(
        "bucket-is-refused", "COLL-67", LENIENT, "unequal lists of a bucket are refused", profile(bucket_strict=True)
    ),
)
