"""Updates beside generations that are not paused: the reader and writer lock (utils/aio_rwlock.py@0.5.23).

Without flush: the lock is free a moment before the scheduler has put the finished request away, and the real engine may
refuse a flush in that moment (before 0.5.22 it dies of it). The generations after an update have prompts of their own.
"""

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

UPDATE = update(whole(1), flush_cache=False)

SEQUENCES = [
    Sequence(
        name="lock/update-waits",
        about="an update waits for the running generation, which ends with the old weights",
        steps=[BEGIN, long_generation("a"), sleep(0.3), UPDATE, join("a"), END, canary([9, 8, 7])],
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
            update(whole(1), abort_all_requests=True, flush_cache=False),
            join("a", compare="prefix"),
            END,
            canary([9, 8, 7]),
        ],
    ),
    Sequence(
        name="lock/writer-first",
        about="a generation that comes while an update waits is served after it, by the new weights",
        steps=[
            BEGIN,
            long_generation("a"),
            sleep(0.2),
            start("u", UPDATE.op, UPDATE.body),
            sleep(0.2),
            start("b", "generate", generate([9, 8, 7])),
            join("a"),
            join("u"),
            join("b"),
            END,
        ],
    ),
]
