"""fp8 refits: which tensors of a policy travel as a pair (X.weight, X.weight_scale_inv), and how a pair is made.

One decision (`Plan.covers`) for every tensor of every refit. What SGLang fuses is decided as one: it refuses a group of
which some parts are quantised and some are not (layers/quantization/utils.py:100@0.5.23). The two halves of a pair are
one group from here on: they share a bucket and its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from harness.reference.buckets import Named, Parcel
from harness.reference.errors import BadSetup, BadState

SCALE = "_scale_inv"
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
LARGEST = 448.0
BLOCKS: Mapping[str, tuple[int, int]] = {"fp8": (16, 32), "mxfp8": (1, 32)}
"""Rows and columns that share a scale: float32 for fp8, a biased power of two (E8M0) for mxfp8."""

PLAIN = "bf16"
SCHEMES = (PLAIN, *BLOCKS)
KEYS = frozenset({"scheme", "skip"})

HIGH_PRECISION = (
    "layernorm", "norm", "embed", "lm_head", "router", ".gate.", "shared_expert_gate.", "mixer.gate.", "eh_proj",
    "weights_proj",
)  # fmt: skip
"""Parts of names that no family quantises: norms, embeddings, heads, the routers of experts (never gate_proj)."""

FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"))
WIDE = tuple(np.dtype(kind) for kind in (ml_dtypes.bfloat16, np.float16, np.float32))


@dataclass(frozen=True)
class Plan:
    """What is quantised. `skip`: modules, as in a checkpoint's modules_to_not_convert."""

    scheme: str = PLAIN
    skip: tuple[str, ...] = ()

    def covers(self, name: str, tensor: np.ndarray[Any, Any]) -> bool:
        """Whether a tensor travels as a pair."""
        if self.scheme == PLAIN or not name.endswith(".weight") or tensor.dtype not in WIDE or tensor.ndim != 2:
            return False
        rows, columns = BLOCKS[self.scheme]
        if tensor.shape[0] % rows or tensor.shape[1] % columns or any(part in name for part in HIGH_PRECISION):
            return False
        return not any(_is_in(module, other) for module in self.skip for other in _together(name))

    def names(self, state: Mapping[str, Any]) -> frozenset[str]:
        """Every name that a whole refit of `state` sends."""
        return frozenset(state) | {name + SCALE for name, tensor in state.items() if self.covers(name, tensor)}


NONE = Plan()
"""Nothing is quantised."""


def plan_of(given: Any) -> Plan:
    """The plan of a set-up: {"scheme": one of SCHEMES} and, where modules are left out, {"skip": [...]}.

    BadSetup names what is missing, unknown or of no known scheme: nothing of it is ever a default.
    """
    if not isinstance(given, Mapping):
        raise BadSetup(f"quantisation is a mapping, not {given!r}")
    unknown = sorted(str(key) for key in given if key not in KEYS)
    if unknown:
        raise BadSetup(f"quantisation has unknown keys: {', '.join(unknown)}")
    if "scheme" not in given:
        raise BadSetup("quantisation lacks scheme: a missing key is never a default")
    scheme, skip = given["scheme"], given.get("skip", ())
    if scheme not in SCHEMES:
        raise BadSetup(f"quantisation scheme {scheme!r} is none of {', '.join(SCHEMES)}")
    if isinstance(skip, str) or not all(isinstance(module, str) for module in skip):
        raise BadSetup(f"quantisation skip {skip!r} is no list of modules")
    return Plan(scheme, tuple(skip))


def groups(stream: Iterable[tuple[str, np.ndarray[Any, Any]]], plan: Plan) -> Iterator[Named]:
    """The stream in groups that stay together: a pair, or a tensor alone. What comes as a pair already is kept as one.

    BadState for a tensor that comes twice, and for a half whose other half never comes.
    """
    seen: set[str] = set()
    halves: dict[str, tuple[str, np.ndarray[Any, Any]]] = {}
    for name, tensor in stream:
        if name in seen:
            raise BadState(f"the export has a duplicate: {name}")
        seen.add(name)
        if plan.covers(name, tensor):
            yield pair(name, tensor, plan.scheme)
        elif tensor.dtype == E4M3 or name.endswith(SCALE):
            weight = name.removesuffix(SCALE)
            other = halves.pop(weight, None)
            if other is None:
                halves[weight] = (name, tensor)
            else:
                yield sorted([other, (name, tensor)], key=lambda item: len(item[0]))
        else:
            yield [(name, tensor)]
    if halves:
        raise BadState(f"the export has incomplete pairs: {', '.join(sorted(name for name, _ in halves.values()))}")


def pair(name: str, tensor: np.ndarray[Any, Any], scheme: str) -> Named:
    """A matrix as float8_e4m3fn and its scales; value = weight x scale."""
    rows, columns = BLOCKS[scheme]
    wide = np.asarray(tensor, dtype=np.float32)
    blocks = wide.reshape(wide.shape[0] // rows, rows, wide.shape[1] // columns, columns)
    top = np.abs(blocks).max(axis=(1, 3), keepdims=True)
    top = np.where(top > 0, top, np.float32(1.0))
    if scheme == "mxfp8":
        exponent = np.clip(np.floor(np.log2(top)) - 8, -127, 127)
        factor, scale = np.exp2(exponent), (exponent + 127).astype(np.uint8)
    else:
        factor = scale = (top / LARGEST).astype(np.float32)
    small = np.clip(blocks / factor, -LARGEST, LARGEST).astype(E4M3).reshape(wide.shape)
    return [(name, small), (name + SCALE, np.ascontiguousarray(scale[:, 0, :, 0]))]


def parcels(grouped: Iterable[Named], max_bytes: int) -> Iterator[Parcel]:
    """Groups in parcels of at most `max_bytes`, all halves counted; a larger group travels alone. Dtypes are mixed:
    the widest come first, so that each tensor of the flat buffer begins where its dtype may."""
    waiting: Named = []
    size = 0
    for group in grouped:
        more = sum(tensor.nbytes for _, tensor in group)
        if waiting and size + more > max_bytes:
            yield Parcel(_aligned(waiting))
            waiting, size = [], 0
        waiting = waiting + group
        size += more
    if waiting:
        yield Parcel(_aligned(waiting), last=True)


def _aligned(named: Named) -> Named:
    return sorted(named, key=lambda item: -item[1].dtype.itemsize)


def _together(name: str) -> list[str]:
    """The names of all parts that SGLang fuses with this one."""
    for group in FUSED:
        for part in group:
            if f".{part}." in name:
                return [name.replace(f".{part}.", f".{other}.") for other in group]
    return [name]


def _is_in(module: str, name: str) -> bool:
    """Whether a tensor belongs to a module: by whole parts of its dotted name."""
    return f".{module.strip('.')}." in f".{name}"
