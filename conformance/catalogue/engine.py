"""Lenient fakes: mutants of the fake engine, which the engine-side rules must notice. Tables first, then code."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.mutate import Mutant
from harness.mutate.edits import Body, Drop, FunctionEdit, Insert, Replace, ReplaceExpr, Table, edits

PROFILES = "fakes.engine.profiles:PROFILES"
UPDATER = "fakes.engine.weight_update:WeightUpdater"
SCHEDULER = "fakes.engine.scheduler:Scheduler"
MEMORY = "fakes.engine.memory:Memory"
LENIENT = "a fake that is kinder than SGLang"
CRASHED = "self._crash, self._crashed_at = ANY"
NOT_TOLD = (Drop("raised = ANY"), Drop("scheduler.observe(...)"))


def table(id: str, rule: str, note: str, *versions: str, **changes: Any) -> Mutant:
    """Entries of the profiles of these versions (all, when none is named) are changed."""

    def change(profile: Any) -> Any:
        return msgspec.structs.replace(profile, **changes)

    entries: dict[Any, Any] = dict.fromkeys(versions, change) or {...: change}
    return Mutant(id, PROFILES, Table(entries, note), frozenset({rule}), LENIENT, note)


def code(id: str, rule: str, note: str, target: str, *changes: FunctionEdit) -> Mutant:
    """One function of the engine is changed."""
    return Mutant(id, target, edits(*changes), frozenset({rule}), LENIENT, note)


MUTANTS = (
    table("asserts-turned-into-400", "SESS-55", "the asserting build answers 400", "miles", session="refuse"),
    table("sessions-before-their-time", "SESS-54", "0.5.20 has sessions", "0.5.20", session="refuse"),
    table(
        "flush-death-turned-into-400",
        "CACHE-60",
        "a refused flush does not kill 0.5.21",
        "0.5.21",
        flush_failure="refuse",
    ),
    table("base64-death-turned-into-400", "ERR-54", "0.5.12 refuses bad base64", "0.5.12.post1", base64="http400"),
    table("no-tokenizer-turned-into-400", "ERR-62", "0.5.12 refuses", "0.5.12.post1", needs_tokenizer="refuse"),
    code(
        "no-tokenizer-met-in-the-scheduler",
        "ERR-61",
        "what needs a tokenizer is let through",
        "fakes.engine.generate_request:_needs_tokenizer",
        Body("return None"),
    ),
    table(
        "queue-counts-while-paused",
        "CACHE-53",
        "a paused queue blocks the flush",
        "0.5.23",
        idle_ignores_queue_when_paused=False,
    ),
    code("session-check-removed", "SESS-51", "an update needs no session", f"{UPDATER}._refused", Body("return None")),
    code(
        "end-without-begin-taken",
        "SESS-53",
        "an end without a session is a success",
        f"{UPDATER}._end",
        ReplaceExpr("failed(m.NO_SESSION.text)", "ok(m.SUCCESS.text)"),
    ),
    code(
        "second-begin-taken",
        "SESS-52",
        "a session that is open is begun again",
        f"{UPDATER}._begin",
        Drop("if self.session is not None: ..."),
    ),
    code(
        "payload-index-ignored",
        "RANK-53",
        "every rank takes payload 0",
        f"{UPDATER}._tensor_io",
        ReplaceExpr("payloads[rank]", "payloads[0]"),
    ),
    code(
        "short-list-taken",
        "RANK-51",
        "a rank without a payload takes the last one",
        f"{UPDATER}._tensor_io",
        Drop("if rank >= len(payloads): ..."),
        ReplaceExpr("payloads[rank]", "payloads[min(rank, len(payloads) - 1)]"),
    ),
    code(
        "flush-that-does-not-flush",
        "CACHE-5",
        "200, and the cache is kept",
        f"{SCHEDULER}.flush",
        Drop("self.cache.flush()"),
    ),
    code(
        "flush-of-a-busy-engine",
        "CACHE-52",
        "granted while requests run",
        f"{SCHEDULER}.flush",
        ReplaceExpr("self.batch.is_idle(...)", "True"),
    ),
    code(
        "update-forgets-to-flush",
        "CACHE-58",
        "an update with flush_cache keeps the cache",
        f"{UPDATER}._after_load",
        ReplaceExpr("obj.get('flush_cache', True)", "False"),
    ),
    code(
        "version-recorded-without-being-told",
        "VER-56",
        "an update without a version makes it the default again",
        f"{SCHEDULER}.record_version",
        Insert("version = version or 'default'"),
    ),
    code(
        "resume-of-what-is-there",
        "MEM-53",
        "a tag that was not released is resumed",
        f"{MEMORY}._resume",
        Replace("del self._released[tag]", "self._released.pop(tag, None)"),
    ),
    code(
        "released-memory-kept",
        "MEM-59",
        "the prefix cache survives the release of its pool",
        f"{MEMORY}._release",
        Drop("scheduler.flush()"),
    ),
    code(
        "release-of-a-busy-engine",
        "MEM-54",
        "memory is released under running requests",
        f"{MEMORY}._release",
        Drop("if not scheduler.batch.is_idle(...): ..."),
    ),
    code(
        "death-left-out",
        "ERR-56",
        "an exception in the scheduler ends a call and nothing else",
        "fakes.engine.core:EngineCore._pump",
        Replace(CRASHED, "pass"),
        *NOT_TOLD,
    ),
    code(
        "death-turned-into-500",
        "ERR-58",
        "an exception in the scheduler is an internal error of the calls that are open",
        "fakes.engine.core:EngineCore._pump",
        Replace(
            CRASHED,
            "for call_id in list(self._open):\n"
            "    self._open.pop(call_id).close()\n"
            "    self._reply(call_id, internal_error(RuntimeError()))",
        ),
        *NOT_TOLD,
    ),
    code(
        "unpickler-opened",
        "ERR-57",
        "every global is admitted",
        "fakes.engine.allowlist:AllowList.admits",
        Body("return True"),
    ),
    code(
        "version-recorded-early",
        "VER-52",
        "an update that was refused moves the version",
        "fakes.engine.tokenizer_manager:TokenizerManager._versioned",
        ReplaceExpr("success and version is not None", "version is not None"),
    ),
    code(
        "poison-left-out",
        "MEM-60",
        "resumed weights hold what they held",
        f"{MEMORY}._map_weights",
        Drop("for rank in scheduler.ranks: ..."),
    ),
    code(
        "fresh-memory-where-it-is-recycled",
        "IPC-52",
        "an export never gets memory that another one had",
        "fakes.trainer.memory:DeviceMemory.allocate",
        Drop("for index in ANY: ..."),
    ),
)
