"""Lenient engines: memory that is released and exported memory that is gone do no harm."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import lenient, method, profile

MEMORY = "fakes.engine.memory:Memory"
UPDATER = "fakes.engine.weight_update:WeightUpdater"
LENIENT = "a fake that is kinder than SGLang"


def _content_stays(_original: Any) -> Any:
    return lambda self: None


def _no_backup(original: Any) -> Any:
    def weights(self: Any) -> None:
        self._backup = None
        original(self)

    return weights


def _remembered(original: Any) -> Any:
    def weights(self: Any) -> None:
        original(self)
        self._scheduler.updater.__dict__["moved"] = True

    return weights


def _into_the_old_mapping(original: Any) -> Any:
    """What is written after a resume goes where the weights were before."""

    def load(self: Any, *args: Any, **more: Any) -> None:
        if not self.__dict__.get("moved"):
            original(self, *args, **more)

    return load


def _nothing(_original: Any) -> Any:
    return lambda self, *args: None


def _unmap_again(original: Any) -> Any:
    return lambda self, tag: None if tag in self._unmapped else original(self, tag)


def _held_and_aborted(original: Any) -> Any:
    """Requests that arrive while the pool is away are answered at once."""

    async def generate(self: Any, request: Any, emit: Any, states: Any) -> Any:
        from fakes.engine.control import Answer

        if self._tm.is_pause:
            return Answer(503, {"error": {"message": "memory is released"}})
        return await original(self, request, emit, states)

    return generate


def _producer_still_there(_original: Any) -> Any:
    return lambda self, rank: False


def _always_fresh(original: Any) -> Any:
    def allocate(self: Any, nbytes: int) -> Any:
        self._free.clear()
        return original(self, nbytes)

    return allocate


def _resume_what_there_is(original: Any) -> Any:
    def resume(self: Any, obj: Any) -> Any:
        known = [tag for tag in self._tags(obj) if tag in self._released]
        return original(self, {**obj, "tags": known}) if known else {}

    return resume


def _release_when_busy(original: Any) -> Any:
    return lambda self, obj: original(self, obj) if self._scheduler.batch.is_idle() else {}


def _no_second_release(original: Any) -> Any:
    def release(self: Any, obj: Any) -> Any:
        from fakes.engine.crash import Crash

        if any(tag in self._released for tag in self._tags(obj)):
            raise Crash("AssertionError", "released twice")
        return original(self, obj)

    return release


def _begin_looks_at_memory(original: Any) -> Any:
    from fakes.engine.weight_update import failed

    def begin(self: Any, obj: Any) -> Any:
        return failed("weights are released") if "weights" in self._s.memory.released() else original(self, obj)

    return begin


PLANTS = (
    lenient(
        "resumed-as-it-was",
        "MEM-60",
        "sgl-project/sglang#6367",
        "resumed weights hold what they held",
        method(f"{MEMORY}._map_weights", _content_stays),
    ),
    lenient(
        "backup-forgotten", "MEM-61", LENIENT, "the CPU copy is not used", method(f"{MEMORY}._map_weights", _no_backup)
    ),
    lenient(
        "written-to-the-old-mapping",
        "MEM-62",
        "sgl-project/sglang#6367",
        "updates after a resume do not reach what is served",
        method(f"{MEMORY}._map_weights", _remembered),
        method(f"{UPDATER}._load", _into_the_old_mapping),
    ),
    lenient(
        "written-while-away",
        "MEM-63",
        "vllm-project/vllm#57853",
        "an update into released weights is a success",
        method(f"{MEMORY}.check_writable", _nothing),
    ),
    lenient(
        "released-again",
        "MEM-64",
        "torch_memory_saver",
        "a second release is harmless with the saver too",
        method(f"{MEMORY}._unmap", _unmap_again),
    ),
    lenient(
        "served-while-away",
        "MEM-65",
        "NVIDIA-NeMo/RL#3612",
        "requests run on released memory",
        method(f"{MEMORY}.check_serving", _nothing),
    ),
    lenient(
        "refused-while-away",
        "MEM-66",
        LENIENT,
        "requests that arrive under a pause are refused",
        method("fakes.engine.control:Controls.generate", _held_and_aborted),
    ),
    lenient(
        "producer-outlived",
        "IPC-51",
        LENIENT,
        "a handle outlives its producer",
        method("fakes.trainer.registry:ExportRegistry.is_gone", _producer_still_there),
    ),
    lenient(
        "memory-never-recycled",
        "IPC-52",
        "NVIDIA-NeMo/RL#3519, D65",
        "freed memory is never handed out again",
        method("fakes.trainer.memory:DeviceMemory.allocate", _always_fresh),
    ),
    lenient(
        "resume-what-there-is",
        "MEM-53",
        "ai-dynamo/dynamo#6967",
        "resuming nothing is harmless",
        method(f"{MEMORY}._resume", _resume_what_there_is),
    ),
    lenient(
        "release-when-busy",
        "MEM-54",
        LENIENT,
        "releasing a busy engine is a no-op",
        method(f"{MEMORY}._release", _release_when_busy),
    ),
    lenient(
        "no-second-release",
        "MEM-55",
        "torch_memory_saver",
        "a second release kills",
        method(f"{MEMORY}._release", _no_second_release),
    ),
    lenient(
        "begin-looks-at-memory",
        "MEM-56",
        LENIENT,
        "begin is refused while weights are released",
        method(f"{UPDATER}._begin", _begin_looks_at_memory),
    ),
    lenient(
        "queue-blocks-release",
        "MEM-57",
        "0.5.20",
        "the queue makes a release fatal",
        profile(idle_ignores_queue_when_paused=False),
    ),
    lenient(
        "queue-lets-release",
        "MEM-58",
        "0.5.21",
        "the queue does not make a release fatal",
        profile(idle_ignores_queue_when_paused=True),
    ),
    lenient(
        "release-keeps-the-cache",
        "MEM-59",
        LENIENT,
        "the prefix cache survives a release",
        method("fakes.engine.cache:PrefixCache.flush", _content_stays),
    ),
)
