"""What a client did with its group: who was told to join, what was announced and broadcast, what was left behind.

A black box shows init, update and destroy calls. What was broadcast, and when, is in the trainer's records where the
trainer kit keeps them; where they are missing, the engines' answers have to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.content import content
from conformance.refits import Finding, Part, each_part, got, parts, quarantined, reported
from conformance.view import acted, died, tp
from harness.history import Call, History, Note, Refit
from harness.rules import Verdict, held, violated

INIT, DESTROY = "init_weights_update_group", "destroy_weights_update_group"
UPDATE = "update_weights_from_distributed"
SLACK_S = 5.0
ENGINES_CUMEM = "0"


@dataclass(frozen=True)
class Member:
    """One life of one engine in one group."""

    engine: str
    incarnation: int
    group: str


def _group(call: Call) -> str:
    return str(call.arg("group_name", "weight_update_group"))


def _member(call: Call) -> Member:
    return Member(call.engine, call.incarnation, _group(call))


def _clean(history: History, refit: Refit) -> bool:
    """Whether nothing but the client itself can have made this refit fail."""
    return not any(c.fault for c in history.during(refit).calls_)


# -- what was sent -----------------------------------------------------------------------------------------------------


def _same_order(part: Part, history: History) -> Finding | bool:
    updates = part.op(UPDATE)
    if not updates:
        return False
    if history.trainer("broadcast"):
        for call in updates:
            if not call.ok or call.fault:
                continue
            told = list(zip(call.arg("dtypes") or (), call.arg("shapes") or (), strict=False))
            sent = [(n.get("dtype"), n.get("shape")) for n in _broadcasts(part, call, history)]
            if [(str(d), list(s)) for d, s in told] != [(str(d), list(s or ())) for d, s in sent]:
                what = f"{len(sent)} broadcasts for {len(told)} announced tensors"
                if len(sent) == len(told):
                    at = next(i for i, (a, b) in enumerate(zip(told, sent, strict=True)) if list(a) != list(b))
                    what = f"{(call.arg('names') or ['?'])[at]} announced as {told[at]}, broadcast as {sent[at]}"
                return "the announced tensors, in their order", what, str(call)
    found = content(part, history)
    return found if found is not False else None


def _broadcasts(part: Part, call: Call, history: History) -> list[Note]:
    """What was broadcast for this update: up to its end, and up to the next one of the same engine."""
    later = [c.pos for c in part.op(UPDATE) if c.pos > call.pos]
    until = min([call.end_pos, *later])
    return [n for n in history.trainer("broadcast") if call.pos < n.pos < until]


same_order = each_part(_same_order)


def announced_first(history: History) -> Verdict:
    """Every broadcast follows the update calls of all engines that are in the group."""
    exercised = 0
    for refit in history.refits():
        inside = history.during(refit)
        updates = inside.calls(UPDATE, origin="sut")
        engines = {c.engine for c in updates}
        for note in inside.trainer("broadcast"):
            exercised += 1
            told = {c.engine: c for c in updates if c.pos < note.pos}
            told = {name: c for name, c in told.items() if not (c.ok and c.end_pos < note.pos)}
            if told.keys() != engines:
                missing = ", ".join(sorted(engines - told.keys()))
                return violated(
                    allowed=["a broadcast that every engine of the group was told of"],
                    actual=f"a broadcast that {missing} was not told of",
                    where=str(note),
                    exercised=exercised,
                )
    return held(exercised)


def _kept(part: Part, history: History) -> Finding | bool:
    if not part.op(UPDATE):
        return False
    inside = history.during(part.refit)
    for note in inside.trainer("broadcast"):
        if note.get("contiguous") is False:
            return "contiguous memory", f"a strided view of {note.get('shape')} was broadcast", str(note)
    for note in inside.trainer("buffer_dropped"):
        return "memory kept until it was waited for", "the sender dropped its buffer before", str(note)
    return content(part, history)


def buffers_kept(history: History) -> Verdict:
    """In the refits of a scenario whose export gives strided views (fact `transposed`)."""
    if not history.facts("transposed", source="harness"):
        return held(0)
    return each_part(_kept)(history)


# -- who is in ---------------------------------------------------------------------------------------------------------


def names_are_free(history: History) -> Verdict:
    """No second init of a joined name, and no update in a group that this life of the engine is not in."""
    joined: set[Member] = set()
    unsure: set[Member] = set()
    ever: set[Member] = set()
    exercised = 0
    events = [(c.pos, 0, c) for c in history.calls((INIT, UPDATE), origin="sut")]
    events += [(c.end_pos, 1, c) for c in history.calls((INIT, DESTROY), origin="sut") if c.outcome != "open"]
    for _, ended, call in sorted(events, key=lambda e: e[:2]):
        member = _member(call)
        if ended:
            did = acted(call)
            if call.op == INIT and did is not False:
                ever.add(member)
                (joined if did and not call.tampered else unsure).add(member)
            elif call.op == DESTROY and did is not False:
                joined.discard(member)
                unsure.discard(member)
            continue
        if call.op == INIT and member in ever:
            exercised += 1
            if member in joined:
                told = f"{member.engine} is still in {member.group!r}"
                return violated(
                    allowed=["destroy before a name is used again"], actual=told, where=str(call), exercised=exercised
                )
        if call.op == UPDATE:
            exercised += 1
            if member not in joined | unsure:
                told = f"this life of {member.engine} never joined {member.group!r}"
                allowed = ["an update in a group that the engine is in"]
                return violated(allowed=allowed, actual=told, where=str(call), exercised=exercised)
    return held(exercised)


def _formations(history: History) -> Iterator[tuple[Refit, list[Call]]]:
    """The init calls that were meant to make one group: of one refit, one name and one address."""
    for refit in history.refits():
        grouped: dict[tuple[str, str], list[Call]] = {}
        for call in history.during(refit).calls(INIT, origin="sut"):
            grouped.setdefault((_group(call), f"{call.arg('master_address')}:{call.arg('master_port')}"), []).append(
                call
            )
        for calls in grouped.values():
            yield refit, calls


def numbers_fit(history: History) -> Verdict:
    """Offsets and world size of every group; where one fits nobody waits for ever."""
    exercised = 0
    for refit, calls in _formations(history):
        if refit.ok is False and not _clean(history, refit):
            continue
        exercised += 1
        sizes = {c.engine: tp(history, c.engine) for c in calls}
        expected, offset = 1 + sum(sizes.values()), 1
        for call in sorted(calls, key=lambda c: int(c.arg("rank_offset", 0))):
            given = (int(call.arg("rank_offset", 0)), int(call.arg("world_size", 0)))
            if given != (offset, expected):
                told = f"rank_offset {given[0]} of world size {given[1]}"
                allowed = [f"rank_offset {offset} of world size {expected} for {call.engine}"]
                return violated(allowed=allowed, actual=told, where=str(call), exercised=exercised)
            offset += sizes[call.engine]
    return held(exercised)


def ready_when_all_are(history: History) -> Verdict:
    """GROUP_READY comes after every engine's yes, and counts them."""
    exercised = 0
    for refit, calls in _formations(history):
        for note in history.during(refit).trainer("GROUP_READY"):
            exercised += 1
            late = [c for c in calls if not c.ok or c.end_pos > note.pos]
            size = 1 + sum(tp(history, c.engine) for c in calls)
            if late:
                told = f"ready, when {got(late[0])}" if late[0].end_pos < note.pos else f"ready before {late[0]} ended"
                return violated(allowed=["every engine's yes first"], actual=told, where=str(note), exercised=exercised)
            if int(note.get("world_size", 0)) != size:
                told = f"world size {note.get('world_size')}"
                return violated(allowed=[f"world size {size}"], actual=told, where=str(note), exercised=exercised)
    return held(exercised)


# -- alone, in step, in time -------------------------------------------------------------------------------------------


def _fine_on(fact: str, part: Part, history: History) -> Finding | bool:
    """A refit of a scenario that notes `fact`, in which no call was made to fail, succeeds and brings its weights."""
    if not history.facts(fact, source="harness") or not part.op(INIT, UPDATE) or not _clean(history, part.refit):
        return False
    if part.refit.ok is not True:
        return "a refit that succeeds", reported(part.refit), part.where
    found = content(part, history)
    return None if found is False else found


def _alone(part: Part, history: History) -> Finding | bool:
    found = _fine_on("bound_default_group", part, history)
    if found is None:
        for note in history.facts("default_group", source="harness"):
            if note.get("bound") != note.get("expected"):
                told = f"bound to {note.get('bound')} afterwards"
                return f"a default group bound to {note.get('expected')}, as before", told, str(note)
    return found


default_group_alone = each_part(_alone)
every_rank_walks = each_part(lambda part, history: _fine_on("ragged", part, history))


def cumem_agrees(history: History) -> Verdict:
    """On engines with NCCL the refit succeeds, and with other transports the trainer's environment is left alone."""
    for note in history.facts("environment", source="harness"):
        expected = note.get("expected")
        if note.get("cumem") != expected:
            allowed = [f"NCCL_CUMEM_ENABLE {expected or 'left alone'} with transport {note.get('transport')}"]
            told = f"{note.get('cumem')!r}"
            return violated(allowed=allowed, actual=told, where=str(note))
    for note in history.trainer("group_join"):
        if note.get("backend") == "nccl" and note.get("cumem") != ENGINES_CUMEM:
            allowed = [f"NCCL_CUMEM_ENABLE={ENGINES_CUMEM} before the first group, as the engines have it"]
            return violated(allowed=allowed, actual=repr(note.get("cumem")), where=str(note))
    verdict = each_part(lambda part, h: _fine_on("nccl", part, h))(history)
    if verdict.status == "violated":
        return verdict
    return held(verdict.exercised + len(history.facts("environment", source="harness")))


def waits_end(history: History) -> Verdict:
    """No wait that nothing ends; and a refit in which a rank never came says for whom it waited."""
    for note in history.trainer("hang"):
        told = f"a wait for {note.get('waited_for')} that nothing would have ended"
        return violated(allowed=["a wait with a deadline"], actual=told, where=str(note))
    exercised = 0
    for part in parts(history):
        silent = [c for c in part.op(INIT, UPDATE) if ":hang" in c.fault or (":drop" in c.fault and not c.delivered)]
        if not silent:
            continue
        exercised += 1
        deadline, took = float(part.refit.data.get("deadline_s", 60.0)), part.refit.end_t - part.refit.t
        if part.refit.ok is not False or took > deadline + 1.0:
            told = f"after {took:.1f} s {reported(part.refit)}; {got(silent[0])}"
            allowed = [f"a failure within {deadline:g} s"]
            return violated(allowed=allowed, actual=told, where=str(silent[0]), exercised=exercised)
        if part.engine not in part.refit.error and "rank" not in part.refit.error:
            allowed = [f"an error that names {part.engine} or its ranks"]
            return violated(allowed=allowed, actual=reported(part.refit), where=str(silent[0]), exercised=exercised)
    return held(exercised)


def let_go(history: History) -> Verdict:
    """When a call that makes or uses the group is refused, the other engines' calls end soon, by the client's doing."""
    exercised = 0
    for refit in history.refits():
        calls = [c for c in history.during(refit).calls((INIT, UPDATE), origin="sut") if c.pos < refit.end_pos]
        refused = [c for c in calls if not c.ok and c.outcome != "open" and (c.fault or c.status is not None)]
        for first in sorted(refused, key=lambda c: c.end_pos)[:1]:
            if ":hang" in first.fault or ":delay" in first.fault:
                continue
            for other in (c for c in calls if c.op == first.op and c.engine != first.engine and not c.fault):
                if other.end_pos < first.end_pos or died(other):
                    continue
                exercised += 1
                late = other.end_t - first.end_t if other.outcome != "open" else float("inf")
                if other.status is None or late > SLACK_S:
                    told = f"{got(other)} {late:.1f} s after {got(first)}"
                    allowed = [f"an answer within {SLACK_S:g} s of the refusal"]
                    return violated(allowed=allowed, actual=told, where=str(other), exercised=exercised)
    return held(exercised)


# -- what is shared, and what is left ----------------------------------------------------------------------------------


def lock_given_back(history: History) -> Verdict:
    """Nobody keeps the lock past its refit; who finds it taken by another stops in time and names him."""
    exercised = 0
    for refit in history.refits():
        holder = ""
        for note in history.during(refit).trainer("lock"):
            if note.get("op") == "acquire":
                holder = str(note.get("owner"))
            elif note.get("op") == "release":
                if not note.get("mine"):
                    told = f"{note.get('owner')} gave back a lock that was not its own"
                    return violated(allowed=["give back what is held"], actual=told, where=str(note))
                holder = ""
                exercised += 1
        if holder:
            told = f"{holder} still has it"
            return violated(allowed=["a free lock after the refit"], actual=told, where=f"refit {refit.index}")
        for note in history.facts("lock_held", source="harness"):
            if note.pos > refit.pos or int(note.get("index", -1)) != refit.index:
                continue
            exercised += 1
            deadline, took = float(refit.data.get("deadline_s", 60.0)), refit.end_t - refit.t
            if refit.ok is not False or took > deadline + 1.0 or str(note.get("owner")) not in refit.error:
                told = f"after {took:.1f} s {reported(refit)}"
                allowed = [f"a failure within {deadline:g} s that names {note.get('owner')}"]
                return violated(allowed=allowed, actual=told, where=str(note), exercised=exercised)
    return held(exercised)


def none_left(history: History) -> Verdict:
    """One group at a time, and none once the client has said that it closes."""
    for note in history.trainer("group_open"):
        if int(note.get("live", 1)) > 1:
            told = f"{note.get('live')} groups are open"
            return violated(allowed=["the old group is closed first"], actual=told, where=str(note))
    closing = history.facts("closing", source="harness")
    if not closing:
        return held(0)
    joined: dict[Member, Call] = {}
    for call in history.calls((INIT, DESTROY), origin="sut"):
        if call.op == INIT and acted(call):
            joined[_member(call)] = call
        elif call.op == DESTROY and acted(call) is not False:
            joined.pop(_member(call), None)
    exercised = len({_member(c) for c in history.calls(INIT, origin="sut")})
    last = history.refits()[-1] if history.refits() else None
    for member, call in joined.items():
        latest = history.incarnations(member.engine)[-1]
        part = Part(last, member.engine, member.incarnation, ()) if last is not None else None
        gone = any(died(c) for c in history.calls(engine=member.engine, incarnation=member.incarnation))
        if member.incarnation == latest and not gone and part is not None and not quarantined(history, part):
            told = f"{member.engine} is still in {member.group!r}"
            return violated(
                allowed=["destroyed when the client closed"], actual=told, where=str(call), exercised=exercised
            )
    return held(exercised)
