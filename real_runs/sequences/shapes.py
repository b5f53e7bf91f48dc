"""Tensor shapes that are wrong but taken: over-long is cut, short is padded (layers/linear.py@0.5.23)."""

from real_runs.recipes import Entry
from real_runs.sequence import BEGIN, END, FLUSH, Sequence, Step, canary, update, whole

GATE, DOWN, OUT = (f"model.layers.0.{part}.weight" for part in ("mlp.gate_proj", "mlp.down_proj", "self_attn.o_proj"))


def _then(*steps: Step) -> list[Step]:
    return [BEGIN, *steps, END, FLUSH, canary()]


SEQUENCES = [
    Sequence(
        name="shape/rank-content-swapped",
        about="full tensors: which rank gets which entry does not matter",
        tp=[2],
        steps=_then(update(entries=[whole(1), whole(1)])),
    ),
    Sequence(
        name="shape/two-updates-as-ranks",
        about="rank 0 gets one update, rank 1 another, and the answer is a success",
        tp=[2],
        steps=_then(update(entries=[whole(1), whole(2)])),
    ),
    Sequence(
        name="shape/two-buckets-as-ranks",
        about="the buckets of one update taken as ranks",
        tp=[2],
        steps=_then(
            update(
                entries=[Entry(seed=1, only=["*self_attn*"]), Entry(seed=1, drop=["*self_attn*"])],
                format="flattened_bucket",
            )
        ),
    ),
    Sequence(
        name="shape/direct-shards-transposed",
        about="direct: local shards given to the wrong rank are taken",
        tp=[2],
        steps=_then(
            update(entries=[Entry(seed=1, local=True), Entry(seed=1, local=True)], format="direct"),
            canary(),
            update(entries=[Entry(seed=2, local=True), Entry(seed=1, local=True)], format="direct"),
        ),
    ),
    Sequence(
        name="shape/only-rank-1-unknown",
        about="what only rank 1 skips is not told",
        tp=[2],
        steps=_then(update(entries=[whole(1), Entry(change={"model.nothing.weight": ([64], 1.0)})])),
    ),
    Sequence(
        name="shape/oversize-narrowed",
        about="a tensor with too many rows is cut silently at tp 2",
        tp=[2],
        steps=_then(update(Entry(seed=1, only=["*gate_proj*"], oversize={"model.layers.0.mlp.gate_proj.weight": 64}))),
    ),
    Sequence(
        name="shape/short-rows",
        about="a gate projection with too few rows",
        steps=_then(update(Entry(change={GATE: ([32, 64], 0.5)})), canary([9, 8, 7], 16)),
    ),
    Sequence(
        name="shape/short-columns",
        about="row-parallel inputs that are too short",
        steps=_then(
            update(Entry(change={DOWN: ([64, 64], 0.02)})),
            canary([9, 8, 7], 16),
            update(Entry(change={OUT: ([64, 16], 0.02)})),
        ),
    ),
    Sequence(
        name="shape/too-many-rows",
        about="too many rows at tp 1",
        tp=[1],
        steps=_then(update(Entry(seed=1, only=["*gate_proj*"], oversize={GATE: 64}))),
    ),
]
