"""The lane's trainer kit with the export of a real trainer: what its ranks stream comes out of a Megatron job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fakes.tiny import TORCH_NAMES, hf_shapes, tiny_config
from harness.errors import Unsupported
from real_runs.megatron_bridge.jobs import Job

T = TypeVar("T")
DTYPES = ("bfloat16", "float32")


class BridgeTrainer:
    """A trainer kit (`fakes.trainer.TrainerKit`) whose `stream` is `AutoBridge.export_hf_weights`.

    Everything else is the kit's own: threads, collectives, payloads, groups. Rank r of the kit is fed by rank r of the
    job; ranks that only the job has feed nobody and drain, sent on their steps together with rank 0.

    `job()` gives the job, a fresh one after a failure: a Megatron rank that waits in a collective cannot be called
    back.
    """

    def __init__(self, kit: Any, job: Callable[[], Job]) -> None:
        self._kit = kit
        self._make = job
        self._job: Job = job()
        self._policy: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None
        self._cannot: Unsupported | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kit, name)

    @property
    def ranks(self) -> int:
        """Trainer ranks of the kit."""
        return int(self._kit.ranks)

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        """The policy's weights from now on, in the job's parameters.

        A state that no tiny model has is Unsupported once its export is asked for: a client may refuse it before.
        """
        self._policy = self._cannot = None
        try:
            self._policy = (config_of(state), dict(state))
        except Unsupported as cannot:
            self._cannot = cannot
            return
        self._fit()
        self._job.load(*self._policy)

    def run(
        self, fn: Callable[[int], T], timeout_s: float, beside: Sequence[Callable[[], T]] = ()
    ) -> list[T | BaseException]:
        """As the kit's; where a rank fell out of step since the last one, the job is started again first.

        Unsupported for a policy that Megatron does not hold.
        """
        if self._cannot is not None:
            raise self._cannot
        if self._fit() and self._policy is not None:
            self._job.load(*self._policy)
        results: list[T | BaseException] = self._kit.run(fn, timeout_s, beside)
        return results

    def stream(self, rank: int, state: Mapping[str, Any], timeout_s: float) -> Iterator[tuple[str, np.ndarray]]:
        """The bridge's export on this rank: HF names and full tensors, in the bridge's order, with real collectives of
        all ranks between them. TimeoutError when a rank does not come, JobFailed for what the bridge raised."""
        walk = self._walk(rank, len(state), timeout_s)
        return walk if self._kit.spoil is None else self._kit.spoil(rank, walk)

    def _walk(self, rank: int, tensors: int, timeout_s: float) -> Iterator[tuple[str, np.ndarray]]:
        """A collective between processes passes no virtual time: so that a rank which never comes is a verdict at the
        deadline, ranks are sent on their step first, meet on the fleet's clock, and only then wait for the tensor."""
        self._kit.record("walk", rank, {"tensors": tensors})
        job, mine = self._job, self._fed_by(rank)
        for each in mine:
            job.begin(each)
        last = ""
        while True:
            for each in mine:
                job.ask(each)
            names = set(self._kit.all_gather(rank, last, timeout_s))
            if names != {last}:
                raise RuntimeError(f"trainer ranks export different tensors at once: {', '.join(sorted(names))}")
            items = [job.take(each) for each in mine]
            if items[0] is None:
                return
            last, full = items[0]
            yield last, np.asfortranarray(full) if self._kit.transposed else full

    def _fed_by(self, rank: int) -> Collection[int]:
        """The ranks of the job that this rank of the kit sends on."""
        return (rank, *range(self.ranks, self._job.world)) if rank == 0 else (rank,)

    def _fit(self) -> bool:
        """Whether the job had to be started again."""
        if self._job.fit:
            return False
        self._job = self._make()
        return True


def config_of(state: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The config.json of a state: refitcheck's tiny Llama, Qwen2 or Qwen3 of any depth. Unsupported for another."""
    names = set(state)
    kinds = {TORCH_NAMES.get(array.dtype, str(array.dtype)) for array in state.values()}
    if len(kinds) != 1 or not kinds <= set(DTYPES):
        raise Unsupported(f"megatron-bridge holds a model of one dtype, not {', '.join(sorted(kinds)) or 'nothing'}")
    shape = "llama"
    if any(name.endswith("q_norm.weight") for name in names):
        shape = "qwen3"
    elif any(name.endswith("q_proj.bias") for name in names):
        shape = "qwen2"
    layers = {name.split(".")[2] for name in names if name.startswith("model.layers.")}
    config = tiny_config(shape, "lm_head.weight" not in names, kinds.pop(), num_hidden_layers=len(layers))
    if hf_shapes(config) != {name: tuple(array.shape) for name, array in state.items()}:
        raise Unsupported(f"megatron-bridge is given refitcheck's tiny models; this {shape} is none of them")
    return config
