"""release_memory_occupation and resume_memory_occupation: tags, the memory saver, and what is left of the content.

Without `--enable-memory-saver` (the default) nothing is freed, but the tags are tracked all the same: a tag that was
not
released cannot be resumed, and the KeyError kills the engine. With it, resumed weights are zeros, as observed on a GPU,
unless a CPU backup was kept; `strict_memory` poisons them instead, since their content is unspecified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fakes.engine import messages as m
from fakes.engine.crash import Crash, crash
from fakes.engine.protocol import Barrier

if TYPE_CHECKING:
    from fakes.engine.scheduler import Scheduler

ALL_TAGS = ("kv_cache", "weights", "cuda_graph")
"""srt/constants.py@0.5.23. No tags, or an empty list, means all of them; unknown tags are only remembered."""

SAVER_EXIT_S = 1.3
"""torch_memory_saver ends its process with exit(1); the subprocess watchdog notices within about a second (observed:
6.3 s in all)."""


class Memory:
    """The tags of one engine (the same on every rank)."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._config = scheduler.config
        self._released: dict[str, None] = {}
        self._unmapped: set[str] = set()
        self._backup: list[dict[str, Any]] | None = None
        self._poison = 0

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Operations by name."""
        return {"release_memory_occupation": self._release, "resume_memory_occupation": self._resume}

    def released(self) -> list[str]:
        """Released tags, sorted."""
        return sorted(self._released)

    def unmapped(self, tag: str) -> bool:
        """Whether this memory is really gone (only with the memory saver)."""
        return tag in self._unmapped

    def check_writable(self) -> None:
        """Weights may be written. Unmapped memory kills: not guarded in any version."""
        if self.unmapped("weights"):
            raise crash(m.RELEASED_UPDATE)

    def check_serving(self) -> None:
        """A step may run. Unmapped KV or weights kill: not gated in any version.

        Memory goes only while the engine is idle: what wants to run afterwards has waited, or came later.
        """
        for tag, message in (("weights", m.RELEASED_WEIGHTS), ("kv_cache", m.RELEASED_KV)):
            if self.unmapped(tag):
                raise crash(message)

    def _tags(self, obj: dict[str, Any]) -> tuple[str, ...]:
        tags = obj.get("tags")
        return tuple(tags) if tags else ALL_TAGS

    def _release(self, obj: dict[str, Any]) -> dict[str, Any]:
        """scheduler_components/weight_updater.py:337@0.5.23."""
        scheduler = self._scheduler
        ignore = scheduler.paused and scheduler.profile.idle_ignores_queue_when_paused
        if not scheduler.batch.is_idle(ignore_waiting=ignore):
            raise crash(m.RELEASE_BUSY)
        tags = self._tags(obj)
        for tag in tags:
            self._released[tag] = None
        if "kv_cache" in tags:
            self._unmap("kv_cache")
            scheduler.flush()
        if "weights" in tags:
            scheduler.emit(Barrier("release_memory_occupation"))
            self._unmap("weights")
        if "cuda_graph" in tags:
            self._unmap("cuda_graph")
        scheduler.observe("memory", tags=self.released())
        return {}

    def _unmap(self, tag: str) -> None:
        if not self._config.enable_memory_saver:
            return
        if tag in self._unmapped:
            raise Crash(m.SAVER_DOUBLE.type, m.SAVER_DOUBLE(tag=tag), extra_delay_s=SAVER_EXIT_S)
        self._unmapped.add(tag)
        if tag == "weights" and self._config.enable_weights_cpu_backup:
            self._backup = [rank.snapshot() for rank in self._scheduler.ranks]
        draft = self._scheduler.updater.draft
        if tag == "weights" and draft is not None and self._config.enable_draft_weights_cpu_backup:
            draft.keep()

    def _resume(self, obj: dict[str, Any]) -> dict[str, Any]:
        """scheduler_components/weight_updater.py:383@0.5.23."""
        scheduler = self._scheduler
        tags = self._tags(obj)
        for tag in tags:
            del self._released[tag]  # the KeyError of a tag that was not released kills (weight_updater.py:390@0.5.23)
        if "weights" in tags:
            self._map_weights()
            scheduler.emit(Barrier("resume_memory_occupation"))
        self._unmapped.difference_update(tags)
        scheduler.observe("memory", tags=self.released())
        return {}

    def _map_weights(self) -> None:
        if "weights" not in self._unmapped:
            return
        scheduler = self._scheduler
        self._poison += 1
        if scheduler.updater.draft is not None:
            scheduler.updater.draft.resumed(self._poison if self._config.strict_memory else 0)
        if self._backup is not None:
            for rank, kept in zip(scheduler.ranks, self._backup, strict=True):
                rank.restore(kept)
            self._backup = None
            return
        for rank in scheduler.ranks:
            if self._config.strict_memory:
                rank.poison(self._poison)
            else:
                rank.zero()
        scheduler.updater.wholeness.break_()
