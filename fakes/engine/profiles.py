"""One `EngineProfile` per SGLang version: all that differs between versions, as data, every entry with its source.

`PROFILES["0.5.23"].session` says how the session machine answers; `PROFILES["0.5.23"].sources["session"]` says where
SGLang says so. A profile never says what a *device* does: that is `fakes.engine.protocol.EngineConfig.device`, whose
artefacts (weights_checker on CPU, for one) are keyed by `checker_needs_cuda`.

Sources are `file:line@version` below `sglang/srt/`, or `observed:` for what a real server answered.
"""

from __future__ import annotations

import re

import msgspec

from fakes.engine.engine_profile import EngineProfile

_INFO_12 = (
    "model_path",
    "tokenizer_path",
    "is_generation",
    "preferred_sampling_params",
    "weight_version",
    "has_image_understanding",
    "has_audio_understanding",
    "model_type",
    "architectures",
)
_INFO_18 = (
    "model_path",
    "served_model_name",
    "tokenizer_path",
    "is_generation",
    "preferred_sampling_params",
    "weight_version",
    "load_format",
    "reasoning_parser",
    "tool_call_parser",
    "has_image_understanding",
    "has_audio_understanding",
    "model_type",
    "architectures",
    "embedding",
)
_INFO_17 = (*_INFO_12, "embedding")
_INFO_21 = (*_INFO_18[:9], "disaggregation_mode", *_INFO_18[9:])

_WU = "managers/scheduler_components/weight_updater.py"
_MIXIN = "managers/scheduler_update_weights_mixin.py"
_TM = "managers/tokenizer_manager.py"
_TCM = "managers/tokenizer_control_mixin.py"
_HS = "entrypoints/http_server.py"
_UC = "utils/common.py"

_V12 = EngineProfile(
    version="0.5.12.post1",
    session="none",
    selector=False,
    structs="dataclass",
    flush_failure="die",
    version_owner="tokenizer",
    version_before_flush=False,
    idle_ignores_queue_when_paused=False,
    group_missing="die",
    unpickler="prefix30",
    base64="die",
    dp_guard="old",
    get_weight_version=True,
    load_snapshots=False,
    ready_route=False,
    ping_follows_health=False,
    checker_get=False,
    checker_needs_cuda=frozenset({"checksum", "compare"}),
    checker_compare_keeps_snapshot=True,
    checker_long_mismatch=False,
    parallelism_info="raw",
    model_info=_INFO_12,
    server_info_frontend=False,
    abort_statuses="400/500/503",
    generate_gate=False,
    queue_abort_streams="last",
    queue_abort_keeps_rid=True,
    abort_remembered=False,
    abort_once=False,
    abort_unknown_rid_warns=False,
    failed_generation="leak",
    needs_tokenizer="die",
    pins_input_logprobs=True,
    stop_beats_length=False,
    bucket_strict=False,
    engine_session_calls=False,
    lora_release="finished",
    signal_delay_s=0.08,
    freeze_s=0.0,
    coredump_wait_s=0.0,
    decode_step_s=0.004,
    prefill_step_s=0.006,
    sources={
        "version": "PyPI sglang 0.5.12.post1",
        "session": f"{_HS}:1167@0.5.12.post1; observed: 404 for begin and end",
        "selector": "managers/io_struct.py:1466@0.5.12.post1",
        "structs": "managers/io_struct.py:1353@0.5.12.post1",
        "flush_failure": f"{_MIXIN}:50@0.5.12.post1",
        "version_owner": f"{_HS}:1225@0.5.12.post1",
        "version_before_flush": f"{_MIXIN}:50@0.5.12.post1",
        "idle_ignores_queue_when_paused": "managers/scheduler.py:3212@0.5.12.post1",
        "group_missing": "model_executor/model_runner.py:1998@0.5.12.post1; observed",
        "unpickler": f"{_UC}:2276@0.5.12.post1",
        "base64": f"{_UC}:2262@0.5.12.post1",
        "dp_guard": f"{_TCM}:394@0.5.12.post1",
        "get_weight_version": f"{_HS}:610@0.5.12.post1",
        "load_snapshots": f"{_TCM}:808@0.5.12.post1",
        "ready_route": f"{_HS}:505@0.5.12.post1",
        "ping_follows_health": f"{_HS}:1782@0.5.12.post1",
        "checker_get": f"{_HS}:1294@0.5.12.post1; observed: 400 without a body",
        "checker_needs_cuda": "utils/weight_checker.py@0.5.12.post1; observed: Torch not compiled with CUDA enabled",
        "checker_compare_keeps_snapshot": "utils/weight_checker.py:84@0.5.12.post1 (never cleared up to 0.5.20)",
        "checker_long_mismatch": "utils/weight_checker.py:187@0.5.12.post1",
        "parallelism_info": f"{_MIXIN}:189@0.5.12.post1",
        "model_info": f"{_HS}:590@0.5.12.post1",
        "server_info_frontend": f"{_HS}:630@0.5.12.post1",
        "abort_statuses": f"{_TM}:1250@0.5.12.post1",
        "generate_gate": f"{_HS}:700@0.5.12.post1",
        "queue_abort_streams": f"{_TM}:2448@0.5.12.post1; observed: 0.5.17",
        "queue_abort_keeps_rid": f"{_TM}:2417@0.5.12.post1",
        "abort_remembered": f"{_TM}:1489@0.5.12.post1",
        "abort_once": f"{_TM}:1489@0.5.12.post1",
        "abort_unknown_rid_warns": f"{_TM}:1489@0.5.12.post1",
        "failed_generation": f"{_TM}:548@0.5.12.post1 (no clean-up)",
        "needs_tokenizer": "sampling/penaltylib/min_new_tokens.py:31@0.5.12.post1; observed",
        "pins_input_logprobs": "layers/logits_processor.py:174,542@0.5.12.post1; observed",
        "stop_beats_length": "managers/schedule_batch.py:1215@0.5.12.post1",
        "bucket_strict": "weight_sync/tensor_bucket.py:1@0.5.12.post1",
        "engine_session_calls": "entrypoints/engine.py@0.5.12.post1",
        "lora_release": f"{_TM}:1275,1875,2417@0.5.12.post1",
        "signal_delay_s": "observed: dropped after 76 to 108 ms",
        "freeze_s": f"{_TM}:2808@0.5.12.post1 (no diagnostics, no sleep)",
        "coredump_wait_s": f"{_TM}:2808@0.5.12.post1 (no diagnostics)",
        "decode_step_s": "observed: 8 tokens in 35 ms on CPU",
        "prefill_step_s": "observed: 8 tokens in 35 ms on CPU",
    },
)


def _next(base: EngineProfile, version: str, sources: dict[str, str], **changes: object) -> EngineProfile:
    """The next version: what it changes, each with its source; the sources of the rest stay those of `base`."""
    missing = set(changes) - set(sources)
    if missing:
        raise ValueError(f"profile {version}: no source for {sorted(missing)}")
    merged = {**base.sources, "version": f"PyPI sglang {version}", **sources}
    return msgspec.structs.replace(base, version=version, sources=merged, **changes)


_V17 = _next(
    _V12,
    "0.5.17",
    {
        "structs": "managers/io_struct.py:79@0.5.17 (msgspec.Struct)",
        "unpickler": f"{_UC}:2797@0.5.17",
        "base64": "managers/io_struct.py:1699@0.5.17 (Base64Bytes)",
        "checker_get": f"{_HS}:1486@0.5.17",
        "model_info": f"{_HS}:733@0.5.17",
        "checker_long_mismatch": "utils/weight_checker.py:217@0.5.17",
        "parallelism_info": "utils/weight_checker.py@0.5.17",
        "queue_abort_keeps_rid": f"{_TM}:3192@0.5.17",
        "abort_remembered": f"{_TM}:785,1938,3405@0.5.17; observed",
        "abort_unknown_rid_warns": f"{_TM}:1950@0.5.17",
        "failed_generation": f"{_TM}:3483@0.5.17",
        "load_snapshots": "managers/load_snapshot.py@0.5.17",
        "needs_tokenizer": "sampling/sampling_params.py:306@0.5.17; observed: 0.5.23",
        "pins_input_logprobs": "layers/logits_processor.py:637@0.5.17; observed",
        "freeze_s": f"{_TM}:3065@0.5.17 (sleep in the SIGQUIT handler, which runs on the event loop)",
        "coredump_wait_s": f"{_TM}:3075@0.5.17; observed: 0.5.23 (SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS)",
        "flush_failure": f"{_WU}:108@0.5.17",
        "group_missing": "model_executor/model_runner_components/weight_updater.py:244@0.5.17",
    },
    structs="msgspec",
    unpickler="prefix33",
    base64="http400",
    checker_get=True,
    model_info=_INFO_17,
    checker_long_mismatch=True,
    parallelism_info="dict",
    queue_abort_keeps_rid=False,
    abort_remembered=True,
    abort_unknown_rid_warns=True,
    failed_generation="abort",
    load_snapshots=True,
    needs_tokenizer="refuse",
    pins_input_logprobs=False,
    freeze_s=5.0,
    coredump_wait_s=60.0,
)
_V18 = _next(
    _V17,
    "0.5.18",
    {
        "model_info": f"{_HS}:738@0.5.18",
        "abort_remembered": f"{_TM}:805@0.5.18 (no longer)",
        "failed_generation": f"{_TM}:3417@0.5.18",
        "stop_beats_length": "managers/schedule_batch.py:1653@0.5.18",
    },
    model_info=_INFO_18,
    abort_remembered=False,
    failed_generation="drop",
    stop_beats_length=True,
)
_V19 = _next(
    _V18,
    "0.5.19",
    {"version_owner": "utils/weight_versions.py@0.5.19; managers/scheduler.py@0.5.19 record_weight_version_change"},
    version_owner="scheduler",
)
_V20 = _next(
    _V19,
    "0.5.20",
    {
        "ready_route": f"{_HS}:662@0.5.20",
        "queue_abort_streams": f"{_TM}:3399@0.5.20; observed",
        "abort_once": f"{_TM}:2095@0.5.20",
        "failed_generation": f"{_TM}:3640@0.5.20",
    },
    ready_route=True,
    queue_abort_streams="all",
    abort_once=True,
    failed_generation="abort",
)
_MILES = _next(
    _V19,
    "miles",
    {
        "version": "sgl-project/sglang branch sglang-miles, 3003d70f, read at 00a2ca2e",
        "session": f"{_WU}:222-347@miles-00a2ca2e (asserts)",
        "ready_route": f"{_HS}@miles-00a2ca2e (none)",
        "get_weight_version": f"{_HS}@miles-00a2ca2e",
        "model_info": f"{_HS}@miles-00a2ca2e",
        "generate_gate": f"{_HS}@miles-00a2ca2e (none)",
        "server_info_frontend": f"{_HS}@miles-00a2ca2e (none)",
        "selector": "managers/io_struct.py@miles-00a2ca2e",
        "group_missing": f"{_WU}@miles-00a2ca2e (caught)",
        "parallelism_info": "utils/weight_checker.py@miles-00a2ca2e",
        "unpickler": "inferred: merged before the exact allow-list (sgl-project/sglang#35818)",
        "engine_session_calls": "entrypoints/engine.py@miles-00a2ca2e",
    },
    session="assert",
    selector=True,
    group_missing="partial",
    parallelism_info="list",
    unpickler="prefix33",
    engine_session_calls=True,
)
_V21 = _next(
    _V20,
    "0.5.21",
    {
        "session": f"{_WU}:180-184,290-316@0.5.21; observed",
        "selector": "managers/io_struct.py:1926@0.5.21",
        "idle_ignores_queue_when_paused": "managers/scheduler.py:5011,5189@0.5.21",
        "group_missing": f"{_WU}:189-203@0.5.21; observed",
        "unpickler": f"{_UC}:3081@0.5.21",
        "get_weight_version": f"{_HS}:831@0.5.21 (route removed)",
        "parallelism_info": f"{_WU}:40@0.5.21",
        "checker_compare_keeps_snapshot": "utils/weight_checker.py:202@0.5.21",
        "model_info": f"{_HS}:790@0.5.21",
        "server_info_frontend": f"{_HS}:868@0.5.21",
        "engine_session_calls": "entrypoints/engine.py@0.5.21",
    },
    session="refuse",
    selector=True,
    idle_ignores_queue_when_paused=True,
    group_missing="receive",
    unpickler="exact200",
    get_weight_version=False,
    parallelism_info="list",
    checker_compare_keeps_snapshot=False,
    model_info=_INFO_21,
    server_info_frontend=True,
    engine_session_calls=True,
)
_V22 = _next(
    _V21,
    "0.5.22",
    {
        "flush_failure": f"{_WU}:120-133@0.5.22",
        "version_before_flush": f"{_WU}:251-258@0.5.22",
        "dp_guard": f"{_TCM}:448@0.5.22",
        "generate_gate": f"{_HS}:912@0.5.22",
        "lora_release": f"{_TM}:1924,2774,3637,3866@0.5.22",
    },
    lora_release="every",
    flush_failure="refuse",
    version_before_flush=True,
    dp_guard="new",
    generate_gate=True,
)
_V23 = _next(
    _V22,
    "0.5.23",
    {
        "unpickler": f"{_UC}:3144@0.5.23",
        "ping_follows_health": f"{_HS}:2190@0.5.23",
        "abort_statuses": f"{_TM}:1891@0.5.23",
        "failed_generation": f"{_TM}:548@0.5.12.post1 (no clean-up)",
        "bucket_strict": "weight_sync/tensor_bucket.py@0.5.23",
        "checker_needs_cuda": "utils/weight_checker.py@0.5.23; observed: checksum works on CPU, compare does not",
        "freeze_s": f"{_TM}:3486@0.5.23; observed: /model_info hangs meanwhile",
    },
    unpickler="exact202",
    ping_follows_health=True,
    abort_statuses="4xx5xx",
    bucket_strict=True,
    checker_needs_cuda=frozenset({"compare"}),
)

PROFILES: dict[str, EngineProfile] = {p.version: p for p in (_V12, _V17, _V18, _V19, _V20, _MILES, _V21, _V22, _V23)}
"""All profiles, in the order of their release (miles where it branched off)."""

ORDER: tuple[str, ...] = tuple(PROFILES)
"""The versions in order."""


class UnknownVersion(ValueError):
    """Asked for a version that has no profile; the message names those that exist."""


def profile(version: str) -> EngineProfile:
    """The profile of a version ("0.5.23", "v0.5.23", "miles"); `UnknownVersion` names the known ones."""
    name = re.sub(r"^v(?=\d)", "", version.strip())
    if name not in PROFILES:
        raise UnknownVersion(f"unknown engine version {version!r}; known: {', '.join(PROFILES)}")
    return PROFILES[name]
