"""DISK: weights that travel through a file system. Ranks read in their own time, and again what failed."""

from __future__ import annotations

from conformance.content import content
from conformance.disk_readers import readers
from conformance.judging import DIES, Judge, either, every, later, said, wrong
from conformance.pushes import push_answered, push_gives, push_unchanged, pushed
from conformance.refits import Finding, Part, each_part, parts
from conformance.rules.coll import asked
from conformance.rules.make import engine, refit
from conformance.view import died
from harness.history import Call, History
from harness.rules import Verdict, held, violated

UPDATE = "update_weights_from_disk"
MWU = "model_executor/model_runner_components/weight_updater.py"
WU = "managers/scheduler_components/weight_updater.py"


def _path(call: Call) -> str:
    return str(call.arg("model_path", ""))


def _alive_until_all_have_read(history: History) -> Verdict:
    """No folder goes while some rank may read it; no engine finds one gone."""
    exercised = 0
    calls = history.calls(UPDATE, origin="sut")
    for call in calls:
        exercised += 1
        if not call.fault and call.status == 400 and "weights iterator" in call.message:
            told = f"it was not there: {call.message[:120]}"
            return violated(allowed=["a folder that is there"], actual=told, where=str(call), exercised=exercised)
    for note in history.trainer("folder_removed"):
        for call in (c for c in calls if _path(c) == note.get("path")):
            found = readers(history, call, note.pos)
            if found:
                allowed, told = found
                return violated(allowed=[allowed], actual=told, where=str(note), exercised=exercised)
    return held(exercised)


def _whole_when_told(part: Part, history: History) -> Finding | bool:
    calls = part.op(UPDATE)
    if not calls:
        return False
    published = {str(n.get("path")): n.pos for n in history.trainer("folder_published")}
    for call in calls:
        if published and published.get(_path(call), history.length) > call.pos:
            return "a folder that is published first", f"{call} before it was published", str(call)
    found = content(part, history)
    return None if found is False else found


def _path_of_its_own(history: History) -> Verdict:
    """The path stays in the engine's configuration: what it names must not become something else."""
    seen: dict[str, int] = {}
    exercised = 0
    for part in parts(history):
        for call in part.op(UPDATE):
            exercised += 1
            first = seen.setdefault(_path(call), part.refit.index)
            if first != part.refit.index:
                told = f"refit {part.refit.index} uses the path of refit {first}"
                return violated(allowed=["a new path"], actual=told, where=str(call), exercised=exercised)
    return held(exercised)


def _no_session(part: Part, history: History) -> Finding | bool:
    if not part.op(UPDATE):
        return False
    around = part.op("begin_weight_update", "end_weight_update")
    if around:
        return "no session around a disk update", f"{around[0].op}", str(around[0])
    return None


def _shown_path(kind: str, *, moves: bool) -> Judge:
    """What model_info says of the path after a push of this kind."""

    def judge(history: History) -> Verdict:
        exercised = 0
        for _, call in pushed(history, kind):
            infos = [c for c in history.calls("model_info", engine=call.engine) if c.pos > call.end_pos and c.ok]
            for info in infos[:1]:
                exercised += 1
                shown = info.answer("model_path")
                if (shown == _path(call)) is not moves:
                    right = f"model_path {_path(call)!r}" if moves else "the model_path of before"
                    return wrong(info, [right], exercised, f"model_path {shown!r}")
        return held(exercised)

    return judge


def _dies_after(kind: str) -> Judge:
    """Generations after a push of this kind that the engine died of."""

    def judge(history: History) -> Verdict:
        following = [c for _, push in pushed(history, kind) for c in later(history, push, "generate")]
        return held(sum(died(call) for call in following))

    return judge


RULES = (
    refit(
        "DISK-1",
        "Files live until every rank of every engine that was told of them has read them: the answer speaks for rank 0 "
        "alone, a token that was generated afterwards for all; who did not answer may still read.",
        _alive_until_all_have_read,
        ["sgl-project/sglang#7930", f"{MWU}:239@0.5.23", f"{WU}:138@0.5.23"],
        mend=(
            "delete the folder after every engine answered and, at tp > 1, generated a token; after a time-out "
            "when that engine is gone"
        ),
    ),
    refit(
        "DISK-2",
        "A folder is whole before any engine is told of it.",
        each_part(_whole_when_told),
        [f"{MWU}:174@0.5.23"],
        mend="write to a temporary name, fsync, rename, and only then post /update_weights_from_disk",
    ),
    refit(
        "DISK-3",
        "Every refit has a path of its own: an engine keeps the path, and may read it again.",
        _path_of_its_own,
        [f"{MWU}:192@0.5.23"],
        mend=(
            "put the version or a counter into the folder's name; never write into a path that an engine was told "
            "before"
        ),
    ),
    refit(
        "DISK-4",
        "No session is opened around a disk update, which finalises by itself.",
        each_part(_no_session),
        [f"{WU}:138@0.5.23", "model_loader/loader.py:1079@0.5.23"],
        versions=">=0.5.21 || miles",
        mend="leave begin and end out around /update_weights_from_disk: it finalises by itself",
    ),
    engine(
        "DISK-51",
        "A whole folder is loaded without a session, and model_info shows its path.",
        every(push_answered("disk-whole", said(200)), push_gives("disk-whole"), _shown_path("disk-whole", moves=True)),
        [f"{WU}:138@0.5.23", "observed 0.5.23 on CPU"],
        mend="look at update_weights_from_disk: no session check, and server args take the new path",
    ),
    engine(
        "DISK-52",
        "A path that is not there is refused, changes nothing, and model_info keeps its path.",
        every(
            push_answered("disk-missing", said(400, contains="Failed to get weights iterator")),
            push_unchanged("disk-missing"),
            _shown_path("disk-missing", moves=False),
        ),
        [f"{MWU}:228@0.5.23", "observed 0.5.23 on CPU"],
        mend=(
            "look at the weight iterator: where it cannot be made the update is refused before any load, and server "
            "args keep the path"
        ),
    ),
    engine(
        "DISK-53",
        "A load that fails kills the engine: its rollback reads the new path again.",
        push_answered("disk-fails", DIES),
        [f"{MWU}:239@0.5.23"],
        mend="look at the rollback after a failed load: it reads the path that just failed",
    ),
    engine(
        "DISK-54",
        "A folder with a part of the tensors is loaded, and the rest stays.",
        every(push_answered("disk-part", said(200)), push_gives("disk-part")),
        [f"{MWU}:213@0.5.23"],
        mend="look at load_weights of a folder: nothing counts what did not come",
    ),
    engine(
        "DISK-55",
        "A disk update inside a session leaves it open.",
        every(push_answered("disk-inside", said(200)), asked("end-after-disk", said(200))),
        [f"{WU}:138@0.5.23", "observed 0.5.23 on CPU"],
        versions=">=0.5.21",
        mend="look at the session's state: an update from disk neither asks for one nor closes it",
    ),
    engine(
        "DISK-56",
        "A folder without weights is refused.",
        push_answered("disk-empty", said(400, contains="Cannot find any model weights with")),
        ["model_loader/loader.py:580@0.5.23"],
        mend="look at the loader's search for weight files: none found is an answer of 400",
    ),
    engine(
        "DISK-57",
        "Rank 0 alone answers a disk update: a folder that goes at that answer kills the engine when another rank "
        "still reads, or leaves the old weights on one that has not begun.",
        every(push_answered("disk-early", said(200)), either(push_gives("disk-early"), _dies_after("disk-early"))),
        [f"{WU}:138@0.5.23", f"{MWU}:228,239@0.5.23", "observed 0.5.23 on CPU at tp 2, with a rank held back"],
        mend="leave the answer to rank 0 and let the other ranks load from the folder in their own time",
    ),
)
