"""The weight-update session: legal and illegal orders of begin, update and end.

managers/scheduler_components/weight_updater.py:232-335@0.5.23.
"""

from real_runs.recipes import Entry
from real_runs.sequence import BEGIN, CONTINUE, END, FLUSH, MODEL_INFO, Sequence, call, canary, pause, update, whole

NEW = ">=0.5.21"
OLD = "<0.5.21"
DISTRIBUTED = {"names": ["model.norm.weight"], "dtypes": ["bfloat16"], "shapes": [[64]], "group_name": "g1"}

SEQUENCES = [
    Sequence(
        name="session/whole",
        about="begin, one update, end: the new weights serve",
        versions=NEW,
        steps=[canary(), BEGIN, update(whole(1)), END, canary(), MODEL_INFO],
    ),
    Sequence(
        name="session/none-before-0.5.21",
        about="an update needs no session, and there is none",
        versions=OLD,
        steps=[canary(), BEGIN, END, update(whole(1)), canary(), MODEL_INFO],
    ),
    Sequence(
        name="session/update-outside",
        about="an update outside a session is refused and changes nothing",
        versions=NEW,
        steps=[canary(), update(whole(1), weight_version="v1"), canary(), MODEL_INFO],
    ),
    Sequence(
        name="session/payload-outside-not-opened",
        about="outside a session even garbage is only refused: the payload is never opened",
        versions=NEW,
        steps=[update(entries=[Entry(raw="aGVsbG8gd29ybGQ=")] * 2), update(entries=[]), canary()],
    ),
    Sequence(name="session/end-closed", about="end without begin", versions=NEW, steps=[END, END]),
    Sequence(
        name="session/begin-open",
        about="begin twice is refused and the first session stays open",
        versions=NEW,
        steps=[BEGIN, BEGIN, update(whole(1)), END, END, canary()],
    ),
    Sequence(
        name="session/several-updates",
        about="several buckets in one session",
        versions=NEW,
        steps=[
            BEGIN,
            update(Entry(seed=1, only=["model.layers.*"]), format="flattened_bucket", flush_cache=False),
            canary(),
            update(Entry(seed=1, drop=["model.layers.*"]), format="flattened_bucket"),
            canary(),
            END,
            canary(),
        ],
    ),
    Sequence(
        name="session/empty",
        about="a session without any update changes nothing",
        versions=NEW,
        steps=[canary(), BEGIN, END, FLUSH, canary()],
    ),
    Sequence(
        name="session/selectors",
        about="the selector: target loads, draft without a draft model loads nothing and says Success",
        versions=NEW,
        steps=[
            call("begin_weight_update", {"selector": "target"}),
            update(whole(1), selector="target"),
            END,
            canary(),
            call("begin_weight_update", {"selector": "draft"}),
            update(whole(2), selector="draft", weight_version="drafted"),
            END,
            canary(),
            MODEL_INFO,
            BEGIN,
            update(whole(2), selector="target"),
            END,
            canary(),
        ],
    ),
    Sequence(
        name="session/extra-fields",
        about="unknown fields are ignored",
        versions=NEW,
        steps=[
            call("begin_weight_update", {"bogus": 1}),
            update(whole(1), disable_draft_model=True, bogus=[1, 2]),
            call("end_weight_update", {"bogus": None}),
            canary(),
        ],
    ),
    Sequence(
        name="session/generate-inside",
        about="generation is served between the calls of a session, from what is loaded so far",
        versions=NEW,
        steps=[
            BEGIN,
            canary(),
            update(Entry(seed=1, only=["model.layers.0.*"])),
            canary(),
            update(Entry(seed=1, only=["model.layers.1.*"])),
            canary(),
            END,
            canary(),
        ],
    ),
    Sequence(
        name="session/others-inside",
        about="an open session blocks nothing else",
        versions=NEW,
        steps=[
            BEGIN,
            FLUSH,
            pause("retract"),
            CONTINUE,
            call("release_memory_occupation", {}),
            call("resume_memory_occupation", {}),
            call("get_weights_by_name", {"name": "model.norm.weight", "truncate_size": 4}),
            call("update_weight_version", {"new_version": "inside"}),
            MODEL_INFO,
            END,
        ],
    ),
    Sequence(
        name="session/paused",
        about="the whole refit while paused",
        versions=NEW,
        steps=[
            pause("retract"),
            FLUSH,
            BEGIN,
            update(whole(1), weight_version="p1"),
            END,
            CONTINUE,
            canary(),
            MODEL_INFO,
        ],
    ),
    Sequence(
        name="session/distributed-outside",
        about="a distributed update outside a session is refused",
        versions=NEW,
        steps=[call("update_weights_from_distributed", DISTRIBUTED)],
    ),
    Sequence(
        name="session/distributed-no-group",
        about="a distributed update without its group is refused and the session stays open",
        versions=NEW,
        steps=[
            BEGIN,
            call("update_weights_from_distributed", DISTRIBUTED),
            END,
            call("destroy_weights_update_group", {"group_name": "nope"}),
            canary(),
        ],
    ),
]
