"""What a server is sent as weights: lists of payloads that it takes, at one rank or several, and calls that kill it.

Each rank takes the entry of its own number: a list may be longer than there are ranks, its entries may be other
updates, and load_format "direct" wants shards by the names that they have on the device.
"""

from __future__ import annotations

from typing import Any

from real_runs import sequence as s
from real_runs.recipes import Entry

NORM = Entry(seed=1, only=["model.norm.weight"])
LAYER = Entry(seed=1, only=["model.layers.0.*"])
UNKNOWN = Entry(change={"model.nothing.weight": ([64], 1.0)})
GARBAGE = Entry(raw="bm90IGEgcGlja2xl")
GATE, OUT = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.self_attn.o_proj.weight"
PEER = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "backend": "gloo"}
SHARDS = [Entry(seed=seed, local=True) for seed in (1, 2)]


def alone(tp: int) -> dict[str, Any]:
    """A group of the engine's own ranks, so that nobody has to be waited for; its port is found when it is asked."""
    return {**PEER, "master_port": {"$port": 0}, "rank_offset": 0, "world_size": tp, "group_name": "g"}


def plain() -> list[tuple[list[Entry], list[str | None]]]:
    """Entries that every rank gets, each with the formats in which they may come."""
    either: list[str | None] = ["flattened_bucket", None]
    return [([entry], either) for entry in (s.whole(0), s.whole(1), s.whole(2), LAYER)]


def unusual(tp: int) -> list[tuple[list[Entry], list[str | None]]]:
    """Lists that are granted all the same; one entry stands for one per rank."""
    one, other = s.whole(1), s.whole(2)
    lists: list[tuple[list[Entry], list[str | None]]] = [
        ([one] * tp + [GARBAGE], ["flattened_bucket", None]),
        ([other] * (tp + 1), ["flattened_bucket", None]),
        ([SHARDS[0]], ["direct"]),
        ([Entry(seed=2, only=["*norm*"])], ["direct"]),
        ([UNKNOWN], [None]),
        ([Entry()], [None]),
    ]
    if tp == 1:
        return lists
    return [
        *lists,
        ([one, other], ["flattened_bucket", None]),
        ([Entry(seed=1, only=["*self_attn*"]), Entry(seed=1, drop=["*self_attn*"])], ["flattened_bucket"]),
        ([one, UNKNOWN], [None]),
        ([SHARDS[1], SHARDS[0]], ["direct"]),
        ([SHARDS[0], SHARDS[0]], ["direct"]),
        ([Entry(seed=1, only=["*gate_proj*"], oversize={GATE: 64})], [None]),
    ]


def sent(entries: list[Entry], **more: Any) -> s.Step:
    """The update that sends them: one entry is meant for every rank."""
    return s.update(entries[0], **more) if len(entries) == 1 else s.update(entries=entries, **more)


def deadly(tp: int) -> list[s.Step]:
    """Calls that kill in any state, or in most; on one rank alone where there are two."""
    steps = [
        s.update(NORM, load_format="auto"),
        s.update(NORM, load_format="bogus"),
        s.update(GARBAGE),
        s.update(entries=[]),
        s.update(Entry(change={"model.norm.weight": ([3], 1.0)})),
        s.call("resume_memory_occupation", {"tags": ["else"]}),
        s.call("update_weights_from_distributed", {"names": [], "dtypes": [], "shapes": []}),
        s.call("init_weights_update_group", {**PEER, "group_name": ""}),
    ]
    if tp == 1:
        return steps
    return [
        *steps,
        s.update(entries=[s.whole(1)]),
        s.update(entries=[NORM, GARBAGE]),
        s.update(entries=[NORM, Entry(change={"model.norm.weight": ([3], 1.0)})]),
        s.update(Entry(seed=1, only=[OUT]), format="direct"),
    ]
