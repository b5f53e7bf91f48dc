"""The smaller control calls: info, names, groups, ipc, and routes that do not exist."""

from real_runs.sequence import BEGIN, END, MODEL_INFO, Sequence, Step, call, canary, get, update, whole


def by_name(name: str, n: int | None = None) -> Step:
    """get_weights_by_name."""
    return call("get_weights_by_name", {"name": name} if n is None else {"name": name, "truncate_size": n})


_LAYER = "model.layers.0."

SEQUENCES = [
    Sequence(
        name="control/info",
        about="model_info under both names, server_info's keys",
        steps=[
            MODEL_INFO,
            get("get_model_info"),
            get("server_info", compare="keys"),
            get("get_server_info", compare="keys"),
        ],
    ),
    Sequence(
        name="control/weights-by-name",
        about="HF names, fused names, split names, missing ones",
        steps=[
            by_name("model.norm.weight", 4),
            by_name("model.embed_tokens.weight", 2),
            by_name("lm_head.weight", 2),
            by_name(f"{_LAYER}self_attn.q_proj.weight", 1),
            by_name(f"{_LAYER}self_attn.k_proj.weight", 1),
            by_name(f"{_LAYER}self_attn.v_proj.weight", 1),
            by_name(f"{_LAYER}self_attn.o_proj.weight", 1),
            by_name(f"{_LAYER}self_attn.qkv_proj.weight", 1),
            by_name(f"{_LAYER}mlp.gate_proj.weight", 1),
            by_name(f"{_LAYER}mlp.up_proj.weight", 1),
            by_name(f"{_LAYER}mlp.gate_up_proj.weight", 1),
            by_name(f"{_LAYER}mlp.down_proj.weight", 1),
            by_name(f"{_LAYER}input_layernorm.weight", 0),
            by_name("nope"),
            by_name(""),
            call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": 3}, method="GET"),
            call("get_weights_by_name", {}),
            call("get_weights_by_name"),
        ],
    ),
    Sequence(
        name="control/weights-by-name-follow",
        about="they show what was loaded",
        steps=[
            by_name(f"{_LAYER}self_attn.k_proj.weight", 1),
            BEGIN,
            update(whole(1)),
            END,
            by_name(f"{_LAYER}self_attn.k_proj.weight", 1),
            by_name("model.norm.weight", 8),
        ],
    ),
    Sequence(
        name="control/groups",
        about="groups that cannot be",
        steps=[
            call("destroy_weights_update_group", {"group_name": "nope"}),
            call("destroy_weights_update_group", {}),
            call("init_weights_update_group", {}),
            call("destroy_weights_update_group"),
        ],
    ),
    Sequence(
        name="control/ipc",
        about="the checkpoint engine is not installed",
        steps=[call("update_weights_from_ipc", {"zmq_handles": {}}), call("update_weights_from_ipc", {}), canary()],
    ),
    Sequence(
        name="control/abort-always-200",
        about="abort_request answers 200 with nothing",
        steps=[
            call("abort_request", {}),
            call("abort_request", {"abort_all": True}),
            call("abort_request", {"rid": "unknown"}),
            call("abort_request"),
            call("abort_request", {"rid": 5}),
        ],
    ),
    Sequence(
        name="control/not-there",
        about="404 and 405",
        steps=[
            get("nothing_here"),
            call("nothing_here", {}),
            get("begin_weight_update"),
            get("pause_generation"),
            call("model_info", {}),
            call("flush_cache", method="DELETE"),
            call("pull_weights", {}),
            call("post_process_weights", {}),
        ],
    ),
    Sequence(
        name="control/begin-absent",
        about="begin and end do not exist before 0.5.21",
        versions="<0.5.21",
        steps=[call("begin_weight_update", {}), call("end_weight_update", {})],
    ),
    Sequence(
        name="control/ready-absent",
        about="ready does not exist before 0.5.20",
        versions="<0.5.20",
        steps=[get("ready")],
    ),
]
