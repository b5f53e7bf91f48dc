"""The scheduler that the manager sees: a bench with so many requests running and waiting, and SGLang's own methods.

Runs in SGLang's interpreter beside `oracle_child.py`, and imports nothing of ours or of SGLang.
"""

from __future__ import annotations

import ast
import types
from pathlib import Path
from typing import Any

METHODS = ("is_fully_idle", "flush_cache", "record_weight_version_change")


class Quiet:
    """Anything: callable, empty, false. What a method touches that has no part in this."""

    def __getattr__(self, name: str) -> Any:
        return Quiet()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing comes of it."""
        return Quiet()

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Any:
        return iter(())


class Reqs(list):  # type: ignore[type-arg]
    """A batch of so many requests."""

    @property
    def reqs(self) -> Any:
        """The requests, which is itself."""
        return self

    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self


class Bench:
    """The scheduler that the manager sees: how many requests run and wait, paused or not, and what was done to it."""

    def __init__(self, methods: dict[str, Any], disaggregation: Any) -> None:
        self.running_batch, self.waiting_queue = Reqs(), Reqs()
        self._engine_paused = False
        self.weight_version = "default"
        self.flushes: list[bool] = []
        self.barriers = self.loads = 0
        self.disaggregation_mode = disaggregation
        self.chunked_req = self.last_batch = self.cur_batch = self.cur_batch_for_debug = None
        self.decode_offload_manager = self.hisparse_coordinator = self.draft_worker = None
        self.pp_size = 1
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_methods", {}):
            return types.MethodType(self._methods[name], self)
        return Quiet()

    def _pp_microbatches_drained(self) -> bool:
        """There is no pipeline."""
        return True

    def collect_inflight_reqs(self) -> list[Any]:
        """The running requests."""
        return list(self.running_batch)

    def flush(self, **kwargs: Any) -> bool:
        """SGLang's own flush_cache, counted."""
        done = bool(types.MethodType(self._methods["flush_cache"], self)(**kwargs))
        self.flushes.append(done)
        return done

    def traffic(self, step: dict[str, Any]) -> None:
        """Requests come, go, are paused and go on, as the scheduler would have it."""
        op = step["op"]
        if op == "generate":
            (self.waiting_queue if self._engine_paused else self.running_batch).append(Held())
        elif op == "pause":
            self._engine_paused = True
            if step["mode"] == "retract":
                self.waiting_queue += self.running_batch
                self.running_batch.clear()
        elif op == "continue":
            self._engine_paused = False
            self.running_batch += self.waiting_queue
            self.waiting_queue.clear()
            self._end_the_doomed()
        else:  # abort_all: what waits goes at once, what runs after one more step, wherever it is by then
            self.waiting_queue.clear()
            for held in self.running_batch:
                held.doomed = True
            if not self._engine_paused:
                self._end_the_doomed()

    def _end_the_doomed(self) -> None:
        self.running_batch[:] = [held for held in self.running_batch if not held.doomed]


class Held:
    """A request; it holds no KV while it waits. `doomed`: it was aborted, and ends with its next step."""

    doomed = False

    kv = types.SimpleNamespace(holds_kv=False)
    output_ids: tuple[int, ...] = ()


def methods_of(path: Path, names: dict[str, Any]) -> dict[str, Any]:
    """The methods METHODS of class Scheduler, compiled out of its file alone."""
    tree = ast.parse(path.read_text("utf-8"))
    body = [n for c in tree.body if isinstance(c, ast.ClassDef) and c.name == "Scheduler" for n in c.body]
    chosen: list[ast.stmt] = [n for n in body if isinstance(n, ast.FunctionDef) and n.name in METHODS]
    for node in chosen:
        assert isinstance(node, ast.FunctionDef)
        node.decorator_list, node.returns = [], None
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            argument.annotation = None
    scope = dict(names)
    exec(compile(ast.Module(chosen, []), str(path), "exec"), scope)
    return {name: scope[name] for name in METHODS if name in scope}
