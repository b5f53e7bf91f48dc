"""What may be in `serialized_named_tensors`: wrappers, lengths, names, and what each does.

weight_sync/tensor_bucket.py, managers/tp_worker.py:200@0.5.23.
"""

from real_runs.recipes import Entry
from real_runs.sequence import BEGIN, END, FLUSH, Sequence, Step, call, canary, update, whole

NORM = "model.norm.weight"


def _session(*steps: Step) -> list[Step]:
    return [BEGIN, *steps, END, FLUSH, canary()]


SEQUENCES = [
    Sequence(name="payload/list", about="a list of (name, tensor)", steps=_session(update(whole(1)))),
    Sequence(
        name="payload/bucket",
        about="a flattened bucket",
        steps=_session(update(whole(1), format="flattened_bucket")),
    ),
    Sequence(
        name="payload/two-buckets",
        about="two buckets in two calls",
        steps=_session(
            update(Entry(seed=1, only=["*mlp*"]), format="flattened_bucket"),
            update(Entry(seed=1, drop=["*mlp*"]), format="flattened_bucket"),
        ),
    ),
    Sequence(
        name="payload/direct",
        about="load_format direct: on-device names and local shards",
        steps=_session(update(Entry(seed=1, local=True), format="direct")),
    ),
    Sequence(
        name="payload/direct-norms",
        about="direct with one replicated tensor",
        steps=_session(update(Entry(seed=1, only=["*norm*"]), format="direct")),
    ),
    Sequence(
        name="payload/long-list",
        about="more payloads than ranks: the rest is ignored, even garbage",
        steps=_session(update(entries=[whole(1), whole(1), Entry(raw="aGVsbG8gd29ybGQ=")])),
    ),
    Sequence(
        name="payload/empty-tensors",
        about="no tensor in the list",
        steps=_session(update(Entry())),
    ),
    Sequence(
        name="payload/unknown-name",
        about="an unknown plain name is skipped with a success",
        steps=_session(update(Entry(change={"model.nothing.weight": ([64], 1.0)})), update(whole(1))),
    ),
    Sequence(
        name="payload/unknown-layer",
        about="a layer that the model does not have",
        steps=_session(
            update(
                Entry(
                    seed=1,
                    only=["model.layers.1.mlp.*"],
                    rename={
                        "model.layers.1.mlp.down_proj.weight": "model.layers.7.mlp.down_proj.weight",
                    },
                )
            )
        ),
    ),
    Sequence(
        name="payload/skipped-names",
        about="names that loaders skip by rule",
        steps=_session(
            update(
                Entry(
                    change={
                        "model.layers.0.self_attn.rotary_emb.inv_freq": ([8], 1.0),
                        "model.layers.0.self_attn.rotary_emb.cos_cached": ([8], 1.0),
                        "model.layers.0.mlp.down_proj.bias": ([64], 1.0),
                        "vision_tower.weight": ([8], 1.0),
                        "projector.weight": ([8], 1.0),
                    }
                )
            )
        ),
    ),
    Sequence(
        name="payload/missing-name",
        about="a tensor left out is not noticed",
        steps=_session(update(Entry(seed=1, drop=["model.layers.0.self_attn.q_proj.weight"]))),
    ),
    Sequence(
        name="payload/one-norm",
        about="one tensor only",
        steps=_session(update(Entry(seed=1, only=[NORM]))),
    ),
    Sequence(
        name="payload/each-kind",
        about="each kind of tensor alone changes the tokens or not, as recorded",
        steps=_session(
            update(Entry(seed=1, only=["model.embed_tokens.weight"])),
            canary(),
            update(Entry(seed=1, only=["lm_head.weight"])),
            canary(),
            update(Entry(seed=1, only=["*o_proj*"])),
            canary(),
            update(Entry(seed=1, only=["*down_proj*"])),
            canary(),
            update(Entry(seed=1, only=["*k_proj*"])),
            canary(),
            update(Entry(seed=1, only=["*up_proj*"])),
            canary(),
            update(Entry(seed=1, only=["*input_layernorm*"])),
            canary(),
        ),
    ),
    Sequence(
        name="payload/fused-names-llama",
        about="on-device names sent as a plain list: Llama takes them through its direct branch",
        tp=[1],
        steps=_session(update(Entry(seed=1, local=True, only=["*qkv_proj*", "*gate_up_proj*"]))),
    ),
    Sequence(
        name="payload/cast",
        about="another dtype is cast silently",
        steps=_session(update(Entry(seed=1, cast="float32")), update(Entry(seed=1, cast="float16"))),
    ),
    Sequence(
        name="payload/bucket-two-dtypes",
        about="a bucket of one tensor, then one of another dtype",
        steps=_session(
            update(Entry(seed=1, only=["*norm*"], cast="float32"), format="flattened_bucket"),
            update(Entry(seed=1, only=["*proj*"], cast="bfloat16"), format="flattened_bucket"),
        ),
    ),
    Sequence(
        name="payload/no-flush",
        about="an update without flush leaves KV of the old weights: the canary is stale until a flush",
        steps=[
            canary(),
            BEGIN,
            update(whole(1), flush_cache=False),
            END,
            canary(),
            FLUSH,
            canary(),
        ],
    ),
    Sequence(
        name="payload/flush-each",
        about="each successful update flushes, unless told otherwise",
        steps=[
            canary(),
            canary(),
            BEGIN,
            update(whole(0)),
            canary(),
            update(whole(0), flush_cache=False),
            canary(),
            END,
        ],
    ),
    Sequence(
        name="payload/bad-base64",
        about="what is not base64 is refused before any engine process sees it",
        versions=">=0.5.17",
        steps=[
            BEGIN,
            call("update_weights_from_tensor", {"serialized_named_tensors": ["***"]}),
            call("update_weights_from_tensor", {"serialized_named_tensors": ["abc"]}),
            call("update_weights_from_tensor", {"serialized_named_tensors": ["YWJj ", "YWJj"]}),
            END,
            canary(),
        ],
    ),
    Sequence(
        name="payload/bad-list",
        about="a list that is none, or of no strings",
        versions=">=0.5.17",
        steps=[
            BEGIN,
            call("update_weights_from_tensor", {}),
            call("update_weights_from_tensor", {"serialized_named_tensors": "YWJj"}),
            call("update_weights_from_tensor", {"serialized_named_tensors": [1]}),
            call("update_weights_from_tensor", {"serialized_named_tensors": None}),
            call("update_weights_from_tensor", {"serialized_named_tensors": [], "flush_cache": "maybe"}),
            call("update_weights_from_tensor", {"serialized_named_tensors": ["YWJj"], "load_format": 5}),
            END,
            canary(),
        ],
    ),
]
