"""How one HF tensor gets into one device parameter: names, slices, and what SGLang raises when it does not fit.

Every failure is a `LoadError` that carries the class and the text of SGLang's own exception.
"""

from __future__ import annotations

import re
from collections.abc import Container

import numpy as np

from fakes.engine.layout import Param, Part, Shard

# (device name, HF name, shard). Llama matches with the dot, Qwen2 and Qwen3 without: there a fused name is mangled.
# llama.py:711, qwen2.py:652, qwen3.py:687 @0.5.23
_STACKED: tuple[tuple[str, str, Shard], ...] = (
    ("qkv_proj", "q_proj", "q"),
    ("qkv_proj", "k_proj", "k"),
    ("qkv_proj", "v_proj", "v"),
    ("gate_up_proj", "gate_proj", 0),
    ("gate_up_proj", "up_proj", 1),
)
_STACKED_DOTTED = tuple((f".{device}", f".{name}", shard) for device, name, shard in _STACKED)
_KV_SCALES = (".kv_scale", ".k_scale", ".v_scale")
_LAYER = re.compile(r"layers\.(\d+)\.")


class LoadError(Exception):
    """What SGLang would have raised: `type` is the class name, `message` is str(exception)."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


def not_a_name(name: object, kind: str) -> LoadError:
    """What a name that is no string ends in: the first thing that load_weights does with it."""
    if kind == "qwen2":
        return LoadError("TypeError", f"expected string or bytes-like object, got {type(name).__name__!r}")
    method = "endswith" if kind == "llama" else "startswith"
    return LoadError("AttributeError", f"{type(name).__name__!r} object has no attribute {method!r}")


def torch_size(shape: tuple[int, ...]) -> str:
    """A shape as torch prints it."""
    return f"torch.Size([{', '.join(map(str, shape))}])"


def route(name: str, *, kind: str, layers: int, params: Container[str]) -> tuple[str, Shard | None] | None:
    """(device name, shard) for an HF name, or None when SGLang skips it silently.

    Llama takes the scales of blocks for those of tensors, of which it has none (llama.py:723@0.5.23; observed 0.5.23 on
    a GPU: an engine of NaN). Qwen3 raises KeyError for a stacked name it does not have; Llama and Qwen2 skip it
    (llama.py:706, qwen2.py:651, qwen3.py:686 @0.5.23). Everything else that SGLang skips by name (rotary caches, a tied
    lm_head) is no parameter here, and what is no parameter is skipped.
    """
    if kind == "llama" and name.endswith(".weight_scale_inv"):
        name = name.replace(".weight_scale_inv", ".weight_scale")  # of blocks there is no such parameter
    if kind == "qwen3" and name.startswith(("layers.", "embed_tokens.", "norm.")):
        name = f"model.{name}"
    found = _LAYER.search(name)
    if found and int(found.group(1)) >= layers:
        return None
    if "projector" in name or name.startswith("model.vision_tower") or name.endswith(_KV_SCALES):
        return None
    for device, hf, shard in _STACKED_DOTTED if kind == "llama" else _STACKED:
        if hf not in name:
            continue
        name = name.replace(hf, device)
        if name in params:
            return name, shard
        if kind == "qwen3" and not name.endswith(".bias"):
            raise LoadError("KeyError", repr(name))
    return (name, None) if name in params else None


def load_into(target: np.ndarray, param: Param, loaded: np.ndarray, shard: Shard | None, *, cpu: bool) -> None:
    """Copy one full tensor into one rank's parameter, cast to its dtype.

    target: the device array, `param.shape`. loaded: any shape, any dtype. `cpu`: SGLang's CPU engine zero-pads every
    short input, on a GPU only gate_up_proj and row-parallel weights are padded. LoadError as SGLang raises.
    """
    if param.kind == "plain":
        default_load(target, loaded)
    elif param.kind == "vocab":
        _load_vocab(target, param, loaded)
    elif param.kind == "row":
        _load_row(target, param, loaded, cpu)
    elif shard is None:
        _load_fused_checkpoint(target, param, loaded, cpu)
    else:
        _load_part(target, param, param.parts[shard], loaded, cpu)


def default_load(target: np.ndarray, loaded: np.ndarray) -> None:
    """default_weight_loader: model_loader/weight_utils.py:1574 @0.5.23."""
    if target.size == 1 and loaded.size == 1:
        target.fill(loaded.reshape(()).astype(target.dtype))
        return
    if target.shape != loaded.shape:
        raise LoadError(
            "AssertionError",
            f"Attempted to load weight ({torch_size(loaded.shape)}) into parameter ({torch_size(target.shape)})",
        )
    _copy(target, loaded)


def _load_part(target: np.ndarray, param: Param, part: Part, loaded: np.ndarray, cpu: bool) -> None:
    data = target[part.offset : part.offset + part.size]
    if cpu:
        data, loaded = _narrow_padded(data, loaded, part.source, 0, part.size)
    elif param.bare_assert and part.source + part.size > _shape_at(loaded, 0):
        loaded = _pad_or_narrow(loaded, 0, part.source, data.shape)
    else:
        loaded = _narrow(loaded, 0, part.source, part.size)
    if data.shape != loaded.shape:
        raise LoadError("AssertionError", "" if param.bare_assert else _shapes(data, loaded))
    _copy(data, loaded)


def _load_fused_checkpoint(target: np.ndarray, param: Param, loaded: np.ndarray, cpu: bool) -> None:
    """A tensor that arrives under the fused name: cut into its full parts first (linear.py:1373, 753 @0.5.23)."""
    offset, cuts = 0, []
    for shard, part in param.parts.items():
        cuts.append((shard, offset, part.full))
        offset += part.full
    if cpu and (actual := _size_at(loaded, 0)) != offset:
        total, offset, scaled = offset, 0, []
        for shard, _, size in cuts:
            scaled.append((shard, offset, actual * size // total))
            offset += actual * size // total
        cuts = scaled
    for shard, start, size in cuts:
        _load_part(target, param, param.parts[shard], _narrow(loaded, 0, start, size), cpu)


def _load_row(target: np.ndarray, param: Param, loaded: np.ndarray, cpu: bool) -> None:
    data = target
    if param.source >= 0:  # a bias has no input dimension
        size = target.shape[1]
        if cpu:
            data, loaded = _narrow_padded(data, loaded, param.source, 1, size)
        elif param.source + size > _shape_at(loaded, 1):
            loaded = _pad_or_narrow(loaded, 1, param.source, data.shape)
        else:
            loaded = _narrow(loaded, 1, param.source, size)
    if loaded.ndim == 0:
        loaded = loaded.reshape(1)
    if data.shape != loaded.shape:
        raise LoadError("AssertionError", _shapes(data, loaded))
    _copy(data, loaded)


def _load_vocab(target: np.ndarray, param: Param, loaded: np.ndarray) -> None:
    """VocabParallelEmbedding.weight_loader: layers/vocab_parallel_embedding.py:378 @0.5.23."""
    rows = _shape_at(loaded, 0)
    if rows != param.vocab:
        raise LoadError(
            "AssertionError",
            f"self.org_vocab_size={param.vocab} self.use_presharded_weights=False "
            f"loaded_weight.shape[output_dim]={rows}",
        )
    loaded = _narrow(loaded, 0, param.source, param.rows)
    _copy_broadcast(target[: param.rows], loaded)
    target[param.rows :] = 0


def _narrow_padded(
    data: np.ndarray, loaded: np.ndarray, start: int, dim: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The CPU engine's cut: what is missing is zero (narrow_padded_param_and_loaded_weight, weight_utils.py:1995
    @0.5.23)."""
    have = min(size, max(0, _size_at(loaded, dim) - start))
    loaded = _narrow(loaded, dim, start, have) if have else np.zeros_like(data.take(range(0), axis=dim))
    if have < size:
        _slice(data, dim, have, size)[...] = 0
    return _slice(data, dim, 0, have), loaded


def _pad_or_narrow(loaded: np.ndarray, dim: int, start: int, wanted: tuple[int, ...]) -> np.ndarray:
    """The GPU's cut: zero-padded to `wanted[dim]` (pad_or_narrow_weight, layers/utils/common.py:20 @0.5.23).

    Where the other dimensions are not those of `wanted` nothing is padded, since the caller refuses the shape: it may
    be larger than any memory.
    """
    size = wanted[dim]
    valid = max(loaded.shape[dim] - start, 0)
    shape = list(loaded.shape)
    shape[dim] = size
    if tuple(shape) != wanted:
        return np.broadcast_to(np.zeros((), dtype=loaded.dtype), shape)
    shape[dim] = size - valid
    pad = np.zeros(shape, dtype=loaded.dtype)
    return np.concatenate([_slice(loaded, dim, start, start + valid), pad], axis=dim) if valid else pad


def _slice(array: np.ndarray, dim: int, start: int, stop: int) -> np.ndarray:
    return array[(slice(None),) * dim + (slice(start, stop),)]


def _narrow(array: np.ndarray, dim: int, start: int, length: int) -> np.ndarray:
    """torch.Tensor.narrow with torch's errors."""
    if array.ndim == 0:
        raise LoadError("RuntimeError", "narrow() cannot be applied to a 0-dim tensor.")
    size = _size_at(array, dim)
    if start > size:
        raise LoadError(
            "IndexError", f"start out of range (expected to be in range of [-{size}, {size}], but got {start})"
        )
    if start + length > size:
        raise LoadError("RuntimeError", f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return _slice(array, dim, start, start + length)


def _size_at(array: np.ndarray, dim: int) -> int:
    """torch.Tensor.size(dim) with torch's errors."""
    if array.ndim == 0:
        raise LoadError("IndexError", f"Dimension specified as {dim} but tensor has no dimensions")
    if dim >= array.ndim:
        raise LoadError(
            "IndexError",
            f"Dimension out of range (expected to be in range of [-{array.ndim}, {array.ndim - 1}], but got {dim})",
        )
    return int(array.shape[dim])


def _shape_at(array: np.ndarray, dim: int) -> int:
    """torch.Size[dim] with its error."""
    if dim >= array.ndim:
        raise LoadError("IndexError", "tuple index out of range")
    return int(array.shape[dim])


def _shapes(data: np.ndarray, loaded: np.ndarray) -> str:
    return f"param_data.shape={torch_size(data.shape)} loaded_weight.shape={torch_size(loaded.shape)}"


def _copy_broadcast(target: np.ndarray, loaded: np.ndarray) -> None:
    """torch.Tensor.copy_: broadcasts what it can, silently."""
    for back in range(1, min(target.ndim, loaded.ndim) + 1):
        a, b = target.shape[-back], loaded.shape[-back]
        if a != b and b != 1:
            raise LoadError(
                "RuntimeError",
                f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension "
                f"{max(target.ndim, loaded.ndim) - back}",
            )
    if loaded.ndim > target.ndim:
        both = loaded.shape[: loaded.ndim - target.ndim] + target.shape
        raise LoadError(
            "RuntimeError",
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(both)}",
        )
    _copy(target, np.broadcast_to(loaded, target.shape))


def _copy(target: np.ndarray, loaded: np.ndarray) -> None:
    """A silent cast, as param.data.copy_() does it."""
    with np.errstate(all="ignore"):
        target[...] = loaded.astype(target.dtype, copy=False)
