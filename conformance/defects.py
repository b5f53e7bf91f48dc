"""Which rule sees which known defect of a refit client, and why some cannot be seen from the engine's side.

The ids D01 to D41 are those of the catalogue of defects that the suites were written against; the texts are ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Defect:
    """One known defect: the rules that see it, or the reason why none of the tensor path can."""

    text: str
    rules: frozenset[str] = frozenset()
    unseen: str = ""


def _seen(text: str, *rules: str) -> Defect:
    return Defect(text, frozenset(rules))


def _unseen(text: str, why: str) -> Defect:
    return Defect(text, unseen=why)


INSIDE = "a matter of the client's own code: no call, no answer and no token differs"

DEFECTS: dict[str, Defect] = {
    "D01": _seen("a failed begin or flush leaves every engine paused", "PAUSE-1"),
    "D02": _seen("an end that raises skips continue", "PAUSE-1"),
    "D03": _seen("end is called for a session that never opened", "SESS-71"),
    "D04": _seen("a partial pause is never undone", "PAUSE-1"),
    "D05": _seen("a failed onload leaves the KV pool released", "MEM-71"),
    "D06": _seen("a refused flush is ignored and stale KV is served", "CACHE-1", "CACHE-4"),
    "D07": _seen("an in_place pause keeps KV of the old weights", "CACHE-3", "CACHE-4"),
    "D08": _seen("KV scales are dropped", "GUARD-1"),
    "D09": _seen("no session is opened", "SESS-1"),
    "D10": _seen("no pause: requests between buckets see mixed weights", "PART-71"),
    "D11": _seen("the flush comes after the buckets", "CACHE-4"),
    "D12": _seen("the KV pool is not taken back after a failure", "MEM-71"),
    "D13": _seen("in_place is accepted on one transport", "CACHE-3", "CACHE-4"),
    "D14": _seen("continue comes before the KV pool is back", "PAUSE-6"),
    "D15": _seen("finalising per bucket or not at all", "SESS-4"),
    "D16": _seen("a partial update resumes on torn weights", "PART-1"),
    "D17": _seen("an uncertain communicator is used again", "COLL-9"),
    "D18": _seen("an interrupt during the transfer is no failure", "PART-1", "PAUSE-1"),
    "D19": _seen("a partial transfer is finalised and resumed, the failure retried", "PART-1", "LIVE-2"),
    "D20": _unseen("several entry points drift apart", INSIDE),
    "D21": _seen("one algorithm never attaches the synchroniser", "VERIF-1"),
    "D22": _unseen("a NameError in the setup", "the run ends before the first call: a harness error, told as such"),
    "D23": _unseen("an attribute that the factory reads is missing", "the run ends before the first call"),
    "D24": _seen("an unsupported topology is refused at the first refit only", "GUARD-1"),
    "D25": _seen("two settings contradict each other", "GUARD-1", "GUARD-2"),
    "D26": _unseen("methods are missing on an interface", INSIDE),
    "D27": _unseen("a live transport is called dead code", INSIDE),
    "D28": _seen("a rank without an engine leaves the collectives", "RANK-4"),
    "D29": _seen("tensors are freed before all ranks have copied", "IPC-2"),
    "D30": _seen("only the source rank hears of a failure", "ERR-1"),
    "D31": _seen("of several dtypes one is sent", "NAME-1", "NAME-2"),
    "D32": _seen("the payload list is transposed", "RANK-1"),
    "D33": _seen("an incomplete gather is accepted", "RANK-3", "RANK-4"),
    "D34": _seen("payloads are bytes", "RANK-4"),
    "D35": _seen("groups leak when the layout changes", "COLL-14"),
    "D36": _seen("a cached handle outlives its engine", "VERIF-1"),
    "D37": _seen("the engine's words are lost", "ERR-1"),
    "D38": _seen("waits are unbounded", "LOCK-2", "LIVE-1"),
    "D39": _unseen("pipeline stages were never exercised", "an engine of the tensor path has no pipeline stages here"),
    "D40": _unseen(
        "a handle is opened by its own exporter", "the fake refuses it as CUDA does; nothing of it reaches an engine"
    ),
    "D41": _seen("the version moves per post", "VER-71"),
}
