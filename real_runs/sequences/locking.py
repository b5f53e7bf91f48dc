"""Updates beside generations that are not paused: the reader and writer lock (utils/aio_rwlock.py@0.5.23)."""

from real_runs.sequence import (
    BEGIN,
    END,
    Sequence,
    canary,
    generate,
    join,
    long_generation,
    sleep,
    start,
    update,
    whole,
)

SEQUENCES = [
    Sequence(
        name="lock/update-waits",
        about="an update waits for the running generation, which ends with the old weights",
        steps=[BEGIN, long_generation("a"), sleep(0.3), update(whole(1)), join("a"), END, canary()],
    ),
    Sequence(
        name="lock/begin-waits",
        about="begin waits too",
        versions=">=0.5.21",
        steps=[long_generation("a"), sleep(0.3), BEGIN, join("a"), update(whole(1)), END, canary()],
    ),
    Sequence(
        name="lock/update-aborts",
        about="abort_all_requests ends what runs, then the update goes on",
        steps=[
            BEGIN,
            long_generation("a"),
            sleep(0.3),
            update(whole(1), abort_all_requests=True),
            join("a", compare="prefix"),
            END,
            canary(),
        ],
    ),
    Sequence(
        name="lock/writer-first",
        about="a generation that comes while an update waits is served after it, by the new weights",
        steps=[
            BEGIN,
            long_generation("a"),
            sleep(0.2),
            start("u", "update_weights_from_tensor", update(whole(1)).body),
            sleep(0.2),
            start("b", "generate", generate()),
            join("a"),
            join("u"),
            join("b"),
            END,
        ],
    ),
]
