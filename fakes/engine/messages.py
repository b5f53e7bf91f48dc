"""Every sentence that an engine says, verbatim, with the versions that say it and where a client sees it.

`catalogue()` lists them all, so that a test can check that nothing is said in a version that does not know it.
Placeholders are in braces, as in `str.format`. Weights, payloads and the checker keep their own messages beside their
code.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fakes.engine.profiles import ORDER

Channel = Literal["200", "400", "404", "499", "500", "503", "raise"]

ALL = ORDER
_SESSION = ("0.5.21", "0.5.22", "0.5.23")
_TO_21 = tuple(v for v in ORDER if v not in ("0.5.22", "0.5.23"))
_FROM_22 = ("0.5.22", "0.5.23")
_MILES = ("miles",)
_TO_20 = tuple(v for v in ORDER if v not in _SESSION)


class Message(msgspec.Struct, frozen=True):
    """One sentence. `channel` is the HTTP status that carries it; raise: the scheduler raises it and the engine
    dies."""

    text: str
    versions: tuple[str, ...]
    channel: Channel
    source: str
    type: str = ""
    """The exception class of a raised message."""

    def __call__(self, **values: Any) -> str:
        """The text with its placeholders filled in."""
        return self.text.format(**values) if values else self.text


_WU = "managers/scheduler_components/weight_updater.py"

SUCCESS = Message("Success", ALL, "200", f"{_WU}:244@0.5.23")
BEGIN_OPEN = Message(
    "a weight-update session is already open; call end_weight_update() first", _SESSION, "400", f"{_WU}:312@0.5.23"
)
NO_SESSION = Message(
    "no weight-update session is open; call begin_weight_update() first", _SESSION, "400", f"{_WU}:327@0.5.23"
)
OUTSIDE_SESSION = Message(
    "{op} must run between begin_weight_update() and end_weight_update()", _SESSION, "400", f"{_WU}:192,234@0.5.23"
)
MILES_BEGIN_OPEN = Message(
    "begin_weight_update called while a weight-update session is already open",
    _MILES, "raise", f"{_WU}:329@miles-00a2ca2e", "AssertionError",
)  # fmt: skip
MILES_NO_SESSION = Message(
    "end_weight_update called without begin_weight_update",
    _MILES,
    "raise",
    f"{_WU}:345@miles-00a2ca2e",
    "AssertionError",
)
MILES_OUTSIDE = Message(
    "{op} requires an open begin_weight_update session",
    _MILES, "raise", f"{_WU}:222,260@miles-00a2ca2e", "AssertionError",
)  # fmt: skip
BAD_SELECTOR = Message(
    "invalid selector {selector!r}; expected 'target', 'draft', or 'all'",
    ("miles", *_SESSION), "raise", f"{_WU}:78@0.5.23", "ValueError",
)  # fmt: skip
FLUSH_ASSERT = Message(
    "Cache flush failed after updating weights", _TO_21, "raise", f"{_WU}:122@0.5.21", "AssertionError"
)
FLUSH_REFUSED = Message(
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache.",
    _FROM_22, "400", f"{_WU}:128@0.5.23",
)  # fmt: skip
VERSION_SUFFIX = Message(
    " Weight version updated to {version}.", ALL, "200", "managers/tokenizer_control_mixin.py:594@0.5.23"
)
DISTRIBUTED_OK = Message("Succeeded to update parameter online.", ALL, "200", f"{_WU}:213@0.5.23")
DISK_OK = Message("Succeeded to update model weights.", ALL, "200", f"{_WU}:140@0.5.23")
DISK_ITERATOR = Message(
    "Failed to get weights iterator: {error}.", ALL, "400",
    "model_executor/model_runner_components/weight_updater.py:214@0.5.21; observed",
)  # fmt: skip
HUB_NAME = Message(
    "Repo id must use alphanumeric chars, '-', '_' or '.'. The name cannot start or end with '-' or '.' "
    "and the maximum length is 96: '{path}'.",
    ALL, "400", "huggingface_hub; observed: 0.5.23",
)  # fmt: skip
HUB_FORM = Message(
    "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. Use `repo_type` argument if needed.",
    ALL, "400", "huggingface_hub; observed: 0.5.23, a path of more than one slash",
)  # fmt: skip
CHECK_OK = Message("Success.", ALL, "200", f"{_WU}:450@0.5.23")
IPC_OK = Message(
    "IPC weight update completed successfully", ALL, "200",
    "model_executor/model_runner_components/weight_updater.py:430@0.5.23",
)  # fmt: skip
IPC_NOT_FOUND = Message(
    "Device UUID {uuid} not found in zmq_handles: {known}", ALL, "400",
    "checkpoint_engine/checkpoint_engine_worker.py:84@0.5.23",
)  # fmt: skip
IPC_NO_DEVICE = Message(
    "The current device type is not supported", ALL, "400", "checkpoint_engine/device_utils.py:172@0.4.2"
)
NO_CUDA = Message("Torch not compiled with CUDA enabled", ALL, "400", "torch.cuda.current_device without CUDA")
IPC_FAILED = Message("IPC weight update failed: {error}", ALL, "400", "managers/tokenizer_control_mixin.py:627@0.5.23")
IPC_MISSING = Message(
    "ImportError checkpoint-engine is not installed. "
    "Please install it with: pip install sglang[checkpoint-engine]",
    ALL, "400", "observed: 0.5.23",
)  # fmt: skip
PARTIAL = Message(
    "Failed to update parameter online: {error}. "
    "The full weights of the ModelRunner are partially updated. Please discard the whole weights.",
    ALL, "400", "model_executor/model_runner_components/weight_updater.py:318@0.5.23",
)  # fmt: skip
RECEIVE_FAILED = Message("Failed to receive weights: {error}", _SESSION, "400", f"{_WU}:209@0.5.23")
GROUP_MISSING = Message(
    "Group {group} not in {groups}. Please call `init_weights_update_group` first.",
    ALL, "raise", "model_executor/model_runner_components/weight_updater.py:252@0.5.23", "AssertionError",
)  # fmt: skip
GROUP_OK = Message(
    "Succeeded to initialize custom process group.", ALL, "200",
    "model_executor/model_runner_components/weight_updater.py:150@0.5.23",
)  # fmt: skip
GROUP_FAILED = Message(
    "Failed to initialize custom process group: {error}.", ALL, "400",
    "model_executor/model_runner_components/weight_updater.py:152@0.5.23",
)  # fmt: skip
GROUP_TAKEN = Message(
    "The specified group name has already been created, please use a different group name", ALL, "400",
    "torch/distributed/distributed_c10d.py; observed: 0.5.21",
)  # fmt: skip
NO_NCCL = Message("Distributed package doesn't have NCCL built in", ALL, "400", "torch; observed: 0.5.23 on CPU")
EMPTY_GROUP = Message(
    "Group name cannot be empty", ALL, "raise",
    "model_executor/model_runner_components/weight_updater.py:118@0.5.23", "AssertionError",
)  # fmt: skip
DESTROY_OK = Message(
    "Succeeded to destroy custom process group.", ALL, "200",
    "model_executor/model_runner_components/weight_updater.py:165@0.5.23",
)  # fmt: skip
DESTROY_MISSING = Message(
    "The group to be destroyed does not exist.", ALL, "400",
    "model_executor/model_runner_components/weight_updater.py:167@0.5.23",
)  # fmt: skip
UNKNOWN_LOAD_FORMAT = Message(
    "Unknown load_format={load_format}", ALL, "raise",
    "model_executor/model_runner_components/weight_updater.py:380@0.5.23", "NotImplementedError",
)  # fmt: skip
SHORT_LIST = Message("list index out of range", ALL, "raise", "managers/tp_worker.py:200@0.5.23", "IndexError")
RELEASE_BUSY = Message(
    "release_memory_occupation should be called only when server is idle.",
    ALL, "raise", f"{_WU}:340@0.5.23", "AssertionError",
)  # fmt: skip
SAVER_DOUBLE = Message(
    "[torch_memory_saver.cpp] Cannot pause allocation that is not active. tag={tag}",
    ALL, "raise", "observed: 0.5.21 on a GPU (torch_memory_saver exits with 1)", "SystemExit",
)  # fmt: skip
RELEASED_UPDATE = Message("CUDA error: invalid argument", ALL, "raise", "observed: 0.5.21 on a GPU", "AcceleratorError")
RELEASED_KV = Message(
    "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
    ALL, "raise", "observed: 0.5.21 on a GPU", "ValueError",
)  # fmt: skip
RELEASED_WEIGHTS = Message(
    "CUDA error: an illegal memory access was encountered",
    ALL,
    "raise",
    "observed: 0.5.21 on a GPU",
    "AcceleratorError",
)
VOCAB_RANGE = Message("index out of range in self", ALL, "raise", "observed: 0.5.23 on CPU", "IndexError")
VOCAB_ASSERT = Message(
    "CUDA error: device-side assert triggered", ALL, "raise", "inferred: embedding on a GPU", "AcceleratorError"
)

FLUSHED = Message(
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n",
    ALL, "200", "entrypoints/http_server.py:1031@0.5.23",
)  # fmt: skip
FLUSH_FAILED = Message("Flush cache failed.\n", ALL, "400", "entrypoints/http_server.py:1036@0.5.23")
FLUSH_TIMEOUT = Message(
    "Timed out waiting for idle state.", ALL, "400", "managers/scheduler_components/flush_wrapper.py:60@0.5.23"
)
FLUSH_BUSY = Message(
    "Another flush_cache is already in progress.",
    ALL,
    "400",
    "managers/scheduler_components/flush_wrapper.py:26@0.5.23",
)
PAUSED = Message("Generation paused successfully.", ALL, "200", "entrypoints/http_server.py:1838@0.5.23")
CONTINUED = Message("Generation continued successfully.", ALL, "200", "entrypoints/http_server.py:1851@0.5.23")
VERSION_SET = Message("Weight version updated to {version}", ALL, "200", "entrypoints/http_server.py:1544@0.5.23")
VERSION_FAILED = Message(
    "Failed to update weight version: {error}", ALL, "400", "entrypoints/http_server.py:1552@0.5.23"
)
WEIGHT_VERSION_DEPRECATED = Message(
    "Endpoint '/get_weight_version' or '/weight_version' is deprecated. Please use '/model_info' instead.",
    _TO_20, "404", "entrypoints/http_server.py:798@0.5.20",
)  # fmt: skip
GET_BY_NAME_FAILED = Message("Get parameter by name failed", ALL, "400", "entrypoints/http_server.py:1568@0.5.23")
UNREADABLE_BODY = Message("There was an error parsing the body", ALL[:1], "400", "fastapi/routing.py:514 (0.165)")
INTERNAL_ERROR = Message("Internal Server Error", ALL, "500", "starlette: an exception in the HTTP process")
DP_OLD = Message(
    "dp_size must be 1 or dp attention must be enabled for {what}",
    _TO_21,
    "500",
    "managers/tokenizer_control_mixin.py:448@0.5.21",
)
DP_NEW = Message(
    "data-parallel replicas are not supported for {what}",
    _FROM_22,
    "500",
    "managers/tokenizer_control_mixin.py:452@0.5.23",
)

ABORT_WAITING = Message("Abort in waiting queue", ALL, "200", "managers/tokenizer_manager.py:3595@0.5.23")
ABORTED = Message("Aborted", ALL, "200", "managers/schedule_batch.py@0.5.23 FINISH_ABORT; observed")
NO_INPUT = Message(
    "Either text, input_ids or input_embeds should be provided.",
    ALL,
    "400",
    "managers/io_struct.py:453@0.5.22; observed: 0.5.23",
)
EMPTY_INPUT = Message("input_ids cannot be empty.", ALL, "400", "managers/io_struct.py:498@0.5.22; observed: 0.5.23")
UNEQUAL_N = Message(
    "The parallel_sample_num should be the same for all samples in sample params.",
    ALL, "400", "managers/io_struct.py:544@0.5.23",
)  # fmt: skip
LIST_WITH_N = Message(
    "Cannot use list {name} with parallel_sample_num > 1", ALL, "400", "managers/io_struct.py:783@0.5.23"
)
RIDS_MISMATCH = Message(
    "The specified rids length mismatch with the batch_size for batch processing.",
    ALL, "400", "managers/io_struct.py:761@0.5.23",
)  # fmt: skip
DUPLICATE_RIDS = Message(
    "Duplicate request IDs detected within the request: {rids}", ALL, "400", "managers/io_struct.py:384@0.5.23"
)
TEXT_REFUSED = Message(
    "The engine initialized with skip_tokenizer_init=True cannot accept text prompts. "
    "Please provide input_ids or re-initialize the engine with skip_tokenizer_init=False.",
    ALL, "400", "managers/tokenizer_manager.py:1118@0.5.23; observed",
)  # fmt: skip
DUPLICATE_RID = Message(
    "Duplicate request ID detected: {rid}", ALL, "400", "managers/tokenizer_manager.py:3831@0.5.22; observed: 0.5.23"
)
REQUEST_ABORTED = Message(
    "Request {rid} was aborted", ("0.5.17",), "499", "managers/tokenizer_manager.py:3408@0.5.17; observed"
)
TOO_LONG = Message(
    "The input ({given} tokens) is longer than the model's context length ({limit} tokens).",
    ALL, "400", "managers/tokenizer_manager.py:1345@0.5.23; observed",
)  # fmt: skip
TOO_MANY = Message(
    "Requested token count exceeds the model's maximum context length of {limit} tokens. "
    "You requested a total of {total} tokens: {given} tokens from the input messages "
    "and {new} tokens for the completion. "
    "Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
    ALL, "400", "managers/tokenizer_manager.py:1371@0.5.23; observed",
)  # fmt: skip
OVER_LIMIT = Message(
    "Input length ({given} tokens) exceeds the maximum allowed length ({limit} tokens). "
    "Use a shorter input or enable --allow-auto-truncate.",
    ALL, "400", "managers/utils.py:260@0.5.23; observed",
)  # fmt: skip
BAD_MAX_TOKENS = Message(
    "max_new_tokens must be at least 0, got {value}.",
    ALL,
    "400",
    "sampling/sampling_params.py:265@0.5.22; observed: 0.5.23",
)
BAD_TEMPERATURE = Message(
    "temperature must be a non-negative finite number, got {value}.",
    ALL[1:], "400", "sampling/sampling_params.py:234@0.5.22; observed: 0.5.23",
)  # fmt: skip
BAD_TEMPERATURE_12 = Message(
    "temperature must be non-negative, got {value}.", ALL[:1], "400", "sampling/sampling_params.py:123@0.5.12.post1"
)
BAD_TOP_P = Message("top_p must be in (0, 1], got {value}.", ALL, "400", "sampling/sampling_params.py:157@0.5.17")
BAD_TOP_K = Message(
    "top_k must be -1 (disable) or at least 1, got {value}.", ALL, "400", "sampling/sampling_params.py:162@0.5.17"
)
BAD_MIN_P = Message("min_p must be in [0, 1], got {value}.", ALL, "400", "sampling/sampling_params.py:262@0.5.23")
BAD_FREQUENCY = Message(
    "frequency_penalty must be in [-2, 2], got {value}.", ALL, "400", "sampling/sampling_params.py:268@0.5.23"
)
BAD_PRESENCE = Message(
    "presence_penalty must be in [-2, 2], got {value}.", ALL, "400", "sampling/sampling_params.py:272@0.5.23"
)
BAD_REPETITION = Message(
    "repetition_penalty must be in (0, 2] (1.0 = no penalty), got {value}.",
    ALL, "400", "sampling/sampling_params.py:276@0.5.23",
)  # fmt: skip
BAD_MIN_TOKENS = Message(
    "min_new_tokens must be in [0, max_new_tokens], got {value}.", ALL, "400", "sampling/sampling_params.py:281@0.5.23"
)
MIN_OVER_MAX = Message(
    "min_new_tokens must be in [0, max_new_tokens({limit})], got {value}.",
    ALL, "400", "sampling/sampling_params.py:291@0.5.23",
)  # fmt: skip
LOGPROB_START = Message(
    "req.logprob_start_len={start} is higher than the number of input tokens len(req.origin_input_ids)={given}. "
    "Please use a smaller logprob_start_len.",
    ALL, "400", "managers/scheduler.py:3276@0.5.23",
)  # fmt: skip
NO_MIN_TOKENS = Message(
    "min_new_tokens={value} is unavailable when skip_tokenizer_init=True (requires tokenizer for eos_token_id).",
    ALL[1:], "400", "sampling/sampling_params.py:330@0.5.17; observed: 0.5.23",
)  # fmt: skip
NO_STOP_TEXT = Message(
    "{name}={value!r} is unavailable when skip_tokenizer_init=True "
    "(requires tokenizer to decode tokens to text for matching).",
    ALL[1:], "400", "sampling/sampling_params.py:320@0.5.17",
)  # fmt: skip
UNKNOWN_SAMPLING = Message(
    "unknown field `{name}`, expected one of {fields}", _FROM_22, "400", "sglang/api/v1/api_types.py@0.5.23; observed"
)

THINKING_OFF = Message(
    "max_thinking_tokens requires the server to be launched with --enable-strict-thinking",
    ALL[1:], "400", "managers/tokenizer_manager.py:911@0.5.23",
)  # fmt: skip
DP_RANK = Message("routed_dp_rank={rank} out of range [0, 1)", ALL, "400", "managers/tokenizer_manager.py:923@0.5.23")
LORA_OFF = Message(
    "LoRA adapter '{adapter}' was requested, but LoRA is not enabled. "
    "Please launch the server with --enable-lora flag and preload adapters "
    "using --lora-paths or /load_lora_adapter endpoint.",
    ALL, "400", "managers/tokenizer_manager.py:3737@0.5.23",
)  # fmt: skip
EMBEDS_OFF = Message(
    "input_embeds is provided while disable_radix_cache is False. "
    "Please add `--disable-radix-cache` when you launch the server if you want to use input_embeds as inputs.",
    ALL, "400", "managers/tokenizer_manager.py:1111@0.5.23",
)  # fmt: skip
OUT_OF_VOCABULARY = Message(
    "token_ids_logprob contains out-of-vocabulary token id {token}; valid range is [0, {limit}).",
    ALL[1:], "400", "managers/tokenizer_manager.py:1528@0.5.23",
)  # fmt: skip
HIDDEN_OFF = Message(
    "The server is not configured to return hidden states. Please set `--return-hidden-states-mode last`, "
    "`--return-hidden-states-mode full`, or the legacy `--enable-return-hidden-states` flag.",
    ALL[1:], "400", "managers/tokenizer_manager.py:1397@0.5.23",
)  # fmt: skip
HIDDEN_OFF_12 = Message(
    "The server is not configured to return the hidden states. "
    "Please set `--enable-return-hidden-states` to enable this feature.",
    ALL[:1], "400", "managers/tokenizer_manager.py:897@0.5.12.post1",
)  # fmt: skip
PROCESSOR_OFF = Message(
    "The server is not configured to enable custom logit processor. "
    "Please set `--enable-custom-logit-processor` to enable this feature.",
    ALL, "400", "managers/tokenizer_manager.py:1408@0.5.23",
)  # fmt: skip
SESSION_UNKNOWN = Message(
    "Invalid request: session id {session} does not exist", ALL, "400", "managers/scheduler.py:3100@0.5.23"
)
SLEEP_TOO_LONG = Message(
    "timestamp out of range for platform time_t", ALL, "raise", "time.sleep (CPython 3.11)", "OverflowError"
)
TOP_K_RANGE = Message("selected index k out of range", ALL, "raise", "torch.topk", "RuntimeError")
BAD_BIAS = Message(
    "logit_bias must has keys in [0, {last}], got {token}.", ALL, "400", "sampling/sampling_params.py:298@0.5.23"
)
GRAMMAR_OFF = Message(
    "Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not supported when the server is launched "
    "with --grammar-backend none",
    ALL, "400", "constrained/grammar_manager.py:99@0.5.12.post1, 158@0.5.23",
)  # fmt: skip
BAD_MODE = Message(
    "Invalid mode: {mode!r}. Expected one of ['abort', 'retract', 'in_place'].",
    ALL[:1], "500", "managers/io_struct.py:1375@0.5.12.post1",
)  # fmt: skip
NO_TOKENIZER = Message(
    "'NoneType' object has no attribute 'additional_stop_token_ids'",
    ALL[:1], "raise", "sampling/penaltylib/min_new_tokens.py:31@0.5.12.post1; observed", "AttributeError",
)  # fmt: skip
NO_DECODER = Message(
    "'NoneType' object has no attribute 'decode'",
    ALL[:1], "raise", "managers/schedule_batch.py:1117@0.5.12.post1", "AttributeError",
)  # fmt: skip
NO_PINNED_MEMORY = Message(
    "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is available on this "
    "system.",
    ALL[:1], "raise", "layers/logits_processor.py:542@0.5.12.post1; observed", "RuntimeError",
)  # fmt: skip


def catalogue() -> dict[str, Message]:
    """All messages by the name they have here."""
    return {name: value for name, value in globals().items() if isinstance(value, Message)}
