"""release and resume by tag, without the memory saver (scheduler_components/weight_updater.py:337@0.5.23)."""

from real_runs.sequence import BEGIN, CONTINUE, END, FLUSH, Sequence, Step, call, canary, pause, update, whole


def release(*tags: str) -> Step:
    """Release these tags; none given means an empty body."""
    return call("release_memory_occupation", {"tags": list(tags)} if tags else {})


def resume(*tags: str) -> Step:
    """Resume these tags."""
    return call("resume_memory_occupation", {"tags": list(tags)} if tags else {})


SEQUENCES = [
    Sequence(
        name="memory/all",
        about="release and resume everything; without a memory saver the content stays",
        steps=[canary(), release(), canary(), resume(), canary()],
    ),
    Sequence(
        name="memory/by-tag",
        about="each tag alone, in the order that trainers use",
        steps=[
            release("kv_cache"),
            release("weights"),
            release("cuda_graph"),
            resume("weights"),
            BEGIN,
            update(whole(1)),
            END,
            resume("kv_cache", "cuda_graph"),
            canary(),
        ],
    ),
    Sequence(
        name="memory/twice",
        about="release twice is harmless without a memory saver",
        steps=[release(), release(), resume(), canary()],
    ),
    Sequence(
        name="memory/unknown-tag",
        about="an unknown tag is taken, and can be resumed once",
        steps=[release("bogus"), resume("bogus"), canary()],
    ),
    Sequence(
        name="memory/release-flushes",
        about="releasing kv_cache flushes, releasing weights does not",
        steps=[
            FLUSH,
            canary(),
            release("weights"),
            canary(),
            resume("weights"),
            release("kv_cache"),
            resume("kv_cache"),
            canary(),
        ],
    ),
    Sequence(
        name="memory/update-while-released",
        about="an update while the weights are released",
        steps=[release("weights"), BEGIN, update(whole(1)), END, resume("weights"), FLUSH, canary()],
    ),
    Sequence(
        name="memory/empty-and-null-tags",
        about="no tags, an empty list and null are the same",
        steps=[
            call("release_memory_occupation", {"tags": []}),
            call("resume_memory_occupation", {"tags": None}),
            call("release_memory_occupation", {"tags": None}),
            call("resume_memory_occupation", {"tags": []}),
        ],
    ),
    Sequence(
        name="memory/no-body",
        about="a body is needed, by GET too",
        steps=[
            call("release_memory_occupation"),
            call("resume_memory_occupation"),
            call("release_memory_occupation", method="GET"),
            call("release_memory_occupation", {}, method="GET"),
            call("resume_memory_occupation", {}, method="GET"),
            call("release_memory_occupation", {"tags": "weights"}),
            call("release_memory_occupation", {"tags": [1]}),
        ],
    ),
    Sequence(
        name="memory/while-paused-idle",
        about="release while paused and idle",
        steps=[pause("retract"), release(), resume(), CONTINUE, canary()],
    ),
]
