"""The weight version: who keeps it, when it changes, and what generations say of it."""

from real_runs.sequence import (
    BEGIN,
    END,
    FLUSH,
    MODEL_INFO,
    Sequence,
    call,
    canary,
    join,
    long_generation,
    sleep,
    update,
    whole,
)

SEQUENCES = [
    Sequence(
        name="version/by-update",
        about="a version given with an update is told by the answer, model_info and generations",
        steps=[BEGIN, update(whole(1), weight_version="v1"), END, MODEL_INFO, canary(), FLUSH],
    ),
    Sequence(
        name="version/kept",
        about="an update without a version keeps the old one",
        steps=[
            BEGIN,
            update(whole(1), weight_version="v1"),
            update(whole(2)),
            END,
            MODEL_INFO,
            canary(),
        ],
    ),
    Sequence(
        name="version/empty",
        about="an empty version",
        steps=[BEGIN, update(whole(1), weight_version=""), END, MODEL_INFO, canary()],
    ),
    Sequence(
        name="version/by-call",
        about="update_weight_version sets it without weights",
        steps=[call("update_weight_version", {"new_version": "42"}), MODEL_INFO, canary()],
    ),
    Sequence(
        name="version/aborts",
        about="update_weight_version aborts what runs, by default",
        steps=[
            long_generation("a"),
            sleep(0.3),
            call("update_weight_version", {"new_version": "43"}),
            join("a", compare="prefix"),
            MODEL_INFO,
        ],
    ),
    Sequence(
        name="version/spans",
        about="a generation that lives through a version change says so",
        versions=">=0.5.19",
        steps=[
            long_generation("a"),
            sleep(0.3),
            call("update_weight_version", {"new_version": "44", "abort_all_requests": False}),
            join("a", compare="prefix"),
            MODEL_INFO,
        ],
    ),
    Sequence(
        name="version/deprecated-routes",
        about="the old routes",
        steps=[call("get_weight_version", method="GET"), call("weight_version", method="GET")],
    ),
]
