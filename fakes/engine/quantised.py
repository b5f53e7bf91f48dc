"""fp8 layouts of linear layers: what a checkpoint holds, what a kernel reads, and what lies between them.

A quantised module has two HF tensors, X.weight (float8_e4m3fn) and its scale, X.weight_scale_inv or one number in
X.weight_scale. Finalising
(`process_weights_after_loading`) derives from them what the kernel reads, and is not the same for every backend:

| scheme | scale | finalise |
|---|---|---|
| fp8-tensor | float32, one for the tensor | transposed into parameters that have no loader (fp8.py:1148,1256@0.5.23) |
| fp8-online | none: made from bfloat16 | quantised by rows and transposed (fp8.py:1151@0.5.23, --quantization fp8) |
| fp8 | float32, one per 16 x 32 block | nothing (layers/quantization/fp8.py:834@0.5.23, no DeepGEMM) |
| mxfp8 | uint8 (E8M0), one per 1 x 32 | `weight_scale_inv_swizzled`, a copy (fp8.py:1076@0.5.23, flashinfer cutlass) |
| mxfp8-trtllm | the same | `weight` shuffled IN PLACE, `weight_scale_inv_shuffled` (fp8.py:1034@0.5.23) |

`begin_weight_update` restores none of them (layers/quantization/base_config.py:49@0.5.23). Activations are not
quantised here: logits are those of the dequantised weights. The block of "fp8" is one that the tiny models have room
for; SGLang takes any (fp8.py:570@0.5.23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from fakes.engine.crash import Crash
from fakes.engine.layout import Param, Part
from fakes.engine.loading import LoadError, torch_size

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E4M3_MAX = 448.0
E4M3_EXPONENT = 8
"""Of the largest number: 448 is 1.75 times 2 to this power."""
E8M0_BIAS = 127
SCALE = "_scale_inv"
TENSOR_SCALE = "_scale"
UNLOADED = float(np.finfo(np.float32).min)
"""What float32 scales hold until they are loaded (fp8.py:687@0.5.23): products overflow, answers are NaN."""
NO_LOADER = "'Parameter' object has no attribute 'weight_loader'"
MODULES = ("qkv_proj.weight", "o_proj.weight", "gate_up_proj.weight", "down_proj.weight")
HF_MODULES = tuple(f"{part}_proj.weight" for part in ("q", "k", "v", "o", "gate", "up", "down"))

TILE_ROWS, TILE_COLUMNS, LANES = 128, 4, 32
"""Of a tile of scales as tensor cores read it (128 x 4, 32 lanes of 4 rows)."""
ROW_MAP = tuple(8 * (row % 4) + row // 4 for row in range(LANES))
"""Where the rows of 32 go in flashinfer's shuffled matrices (inferred for epilogue tiles of 128 rows)."""


@dataclass(frozen=True)
class Scheme:
    """One row of the table above. `block`: rows and columns that share a scale (nothing where all
    do); `derived`: what finalising makes."""

    name: str
    block: tuple[int, int]
    scale: np.dtype[Any]
    derived: str = ""
    in_place: bool = False
    whole: bool = False
    """One scale for the tensor; what is final can be loaded no more."""

    online: bool = False
    """The checkpoint is not quantised: the first finalising does it."""

    @property
    def suffix(self) -> str:
        """What the scale's name ends with, behind the weight's."""
        return TENSOR_SCALE if self.whole else SCALE


_MX = Scheme("mxfp8", (1, 32), np.dtype(np.uint8), derived="_swizzled")
SCHEMES: Mapping[str, Scheme] = {
    "fp8-tensor": Scheme("fp8-tensor", (0, 0), np.dtype(np.float32), whole=True),
    "fp8-online": Scheme("fp8-online", (0, 0), np.dtype(np.float32), whole=True, online=True),
    "fp8": Scheme("fp8", (16, 32), np.dtype(np.float32)),
    "mxfp8": _MX,
    "mxfp8-trtllm": replace(_MX, name="mxfp8-trtllm", derived="_shuffled", in_place=True),
}


def quantise(weight: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, np.ndarray]:
    """(float8_e4m3fn of the same shape, scales) of a matrix whose sides are multiples of the block's."""
    if scheme.whole:
        top = np.float32(max(float(np.abs(np.asarray(weight, dtype=np.float32)).max()), 1e-12) / E4M3_MAX)
        return np.clip(np.asarray(weight, dtype=np.float32) / top, -E4M3_MAX, E4M3_MAX).astype(E4M3), np.array(top)
    blocks = _blocks(np.asarray(weight, dtype=np.float32), scheme)
    largest = np.abs(blocks).max(axis=(1, 3), keepdims=True)
    safe = np.where(largest > 0, largest, np.float32(1.0))
    if scheme.scale == np.uint8:
        exponent = np.clip(np.floor(np.log2(safe)) - E4M3_EXPONENT, -E8M0_BIAS, E8M0_BIAS)
        scales, stored = np.exp2(exponent), (exponent + E8M0_BIAS).astype(np.uint8)
    else:
        scales = stored = (safe / E4M3_MAX).astype(np.float32)
    small = np.clip(blocks / scales, -E4M3_MAX, E4M3_MAX).astype(E4M3)
    return small.reshape(weight.shape), np.ascontiguousarray(stored[:, 0, :, 0])


def dequantise(weight: np.ndarray, scale: np.ndarray, scheme: Scheme) -> np.ndarray:
    """float32 of the weight's shape (block_quant_dequant, layers/quantization/fp8_utils.py:2044@0.5.23)."""
    if scheme.whole:
        product: np.ndarray = weight.astype(np.float32) * _loaded(scale)
        return product
    factors = np.exp2(scale.astype(np.float32) - E8M0_BIAS) if scheme.scale == np.uint8 else _loaded(scale)
    blocks = _blocks(weight.astype(np.float32), scheme)
    wide: np.ndarray = blocks * factors[:, None, :, None]
    return wide.reshape(weight.shape)


def checkpoint(weights: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """HF-named weights as a quantised checkpoint holds them: every linear layer's weight as a pair, the rest as it is.

    `name` is a key of SCHEMES, or "" for the weights themselves.
    """
    if not name or SCHEMES[name].online:
        return dict(weights)
    scheme, out = SCHEMES[name], {}
    for key, tensor in weights.items():
        if key.endswith(HF_MODULES):
            out[key], out[key + scheme.suffix] = quantise(tensor, scheme)
        else:
            out[key] = tensor
    return out


def quantised_layout(layout: Mapping[str, Param], scheme: Scheme) -> dict[str, Param]:
    """The device layout with a scale behind the weight of every quantised module."""
    out: dict[str, Param] = {}
    rows, columns = scheme.block
    for name, param in layout.items():
        out[name] = param
        if name.endswith(MODULES) and scheme.whole and not scheme.online:
            ones = {shard: Part(at, 1, 0, 1) for at, shard in enumerate(param.parts)}
            out[name + TENSOR_SCALE] = Param((len(ones) or 1,), "fused" if ones else "plain", ones)
        elif name.endswith(MODULES) and not scheme.whole:
            _check_cut(name, param, scheme)
            parts = {shard: _cut(part, rows) for shard, part in param.parts.items()}
            shape = (param.shape[0] // rows, param.shape[1] // columns)
            source = param.source // columns if param.kind == "row" else param.source
            out[name + SCALE] = replace(param, shape=shape, parts=parts, source=source)
    return out


def swizzle(scale: np.ndarray) -> np.ndarray:
    """Scales in tiles of 128 x 4, padded with zeros, flat (flashinfer's block_scale_interleave)."""
    rows, columns = (-(-size // tile) * tile for size, tile in zip(scale.shape, (TILE_ROWS, TILE_COLUMNS), strict=True))
    padded = np.zeros((rows, columns), dtype=scale.dtype)
    padded[: scale.shape[0], : scale.shape[1]] = scale
    tiles = padded.reshape(rows // TILE_ROWS, TILE_ROWS // LANES, LANES, columns // TILE_COLUMNS, TILE_COLUMNS)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(-1)


def unswizzle(flat: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """What `swizzle` made its tiles of."""
    rows, columns = (-(-size // tile) * tile for size, tile in zip(shape, (TILE_ROWS, TILE_COLUMNS), strict=True))
    tiles = flat.reshape(rows // TILE_ROWS, columns // TILE_COLUMNS, LANES, TILE_ROWS // LANES, TILE_COLUMNS)
    whole: np.ndarray = tiles.transpose(0, 3, 2, 1, 4).reshape(rows, columns)
    return whole[: shape[0], : shape[1]]


def shuffle(matrix: np.ndarray) -> np.ndarray:
    """Rows in the order of the trtllm kernels (flashinfer's shuffle_matrix_a). Twice is not once."""
    out = np.empty_like(matrix)
    out[_rows(matrix.shape[0])] = matrix
    return out


def unshuffle(matrix: np.ndarray) -> np.ndarray:
    """The rows back."""
    back: np.ndarray = matrix[_rows(matrix.shape[0])]
    return back


class Kernels:
    """What the quantised modules of one rank compute with. `params` are the rank's own, and hold what is derived, too;
    `touch(name)` says that one changed; `layout` says what is fused."""

    def __init__(
        self,
        scheme: Scheme,
        params: dict[str, np.ndarray],
        touch: Callable[[str], None],
        layout: Mapping[str, Param],
    ) -> None:
        self.scheme = scheme
        self.finals = 0
        self._layout = layout
        self.modules = tuple(name for name in params if name.endswith(MODULES))
        self._params = params
        self._touch = touch

    def weight_of(self, name: str) -> str:
        """The weight whose numbers a parameter takes part in."""
        return name.split(TENSOR_SCALE)[0]

    def pairs(self) -> dict[str, tuple[str, Callable[[], np.ndarray]]]:
        """Weight -> its scales by block, and the numbers that both make as they lie there."""
        if self.scheme.whole:
            return {}
        return {name: (name + SCALE, partial(self._product, name)) for name in self.modules}

    def _product(self, name: str) -> np.ndarray:
        return dequantise(self._params[name], self._params[name + SCALE], self.scheme).astype(ml_dtypes.bfloat16)

    def takes(self, name: str, loaded: np.ndarray, *, stacked: bool) -> bool:
        """Whether a tensor is to be loaded into a parameter as ever; False where that was done here.

        LoadError where finalising left a parameter that takes no more: those of fused layers are asked for a loader
        that they have not, the others are of another shape (models/llama.py:762@0.5.23,
        model_loader/weight_utils.py:1582@0.5.23; sgl-project/sglang#7421).
        """
        weight = self.weight_of(name)
        if not (self.scheme.whole and self.finals) or weight not in self.modules:
            return True
        if stacked:
            raise LoadError("AttributeError", NO_LOADER)
        rows, columns = self._params[weight].shape
        held = (columns, rows) if name == weight else (1, rows) if self.scheme.online else (rows, 1)
        if loaded.shape != held:
            words = f"({torch_size(loaded.shape)}) into parameter ({torch_size(held)})"
            raise LoadError("AssertionError", f"Attempted to load weight {words}")
        # here weights and the scales of rows lie as they were loaded; a square one lands across its own transpose
        found = loaded.T if name == weight or self.scheme.online else loaded
        self._params[name][...] = found.astype(self._params[name].dtype)
        return False

    def finalise(self) -> None:
        """process_weights_after_loading of every module, whether or not anything of it was loaded since."""
        derived, params = self.scheme.derived, self._params
        self.finals += 1
        if self.scheme.online:
            self._quantise()
        elif self.scheme.whole:
            self._scale_by_rows()
        if not derived:
            return
        for name in self.modules:
            scale = params[name + SCALE]
            if self.scheme.in_place:
                params[name][...] = shuffle(params[name])
                params[name + SCALE + derived] = shuffle(scale)
            else:
                params[name + SCALE + derived] = swizzle(scale)
            self._touch(name + SCALE + derived)
            self._touch(name)

    def across(self) -> tuple[int, int] | None:
        """What transposing twice leaves: the first matrix that is not square lies across (observed 0.5.23 on a GPU)."""
        if not self.scheme.whole or self.finals % 2:
            return None
        shapes = (self._params[name].shape for name in self.modules)
        return next(((rows, columns) for rows, columns in shapes if rows != columns), None)

    def _quantise(self) -> None:
        """Rows of bfloat16 as fp8. Crash AssertionError for what is quantised, and so transposed, already."""
        if self.finals > 1:
            raise Crash("AssertionError", "`x` is not contiguous")
        for name in self.modules:
            wide = self._params[name].astype(np.float32)
            scale = np.maximum(np.abs(wide).max(axis=1, keepdims=True), 1e-12).astype(np.float32) / E4M3_MAX
            self._params[name] = np.clip(wide / scale, -E4M3_MAX, E4M3_MAX).astype(E4M3)
            self._params[name + TENSOR_SCALE] = scale
            self._touch(name)

    def _scale_by_rows(self) -> None:
        """The scale of every part of a fused layer on each of its rows. It is no number by part any more, and taken for
        one when this comes again: all rows then have scales of the first few (convert_to_channelwise,
        layers/quantization/utils.py:141@0.5.23)."""
        for name in self.modules:
            sizes = [part.size for part in self._layout[name].parts.values()] or [len(self._params[name])]
            scale = self._params[name + TENSOR_SCALE].ravel()[: len(sizes)]
            self._params[name + TENSOR_SCALE] = np.repeat(scale, sizes)[:, None]
            self._touch(name + TENSOR_SCALE)

    def read(self, name: str) -> np.ndarray:
        """The float32 matrix that the kernel of a module multiplies with."""
        scheme, weight = self.scheme, self._params[name]
        if scheme.online and not self.finals:
            return weight.astype(np.float32)
        scale = self._params[name + scheme.suffix]
        if not scheme.derived:
            return dequantise(weight, scale, scheme)
        kept = self._params[name + SCALE + scheme.derived]
        if scheme.in_place:
            return dequantise(unshuffle(weight), unshuffle(kept), scheme)
        return dequantise(weight, unswizzle(kept, scale.shape), scheme)  # type: ignore[arg-type]  # two sides


def _loaded(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == np.float32(UNLOADED), np.float32(np.nan), scale)


def _blocks(matrix: np.ndarray, scheme: Scheme) -> np.ndarray:
    rows, columns = scheme.block
    if matrix.ndim != 2 or matrix.shape[0] % rows or matrix.shape[1] % columns:
        raise ValueError(f"a matrix of shape {list(matrix.shape)} has no whole blocks of {rows} x {columns}")
    return matrix.reshape(matrix.shape[0] // rows, rows, matrix.shape[1] // columns, columns)


def _check_cut(name: str, param: Param, scheme: Scheme) -> None:
    """validate_block_quant_shapes (layers/quantization/fp8.py:570@0.5.23): ranks hold whole blocks."""
    rows, columns = scheme.block
    if param.shape[1] % columns:
        raise ValueError(
            f"Weight input_size_per_partition = {param.shape[1]} is not divisible by weight quantization block_k = "
            f"{columns}."
        )
    for size in [part.size for part in param.parts.values()] or [param.shape[0]]:
        if size % rows:
            raise ValueError(
                f"Weight output_partition_size = {size} is not divisible by weight quantization block_n = {rows}."
            )


def _cut(part: Part, rows: int) -> Part:
    return Part(part.offset // rows, part.size // rows, part.source // rows, part.full // rows)


def _rows(count: int) -> np.ndarray:
    return np.array([row - row % LANES + ROW_MAP[row % LANES] for row in range(count)])
