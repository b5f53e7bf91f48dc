"""Mutants of the checkpoint engine's workers inside the fake."""

from __future__ import annotations

from conformance.catalogue.engine import code
from harness.mutate.edits import Drop, Insert, Replace, ReplaceExpr

IPC = "fakes.engine.ipc_update:IpcUpdate"
WORKER = "fakes.engine.ipc_worker:Worker"

MUTANTS = (
    code(
        "one-socket-for-all-ranks",
        "IPC-53",
        "every rank connects to the first handle",
        f"{IPC}._run",
        ReplaceExpr("handles[uuid]", "handles[ids[0]]"),
    ),
    code(
        "missing-id-is-no-failure",
        "IPC-54",
        "rank 0 without a handle succeeds",
        f"{IPC}._run",
        Replace("return self._over(_not_found(ids[0], handles))", "pass"),
        ReplaceExpr("first.error is not None", "False"),
    ),
    code(
        "worker-answers-nothing-bad",
        "IPC-55",
        "a bucket that failed is answered as one that was loaded",
        f"{WORKER}._new",
        ReplaceExpr("_traceback(wrong)", "b''", nth=1),
    ),
    code(
        "package-never-looked-for",
        "IPC-56",
        "an engine without the package looks for its handle all the same",
        f"{IPC}.handle",
        Drop("if not self._s.config.checkpoint_engine: ..."),
    ),
    code(
        "refused-inside-a-session",
        "IPC-57",
        "an update over IPC does not run in a session",
        f"{IPC}.handle",
        Insert("if self._u.session is not None:\n    return self._over('a session is open')"),
    ),
)
