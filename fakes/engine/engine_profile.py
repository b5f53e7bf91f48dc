"""What may differ between SGLang versions: the fields of a profile, each with its meaning."""

from __future__ import annotations

from typing import Literal

import msgspec

SessionKind = Literal["none", "assert", "refuse"]


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How one SGLang version behaves where versions differ. `sources` has one entry per other field."""

    version: str
    session: SessionKind
    """none: no begin/end routes. assert: an AssertionError that kills. refuse: 400, state unchanged."""
    selector: bool
    """Requests carry `selector` (target, draft, all); older ones carry `disable_draft_model`."""
    structs: Literal["dataclass", "msgspec"]
    """How request bodies are validated, which shows in the text of a 400."""
    flush_failure: Literal["die", "refuse"]
    """A flush that is refused after an update: AssertionError, or 400 although the weights are in."""
    version_owner: Literal["tokenizer", "scheduler"]
    """Who holds the weight version; scheduler-owned versions make spans."""
    version_before_flush: bool
    """The scheduler records a new version before (and so also without) the flush."""
    idle_ignores_queue_when_paused: bool
    """Flush and release ignore the waiting queue while the engine is paused."""
    group_missing: Literal["die", "receive", "partial"]
    """update_weights_from_distributed without its group: assert outside try, or one of two 400 texts."""
    unpickler: Literal["prefix30", "prefix33", "exact200", "exact202"]
    base64: Literal["die", "http400"]
    """Base64 that does not decode: an error in the scheduler, or a 400 from validation."""
    dp_guard: Literal["old", "new"]
    get_weight_version: bool
    """/get_weight_version exists, only to answer 404."""
    load_snapshots: bool
    """/get_load reads what the scheduler last published, and asks nobody."""
    ready_route: bool
    ping_follows_health: bool
    checker_get: bool
    """/weights_checker also answers GET, its body is optional and its action defaults to checksum."""
    checker_needs_cuda: frozenset[str]
    """Checker actions that call Tensor.cuda() and so fail on a CPU engine."""
    checker_compare_keeps_snapshot: bool
    checker_long_mismatch: bool
    """compare says num_exceed, expect and actual too."""
    parallelism_info: Literal["raw", "dict", "list"]
    model_info: tuple[str, ...]
    """The keys of /model_info, in order."""
    server_info_frontend: bool
    abort_statuses: Literal["400/500/503", "4xx5xx"]
    """Which status codes in an abort's finish_reason become the HTTP status."""
    generate_gate: bool
    """/generate is checked against the JSON contract, which refuses unknown sampling parameters."""
    queue_abort_streams: Literal["last", "all"]
    """The tokens in the last chunk of a stream that was aborted in the waiting queue: the last one, or all."""
    queue_abort_keeps_rid: bool
    """The name of a generation that was aborted in the waiting queue stays taken."""
    abort_remembered: bool
    """An abort also ends generations that were not sent to the scheduler yet, when their turn comes."""
    abort_once: bool
    """A second abort of the same rid is dropped."""
    abort_unknown_rid_warns: bool
    """An empty rid without abort_all is ignored with a warning, not looked up."""
    failed_generation: Literal["leak", "drop", "abort"]
    """What a refused or cancelled generation leaves: its rids taken, its sent prompts running, or nothing."""
    needs_tokenizer: Literal["die", "refuse"]
    """Without a tokenizer, what a request needs one for (stop texts, min_new_tokens): an AttributeError, or a 400."""
    pins_input_logprobs: bool
    """Log-probabilities of a prompt go through pinned memory, which kills an engine on a CPU."""
    stop_beats_length: bool
    """A stop token at max_new_tokens ends a request with "stop"; before, with "length"."""
    bucket_strict: bool
    """The distributed bucket checks zip lengths and alignment."""
    engine_session_calls: bool
    """sglang.Engine has begin_weight_update and end_weight_update."""
    lora_release: Literal["finished", "every"]
    """Which ends of a request give its adapter back: only that in a batch, or an abort in the queue and a refusal,
    too; without that an unload waits for ever."""
    signal_delay_s: float
    """From the scheduler's exception to the SIGQUIT handler in the HTTP process, seconds."""
    freeze_s: float
    """How long that handler blocks the HTTP process before it kills the tree, seconds."""
    coredump_wait_s: float
    """How much longer it blocks when a scheduler process is still alive, seconds."""
    decode_step_s: float
    """One decode step, seconds."""
    prefill_step_s: float
    """One prefill step, seconds."""
    sources: dict[str, str]

    @property
    def spans(self) -> bool:
        """Whether meta_info carries weight_versions."""
        return self.version_owner == "scheduler"
