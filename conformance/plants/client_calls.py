"""Broken clients: calls that are missing, too early, too often, or unbounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.plants.make import Apply, broken, constant, method

CLIENT = "harness.reference.refit:RefitClient"
CONTROL = "harness.reference.control:Control"
TRANSFER = "harness.reference.transports.tensor:TensorTransfer"
ENDPOINT = "harness.endpoint:GatedEndpoint"
UPDATE = "update_weights_from_tensor"


Send = Callable[[str, Any, float], Any]


def requests(change: Callable[[Any, Send, str, Any, float], Any]) -> Apply:
    """Each blocking call of the client becomes `change(endpoint, send, op, body, timeout_s)`; `send` takes the rest."""

    def make(original: Any) -> Any:
        def request(self: Any, op: str, body: Any = None, *, timeout_s: float, **more: Any) -> Any:
            def send(op: str, body: Any, timeout_s: float) -> Any:
                return original(self, op, body, timeout_s=timeout_s, **more)

            return change(self, send, op, body, timeout_s)

        return request

    return method(f"{ENDPOINT}.request", make)


def _no_session(_original: Any) -> Any:
    return lambda self, engines, deadline: None


def _end_on_success_only(original: Any) -> Any:
    return lambda self, guards, *rest: original(self, guards, *rest) if guards.error is None else None


def _begin_without_recovery(_original: Any) -> Any:
    def begin(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.engines import raise_failed

        if self.profile.sessions:
            raise_failed("begin", self._begin(engines, deadline))

    return begin


def _end_anyway(original: Any) -> Any:
    def begin(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        try:
            original(self, engines, deadline)
        except Exception:
            ask(engines, "end_weight_update", {}, 5.0)
            raise

    return begin


def _kv_on_success_only(original: Any) -> Any:
    return lambda self, guards, deadline: original(self, guards, deadline) if guards.error is None else None


def _session_per_bucket(endpoint: Any, send: Send, op: str, body: Any, timeout_s: float) -> Any:
    outcome = send(op, body, timeout_s)
    if op == UPDATE and "weight_version" not in body:
        send("end_weight_update", {}, timeout_s)
        send("begin_weight_update", {}, timeout_s)
    return outcome


def _continue_on_success_only(original: Any) -> Any:
    return lambda self, guards, deadline: original(self, guards, deadline) if guards.error is None else None


def _continue_once(_original: Any) -> Any:
    def resume(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        ask(engines, "continue_generation", {}, 5.0)

    return resume


def _abort_after_pause(original: Any) -> Any:
    def pause(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        original(self, engines, deadline)
        ask(engines, "abort_request", {"abort_all": True}, deadline.work("pause"))

    return pause


def _continue_meanwhile(endpoint: Any, send: Send, op: str, body: Any, timeout_s: float) -> Any:
    if op != UPDATE:
        return send(op, body, timeout_s)
    waiting = endpoint.start(op, body, timeout_s=timeout_s)
    send("continue_generation", {}, timeout_s)
    return waiting()


def _continue_before_end(original: Any) -> Any:
    def end(self: Any, engines: Any, timeout_s: float) -> None:
        from harness.reference.engines import ask

        ask(engines, "continue_generation", {}, timeout_s)
        original(self, engines, timeout_s)

    return end


def _continue_before_kv(original: Any) -> Any:
    def onload(self: Any, guards: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        ask(self._engines, "continue_generation", {}, deadline.giving_back("continue"))
        original(self, guards, deadline)

    return onload


def _in_place(_original: Any) -> Any:
    def pause(self: Any, engines: Any, deadline: Any) -> None:
        from harness.reference.engines import ask

        for engine in engines:
            engine.paused = True
        ask(engines, "pause_generation", {"mode": "in_place"}, deadline.work("pause"))

    return pause


def _flush_each(endpoint: Any, send: Send, op: str, body: Any, timeout_s: float) -> Any:
    return send(op, {**body, "flush_cache": True} if op == UPDATE else body, timeout_s)


def _no_flush(_original: Any) -> Any:
    return lambda self, engines, deadline: None


def _publish_first(original: Any) -> Any:
    def end(self: Any, engines: Any, timeout_s: float) -> None:
        from harness.reference.engines import ask

        ask(engines, "update_weight_version", {"new_version": "published"}, timeout_s)
        original(self, engines, timeout_s)

    return end


def _policy_label(original: Any) -> Any:
    def rollout(self: Any, *args: Any, **named: Any) -> Any:
        return {**original(self, *args, **named), "version": self._version}

    return rollout


def _label_each(label: Callable[[str, int], str]) -> Callable[[Any], Any]:
    """Every update carries a label, as if it were the last one."""

    def make(original: Any) -> Any:
        def post(self: Any, engine: Any, parcel: Any, payloads: Any) -> None:
            import dataclasses

            version, number = self.version, self.__dict__.setdefault("posts", 0)
            self.posts = number + 1
            self.version = label(version, number)
            try:
                original(self, engine, dataclasses.replace(parcel, last=True), payloads)
                engine.complete = parcel.last
            finally:
                self.version = version

        return post

    return make


def _always_may_serve(_original: Any) -> Any:
    return property(lambda self: not self.lost)


def _unknown_error(original: Any) -> Any:
    def init(self: Any, phase: str, engine: str, outcome: Any) -> None:
        original(self, phase, engine, outcome)
        self.args = ("unknown error",)

    return init


def _short_calls(original: Any) -> Any:
    return lambda self, step: min(5.0, original(self, step))


def _twice(endpoint: Any, send: Send, op: str, body: Any, timeout_s: float) -> Any:
    outcome = send(op, body, timeout_s / 2)
    if op == UPDATE and outcome.ending in ("timeout", "dropped"):
        outcome = send(op, body, timeout_s / 2)
    return outcome


def _no_deadline(endpoint: Any, send: Send, op: str, body: Any, timeout_s: float) -> Any:
    return send(op, body, 3600.0)


def _everything_back(original: Any) -> Any:
    def onload(self: Any, engines: Any, timeout_s: float) -> None:
        from harness.reference.engines import ask

        ask(engines, "resume_memory_occupation", {}, timeout_s)

    return onload


MAIN = "NVIDIA-NeMo/RL#3612"
PLANTS = (
    broken(
        "no-session",
        "SESS-1",
        "NVIDIA-NeMo/RL#3519, D09",
        "begin is never called",
        method(f"{CONTROL}.begin", _no_session),
    ),
    broken(
        "end-on-success-only",
        "SESS-3",
        "vllm-project/vllm#39212, D03",
        "a failed refit leaves its session open",
        method(f"{CLIENT}._end", _end_on_success_only),
        method(f"{CONTROL}.begin", _begin_without_recovery),
    ),
    broken(
        "session-per-bucket",
        "SESS-4",
        "sgl-project/sglang#40587, D15",
        "end and begin after every bucket",
        requests(_session_per_bucket),
    ),
    broken(
        "continue-on-success-only",
        "PAUSE-1",
        f"{MAIN}, D01 D02 D04",
        "a failed refit leaves engines paused",
        method(f"{CLIENT}._continue", _continue_on_success_only),
    ),
    broken(
        "continue-once",
        "PAUSE-2",
        "PrimeIntellect-ai/prime-rl#2759",
        "continue is asked once, whatever comes back",
        method(f"{CONTROL}.resume_generation", _continue_once),
    ),
    broken(
        "abort-after-pause",
        "PAUSE-3",
        "radixark/miles#2589",
        "all requests are aborted under the pause",
        method(f"{CONTROL}.pause", _abort_after_pause),
    ),
    broken(
        "continue-meanwhile",
        "PAUSE-5",
        "areal-project/AReaL#1444, OpenRLHF/OpenRLHF#1262",
        "continue is called while the last update is under way",
        requests(_continue_meanwhile),
    ),
    broken(
        "continue-before-end",
        "PAUSE-5",
        "NVIDIA-NeMo/RL#3519",
        "continue is called after the last bucket, before the session is ended",
        method(f"{CONTROL}.end", _continue_before_end),
    ),
    broken(
        "continue-before-kv",
        "PAUSE-6",
        f"{MAIN}, D14",
        "continue is called before the KV pool is back",
        method(f"{CLIENT}._onload_kv", _continue_before_kv),
    ),
    broken(
        "flush-without-waits",
        "CACHE-1",
        "THUDM/slime#1953",
        "a refused flush is asked again at once",
        constant("harness.reference.control:FIRST_WAIT_S", 0.0),
    ),
    broken(
        "flush-frozen-requests",
        "CACHE-3",
        "areal-project/AReaL#140",
        "in_place, and every update flushes",
        method(f"{CONTROL}.pause", _in_place),
        method(f"{CONTROL}.flush", _no_flush),
        requests(_flush_each),
    ),
    broken(
        "no-flush",
        "CACHE-4",
        "PrimeIntellect-ai/prime-rl#1650, D06 D07 D11",
        "the cache is never flushed",
        method(f"{CONTROL}.flush", _no_flush),
    ),
    broken(
        "publish-by-default",
        "VER-1",
        "radixark/miles#2589",
        "the version is published by update_weight_version",
        method(f"{CONTROL}.end", _publish_first),
    ),
    broken(
        "policy's-label",
        "VER-3",
        "rllm-org/rllm#622",
        "samples carry the policy's version",
        method("harness.reference.adapter:ReferenceSut.rollout", _policy_label),
    ),
    broken(
        "label-on-every-bucket",
        "VER-4",
        "NVIDIA-NeMo/RL#3519, D63",
        "the first bucket moves the version",
        method(f"{TRANSFER}._post", _label_each(lambda version, number: version)),
    ),
    broken(
        "label-per-post",
        "VER-71",
        "D41",
        "every bucket has a version of its own",
        method(f"{TRANSFER}._post", _label_each(lambda version, number: f"{version}.{number}")),
    ),
    broken(
        "serve-torn-weights",
        "PART-1",
        "NVIDIA-NeMo/RL#3330, D16",
        "a torn engine is continued",
        method("harness.reference.engines:Engine.may_serve", _always_may_serve),
    ),
    broken(
        "unknown-error",
        "ERR-1",
        "D37",
        "the engine's words are lost",
        method("harness.reference.errors:CallFailed.__init__", _unknown_error),
    ),
    broken(
        "five-seconds-a-call",
        "LIVE-1",
        "PrimeIntellect-ai/prime-rl#1119",
        "every call is given five seconds",
        method("harness.reference.deadline:Deadline.work", _short_calls),
    ),
    broken(
        "update-retried",
        "LIVE-2",
        "PrimeIntellect-ai/prime-rl#3599",
        "an update without an answer is sent again",
        requests(_twice),
    ),
    broken(
        "no-deadline",
        "LOCK-2",
        "sgl-project/sglang#22754, D38 D54",
        "updates are waited for without end",
        requests(_no_deadline),
    ),
    broken(
        "resume-everything",
        "MEM-1",
        "verl-project/verl#7289",
        "all tags are resumed, whatever was released",
        method(f"{CONTROL}.onload_kv", _everything_back),
    ),
    broken(
        "weights-never-onloaded",
        "MEM-2",
        "vllm-project/vllm#57853",
        "weights are written while they are released",
        method(f"{CONTROL}.onload_weights", _no_session),
    ),
    broken("end-anyway", "SESS-71", "D03", "a refused begin is ended", method(f"{CONTROL}.begin", _end_anyway)),
    broken(
        "kv-kept-after-a-failure",
        "MEM-71",
        "NVIDIA-NeMo/RL#3519, D05 D12",
        "a failed refit leaves the KV pool released",
        method(f"{CLIENT}._onload_kv", _kv_on_success_only),
    ),
)
