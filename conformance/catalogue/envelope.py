"""Mutants of the reference client's envelope: what is acquired around a transfer, and given back after it."""

from __future__ import annotations

from harness.mutate import Mutant
from harness.mutate.edits import At, Body, Drop, FunctionEdit, Insert, Move, Replace, ReplaceExpr, Unwrap, edits

CLIENT = "harness.reference.refit:RefitClient"
ENVELOPE = f"{CLIENT}._envelope"
CONTROL = "harness.reference.control:Control"
ENGINE = "harness.reference.engines:Engine"
GUARDS = "harness.reference.guards:Guards"
NIXL = "NVIDIA-NeMo/RL#3519"
REFIT = "NVIDIA-NeMo/RL#3612"
FLEET = "NVIDIA-NeMo/RL#3330"

TRANSFER = "return self.transport.send(...)"
SENT = "calls = self.transport.send(engines, deadline, state, version)"


def after_transfer(code: str) -> Replace:
    """The code runs when the transfer has succeeded, and only then."""
    return Replace(TRANSFER, f"{SENT}\n{code}\nreturn calls")


def mutant(id: str, rule: str, origin: str, note: str, *changes: FunctionEdit, target: str = ENVELOPE) -> Mutant:
    """One mutant that one rule is to notice."""
    return Mutant(id, target, edits(*changes), frozenset({rule}), origin, note)


THIRTEEN = (
    mutant(
        "begin-after-the-transfer",
        "SESS-1",
        NIXL,
        "the session is begun when everything was sent",
        Drop("control.begin(...)"),
        after_transfer("control.begin(engines, deadline)"),
    ),
    mutant(
        "end-out-of-the-inner-finally",
        "SESS-3",
        NIXL,
        "a transfer that fails leaves the session open",
        Drop('guards.hold("end", ...)'),
        after_transfer("self._end(guards, state, version, deadline)"),
        At(f"{CONTROL}.begin", Drop("if ours: ...")),
        At(f"{CONTROL}.begin", Drop("if left_open: ...")),
    ),
    mutant(
        "continue-inside-the-try",
        "PAUSE-1",
        NIXL,
        "generation is continued only when the refit succeeded",
        Drop('guards.hold("continue", ...)'),
        after_transfer("self._continue(guards, deadline)"),
    ),
    mutant("pause-deleted", "PART-71", f"{NIXL}, D10", "nothing is paused", Drop("control.pause(...)")),
    mutant(
        "flush-failure-no-longer-raised",
        "CACHE-1",
        f"{NIXL}, D06",
        "a flush that was never granted is taken for done",
        Replace("raise_failed(ANY, busy, ANY)", "return"),
        target=f"{CONTROL}.flush",
    ),
    mutant(
        "kv-re-acquire-dropped",
        "MEM-71",
        NIXL,
        "the KV pool is not brought back",
        Drop('guards.hold("onload_kv", ...)'),
    ),
    mutant(
        "routed-through-the-plain-transfer",
        "SESS-1",
        f"{NIXL}, D09",
        "no pause, no flush, no session: buckets alone",
        Drop("control.pause(...)"),
        Drop("control.flush(...)"),
        Drop('guards.hold("end", ...)'),
        Drop("control.begin(...)"),
    ),
    mutant(
        "in-place-guard-removed",
        "CACHE-4",
        f"{NIXL}, radixark/miles#2783, D07, D13",
        "paused in_place and not flushed: requests keep KV of the old weights",
        ReplaceExpr("control.pause_mode", "'in_place'"),
        At(ENVELOPE, Insert('control.pause_mode = "in_place"', before="control.pause(...)")),
        At(ENVELOPE, Drop("control.flush(...)")),
        target="harness.reference.adapter:ReferenceSut.setup",
    ),
)

MUTANTS = (
    mutant(
        "continue-guard-after-begin",
        "PAUSE-1",
        f"{REFIT}, D01",
        "a flush or begin that fails leaves every engine paused",
        Move('guards.hold("continue", ...)', after="control.begin(...)"),
    ),
    mutant(
        "one-guard-that-fails-ends-giving-back",
        "PAUSE-1",
        f"{REFIT}, D02",
        "an end that raises keeps continue from running",
        Unwrap("try: ...\nexcept BaseException as later: ..."),
        target=f"{GUARDS}.__exit__",
    ),
    mutant(
        "end-for-a-session-that-never-opened",
        "SESS-71",
        f"{REFIT}, D03",
        "a begin that was refused is ended all the same",
        Body("return not e.end_was_sent"),
        target=f"{CLIENT}._wants_end",
    ),
    mutant(
        "pause-outside-its-guard",
        "PAUSE-1",
        f"{REFIT}, OpenRLHF/OpenRLHF#1262, D04",
        "a pause that only some engines took is never undone",
        Move('guards.hold("continue", ...)', after="control.pause(...)"),
    ),
    mutant(
        "kv-re-acquired-on-success-only",
        "MEM-71",
        f"{NIXL}, D12",
        "a transfer that fails leaves the KV pool released",
        Drop('guards.hold("onload_kv", ...)'),
        after_transfer("self._onload_kv(guards, deadline)"),
    ),
    mutant(
        "continue-before-the-kv-pool",
        "PAUSE-6",
        f"{NIXL}, D14",
        "generation is continued on a pool that is still released",
        Move('guards.hold("continue", ...)', after='guards.hold("onload_kv", ...)'),
        At(f"{ENGINE}.may_serve", ReplaceExpr("not self.released", "True")),
    ),
    mutant(
        "torn-weights-may-serve",
        "PART-1",
        f"{FLEET}, sgl-project/sglang-omni#784, D16",
        "an engine that took a part of an update is continued",
        ReplaceExpr("self.weights is Weights.WHOLE", "True"),
        target=f"{ENGINE}.may_serve",
    ),
    mutant(
        "flush-polled-without-waits",
        "CACHE-1",
        "sgl-project/sglang#14062",
        "a refused flush is asked again at once",
        Drop("self.clock.sleep(ANY)"),
        target=f"{CONTROL}.flush",
    ),
    mutant(
        "continue-asked-once",
        "PAUSE-2",
        "PrimeIntellect-ai/prime-rl#2759",
        "a continue that was lost is not asked again",
        Insert("break", after="waiting = ANY"),
        target=f"{CONTROL}.resume_generation",
    ),
    mutant(
        "a-session-left-open-is-not-closed",
        "SESS-3",
        "vllm-project/vllm#39212",
        "after a failed refit the next one is refused",
        Drop("if ours: ..."),
        At(f"{CONTROL}.begin", Drop("if left_open: ...")),
        At(f"{CLIENT}._end", Insert("if guards.error is not None:\n    return")),
        target=f"{CONTROL}.begin",
    ),
    mutant(
        "every-tag-is-resumed",
        "MEM-1",
        "verl-project/verl#7289",
        "resume names tags that were never released",
        ReplaceExpr("[t for t in tags if t in e.released]", "list(tags)"),
        target=f"{CONTROL}._resume",
    ),
    mutant(
        "weights-are-not-onloaded",
        "MEM-2",
        "vllm-project/vllm#57853",
        "buckets go into released memory",
        Drop("control.onload_weights(...)"),
    ),
    mutant(
        "error-text-lost",
        "ERR-1",
        f"{REFIT}, D37",
        "the reason is read from a key that SGLang does not send",
        ReplaceExpr("f'HTTP {outcome.status}: {outcome.text}'", "'unknown error'"),
        target="harness.reference.errors:CallFailed.__init__",
    ),
    mutant(
        "onload-outside-its-guard",
        "MEM-71",
        f"{REFIT}, D05",
        "the onload of one engine fails, the KV pool of the other stays released",
        Move('guards.hold("onload_kv", ...)', after="control.onload_weights(...)"),
    ),
    mutant(
        "flush-after-the-buckets",
        "CACHE-1",
        f"{NIXL}, D11",
        "what a flush has to prove is asked when everything was sent",
        Drop("control.flush(...)"),
        after_transfer("control.flush(engines, deadline)"),
    ),
    mutant(
        "flush-before-the-pause",
        "CACHE-4",
        f"{NIXL}, D11",
        "what is cached between the flush and the pause stays",
        Drop("control.flush(...)"),
        Insert("control.flush(engines, deadline)", before="control.pause(...)"),
    ),
    mutant(
        "flush-once",
        "CACHE-1",
        "THUDM/slime#1953",
        "the first refusal of a flush is an error",
        Replace("if self.clock.now() + wait_s > until: ...", "raise_failed('flush', busy, NeverIdle)"),
        target=f"{CONTROL}.flush",
    ),
    mutant(
        "flush-deleted",
        "CACHE-4",
        "PrimeIntellect-ai/prime-rl#1650, InternLM/lmdeploy#4917",
        "nobody asks for a flush",
        Drop("control.flush(...)"),
    ),
    mutant(
        "five-seconds-for-any-call",
        "LIVE-1",
        "PrimeIntellect-ai/prime-rl#1119, PrimeIntellect-ai/prime-rl#2759",
        "an update that takes longer is taken for dead",
        Replace("return left", "return min(5.0, left)"),
        target="harness.reference.deadline:Deadline.work",
    ),
    mutant(
        "an-interrupt-is-no-failure",
        "PAUSE-1",
        f"{FLEET}, D18",
        "what is no Exception is taken for the good end of a transfer",
        Replace("self.error = error", "self.error = error if isinstance(error, Exception) else None"),
        target=f"{GUARDS}.__exit__",
    ),
)
