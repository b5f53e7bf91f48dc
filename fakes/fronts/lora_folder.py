"""Reading a LoRA adapter's folder, as SGLang does: adapter_config.json, added_tokens.json, *.safetensors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fakes.engine.protocol import ReadDisk
from fakes.regular import MAX_JSON_BYTES, read_regular

_REPOSITORY = re.compile(r"(\b[\w\-.]+\b/)?\b[\w\-.]{1,96}\b")
"""huggingface_hub's form of a name; what has it is looked up, and an engine without a network says so."""


def read_adapter(effect: ReadDisk) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | str]:
    """(configuration, added tokens, tensors by name or why they cannot be read).

    OSError, ValueError: the words of what SGLang catches before it looks at the tensors
    (lora/lora_config.py:88@0.5.23).
    """
    folder = Path(effect.path)
    if not folder.is_dir():
        from fakes.engine.lora_messages import HUB_OFFLINE
        from fakes.engine.weight_update import hub_words

        raise ValueError(HUB_OFFLINE.text if _REPOSITORY.fullmatch(effect.path) else hub_words(effect.path))
    config = _json(folder / "adapter_config.json")
    added = folder / "added_tokens.json"
    tokens: dict[str, Any] | None = None
    if added.exists():
        try:
            tokens = _json(added)
        except json.JSONDecodeError:
            tokens = None  # a warning in SGLang
    from fakes.tiny import read_tensors

    try:
        return config, tokens, read_tensors(folder)
    except FileNotFoundError:
        return config, tokens, f"Cannot find any model weights with `{effect.path}`"
    except ValueError as error:
        return config, tokens, str(error)


def _json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, MAX_JSON_BYTES))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
