"""Bodies that the front refuses with 400 (entrypoints/http_server.py:635-692@0.5.23)."""

from real_runs.sequence import CONTINUE, Sequence, call, canary

BODIES = ["", "nonsense", "[1, 2", "[]", "5", '"text"', "null", "{}"]

SEQUENCES = [
    Sequence(
        name="validation/pause",
        about="pause_generation with what it does not take",
        steps=[
            call("pause_generation"),
            call("pause_generation", {"mode": "bogus"}),
            call("pause_generation", {"mode": 5}),
            call("pause_generation", {"mode": None}),
            call("pause_generation", [1]),
            CONTINUE,
        ],
    ),
    Sequence(
        name="validation/continue",
        about="continue_generation with what it does not take",
        steps=[call("continue_generation"), call("continue_generation", {"torch_empty_cache": "maybe"})],
    ),
    Sequence(
        name="validation/session",
        about="begin and end with what they do not take",
        versions=">=0.5.21",
        steps=[
            call("begin_weight_update"),
            call("begin_weight_update", {"selector": "x"}),
            call("begin_weight_update", {"selector": None}),
            call("begin_weight_update", []),
            call("end_weight_update"),
            call("end_weight_update", []),
        ],
    ),
    *[
        Sequence(
            name=f"validation/raw-{op}",
            about=f"{op} with bodies that are no object",
            versions=">=0.5.21" if op == "begin_weight_update" else "",
            steps=[*[call(op, raw=text) for text in BODIES], *undo],
        )
        for op, undo in (
            ("begin_weight_update", [call("end_weight_update", {})]),
            ("update_weights_from_tensor", []),
            ("update_weight_version", []),
            ("generate", []),
            ("continue_generation", []),
            ("get_weights_by_name", []),
            ("abort_request", []),
        )
    ],
    Sequence(
        name="validation/version",
        about="update_weight_version with what it does not take",
        steps=[
            call("update_weight_version", {}),
            call("update_weight_version", {"new_version": 5}),
            call("update_weight_version", {"new_version": None}),
            call("update_weight_version", {"new_version": "x", "abort_all_requests": "maybe"}),
            canary(),
        ],
    ),
    Sequence(
        name="validation/distributed",
        about="distributed and groups with fields missing or of the wrong type",
        steps=[
            call("update_weights_from_distributed", {}),
            call("update_weights_from_distributed", {"names": "x", "dtypes": [], "shapes": []}),
            call(
                "init_weights_update_group",
                {"master_address": "127.0.0.1", "master_port": "x", "rank_offset": 1, "world_size": 2},
            ),
            call("update_weights_from_disk", {}),
            call("update_weights_from_ipc", {"zmq_handles": []}),
        ],
    ),
]
