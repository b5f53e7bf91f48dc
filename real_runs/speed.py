"""How fast weights reach a real engine over CUDA IPC, beside a plain copy on the device and a sender per tensor.

One refit is timed from the first call to the last answer, on the wall clock: the sender packs its buckets, exports
them, posts them, and frees them when the engine has answered. Every number is the median of several refits after warm
ones.
"""

from __future__ import annotations

import base64
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.tiny import hf_shapes, tiny_config
from fakes.trainer.cuda_wire import CudaStorage
from fakes.trainer.pickling import dumps
from fakes.trainer.wire import Metadata, bucket_pickle
from harness.errors import HarnessError
from real_runs.cleaning import has_sessions
from real_runs.env import SglangEnv
from real_runs.server import Server, ServerSpec

WARM, TIMED = 2, 5
Named = Sequence[tuple[str, Any]]
"""(HF name, bfloat16 tensor on GPU 0) in the order in which they are sent."""


@dataclass(frozen=True)
class Speed:
    """`size` bytes of weights took `seconds` (median), `buckets` posts each time."""

    how: str
    size: int
    seconds: float
    buckets: int

    @property
    def line(self) -> str:
        """bucket 1024 MiB      7.5 GB      20.1 ms      372 GB/s      8 posts."""
        rate = self.size / self.seconds / 1e9
        said = f"{self.size / 1e9:7.2f} GB  {self.seconds * 1e3:9.2f} ms  {rate:8.1f} GB/s"
        return f"{self.how:<28} {said}  {self.buckets} posts"


def config(layers: int) -> dict[str, Any]:
    """A Llama of 4096 hidden and `layers` layers: 0.44 GB each and 0.52 GB around them, bfloat16."""
    return tiny_config(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=32000,
    )


def write_config(folder: Path, layers: int) -> Path:
    """A model folder without weights, for `--load-format dummy`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(layers)), encoding="utf-8")
    return folder


def measure(env: SglangEnv, spec: ServerSpec, folder: Path, layers: int, sizes: Sequence[int]) -> Iterator[Speed]:
    """A copy on the device, buckets of each of `sizes` bytes, then a handle per tensor. HarnessError where it fails."""
    import torch

    named = [
        (name, torch.randn(shape, device="cuda:0", dtype=torch.bfloat16) * 0.02)
        for name, shape in hf_shapes(config(layers)).items()
    ]
    yield _copied(named)
    server = Server(env, spec, folder)
    server.start()
    try:
        for size in sizes:
            groups = list(grouped(named, size))
            how = f"buckets of {size >> 20} MiB"
            yield _timed(how, named, len(groups), lambda: _refit(server, groups, _bucket, "flattened_bucket"))  # noqa: B023
        single = [[item] for item in named]
        yield _timed("a post per tensor", named, len(single), lambda: _refit(server, single, _list, None))
        yield _timed("a handle per tensor, one post", named, 1, lambda: _refit(server, [named], _list, None))
    finally:
        server.stop()


def grouped(named: Named, size: int) -> Iterator[Named]:
    """Whole tensors, at most `size` bytes together unless one alone is larger."""
    group: list[tuple[str, Any]] = []
    total = 0
    for name, tensor in named:
        if group and total + tensor.nbytes > size:
            yield group
            group, total = [], 0
        group.append((name, tensor))
        total += tensor.nbytes
    if group:
        yield group


def _copied(named: Named) -> Speed:
    """The same bytes from tensor to tensor of one GPU, timed by its own events."""
    import torch

    event: Any = torch.cuda.Event
    others = [torch.empty_like(tensor) for _, tensor in named]
    found = []
    for _ in range(WARM + TIMED):
        first, last = event(enable_timing=True), event(enable_timing=True)
        first.record()
        for other, (_, tensor) in zip(others, named, strict=True):
            other.copy_(tensor)
        last.record()
        last.synchronize()
        found.append(first.elapsed_time(last) / 1e3)
    return Speed("a copy on the device", _bytes(named), statistics.median(found[WARM:]), 0)


def _timed(how: str, named: Named, buckets: int, refit: Callable[[], None]) -> Speed:
    found = []
    for _ in range(WARM + TIMED):
        began = time.perf_counter()
        refit()
        found.append(time.perf_counter() - began)
    return Speed(how, _bytes(named), statistics.median(found[WARM:]), buckets)


def _refit(server: Server, groups: Sequence[Named], pack: Any, load_format: str | None) -> None:
    sessions = has_sessions(server.spec.version)
    if sessions:
        _post(server, "begin_weight_update", {})
    for group in groups:
        payload, storages = pack(group)
        body = {"serialized_named_tensors": [payload], "load_format": load_format, "flush_cache": False}
        _post(server, "update_weights_from_tensor", body)
        for storage in storages:
            storage.close()
    if sessions:
        _post(server, "end_weight_update", {})


def _post(server: Server, op: str, body: Any) -> None:
    outcome = server.client.request("POST", op, body, timeout_s=120.0)
    if not outcome.ok:
        raise HarnessError(f"/{op}: {outcome.text[:200] or outcome.ending} (log: {server.log_path})")


def _bucket(group: Named) -> tuple[str, list[CudaStorage]]:
    import torch

    metadata, offset = [], 0
    for name, tensor in group:
        end = offset + tensor.nbytes
        metadata.append(Metadata(name, tuple(tensor.shape), "bfloat16", offset, end, tensor.nbytes))
        offset = end
    storage = CudaStorage(torch.cat([tensor.reshape(-1).view(torch.uint8) for _, tensor in group]), 0)
    return _encoded(bucket_pickle(metadata, storage.tensor("uint8", (offset,)))), [storage]


def _list(group: Named) -> tuple[str, list[CudaStorage]]:
    storages = [CudaStorage(tensor.clone(), 0) for _, tensor in group]
    value = [
        (name, storage.tensor("bfloat16", tuple(tensor.shape)))
        for (name, tensor), storage in zip(group, storages, strict=True)
    ]
    return _encoded(dumps(value)), storages


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(named: Named) -> int:
    return sum(int(tensor.nbytes) for _, tensor in named)
