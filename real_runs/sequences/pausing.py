"""Pause modes with idle, running and new requests (managers/tokenizer_manager.py:2267@0.5.23)."""

from real_runs.sequence import (
    BEGIN,
    CONTINUE,
    END,
    FLUSH,
    MODEL_INFO,
    Sequence,
    call,
    canary,
    generate,
    get,
    join,
    long_generation,
    long_with_logprobs,
    pause,
    sleep,
    start,
    update,
    whole,
)

SEQUENCES = [
    *[
        Sequence(
            name=f"pause/idle-{mode}",
            about=f"{mode} while idle, twice, and on again",
            steps=[canary(), pause(mode), pause(mode), FLUSH, CONTINUE, CONTINUE, canary()],
        )
        for mode in ("abort", "retract", "in_place")
    ],
    *[
        Sequence(
            name=f"pause/running-{mode}",
            about=f"{mode} with a running request: its fate, and a flush meanwhile",
            steps=[
                long_generation("a"),
                sleep(0.3),
                pause(mode),
                FLUSH,
                CONTINUE,
                join("a", compare="prefix"),
                canary(),
            ],
        )
        for mode in ("abort", "retract", "in_place")
    ],
    *[
        Sequence(
            name=f"pause/new-request-{mode}",
            about=f"a request sent while paused ({mode}) waits for continue",
            steps=[
                pause(mode),
                start("n", "generate", generate()),
                sleep(0.3),
                FLUSH,
                CONTINUE,
                join("n"),
            ],
        )
        for mode in ("abort", "retract", "in_place")
    ],
    Sequence(
        name="pause/default-mode",
        about="the default mode is abort",
        steps=[long_generation("a"), sleep(0.3), call("pause_generation", {}), CONTINUE, join("a", compare="prefix")],
    ),
    Sequence(
        name="pause/retract-after-in-place",
        about="a retract after an in_place takes the batch apart",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("in_place"),
            FLUSH,
            pause("retract"),
            FLUSH,
            CONTINUE,
            join("a", compare="prefix"),
        ],
    ),
    Sequence(
        name="pause/retract-with-logprobs",
        about="a retracted request that wants log-probabilities gets all of them",
        versions=">=0.5.17",
        steps=[long_with_logprobs(), sleep(0.3), pause("retract"), CONTINUE, join("a", compare="prefix"), canary()],
    ),
    Sequence(
        name="pause/update-retract",
        about="an update while retracted requests wait",
        versions=">=0.5.21",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("retract"),
            BEGIN,
            update(whole(1), weight_version="r1"),
            END,
            CONTINUE,
            join("a", compare="ending"),
            MODEL_INFO,
            canary(),
        ],
    ),
    Sequence(
        name="pause/update-in-place",
        about="an update while a frozen batch holds KV: the weights are in, the flush is refused with a 400",
        versions=">=0.5.22",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("in_place"),
            BEGIN,
            update(whole(1), weight_version="i1"),
            MODEL_INFO,
            END,
            CONTINUE,
            join("a", compare="ending"),
            FLUSH,
            canary(),
            MODEL_INFO,
        ],
    ),
    Sequence(
        name="pause/update-in-place-no-flush",
        about="the same without flush succeeds",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("in_place"),
            BEGIN,
            update(whole(1), weight_version="i2", flush_cache=False),
            MODEL_INFO,
            END,
            CONTINUE,
            join("a", compare="ending"),
            FLUSH,
            canary(),
        ],
    ),
    Sequence(
        name="pause/abort-request-while-retracted",
        about="abort while a request waits retracted",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("retract"),
            call("abort_request", {"abort_all": True}),
            join("a", compare="prefix", timeout_s=5.0),
            CONTINUE,
            canary(),
        ],
    ),
    Sequence(
        name="pause/abort-request-while-frozen",
        about="abort while a request is frozen in place: it ends only after continue",
        steps=[
            long_generation("a"),
            sleep(0.3),
            pause("in_place"),
            call("abort_request", {"abort_all": True}),
            sleep(0.5),
            CONTINUE,
            join("a", compare="prefix", timeout_s=5.0),
            canary(),
        ],
    ),
    Sequence(
        name="pause/ready",
        about="ready says whether the engine is paused",
        versions=">=0.5.20",
        steps=[get("ready"), pause("in_place"), get("ready"), get("ping"), CONTINUE, get("ready")],
    ),
    Sequence(
        name="pause/torch-empty-cache",
        about="continue with its field given",
        steps=[pause("retract"), call("continue_generation", {"torch_empty_cache": False}), canary()],
    ),
]
