"""generate: what it answers (managers/tokenizer_manager.py:2508@0.5.23)."""

from typing import Any

from real_runs.sequence import FLUSH, PROMPT, Sequence, Step, call, canary, generate, join, long_generation, sleep

PROMPTS = [[3 + (7 * i + j * j) % 500 for j in range(2 + i % 23)] for i in range(24)]


def _logprobs(**more: Any) -> Step:
    return call("generate", generate(return_logprob=True, **more))


SEQUENCES = [
    Sequence(
        name="generate/prompts",
        about="many prompts, eight greedy tokens each",
        steps=[canary(prompt) for prompt in PROMPTS],
    ),
    Sequence(name="generate/longer", about="64 tokens", steps=[canary(PROMPT, 64), canary([5, 6], 64)]),
    Sequence(
        name="generate/logprobs",
        about="log-probabilities of output and input",
        steps=[_logprobs(), FLUSH, _logprobs(logprob_start_len=0), FLUSH, _logprobs(top_logprobs_num=2)],
    ),
    Sequence(
        name="generate/token-ids-logprob",
        about="log-probabilities of chosen tokens",
        steps=[_logprobs(token_ids_logprob=[1, 2, 3])],
    ),
    Sequence(
        name="generate/list",
        about="a list of prompts gives a list",
        steps=[call("generate", {**generate(), "input_ids": [PROMPT, [5, 6, 7]]})],
    ),
    Sequence(
        name="generate/cached",
        about="a second time the prefix is cached",
        steps=[FLUSH, canary(), canary(), canary([*PROMPT, 99, 100])],
    ),
    Sequence(
        name="generate/stream",
        about="a stream of chunks",
        steps=[call("generate", generate(n=4, stream=True))],
    ),
    Sequence(
        name="generate/stop-token",
        about="a stop token ends it",
        steps=[
            call("generate", generate(n=6)),
            call("generate", {**generate(n=6), "sampling_params": {"temperature": 0, "max_new_tokens": 6}}),
            call("generate", generate(n=6, sampling={"stop_token_ids": list(range(0, 512))})),
            call("generate", generate(n=6, sampling={"stop_token_ids": list(range(0, 512)), "min_new_tokens": 3})),
        ],
    ),
    Sequence(
        name="generate/rid",
        about="a rid of one's own is told back",
        steps=[call("generate", generate(n=2, rid="my-own-rid"))],
    ),
    Sequence(
        name="generate/abort-by-rid",
        about="abort by rid, by prefix, and an unknown one",
        steps=[
            long_generation("x"),
            sleep(0.05),
            call("abort_request", {"rid": "nobody"}),
            call("abort_request", {}),
            call("abort_request", {"rid": ""}),
            join("x"),
        ],
    ),
    Sequence(
        name="generate/abort-all",
        about="abort_all ends what runs",
        steps=[
            long_generation("x"),
            long_generation("y", [9, 8, 7]),
            sleep(0.3),
            call("abort_request", {"abort_all": True}),
            join("x", compare="prefix"),
            join("y", compare="prefix"),
            canary(),
        ],
    ),
    Sequence(
        name="generate/bad",
        about="what is refused",
        steps=[
            call("generate", {}),
            call("generate", {"input_ids": []}),
            call("generate", {"input_ids": "abc"}),
            call("generate", {"text": "no tokenizer here", "sampling_params": {"max_new_tokens": 1}}),
            call("generate", {**generate(), "text": "both"}),
            call("generate", generate(sampling={"temperature": -1})),
            call("generate", generate(sampling={"max_new_tokens": -1})),
            call("generate", generate(sampling={"top_p": 2})),
            call("generate", generate([1] * 600)),
        ],
    ),
    Sequence(
        name="generate/context-end",
        about="the context is full before max_new_tokens",
        steps=[call("generate", generate([7 + i % 50 for i in range(500)], 100))],
    ),
    Sequence(
        name="generate/put",
        about="PUT works like POST",
        steps=[call("generate", generate(n=2), method="PUT"), call("generate", method="GET")],
    ),
]
