"""What SGLang says about LoRA adapters, verbatim (lora/ and managers/ of each version's wheel)."""

from __future__ import annotations

from fakes.engine.messages import ALL, Message

_LM = "lora/lora_manager.py"
_TCM = "managers/tokenizer_control_mixin.py"
_TM = "managers/tokenizer_manager.py"
_FROM_22 = ("0.5.22", "0.5.23")

DISABLED = Message("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.", ALL, "400", f"{_TCM}:669@0.5.23")
DP_12 = Message("dp_size must be 1 for dynamic lora loading", ALL[:1], "500", f"{_TCM}:571@0.5.12.post1")
DP_17 = Message(
    "dp_size must be 1 or dp attention must be enabled for dynamic lora loading",
    tuple(v for v in ALL[1:] if v not in _FROM_22), "500", f"{_TCM}:602@0.5.17",
)  # fmt: skip
DP_22 = Message(
    "data-parallel replicas are not supported for dynamic lora loading", _FROM_22, "500", f"{_TCM}:673@0.5.23"
)
ADDED_TOKENS = Message(
    "Failed to load {name} because LoRA serving currently doesn't support adapters that add tokens to the vocabulary",
    ALL, "400", f"{_LM}:329@0.5.23",
)  # fmt: skip
DORA = Message(
    "Failed to load {name} because LoRA serving currently doesn't support DoRA adapters",
    ALL,
    "400",
    f"{_LM}:334@0.5.23",
)
LOADED = Message("Failed to load LoRA adapter {name} because it is already loaded", ALL, "400", f"{_LM}:341@0.5.23")
INCOMPATIBLE = Message(
    "LoRA adapter {name} with rank {rank} is incompatible with the current LoRA memory pool configuration. "
    "Please ensure that the LoRA adapter's rank is within the configured `--max-lora-rank` and that the target modules "
    "are included in `--lora-target-modules`.",
    ALL, "400", f"{_LM}:355@0.5.23",
)  # fmt: skip
PINNED = Message(
    "Failed to load LoRA adapter {name} as a pinned adapter. It is not allowed to pin all slots in the LoRA memory "
    "pool to avoid starvation for unpinned adapters and base models. Please increase your `--max-loras-per-batch` or "
    "load it as unpinned LoRA adapters.",
    ALL, "400", f"{_LM}:363@0.5.23",
)  # fmt: skip
BAD_SHORTHAND = Message(
    "Only 'all' or 'all-linear' can be used as the string for target module", ALL, "400", "lora/utils.py:173@0.5.23"
)
CAT_SIZES = Message(
    "Sizes of tensors must match except in dimension 0. Expected size {want} but got size {got} for tensor number "
    "{number} in the list.",
    ALL, "400", "torch.cat",
)  # fmt: skip
NOT_THERE = Message(
    "LoRA with name {name} does not exist. Loaded LoRAs: {loaded}", ALL, "400", "lora/lora_registry.py:112@0.5.23"
)
NOT_LOADED = Message(
    "The following requested LoRA adapters are not loaded: {name}\nLoaded adapters: {loaded}.",
    ALL, "400", "lora/lora_registry.py:131@0.5.23",
)  # fmt: skip
NEVER_LOADED = Message(
    "Got LoRA adapter that has never been loaded: {name}\nAll loaded adapters: {known}.",
    ALL, "400", f"{_TM}:3769@0.5.23",
)  # fmt: skip
NOT_RELOADED = Message("Failed to implicitly load LoRA adapter {name}: {error}", ALL, "400", f"{_TM}:3787@0.5.23")
TOO_MANY = Message(
    "Received request with {wanted} unique loras requested but max loaded loras is {limit}",
    ALL, "400", f"{_TM}:3755@0.5.23",
)  # fmt: skip
HUB_OFFLINE = Message(
    "Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and outgoing "
    "traffic has been disabled. To enable repo look-ups and downloads online, set 'HF_HUB_OFFLINE=0' as environment "
    "variable.",
    ALL, "400", "observed: huggingface_hub of 0.5.12.post1 and 0.5.23 with HF_HUB_OFFLINE=1",
)  # fmt: skip
CHECK_MISMATCH = Message(
    "[LORA-CHECK] rank{tp_rank} adapter sync MISMATCH of {expected} expected: {wrong} value-diff {wrong_names}, "
    "{missing} missing {missing_names}, {extra} extra {extra_names}",
    ALL[1:], "raise", "managers/tp_worker.py:253@0.5.23", "RuntimeError",
)  # fmt: skip
NO_TARGET = Message(
    "Cannot find target module name for {name} in {modules}", ALL, "raise", "lora/utils.py:243@0.5.23", "ValueError"
)
BUFFER_SHAPE = Message(
    "LoRA buffer shape torch.Size({buffer}) does not match weight shape torch.Size({weight}).",
    ALL, "raise", "lora/mem_pool.py:908@0.5.23", "AssertionError",
)  # fmt: skip
NO_ADAPTER = Message("", ALL, "raise", "lora/mem_pool.py:920@0.5.23 (a bare assert)", "AssertionError")


def lora_catalogue() -> dict[str, Message]:
    """All messages by the name they have here."""
    return {name: value for name, value in globals().items() if isinstance(value, Message)}
