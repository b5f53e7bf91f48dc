"""flush_cache: idle, running, paused, with a timeout (managers/scheduler.py:5337@0.5.23)."""

from real_runs.sequence import (
    CONTINUE,
    FLUSH,
    Sequence,
    call,
    canary,
    get,
    join,
    long_generation,
    pause,
    sleep,
    start,
)

SEQUENCES = [
    Sequence(
        name="flush/idle",
        about="GET and POST while idle; the prefix is gone afterwards",
        steps=[canary(), canary(), FLUSH, canary(), get("flush_cache"), canary()],
    ),
    Sequence(
        name="flush/running",
        about="refused while a request runs",
        steps=[long_generation("a"), sleep(0.3), FLUSH, join("a"), FLUSH],
    ),
    Sequence(
        name="flush/timeout-idle",
        about="a timeout while idle",
        steps=[call("flush_cache", query={"timeout": "2"}), call("flush_cache", query={"timeout": "0"})],
    ),
    Sequence(
        name="flush/timeout-waits",
        about="a timeout waits for what runs",
        steps=[long_generation("a"), sleep(0.3), call("flush_cache", query={"timeout": "20"}), join("a")],
    ),
    Sequence(
        name="flush/timeout-expires",
        about="a timeout that is too short, on a frozen batch",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("in_place"),
            call("flush_cache", query={"timeout": "0.5"}),
            CONTINUE,
            join("a"),
        ],
    ),
    Sequence(
        name="flush/second-in-progress",
        about="a second waiting flush is refused",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("in_place"),
            start("f", "flush_cache", query={"timeout": "1.5"}),
            sleep(0.3),
            call("flush_cache", query={"timeout": "1"}),
            join("f"),
            CONTINUE,
            join("a"),
        ],
    ),
    Sequence(
        name="flush/retracted-with-timeout",
        about="a timeout is strict where a plain flush ignores the paused queue",
        versions=">=0.5.21",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("retract"),
            call("flush_cache", query={"timeout": "0.5"}),
            FLUSH,
            CONTINUE,
            join("a"),
        ],
    ),
    Sequence(
        name="flush/bad-timeout",
        about="negative, not a number, and empty",
        steps=[
            call("flush_cache", query={"timeout": "-1"}),
            call("flush_cache", query={"timeout": "soon"}),
            call("flush_cache", query={"timeout": ""}),
        ],
    ),
]
