"""What receivers of a checkpoint engine did: batches in buffers that are used again, ranks side by side, devices.

The trainer's records tell: `receiver` {engine, incarnation, tp_rank, device, sees}, `batch` {.., agent, bucket, names}
(what a receiver gave out as views of a buffer), `export`, `walk`, and what the agents did (`nixl_transfer`,
`nixl_register`, `nixl_deregister`, `nixl_error`).
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.content import content
from conformance.exports import gpus_of
from conformance.judging import Judge
from conformance.refits import Finding, Part, each_part, reported
from conformance.view import payloads, tp
from harness.history import History, Note, Refit
from harness.rules import Verdict, held, violated

NO_LABEL = "a failed refit, and no update with its version"


def _clean(history: History, refit: Refit) -> bool:
    """Whether nothing but the client itself can have made this refit fail."""
    return not any(c.fault for c in history.during(refit).calls_)


def _batches(history: History, refit: Refit, engine: str) -> list[Note]:
    return [n for n in history.during(refit).trainer("batch") if n.get("engine") == engine]


def _exported(history: History, batch: Note, name: str) -> int | None:
    """Where in the history a tensor of a batch was first exported for its rank, at or after the batch."""
    consumer = [batch.get("engine"), batch.get("tp_rank")]
    for note in history.trainer("export"):
        mine = note.pos > batch.pos and name in note.get("names", ())
        if mine and consumer in [list(c) for c in note.get("consumers", ())]:
            return note.pos
    return None


def _used_again(history: History, batch: Note) -> Note | None:
    """The transfer that overwrites the buffer of a batch."""
    mine = [n for n in history.trainer("nixl_transfer") if n.get("agent") == batch.get("agent")]
    before = [n for n in mine if n.pos < batch.pos]
    if not before:
        return None
    regions = set(before[-1].get("regions", ()))
    return next((n for n in mine if n.pos > batch.pos and regions & set(n.get("regions", ()))), None)


def _copied_in_time(part: Part, history: History) -> Finding | bool:
    inside = history.during(part.refit)
    batches = _batches(history, part.refit, part.engine)
    told = False
    for batch in batches:
        again = _used_again(inside, batch)
        if again is None:
            continue
        told = True
        for name in batch.get("names", ()):
            at = _exported(inside, batch, str(name))
            if at is not None and at > again.pos:
                late = f"{name} of bucket {batch.get('bucket')} was exported after its buffer had been read into again"
                return "a copy before the buffer is used again", late, str(again)
    found = content(part, history) if batches else False
    return found if found is not False else None if told else False


copied_in_time = each_part(_copied_in_time)


def fresh_receivers(history: History) -> Verdict:
    """The first refit after an engine came back is received in the new incarnation's processes."""
    exercised = 0
    last: dict[str, int] = {}
    for refit in history.refits():
        for engine in history.engines():
            calls = history.during(refit).calls(engine=engine, origin="sut")
            if not calls:
                continue
            now, before = calls[0].incarnation, last.get(engine)
            last[engine] = now
            if before is None or before == now or not history.trainer("receiver"):
                continue
            exercised += 1
            stale = [n for n in _batches(history, refit, engine) if n.get("incarnation") != now]
            if stale or (refit.ok is False and _clean(history, refit)):
                what = f"a batch of incarnation {stale[0].get('incarnation')}" if stale else reported(refit)
                allowed = f"receivers of incarnation {now} of {engine}"
                return violated(allowed=[allowed], actual=what, where=str(calls[0]), exercised=exercised)
    return held(exercised)


def one_size(history: History) -> Verdict:
    """No transfer is refused because its two sides differ."""
    errors = [n for n in history.trainer("nixl_error") if n.get("status") == "NIXL_ERR_INVALID_PARAM"]
    done = len(history.trainer("nixl_transfer"))
    for note in errors:
        told = f"{note.get('agent')}: {note.get('status')}: {note.get('said')}"
        return violated(allowed=["two sides of one length"], actual=told, where=str(note), exercised=done + 1)
    return held(done)


def before_any_pause(history: History) -> Verdict:
    """A refit without a network transport (fact `no_network` {index}) fails with NIXL's words before it pauses."""
    exercised = 0
    for note in history.facts("no_network", source="harness"):
        for refit in history.refits():
            if refit.index != note.get("index"):
                continue
            exercised += 1
            calls = [c for c in history.during(refit).calls(origin="sut") if c.method == "POST"]
            told = reported(refit)
            if refit.ok is False and not calls and "NIXL_ERR_BACKEND" not in refit.error:
                return _wrong("an error with the backend's words, NIXL_ERR_BACKEND", told, str(note), exercised)
            if refit.ok or calls:
                told += f", after POST /{calls[0].op}" if calls else ""
                return _wrong("a failed refit that called nothing", told, str(note), exercised)
    return held(exercised)


def nothing_registered(history: History) -> Verdict:
    """When the client was closed no living process has memory registered."""
    closing = history.facts("closing", source="harness")
    made = history.trainer("nixl_register")
    if not closing or not made:
        return held(0)
    gone = {(n.get("agent"), r, _process(history, n)) for n in history.trainer("nixl_deregister") for r in _ids(n)}
    for note in made:
        process = _process(history, note)
        if _ended(history, process):
            continue
        left = [r for r in _ids(note) if (note.get("agent"), r, process) not in gone]
        if left:
            told = f"agent {note.get('agent')} left {len(left)} regions registered"
            return _wrong("every region deregistered", told, str(note), len(made))
    return held(len(made))


def _ids(note: Note) -> list[int]:
    return [int(r) for r in note.get("regions", ())]


def _process(history: History, note: Note) -> tuple[str, int]:
    """The process of the agent that a note speaks of, and which agent of that name it was."""
    mine = [n for n in history.trainer("nixl_agent") if n.get("agent") == note.get("agent") and n.pos < note.pos]
    return (str(mine[-1].get("process", "")), mine[-1].pos) if mine else ("", -1)


def _ended(history: History, process: tuple[str, int]) -> bool:
    """Whether an engine's later incarnation shows that a process beside it is gone."""
    engine, _, incarnation = process[0].rpartition(".")
    return engine in history.engines() and int(incarnation) < max(history.incarnations(engine))


# -- ranks side by side ------------------------------------------------------------------------------------------------


def _diverged(history: History, refit: Refit, engine: str) -> bool:
    """Whether the ranks' batches were cut at different places."""
    cuts: dict[int, list[tuple[str, ...]]] = {}
    for note in _batches(history, refit, engine):
        cuts.setdefault(int(note.get("tp_rank", 0)), []).append(tuple(note.get("names", ())))
    shapes = list(cuts.values())
    return any(other != shapes[0] for other in shapes[1:])


def _same_names(part: Part, history: History) -> Finding | bool:
    if tp(history, part.engine) < 2 or not _diverged(history, part.refit, part.engine):
        return False
    if part.refit.ok is False and _clean(history, part.refit) and not _spoiled(history, part.refit):
        return "streams that are cut differently arrive all the same", reported(part.refit), part.where
    names = {str(n.get("sha256")): list(n.get("names", ())) for n in history.trainer("export")}
    for call in part.payload_buckets:
        lists = [names[p] for p in payloads(call) if p in names]
        if any(other != lists[0] for other in lists[1:]):
            told = "; ".join(f"payload[{i}]: {', '.join(some[:3])}" for i, some in enumerate(lists))
            return "the same tensors in every payload of a call", told, str(call)
    found = content(part, history)
    return None if found is False else found


same_names = each_part(_same_names)


def local_devices(history: History) -> Verdict:
    """A receiver's device is the local index of its rank's GPU; where local and physical are equal nothing is told."""
    exercised = 0
    for note in history.trainer("receiver"):
        sees, gpus = list(note.get("sees", ())), gpus_of(history, str(note.get("engine")))
        rank, device = int(note.get("tp_rank", 0)), int(note.get("device", 0))
        if sees == list(range(len(sees))) or rank >= len(gpus):
            continue
        exercised += 1
        if not (0 <= device < len(sees) and sees[device] == gpus[rank]):
            right = f"cuda:{sees.index(gpus[rank])}, which is GPU {gpus[rank]} in a process that sees {sees}"
            return _wrong(right, f"cuda:{device} for tp rank {rank}", str(note), exercised)
    return held(exercised)


# -- what streams bring ------------------------------------------------------------------------------------------------


def _spoiled(history: History, refit: Refit) -> list[Note]:
    return [n for n in history.facts("spoiled", source="harness") if n.get("index") == refit.index]


def _fails(history: History, *kinds: str) -> Iterator[tuple[Refit, str, str]]:
    """Refits whose streams the scenario spoiled (fact `spoiled` {index, kind}), with what is wrong about their end."""
    for refit in history.refits():
        for note in _spoiled(history, refit):
            if note.get("kind") not in kinds:
                continue
            updates = [c for c in history.during(refit).calls(origin="sut") if c.arg("weight_version") is not None]
            wrong = reported(refit) if refit.ok else ""
            if updates and not wrong:
                wrong = f"{updates[0]} carried version {updates[0].arg('weight_version')}"
            yield refit, str(note.get("kind")), wrong


def must_fail(*kinds: str) -> Judge:
    """Judge of refits whose streams are spoiled in these ways."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for refit, kind, wrong in _fails(history, *kinds):
            exercised += 1
            if wrong:
                return _wrong(NO_LABEL, wrong, f"refit {refit.index}: streams {kind}", exercised)
        return held(exercised)

    return judge


def one_walk(history: History) -> Verdict:
    """Each trainer rank walks the export once in a refit."""
    exercised = 0
    for refit in history.refits():
        walks: dict[int, list[Note]] = {}
        for note in history.during(refit).trainer("walk"):
            walks.setdefault(note.rank, []).append(note)
        for rank, found in walks.items():
            exercised += 1
            if len(found) > 1:
                told = f"rank {rank} walked it {len(found)} times"
                return _wrong("one walk, from which the buckets are filled", told, str(found[0]), exercised)
    return held(exercised)


def _wrong(allowed: str, told: str, where: str, exercised: int) -> Verdict:
    return violated(allowed=[allowed], actual=told, where=where, exercised=exercised)
