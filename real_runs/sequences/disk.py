"""update_weights_from_disk: it needs no session, and changes what model_info says."""

from real_runs.sequence import (
    BEGIN,
    CONTINUE,
    END,
    FLUSH,
    MODEL_INFO,
    Sequence,
    call,
    canary,
    join,
    long_generation,
    pause,
    sleep,
)

SEQUENCES = [
    Sequence(
        name="disk/whole",
        about="another checkpoint of the same shape",
        taints=True,
        steps=[
            canary(),
            call("update_weights_from_disk", {"model_path": {"$model": 1}, "weight_version": "d1"}),
            canary(),
            MODEL_INFO,
            call("update_weights_from_disk", {"model_path": {"$model": 0}, "flush_cache": False}),
            canary(),
            MODEL_INFO,
        ],
    ),
    Sequence(
        name="disk/missing",
        about="a folder that is not there: refused, the weights stay",
        taints=True,
        steps=[call("update_weights_from_disk", {"model_path": "/nonexistent"}), canary(), MODEL_INFO],
    ),
    Sequence(
        name="disk/in-session",
        about="allowed in an open session, which stays open",
        versions=">=0.5.21",
        taints=True,
        steps=[BEGIN, call("update_weights_from_disk", {"model_path": {"$model": 1}}), canary(), END],
    ),
    Sequence(
        name="disk/waits",
        about="it waits for what runs (without flush: the real one may still hold the finished request, and refuse)",
        taints=True,
        steps=[
            long_generation("a"),
            sleep(0.3),
            call("update_weights_from_disk", {"model_path": {"$model": 1}, "flush_cache": False}),
            join("a"),
            FLUSH,
            canary(),
        ],
    ),
    Sequence(
        name="disk/paused",
        about="while requests wait retracted",
        versions=">=0.5.21",
        taints=True,
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("retract"),
            call("update_weights_from_disk", {"model_path": {"$model": 1}}),
            CONTINUE,
            join("a", compare="ending"),
            canary(),
        ],
    ),
]
