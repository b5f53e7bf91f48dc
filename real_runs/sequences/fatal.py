"""What kills the engine: the caller's connection is dropped, later connects are refused (contract: crash model)."""

import base64
import pickle
from typing import Any

from real_runs.recipes import Entry
from real_runs.sequence import (
    BEGIN,
    FLUSH,
    MODEL_INFO,
    Sequence,
    Step,
    call,
    generate,
    join,
    long_generation,
    long_with_logprobs,
    pause,
    sleep,
    start,
    update,
    whole,
)

# Pickles that name a global off the list, made by hand: nothing here is ever executed by us.
OS_SYSTEM = base64.b64encode(b"cposix\nsystem\n(S'true'\ntR.").decode()
EVAL = base64.b64encode(b"cbuiltins\neval\n(S'1'\ntR.").decode()
GETATTR = base64.b64encode(b"cbuiltins\ngetattr\n(S'x'\nS'upper'\ntR.").decode()
GARBAGE = base64.b64encode(b"hello world").decode()
NOT_TENSORS = base64.b64encode(pickle.dumps({"a": 1}, protocol=4)).decode()
A_NUMBER = base64.b64encode(pickle.dumps(5, protocol=4)).decode()
TRUNCATED = base64.b64encode(pickle.dumps([("a", 1)], protocol=4)[:-2]).decode()


def _every_rank(raw: str) -> list[Entry]:
    return [Entry(raw=raw)] * 2


def _killed_by(*steps: Step, session: bool = True) -> list[Step]:
    """The steps that kill, then a later call: refused."""
    return [*([BEGIN] if session else []), *steps, MODEL_INFO]


def _fatal(name: str, about: str, steps: list[Step], **more: Any) -> Sequence:
    return Sequence(name=f"fatal/{name}", about=about, steps=steps, fatal=True, **more)


SEQUENCES = [
    _fatal("empty-list", "no payload at all", _killed_by(update(entries=[]))),
    _fatal("short-list", "one payload for two ranks", _killed_by(update(entries=[whole(1)])), tp=[2]),
    _fatal("garbage", "base64 of bytes that are no pickle", _killed_by(update(entries=_every_rank(GARBAGE)))),
    _fatal("truncated", "a pickle that ends too early", _killed_by(update(entries=_every_rank(TRUNCATED)))),
    _fatal("forbidden-system", "a pickle that names posix.system", _killed_by(update(entries=_every_rank(OS_SYSTEM)))),
    _fatal(
        "forbidden-eval", "a pickle that names builtins.eval", _killed_by(update(entries=_every_rank(EVAL))), tp=[1]
    ),
    _fatal(
        "getattr",
        "builtins.getattr: refused by the exact list, taken by the prefix list",
        _killed_by(update(entries=_every_rank(GETATTR))),
        tp=[1],
    ),
    _fatal("not-tensors", "a pickle of something else", _killed_by(update(entries=_every_rank(NOT_TENSORS))), tp=[1]),
    _fatal("a-number", "a pickle of a number", _killed_by(update(entries=_every_rank(A_NUMBER))), tp=[1]),
    _fatal(
        "wrong-shape",
        "a norm of the wrong length",
        _killed_by(update(Entry(change={"model.norm.weight": ([3], 1.0)}))),
    ),
    _fatal(
        "wrong-width",
        "a q projection with the wrong width",
        _killed_by(update(Entry(change={"model.layers.0.self_attn.q_proj.weight": ([64, 32], 0.5)}))),
    ),
    _fatal(
        "wrong-embedding",
        "an embedding of the wrong size",
        _killed_by(update(Entry(change={"model.embed_tokens.weight": ([500, 64], 0.5)}))),
    ),
    _fatal(
        "unknown-load-format", "a load_format that does not exist", _killed_by(update(whole(1), load_format="bogus"))
    ),
    _fatal(
        "load-format-auto",
        "a load_format that only disk knows",
        _killed_by(update(whole(1), load_format="auto")),
        tp=[1],
    ),
    _fatal(
        "bucket-said-list-sent",
        "load_format flattened_bucket with a list",
        _killed_by(update(whole(1), load_format="flattened_bucket")),
        tp=[1],
    ),
    _fatal(
        "list-said-bucket-sent",
        "no load_format with a bucket",
        [
            BEGIN,
            call(
                "update_weights_from_tensor",
                {
                    "serialized_named_tensors": update(whole(1), format="flattened_bucket").body[
                        "serialized_named_tensors"
                    ],
                },
            ),
            MODEL_INFO,
        ],
        tp=[1],
    ),
    _fatal(
        "direct-unknown-name",
        "direct with a name that the device does not have",
        _killed_by(update(Entry(seed=1, only=["*q_proj*"]), format="direct")),
    ),
    _fatal(
        "direct-full-at-tp2",
        "direct with full tensors where the device has shards",
        _killed_by(update(Entry(seed=1, only=["*o_proj*"]), format="direct")),
        tp=[2],
    ),
    _fatal(
        "token-beyond-vocabulary",
        "a token id that the embedding does not have",
        _killed_by(call("generate", generate([99999])), session=False),
        tp=[1],
    ),
    _fatal(
        "resume-closed",
        "resume of what was not released",
        _killed_by(call("resume_memory_occupation", {}), session=False),
    ),
    _fatal(
        "resume-partly",
        "resume of all after a release of one",
        _killed_by(
            call("release_memory_occupation", {"tags": ["kv_cache"]}),
            call("resume_memory_occupation", {}),
            session=False,
        ),
    ),
    _fatal(
        "resume-twice",
        "resume twice",
        _killed_by(
            call("release_memory_occupation", {}),
            call("resume_memory_occupation", {}),
            call("resume_memory_occupation", {}),
            session=False,
        ),
        tp=[1],
    ),
    _fatal(
        "release-running",
        "release while a request runs: it is dropped too",
        _killed_by(
            long_generation("a", compare="ending"),
            sleep(0.3),
            call("release_memory_occupation", {}),
            join("a", compare="ending"),
            session=False,
        ),
    ),
    _fatal(
        "release-frozen",
        "release while a batch is frozen in place",
        _killed_by(
            long_generation("a", compare="ending"),
            sleep(0.3),
            pause("in_place"),
            call("release_memory_occupation", {}),
            join("a", compare="ending"),
            session=False,
        ),
        tp=[1],
    ),
    _fatal(
        "release-retracted-old",
        "release while retracted requests wait, before 0.5.21",
        _killed_by(
            long_generation("a", compare="ending"),
            sleep(0.3),
            pause("retract"),
            call("release_memory_occupation", {}),
            join("a", compare="ending"),
            session=False,
        ),
        versions="<0.5.21",
        tp=[1],
    ),
    _fatal(
        "update-retracted-old",
        "an update with flush while retracted requests wait, before 0.5.21",
        _killed_by(
            long_generation("a", compare="ending"),
            sleep(0.3),
            pause("retract"),
            FLUSH,
            update(whole(1)),
            join("a", compare="ending"),
            session=False,
        ),
        versions="<0.5.21",
        tp=[1],
    ),
    _fatal(
        "retract-with-logprobs-old",
        "a retracted request that wants log-probabilities, on a CPU before 0.5.17",
        _killed_by(
            long_with_logprobs(compare="ending"),
            sleep(0.3),
            pause("retract"),
            call("continue_generation", {}),
            join("a", compare="ending"),
            session=False,
        ),
        versions="<0.5.17",
        tp=[1],
    ),
    _fatal(
        "distributed-no-group-old",
        "a distributed update without its group, before 0.5.21",
        _killed_by(
            call(
                "update_weights_from_distributed",
                {"names": ["model.norm.weight"], "dtypes": ["bfloat16"], "shapes": [[64]], "group_name": "g1"},
            ),
            session=False,
        ),
        versions="<0.5.21",
        tp=[1],
    ),
    _fatal(
        "in-the-last-seconds",
        "what still answers between the scheduler's exception and the end of the process",
        [
            BEGIN,
            start("k", "update_weights_from_tensor", update(entries=[]).body, compare="ending"),
            sleep(0.5),
            MODEL_INFO,
            call("pause_generation", {"mode": "bogus"}),
            start("g", "generate", generate(), compare="ending"),
            start("f", "flush_cache", compare="ending"),
            join("k", compare="ending"),
            join("g", compare="ending"),
            join("f", compare="ending"),
            MODEL_INFO,
        ],
        tp=[1],
    ),
]
