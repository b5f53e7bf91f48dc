"""What a judge may conclude about an engine from the calls alone: open session, pause, released tags, running requests.

A black box shows no state. What it is in follows from what it was asked and what it answered; where the answer was lost
or was changed by a fault, the state is unknown, and a judge must not accuse on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.history import Call, History

SESSION_OPS = ("begin_weight_update", "end_weight_update")
UPDATE_OPS = (
    "update_weights_from_tensor",
    "update_weights_from_distributed",
    "update_weights_from_disk",
    "update_weights_from_ipc",
)
BUCKET = "update_weights_from_tensor"
BUCKETS = (BUCKET, "update_weights_from_distributed")
"""Update calls of which a refit makes several, each inside its session."""

ALL_TAGS = frozenset({"kv_cache", "weights", "cuda_graph"})
Session = Literal["closed", "open", "unknown"]


@dataclass(frozen=True)
class State:
    """What is known of one incarnation at the moment a call leaves.

    `loaded`: a bucket was taken since the session was begun.
    `paused` is "" while running, else the mode, or "unknown". `released` are memory tags. `running` are the ids of the
    /generate calls that had left and not ended; `waiting` those of them that left while paused, and that no scheduler
    has seen. `busy_until` is the place in the history up to which some request that a scheduler has was under way (-1:
    none); `quiet_since` the time at which the last request ended. `label` is the weight version that the last accepted
    update named ("" before any). `dead`: the engine itself dropped or refused a connection.
    """

    session: Session = "closed"
    loaded: bool = False
    paused: str = ""
    released: frozenset[str] = frozenset()
    running: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    busy_until: int = -1
    quiet_since: float = 0.0
    label: str = ""
    dead: bool = False


def acted(call: Call) -> bool | None:
    """Whether the engine did what it was asked: None where nobody can know.

    A reply that the gate changed on the way back tells nothing, but the engine had the call: it is taken to have acted.
    """
    if not call.delivered:
        return False
    if call.tampered:
        return True
    if call.outcome == "ok":
        return True
    return False if call.outcome == "fail" else None


def died(call: Call) -> bool:
    """Whether the engine itself cut or refused the connection (no fault of the gate)."""
    return not call.tampered and call.status is None and call.error.startswith(("dropped", "refused"))


def states(history: History) -> dict[int, State]:
    """Call id -> what was known of its engine when it left."""
    return _replay(history)[0]


def state_at(history: History, engine: str, incarnation: int, pos: int) -> State:
    """What is known of one incarnation at a place in the history."""
    return _replay(history, pos)[1].get((engine, incarnation), State())


def _replay(history: History, until: int | None = None) -> tuple[dict[int, State], dict[tuple[str, int], State]]:
    events: list[tuple[int, int, Call]] = []
    for call in history.calls_:
        events.append((call.pos, 0, call))
        if call.outcome != "open":
            events.append((call.end_pos, 1, call))
    known: dict[tuple[str, int], State] = {}
    left: dict[int, State] = {}
    ends = {call.id: call.end_pos for call in history.calls_}
    for pos, ended, call in sorted(events, key=lambda e: e[:2]):
        if until is not None and pos > until:
            break
        key = (call.engine, call.incarnation)
        state = known.get(key, State())
        if ended:
            known[key] = _busy(_after(state, call), ends)
            continue
        left[call.id] = state
        if call.op == "generate" and call.delivered:
            waiting = state.waiting | {call.id} if state.paused else state.waiting
            known[key] = _busy(replace(state, running=state.running | {call.id}, waiting=waiting), ends)
    return left, known


def _busy(state: State, ends: Mapping[int, int]) -> State:
    until = max((ends[call] for call in state.running - state.waiting), default=-1)
    return state if until == state.busy_until else replace(state, busy_until=until)


def _after(state: State, call: Call) -> State:
    if died(call):
        return replace(state, dead=True, running=frozenset(), waiting=frozenset())
    did = acted(call)
    if call.op == "generate":
        running, waiting = state.running - {call.id}, state.waiting - {call.id}
        return replace(state, running=running, waiting=waiting, quiet_since=call.end_t)
    if call.op in UPDATE_OPS and did is False and "Weights were updated, but" in call.message:
        return replace(state, label="")  # refused since 0.5.22 with the weights in: generations carry it, infos do not
    if did is False:
        return state
    if call.op == "begin_weight_update":
        return replace(state, session="open" if did else "unknown", loaded=False)
    if call.op == "end_weight_update":
        return replace(state, session="closed" if did else "unknown")
    if call.op == "pause_generation":
        return replace(state, paused=str(call.arg("mode", "abort")) if did else "unknown")
    if call.op == "continue_generation":
        return replace(state, paused="" if did else "unknown", waiting=frozenset() if did else state.waiting)
    if call.op == "release_memory_occupation" and did:
        return replace(state, released=state.released | tags_of(call))
    if call.op == "resume_memory_occupation" and did:
        return replace(state, released=state.released - tags_of(call))
    if call.op in UPDATE_OPS and did:
        named = call.arg("weight_version")
        return replace(state, loaded=True, label=state.label if named is None else str(named))
    if call.op == "update_weight_version" and did:
        return replace(state, label=str(call.arg("new_version")))
    return state


def tags_of(call: Call) -> frozenset[str]:
    """The memory tags that a release or a resume means: none named means all three."""
    tags = call.arg("tags")
    return frozenset(str(tag) for tag in tags) if tags else ALL_TAGS


def flushes(call: Call) -> bool:
    """Whether this update asks for a flush; the default is true."""
    return call.op in UPDATE_OPS and call.arg("flush_cache", True) is not False


@dataclass(frozen=True)
class Engine:
    """One incarnation's calls, each with the state before it."""

    name: str
    incarnation: int
    steps: tuple[tuple[Call, State], ...] = field(default=())


def engines(history: History) -> Iterator[Engine]:
    """Every incarnation that was called, in order of appearance."""
    before = states(history)
    grouped: dict[tuple[str, int], list[tuple[Call, State]]] = {}
    for call in history.calls_:
        grouped.setdefault((call.engine, call.incarnation), []).append((call, before[call.id]))
    for (name, incarnation), steps in grouped.items():
        yield Engine(name, incarnation, tuple(steps))


def steps(history: History) -> Iterator[tuple[Call, State]]:
    """Every call that no fault touched, with the state before it."""
    before = states(history)
    for call in history.calls_:
        if not call.fault:
            yield call, before[call.id]


def tp(history: History, engine: str) -> int:
    """The tensor parallel size of one engine: the harness's fact `engine`, else the header's."""
    for note in history.facts("engine", source="harness", engine=engine):
        return int(note.data.get("tp", history.header.tp))
    return history.header.tp


def cargo(call: Call) -> list[str]:
    """What an update brings, so that two can be compared: its payloads, or the names that it announces."""
    names = call.arg("names")
    return payloads(call) or ([str(name) for name in names] if isinstance(names, list | tuple) else [])


def payloads(call: Call) -> list[str]:
    """The names (digests) of the payload list of an update, [] where there is none."""
    found = call.arg("serialized_named_tensors")
    if not isinstance(found, list | tuple):
        return []
    return [str(item.get("sha256", item)) if isinstance(item, dict) else str(item) for item in found]
