"""Tiny Hugging Face checkpoints: the same folder is served by the fake and by a real SGLang.

numpy only. Norms and biases are random too, so that any tensor left out of a refit changes the tokens.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from fakes.regular import MAX_JSON_BYTES, read_regular

SHAPES = ("llama", "qwen2", "qwen3")
_ARCHITECTURE = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
MAX_FILE_BYTES = 2 << 30

# torch dtype name -> numpy dtype, for everything that a payload or a checkpoint may hold and numpy can represent.
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}
TORCH_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def tiny_config(shape: str = "llama", tied: bool = False, dtype: str = "bfloat16", **overrides: Any) -> dict[str, Any]:
    """A config.json: hidden 64, 2 layers, 4 heads, 2 KV heads, vocabulary 512.

    `shape` is llama, qwen2 (q/k/v bias) or qwen3 (q_norm, k_norm); `overrides` are config.json keys. ValueError for
    an unknown shape.
    """
    if shape not in _ARCHITECTURE:
        raise ValueError(f"unknown model shape {shape!r}; expected one of {', '.join(SHAPES)}")
    config: dict[str, Any] = {
        "architectures": [_ARCHITECTURE[shape]],
        "model_type": shape,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
        "intermediate_size": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attention_bias": False,
        "initializer_range": 0.02,
    }
    return config | overrides


def hf_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """HF names and full (unsharded) shapes of every tensor of `config`, in checkpoint order."""
    hidden, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kind = config["model_type"]
    qkv_bias = kind == "qwen2" or bool(config.get("attention_bias"))
    o_bias = kind != "qwen2" and bool(config.get("attention_bias"))
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for part, width in (("q", heads * head_dim), ("k", kv_heads * head_dim), ("v", kv_heads * head_dim)):
            out[f"{prefix}self_attn.{part}_proj.weight"] = (width, hidden)
            if qkv_bias:
                out[f"{prefix}self_attn.{part}_proj.bias"] = (width,)
        out[f"{prefix}self_attn.o_proj.weight"] = (hidden, heads * head_dim)
        if o_bias:
            out[f"{prefix}self_attn.o_proj.bias"] = (hidden,)
        if kind == "qwen3":
            out[f"{prefix}self_attn.q_norm.weight"] = (head_dim,)
            out[f"{prefix}self_attn.k_norm.weight"] = (head_dim,)
        out[f"{prefix}mlp.gate_proj.weight"] = (inter, hidden)
        out[f"{prefix}mlp.up_proj.weight"] = (inter, hidden)
        out[f"{prefix}mlp.down_proj.weight"] = (hidden, inter)
        out[f"{prefix}input_layernorm.weight"] = (hidden,)
        out[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
    out["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings"):
        out["lm_head.weight"] = (vocab, hidden)
    return out


def tiny_weights(config: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Random weights under HF names, full shapes, in the config's dtype; the same seed gives the same bytes.

    So spread that the greedy tokens depend on every tensor: see `_spread`. The arrays are the caller's own.
    """
    return {name: values.copy() for name, values in _drawn(json.dumps(dict(config)), seed).items()}


@functools.lru_cache(maxsize=16)
def _drawn(text: str, seed: int) -> dict[str, np.ndarray]:
    """The weights for a config given as JSON: drawing them costs a hundred times what a copy does."""
    config: dict[str, Any] = json.loads(text)
    rng = np.random.default_rng(seed)
    dtype = NUMPY_DTYPES[config.get("torch_dtype") or config.get("dtype") or "bfloat16"]
    out: dict[str, np.ndarray] = {}
    for name, shape in hf_shapes(config).items():
        values = rng.standard_normal(shape, dtype=np.float32)
        mean, deviation = _spread(name)
        out[name] = (mean + values * np.float32(deviation)).astype(dtype)
    return out


def _spread(name: str) -> tuple[int, float]:
    """Mean and standard deviation of one tensor's values."""
    if "norm" in name:
        return 1, 0.6 if "q_norm" in name or "k_norm" in name else 0.2
    if name.endswith(".bias"):
        return 0, 1.0
    return 0, 0.05 if "embed_tokens" in name or "lm_head" in name else 0.2


def write_model(folder: str | Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Path:
    """Write config.json, generation_config.json and model.safetensors into `folder` (made if absent)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=1), encoding="utf-8")
    generation = {"eos_token_id": config.get("eos_token_id"), "bos_token_id": config.get("bos_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return folder


def read_model(folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read config.json and every *.safetensors of `folder`.

    OSError when something is missing or too large, ValueError when it is not a checkpoint we can serve.
    """
    folder = Path(folder)
    try:
        config = json.loads(read_regular(folder / "config.json", MAX_JSON_BYTES))
    except RecursionError:
        raise ValueError(f"{folder}/config.json is nested too deeply") from None
    if not isinstance(config, dict) or config.get("model_type") not in SHAPES:
        kind = config.get("model_type") if isinstance(config, dict) else None
        raise ValueError(f"{folder}: model_type {kind!r} cannot be served; expected one of {', '.join(SHAPES)}")
    return config, read_tensors(folder)


_ST_DTYPES = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "BOOL": "bool",
}
_ST_NAMES = {NUMPY_DTYPES[name]: key for key, name in _ST_DTYPES.items()}


def write_tensors(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    """One safetensors file: header length (u64 little endian), JSON header, data. Written here since its library
    wants torch for bfloat16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in weights.items():
        header[name] = {
            "dtype": _ST_NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for array in weights.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_tensors(folder: str | Path) -> dict[str, np.ndarray]:
    """All tensors of the *.safetensors files of `folder`, under their names in the file, read-only.

    FileNotFoundError when there is none, ValueError for a file that is not one or that holds what numpy cannot, and for
    more than MAX_FILE_BYTES together.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no *.safetensors in {folder}")
    out: dict[str, np.ndarray] = {}
    for file in files:
        raw = read_regular(file, MAX_FILE_BYTES - sum(array.nbytes for array in out.values()))
        try:
            out.update(_parse_tensors(raw))
        except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
            raise ValueError(f"{file} is not a safetensors file that can be served: {error}") from error
    return out


def _parse_tensors(raw: bytes) -> dict[str, np.ndarray]:
    (length,) = struct.unpack("<Q", raw[:8])
    if length > len(raw) - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(raw[8 : 8 + length])
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    data = memoryview(raw)[8 + length :]
    out: dict[str, np.ndarray] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _ST_DTYPES:
            raise ValueError(f"tensor {name} has dtype {entry['dtype']}")
        dtype = NUMPY_DTYPES[_ST_DTYPES[entry["dtype"]]]
        shape = tuple(int(dim) for dim in entry["shape"])
        start, end = (int(offset) for offset in entry["data_offsets"])
        if not 0 <= start <= end <= len(data) or end - start != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
            raise ValueError(f"tensor {name} has offsets {start}:{end} that do not fit shape {list(shape)}")
        out[name] = np.frombuffer(data[start:end], dtype=dtype).reshape(shape)
    return out
