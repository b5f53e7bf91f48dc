"""VER: the weight version label: who moves it, when, and what it may be said of."""

from __future__ import annotations

from conformance.judging import answered, every, op, said, wrong
from conformance.refits import Finding, each_call, met_by_traffic, parts
from conformance.rules.make import engine, refit
from conformance.sent import because
from conformance.tokens import Sample, aborted_by_another, ended_by_itself, sample_of, samples, seeds_of, truths
from conformance.view import BUCKETS, UPDATE_OPS, State, acted, states, steps
from harness.history import Call, History
from harness.rules import Verdict, held, unsupported, violated
from harness.versions import version_matches

TM = "managers/tokenizer_manager.py"
INFO = ("model_info", "get_model_info")
NOT_FLUSHED = "Weights were updated, but the cache was not flushed"
DEPRECATED = "Endpoint '/get_weight_version' or '/weight_version' is deprecated. Please use '/model_info' instead."


def _says_so(history: History) -> Verdict:
    """An accepted update that names a version says so, and model_info has it while the session is still open."""
    exercised = 0
    for call, state in steps(history):
        named = call.arg("weight_version")
        told = f"Weight version updated to {named}."
        if call.op in BUCKETS and call.ok and named is not None and not call.message.endswith(told):
            return wrong(call, [f"... {told}"], exercised + 1)
        if call.op in INFO and call.ok and state.label and _inside(history, state):
            exercised += 1
            if call.answer("weight_version") != state.label:
                shown = f"weight_version {call.answer('weight_version')!r}"
                return wrong(call, [f"weight_version {state.label!r}"], exercised, shown)
    return held(exercised)


def _inside(history: History, state: State) -> bool:
    has_sessions = version_matches(history.header.engine_version, ">=0.5.21 || miles")
    return state.session == "open" or not has_sessions


def _only_named_updates(history: History) -> Verdict:
    """Updates without a version, and refused ones, leave the label: exercised by an info before and one after."""
    exercised = 0
    last: dict[tuple[str, int], tuple[Call, str]] = {}
    quiet: dict[tuple[str, int], bool] = {}
    for call, _ in steps(history):
        key = (call.engine, call.incarnation)
        if call.op in UPDATE_OPS or call.op in ("begin_weight_update", "end_weight_update"):
            moves = call.ok and call.arg("weight_version") is not None
            quiet[key] = (call.op in UPDATE_OPS and not moves) or (quiet.get(key, False) and not moves)
            if moves:
                last.pop(key, None)
        elif call.op == "update_weight_version":
            last.pop(key, None)
        elif call.op in INFO and call.ok:
            label = str(call.answer("weight_version"))
            before = last.get(key)
            if before is not None and quiet.get(key):
                exercised += 1
                if label != before[1]:
                    return wrong(call, [f"weight_version {before[1]!r} as before"], exercised, f"{label!r}")
            last[key], quiet[key] = (call, label), False
    return held(exercised)


def _aborts_by_default(history: History) -> Verdict:
    """/update_weight_version ends what runs with abort, unless abort_all_requests is false."""
    by_id = {call.id: call for call in history.calls_}
    seen = {True: 0, False: 0}
    for call, state in steps(history):
        if call.op != "update_weight_version" or state.paused or not state.running:
            continue
        aborts = call.arg("abort_all_requests", True) is not False
        if not call.ok or call.answer("new_version") != call.arg("new_version"):
            return wrong(call, ["200 with new_version"], sum(seen.values()) + 1)
        for request in sorted(state.running):
            sample = sample_of(by_id[request])
            if sample is None or ended_by_itself(sample, call) or aborted_by_another(history, sample, call):
                continue
            seen[aborts] += 1
            if (sample.finish == "abort") != aborts:
                allowed = "finish reason abort" if aborts else "a finish reason other than abort"
                return wrong(sample.call, [allowed], sum(seen.values()), f"finish reason {sample.finish!r}")
    return held(min(seen.values()))


def _spans(history: History) -> Verdict:
    """Spans cover the output tokens without gaps, and the last one is the reply's weight_version."""
    exercised = 0
    for sample in samples(history):
        if sample.call.fault or not sample.spans:
            continue
        at = 0
        for span in sample.spans:
            if int(span["start"]) != at:
                return wrong(sample.call, ["spans without gaps"], exercised + 1, f"{list(sample.spans)}")
            at = int(span["end"])
        if at != len(sample.tokens) or sample.spans[-1]["version"] != sample.label:
            allowed = f"spans up to token {len(sample.tokens)}, the last one {sample.label!r}"
            return wrong(sample.call, [allowed], exercised + 1, f"{list(sample.spans)}")
        exercised += len(sample.spans) > 1
    return held(exercised)


def _label_at_delivery(history: History) -> Verdict:
    """No spans; a request that crosses an update carries the label that is current when it ends."""
    exercised = 0
    before = states(history)
    for sample in samples(history):
        if sample.call.fault:
            continue
        if sample.spans:
            return wrong(sample.call, ["no weight_versions"], exercised + 1, f"{list(sample.spans)}")
        updates = [
            c
            for c in history.calls(UPDATE_OPS, engine=sample.call.engine)
            if sample.call.pos < c.pos and c.end_pos < sample.call.end_pos and c.ok and c.arg("weight_version")
        ]
        if not updates or _published(history, updates[-1], sample):
            continue
        label = str(updates[-1].arg("weight_version"))
        if before[sample.call.id].label != label:
            exercised += 1
            if sample.label != label:
                return wrong(sample.call, [f"weight_version {label!r}"], exercised, repr(sample.label))
    return held(exercised)


def _published(history: History, update: Call, sample: Sample) -> bool:
    """Whether a version may have been published after this update had left and before this request ended."""
    publishes = history.calls("update_weight_version", engine=sample.call.engine)
    return any(c.end_pos > update.pos and c.pos < sample.call.end_pos and acted(c) is not False for c in publishes)


def _fresh_label(history: History) -> Verdict:
    """A generation that begins after an accepted version carries it."""
    exercised = 0
    for call, state in steps(history):
        sample = sample_of(call)
        movers = history.calls((*UPDATE_OPS, "update_weight_version"), engine=call.engine)
        moved = [c for c in movers if c.overlaps(call)]
        if sample is None or not state.label or moved:
            continue
        exercised += 1
        if sample.label != state.label:
            return wrong(call, [f"weight_version {state.label!r}"], exercised, repr(sample.label))
    return held(exercised)


def _moved_by_a_refused_flush(history: History) -> Verdict:
    """Generations carry the version of an update whose flush was refused, model_info does not."""
    exercised = 0
    for update in history.calls(UPDATE_OPS):
        named = update.arg("weight_version")
        if update.fault or update.status != 400 or NOT_FLUSHED not in update.message or named is None:
            continue
        following = [c.pos for c in history.calls((*UPDATE_OPS, "update_weight_version"), engine=update.engine)]
        until = min((pos for pos in following if pos > update.pos), default=history.length)
        told = [c for c in history.calls(INFO, engine=update.engine) if update.end_pos < c.pos < until and c.ok]
        ended = [s for s in samples(history, engine=update.engine) if update.end_pos < s.call.end_pos < until]
        exercised += bool(told) and bool(ended)
        for call in told:
            if call.answer("weight_version") == named:
                return wrong(call, ["the version before"], max(1, exercised), f"weight_version {named!r}")
        for sample in ended:
            if sample.label != named:
                return wrong(sample.call, [f"weight_version {named!r}"], max(1, exercised), repr(sample.label))
    return held(exercised)


# -- what a client must do ---------------------------------------------------------------------------------------


def _no_side_effect(call: Call, state: State, history: History) -> Finding | bool:
    publishes = call.op == "update_weight_version" or (call.op in BUCKETS and call.arg("weight_version") is not None)
    if not publishes or not (state.running or met_by_traffic(history, call)):
        return False
    if not state.running:
        return None
    default = call.op == "update_weight_version"
    if state.paused != "abort" and call.arg("abort_all_requests", default) is not False:
        return "a version is published without touching requests", "abort_all_requests true", str(call)
    return None


def _honest_rollouts(history: History) -> Verdict:
    rollouts = history.facts("rollout", source="harness")
    if not rollouts:
        return unsupported("the adapter has no rollout()")
    truth = truths(history)
    labels = {refit.version: refit.seed for refit in history.refits()}
    exercised = 0
    for note in rollouts:
        prompt, tokens = tuple(note.get("prompt", ())), tuple(note.get("tokens", ()))
        right = truth.get(prompt, {})
        makers = {seed for seed, said_ in right.items() if said_[0][: len(tokens)] == tokens}
        if not makers:
            continue
        exercised += 1
        label = str(note.get("version"))
        if label in labels and labels[label] not in makers:
            return violated(
                allowed=[f"the version of seed {sorted(makers)}"],
                actual=f"labelled {label!r}, which is seed {labels[label]}",
                where=str(note),
                exercised=exercised,
            )
    return held(exercised)


def _labels_whole_sets(history: History) -> Verdict:
    """Wherever an engine shows the version of a refit, its fresh answers are those of that refit's weights."""
    truth = truths(history)
    refits = history.refits()
    seeds = {r.version: r.seed for r in refits}
    exercised = 0
    for r in refits:
        if r.ok is None:
            continue
        until = min((x.pos for x in refits if x.pos > r.pos), default=history.length)
        for sample in samples(history):
            alone = r.end_pos < sample.call.pos < sample.call.end_pos < until
            if not alone or sample.cached or sample.label not in seeds:
                continue
            if (found := seeds_of(sample, truth)) is None:
                continue
            exercised += 1
            if seeds[sample.label] not in found:
                return _dishonest(history, sample, seeds[sample.label], found, exercised)
        if r.ok is False:
            for call in history.calls(INFO):
                if r.end_pos < call.pos < until and call.ok and call.origin != "sut":
                    exercised += 1
                    if call.answer("weight_version") == r.version and not _complete(history, r.index, call):
                        told = f"weight_version {r.version!r} after refit {r.index} failed"
                        return wrong(call, ["the version of the last complete set"], exercised, told)
    return held(exercised)


def _dishonest(history: History, sample: Sample, seed: int | None, found: frozenset[int], exercised: int) -> Verdict:
    mine = (p for p in parts(history) if (p.engine, p.refit.version) == (sample.call.engine, sample.label))
    why = next((because(part, history) for part in mine), "")
    of = f"of seed {' or '.join(map(str, sorted(found)))}" if found else "that no whole set of weights gives"
    told = f"labelled {sample.label!r}, the weights of seed {seed}; {list(sample.tokens)} is an answer {of}{why}"
    return wrong(sample.call, ["a label whose weights gave this answer"], exercised, told)


def _complete(history: History, index: int, call: Call) -> bool:
    """Whether the engine took every bucket that the client sent it in this refit, the labelled one last."""
    for part in parts(history):
        if part.refit.index == index and (part.engine, part.incarnation) == (call.engine, call.incarnation):
            sent = part.buckets
            return bool(sent) and all(acted(c) for c in sent) and sent[-1].arg("weight_version") is not None
    return False


def _one_version_per_refit(history: History) -> Verdict:
    seen: dict[str, int] = {}
    refits_seen: set[int] = set()
    for part in parts(history):
        labels = {str(c.arg("weight_version")) for c in part.buckets if c.arg("weight_version") is not None}
        labels |= {str(c.arg("new_version")) for c in part.op("update_weight_version")}
        if not labels:
            continue
        refits_seen.add(part.refit.index)
        if len(labels) > 1:
            return violated(allowed=["one version per refit"], actual=str(sorted(labels)), where=part.where)
        label = labels.pop()
        other = seen.setdefault(label, part.refit.index)
        if other != part.refit.index and part.refit.version != label:
            return violated(allowed=["a new version per refit"], actual=f"{label!r} again", where=part.where)
    return held(max(0, len(refits_seen) - 1))


RULES = (
    refit(
        "VER-1",
        "Publishing a version leaves requests alone.",
        each_call(_no_side_effect),
        ["entrypoints/http_server.py:1527@0.5.23", "radixark/miles#2589"],
        speaks_of=[":weight_version", "update_weight_version"],
        mend=(
            "send weight_version with the last bucket, or /update_weight_version with abort_all_requests false: its "
            "default true aborts what runs"
        ),
    ),
    refit(
        "VER-3",
        "The version that a sample is labelled with is one whose weights gave its tokens.",
        _honest_rollouts,
        ["rllm-org/rllm#622"],
        echoes=["VERIF-1"],
        mend=(
            "label a sample with the weight_version of its own reply (meta_info), not with the version that the "
            "trainer holds when it reads it"
        ),
    ),
    refit(
        "VER-4",
        "An engine shows the version of a refit only when it holds that refit's complete set.",
        _labels_whole_sets,
        ["NVIDIA-NeMo/RL#3519"],
        follows=["NAME-71", "VERIF-1", "PART-1"],
        mend=(
            "send weight_version with the last bucket alone, of this refit's version; earlier buckets and failed "
            "refits carry none"
        ),
    ),
    refit(
        "VER-71",
        "All buckets of one refit carry the same version, and another refit another one.",
        _one_version_per_refit,
        ["NVIDIA-NeMo/RL#3612"],
        speaks_of=[":weight_version", "update_weight_version"],
        mend=(
            "make the version once per refit, before the loop over engines and buckets, and let no two refits share one"
        ),
    ),
    engine(
        "VER-51",
        "An update that names a version says so in its message, and model_info shows it at once, before any end.",
        _says_so,
        ["managers/tokenizer_control_mixin.py:563@0.5.23", "observed 0.5.21 on a GPU"],
        mend=(
            "look at where the tokenizer manager sets weight_version: at the update's answer, not at the end of the "
            "session"
        ),
    ),
    engine(
        "VER-52",
        "An update without a version, and one that was refused, leave the version as it is.",
        _only_named_updates,
        ["managers/tokenizer_control_mixin.py:563@0.5.23"],
        mend="look at the guard around weight_version: only an accepted update that names one moves it",
    ),
    engine(
        "VER-53",
        "update_weight_version aborts every running request, unless told not to.",
        _aborts_by_default,
        ["managers/io_struct.py:2155@0.5.23", "radixark/miles#2589"],
        mend=(
            "look at update_weight_version: abort_all_requests is true by default, and false must leave requests alone"
        ),
    ),
    engine(
        "VER-54",
        "A generation that crosses an update reports contiguous spans of output tokens by version.",
        _spans,
        ["utils/weight_versions.py:66@0.5.19", f"{TM}:2508@0.5.23"],
        versions=">=0.5.19 || miles",
        mend="look at the spans that the scheduler collects: one per version, contiguous, up to the last output token",
    ),
    engine(
        "VER-55",
        "A generation that crosses an update reports the version that is current when it ends, and no spans.",
        _label_at_delivery,
        [f"{TM}:1683@0.5.12.post1"],
        versions="<0.5.19,!=miles",
        mend="look at where the reply is labelled: at its delivery, with the version of that moment",
    ),
    engine(
        "VER-56",
        "A generation that begins after an update carries its version.",
        _fresh_label,
        [f"{TM}:2508@0.5.23"],
        mend="look at the label of a fresh request: it is read after the update that came before it",
    ),
    engine(
        "VER-57",
        "The old version routes answer 404 and say where to look instead.",
        answered(op("get_weight_version", "weight_version"), said(404, DEPRECATED)),
        ["entrypoints/http_server.py:798@0.5.20"],
        versions="<0.5.21 || miles",
        mend="look at the deprecated routes: they stay, with 404 and a hint",
    ),
    engine(
        "VER-58",
        "The old version routes are gone.",
        every(answered(op("get_weight_version", "weight_version"), said(404, body={"detail": "Not Found"}))),
        ["entrypoints/http_server.py:780@0.5.21"],
        versions=">=0.5.21",
        mend="look at the route table: the deprecated routes are gone since 0.5.21",
    ),
    engine(
        "VER-59",
        "An update whose flush was refused moves the version of generations all the same, not that of model_info.",
        _moved_by_a_refused_flush,
        ["managers/scheduler_components/weight_updater.py:251@0.5.22"],
        versions=">=0.5.22",
        mend=(
            "look at both holders of the version: the scheduler moves before the flush is tried, the tokenizer "
            "manager only on success"
        ),
    ),
)
