"""MultiprocessingSerializer and its companions: pickles of tensors whose memory another process opens."""

from __future__ import annotations

import base64
import io
import pickle
from dataclasses import dataclass
from typing import Any


class MultiprocessingSerializer:
    """Objects to bytes and back (utils/common.py:3060@0.5.23).

    Tensors travel as handles of their memory. On a CPU that is torch's shared memory by file name: a server is no child
    of the trainer, so descriptors cannot be handed to it.
    """

    @staticmethod
    def serialize(obj: Any, output_str: bool = False) -> bytes | str:
        """Bytes, or base64 text."""
        from multiprocessing.reduction import ForkingPickler

        import torch.multiprocessing

        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]  # torch's own, without types
        file = io.BytesIO()
        ForkingPickler(file).dump(obj)
        data = file.getvalue()
        return base64.b64encode(data).decode() if output_str else data

    @staticmethod
    def deserialize(data: bytes | str) -> Any:
        """The object; base64 text is decoded first. RuntimeError for a global that SGLang's own list refuses."""
        return _Unpickler(io.BytesIO(base64.b64decode(data, validate=True) if isinstance(data, str) else data)).load()


class _Unpickler(pickle.Unpickler):
    """Opens what trainers serialise and nothing else; SGLang's list is longer (utils/common.py:2990@0.5.23)."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] in ("torch", "sglang", "collections") or (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise RuntimeError(f"Blocked unsafe class loading ({module}.{name})")


_PLAIN = {("builtins", kind) for kind in ("list", "tuple", "dict", "set", "bytes", "bytearray", "int", "str", "slice")}


@dataclass
class LocalSerializedTensor:
    """One serialised tensor per rank (model_runner_components/weight_updater.py:451@0.5.23)."""

    values: list[bytes]

    def get(self, rank: int) -> Any:
        """That of one rank."""
        return MultiprocessingSerializer.deserialize(self.values[rank])


def monkey_patch_torch_reductions() -> None:
    """CUDA handles get the device's UUID instead of its index (utils/patch_torch.py:40@0.5.23): nothing on a CPU."""
