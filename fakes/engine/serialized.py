"""serialized_named_tensors on their way from a caller to the scheduler."""

from __future__ import annotations

import base64
import contextlib
from typing import Any


def normalize(payloads: list[Any]) -> list[bytes]:
    """utils/common.py:3102@0.5.23: pickles are kept, other bytes are tried as base64, text is decoded."""
    out = []
    for payload in payloads:
        if isinstance(payload, bytes | bytearray | memoryview):
            data = bytes(payload)
            with contextlib.suppress(ValueError):  # a pickle begins with 0x80, which is no base64
                data = base64.b64decode(data, validate=True)
            out.append(data)
        elif isinstance(payload, str):
            out.append(base64.b64decode(payload, validate=True))
        else:
            raise TypeError(
                "serialized_named_tensors entries must be base64 strings or bytes-like payloads, "
                f"got {type(payload).__name__}"
            )
    return out
