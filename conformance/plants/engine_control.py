"""Lenient engines: session, pause, flush, lock and version behave otherwise."""

from __future__ import annotations

from typing import Any

from conformance.plants.make import lenient, method, profile

UPDATER = "fakes.engine.weight_update:WeightUpdater"
SCHEDULER = "fakes.engine.scheduler:Scheduler"
TOKENIZER = "fakes.engine.tokenizer_manager:TokenizerManager"
LENIENT = "a fake that is kinder than SGLang"


def _never_refused(_original: Any) -> Any:
    return lambda self, op: None


def _begin_again(original: Any) -> Any:
    def begin(self: Any, obj: Any) -> Any:
        self.session = None
        return original(self, obj)

    return begin


def _end_anything(original: Any) -> Any:
    from fakes.engine.weight_update import ok

    return lambda self, obj: original(self, obj) if self.session is not None else ok("Success")


def _load_at_end_only(original: Any) -> Any:
    def load(self: Any, *args: Any, **named: Any) -> None:
        self.__dict__.setdefault("deferred", []).append((args, named))

    return load


def _load_deferred(original: Any) -> Any:
    def end(self: Any, obj: Any) -> Any:
        for args, _named in self.__dict__.pop("deferred", []):
            for name, tensor in args[1]:
                self._s.ranks[args[0]].load([(name, tensor)])
        return original(self, obj)

    return end


def _end_finalises_twice(original: Any) -> Any:
    def end(self: Any, obj: Any) -> Any:
        if self.session is not None and not self.session.loaded:
            for rank in self._s.ranks:
                rank.fill("model.norm.weight", rank.params["model.norm.weight"] * -1)
        return original(self, obj)

    return end


def _pause_without_abort(original: Any) -> Any:
    async def pause(self: Any, mode: str = "abort") -> None:
        if mode != "abort":
            await original(self, mode)
            return
        async with self.pause_cond:
            self.is_pause = True

    return pause


def _always_retract(original: Any) -> Any:
    return lambda self, obj: original(self, {**obj, "mode": "retract"})


def _with_flush(value: bool) -> Any:
    def make(original: Any) -> Any:
        return lambda self, obj, *args, **named: original(self, {**obj, "flush_cache": value}, *args, **named)

    return make


def _flush_failure_hidden(original: Any) -> Any:
    from fakes.engine.weight_update import ok

    def after(self: Any, *args: Any, **named: Any) -> Any:
        reply = original(self, *args, **named)
        return reply if reply["success"] else ok("Success")

    return after


def _flush_at_once(original: Any) -> Any:
    return lambda self, timeout_s=0.0: original(self)


def _refused_and_unlabelled(original: Any) -> Any:
    """The schedulers hear of a version only where the flush was granted."""

    def after(self: Any, obj: Any, *args: Any, **named: Any) -> Any:
        before = self._s.weight_version
        reply = original(self, obj, *args, **named)
        if not reply["success"]:
            self._s.record_version(before)
        return reply

    return after


def _label_lost(_original: Any) -> Any:
    return lambda self, version: None


def _unlabelled_resets(original: Any) -> Any:
    def versioned(self: Any, obj: Any, success: bool, message: str) -> Any:
        if obj.get("weight_version") is None:
            self._set_version("unknown")
        return original(self, obj, success, message)

    return versioned


def _no_lock(original: Any) -> Any:
    async def gated(self: Any, op: str, obj: Any) -> Any:
        return await self.communicator(op)(obj)

    return gated


def _always_lock(original: Any) -> Any:
    async def gated(self: Any, op: str, obj: Any) -> Any:
        async with self.update_lock.writer:
            return await self.communicator(op)(obj)

    return gated


def _readers_first(original: Any) -> Any:
    async def acquire(self: Any) -> None:
        async with self._lock:
            while self.writer_active:
                await self._cond.wait()
            self.readers += 1

    return acquire


def _flush_takes_the_lock(original: Any) -> Any:
    async def flush(self: Any, timeout_s: float = 0.0) -> Any:
        async with self.update_lock.writer:
            return await original(self, timeout_s)

    return flush


def _with_old_routes(original: Any) -> Any:
    def routes(found: Any) -> Any:
        from fakes.engine.profiles import PROFILES

        old = original(PROFILES["0.5.20"])
        return {**original(found), **{path: old[path] for path in ("/get_weight_version", "/weight_version")}}

    return routes


def _nothing(_original: Any) -> Any:
    return lambda self: None


PLANTS = (
    lenient(
        "session-not-needed",
        "SESS-51",
        LENIENT,
        "updates outside a session are taken",
        method(f"{UPDATER}._refused", _never_refused),
    ),
    lenient(
        "begin-again",
        "SESS-52",
        LENIENT,
        "a second begin starts a new session",
        method(f"{UPDATER}._begin", _begin_again),
    ),
    lenient(
        "end-anything", "SESS-53", LENIENT, "an end without a begin is taken", method(f"{UPDATER}._end", _end_anything)
    ),
    lenient("session-too-early", "SESS-54", "0.5.21", "sessions exist before 0.5.21", profile(session="refuse")),
    lenient("assert-softened", "SESS-55", "0.5.21", "the asserting build answers 400", profile(session="refuse")),
    lenient(
        "isolated-session",
        "SESS-56",
        LENIENT,
        "buckets are loaded at the end",
        method(f"{UPDATER}._load", _load_at_end_only),
        method(f"{UPDATER}._end", _load_deferred),
    ),
    lenient(
        "end-finalises-twice",
        "SESS-57",
        "sgl-project/sglang#40587",
        "an empty session finalises again",
        method(f"{UPDATER}._end", _end_finalises_twice),
    ),
    lenient(
        "abort-is-gentle",
        "PAUSE-53",
        LENIENT,
        "abort lets running requests finish",
        method(f"{TOKENIZER}.pause_generation", _pause_without_abort),
    ),
    lenient(
        "retract-freezes",
        "PAUSE-54",
        LENIENT,
        "retract keeps requests where they are",
        method("fakes.engine.batching:Batch.retract_all", lambda _o: lambda self: []),
    ),
    lenient(
        "in-place-retracts", "PAUSE-55", LENIENT, "in_place retracts", method(f"{SCHEDULER}._pause", _always_retract)
    ),
    lenient(
        "flush-without-effect",
        "CACHE-5",
        "sgl-project/sglang#39562",
        "flush says 200 and drops nothing",
        method("fakes.engine.cache:PrefixCache.flush", _nothing),
    ),
    lenient(
        "queue-always-counts",
        "CACHE-53",
        "0.5.20",
        "the queue prevents a flush",
        profile(idle_ignores_queue_when_paused=False),
    ),
    lenient(
        "queue-never-counts",
        "CACHE-54",
        "0.5.21",
        "the queue does not prevent a flush",
        profile(idle_ignores_queue_when_paused=True),
    ),
    lenient(
        "update-always-flushes",
        "CACHE-57",
        LENIENT,
        "flush_cache false flushes",
        method(f"{UPDATER}._after_load", _with_flush(True)),
    ),
    lenient(
        "update-never-flushes",
        "CACHE-58",
        "InternLM/lmdeploy#4917",
        "flush_cache true does not flush",
        method(f"{UPDATER}._after_load", _with_flush(False)),
    ),
    lenient(
        "refused-flush-hidden",
        "CACHE-59",
        LENIENT,
        "an update whose flush failed says 200",
        method(f"{UPDATER}._after_load", _flush_failure_hidden),
    ),
    lenient(
        "refused-flush-survived", "CACHE-60", "0.5.22", "a refused flush does not kill", profile(flush_failure="refuse")
    ),
    lenient(
        "timeout-ignored",
        "CACHE-61",
        LENIENT,
        "a flush with a timeout looks once",
        method(f"{TOKENIZER}.flush_cache", _flush_at_once),
    ),
    lenient(
        "refused-flush-unlabelled",
        "VER-59",
        "0.5.21",
        "an update whose flush was refused moves no version",
        method(f"{UPDATER}._after_load", _refused_and_unlabelled),
    ),
    lenient(
        "label-lost",
        "VER-51",
        LENIENT,
        "the tokenizer forgets the version",
        method(f"{TOKENIZER}._set_version", _label_lost),
    ),
    lenient(
        "unlabelled-resets",
        "VER-52",
        LENIENT,
        "an update without a version resets it",
        method(f"{TOKENIZER}._versioned", _unlabelled_resets),
    ),
    lenient(
        "no-lock",
        "LOCK-51",
        LENIENT,
        "updates do not wait for running requests",
        method(f"{TOKENIZER}._gated", _no_lock),
    ),
    lenient(
        "always-lock",
        "LOCK-52",
        "sgl-project/sglang#22754",
        "updates want the lock under a pause too",
        method(f"{TOKENIZER}._gated", _always_lock),
    ),
    lenient(
        "readers-first",
        "LOCK-53",
        LENIENT,
        "readers overtake a waiting writer",
        method("fakes.engine.loop:RWLock.acquire_reader", _readers_first),
    ),
    lenient(
        "flush-takes-the-lock",
        "LOCK-54",
        LENIENT,
        "flush waits for running requests",
        method(f"{TOKENIZER}.flush_cache", _flush_takes_the_lock),
    ),
    lenient("base64-kills", "ERR-53", "0.5.12.post1", "bad base64 kills", profile(base64="die")),
    lenient("tokenizer-missed-too-late", "ERR-61", "0.5.12.post1", "it dies of it", profile(needs_tokenizer="die")),
    lenient("tokenizer-missed-in-time", "ERR-62", "0.5.17", "it is refused", profile(needs_tokenizer="refuse")),
    lenient("base64-refused", "ERR-54", "0.5.17", "bad base64 is refused", profile(base64="http400")),
    lenient(
        "old-route-kept",
        "VER-58",
        "0.5.20",
        "the deprecated route still answers",
        method("fakes.engine.core:routes", _with_old_routes),
    ),
)
