"""Stories of /generate."""

from __future__ import annotations

from tests.fakes.engine.control.driver import PROMPT, generate_body
from tests.fakes.engine.control.stories.teller import Teller


def body(n: int = 3, prompt: object = PROMPT, **more: object) -> dict[str, object]:
    made = generate_body(n, [])
    made["input_ids"] = list(prompt)  # type: ignore[call-overload]
    return {**made, **more}


def plain_requests(version: str) -> Teller:
    """One after the other: cold, cached, with log-probabilities, with stops, several prompts, several answers.

    On a GPU, since log-probabilities of a prompt kill 0.5.12 on a CPU.
    """
    engine = Teller(version, device="cuda")
    engine.call("generate", body())
    engine.call("generate", body(rid="mine"))
    wanted = {"return_logprob": True, "logprob_start_len": 1, "top_logprobs_num": 2, "token_ids_logprob": [3]}
    engine.call("generate", body(2, **wanted))
    engine.call("generate", body(2, extra_key="other"))
    engine.call("generate", body(0))
    sampling = {"temperature": 0.7, "max_new_tokens": 4, "sampling_seed": 5, "top_k": 9, "top_p": 0.9}
    engine.call("generate", {"input_ids": [[1, 2, 3], [4]], "sampling_params": sampling, "rid": ["a", "b"]})
    engine.call("generate", {"input_ids": [1, 2, 3, 4], "sampling_params": {**sampling, "n": 2}})
    engine.call("generate", {"input_ids": [9, 8], "sampling_params": {"temperature": 0, "stop_token_ids": [151, 330]}})
    return engine


def streams(version: str) -> Teller:
    """One, two in one, refused before and behind the schema, and one that is aborted."""
    engine = Teller(version)
    engine.call("generate", body(stream=True))
    engine.call("generate", body(2, [[1, 2], [3]], stream=True))
    engine.call("generate", body(900, stream=True))
    engine.call("generate", {"input_ids": [], "stream": True})
    call = engine.start("generate", body(40, stream=True, rid="s"))
    engine.advance(0.02)
    engine.call("abort_request", {"rid": "s"})
    engine.result(call)
    return engine


def refusals(version: str) -> Teller:
    """Nothing of a refused request is left behind."""
    engine = Teller(version)
    engine.call("generate", {"text": "hello"})
    engine.call("generate", body(3, range(510)))
    engine.call("generate", body(600, rid="r"))
    engine.call("generate", body(1, rid="r"))
    engine.call("generate", body(1, [[1], [2] * 600], rid=["x", "y"]))
    engine.call("generate", {"input_ids": [1], "sampling_params": {"top_p": 2}})
    first = engine.start("generate", body(30, rid="same"))
    engine.call("generate", body(1, [[1], [2]], rid=["new", "same"]))
    engine.call("generate", body(1, rid="new"))
    engine.result(first)
    engine.call("pause_generation", {"mode": "abort"})
    return engine


def crowds(version: str) -> Teller:
    """More requests than may run, and more tokens than fit: queues, retractions, the same tokens as alone."""
    engine = Teller(version, max_running_requests=2)
    calls = [engine.start("generate", body(3, [n, n + 1])) for n in range(4)]
    for call in calls:
        engine.result(call)
    tight = Teller(version, max_total_tokens=90)
    calls = [tight.start("generate", body(45, [n, n + 1, n + 2])) for n in range(3)]
    for call in calls:
        tight.result(call)
    engine.lines += tight.lines
    return engine


def aborts(version: str) -> Teller:
    """By id, by the beginning of an id, twice, all, one that waits, one that runs, one that is not there."""
    engine = Teller(version, max_running_requests=1)
    running = engine.start("generate", body(60, rid="job-1"))
    queued = [engine.start("generate", body(60, rid=rid)) for rid in ("job-2", "job-22", "other")]
    engine.advance(0.03)
    engine.call("abort_request", {"rid": "job-2"})
    engine.call("abort_request", {"rid": "nobody"})
    engine.call("abort_request", {"rid": ""})
    engine.call("abort_request", {"rid": "job-1"})
    engine.call("abort_request", {"rid": "job-1"})
    for call in (running, *queued[:2]):
        engine.result(call)
    engine.call("abort_request", {"abort_all": True})
    engine.result(queued[2])
    wanted = engine.start("generate", body(120, return_logprob=True))
    engine.advance(0.3)
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("abort_request", {"abort_all": True})
    engine.result(wanted)
    return engine


def leavers(version: str) -> Teller:
    """Clients that go away: in the queue, while it runs, in a stream, in a control call."""
    engine = Teller(version, max_running_requests=1)
    engine.call("slow_down", {"forward_sleep_time": 0.5})
    running = engine.start("generate", body(40, rid="runs"))
    queued = engine.start("generate", body(40, rid="waits"))
    engine.advance(1.0)
    engine.cancel(queued)
    engine.cancel(running)
    engine.advance(6.0)
    stream = engine.start("generate", body(40, rid="streams", stream=True))
    engine.advance(1.2)
    engine.cancel(stream)
    engine.cancel(stream)
    engine.advance(4.0)
    late = engine.start("generate", body(2, rid="over"))
    engine.result(late)
    engine.cancel(late)
    batch = engine.start("generate", body(9, [[1], [2]], rid=["p", "q"]))
    engine.advance(0.6)
    engine.cancel(batch)
    engine.advance(9.0)
    engine.call("pause_generation", {"mode": "abort"})
    return engine


def spans(version: str) -> Teller:
    """A version that changes while a request runs, waits, was retracted, and twice between two tokens."""
    engine = Teller(version, max_running_requests=1)
    running = engine.start("generate", body(30, rid="runs"))
    queued = engine.start("generate", body(6, [1, 2], rid="waits"))
    engine.advance(0.03)
    engine.call("update_weight_version", {"new_version": "1", "abort_all_requests": False})
    engine.call("update_weight_version", {"new_version": "1", "abort_all_requests": False})
    engine.advance(0.02)
    engine.call("update_weight_version", {"new_version": "2", "abort_all_requests": False})
    engine.call("update_weight_version", {"new_version": "3", "abort_all_requests": False})
    engine.call("pause_generation", {"mode": "retract"})
    engine.call("update_weight_version", {"new_version": "4", "abort_all_requests": False})
    engine.call("continue_generation", {})
    engine.result(running)
    engine.result(queued)
    engine.start("generate", body(30))
    engine.advance(0.02)
    engine.call("update_weight_version", {"new_version": "5"})
    engine.advance(1.0)
    return engine


STORIES = (plain_requests, streams, refusals, crowds, aborts, leavers, spans)
