"""Brings a live server back to a clean state, so that the next scenario need not start one: a start costs 25 s."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from packaging.version import Version

from fakes.outcome import Outcome
from real_runs.models import TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.server import Server

# The scheduler takes a finished request out of its running batch a moment after the client has the answer: a flush in
# that moment is refused, and the next generation finds no cached prefix (seen on 0.5.23). Who needs order waits it out.
SETTLE_S = 0.05
_TRIES = 50
_WAIT_S = 0.1
CHECK_PROMPT = (7, 31, 202, 91, 14)


def has_sessions(version: str) -> bool:
    """Whether begin and end exist; the asserting build has them too but is never run here."""
    return Version(version) >= Version("0.5.21")


class Cleaner:
    """Resets one server: nothing paused, running, cached or open, the weights of a seed, and `version`.

    `payloads()` makes what it loads from. It remembers the tokens of every seed's clean weights and finds a reset that
    did not work by them.
    """

    def __init__(
        self,
        server: Server,
        model: TinyModel,
        version: str = "default",
        payloads: Callable[[], TorchPayloads] | None = None,
    ) -> None:
        self._server, self._model, self.version = server, model, version
        self._payloads = payloads
        self._tokens: dict[int, Any] = {}

    def ask(self, op: str, body: Any = None, *, method: str = "POST", timeout_s: float = 30.0) -> Outcome:
        """One call with the key that it needs."""
        spec = self._server.spec
        bearer = spec.api_key if op in ("generate", "model_info") else spec.admin_api_key or spec.api_key
        return self._server.client.request(method, op, body, bearer=bearer, timeout_s=timeout_s)

    def reset(self, seed: int = 0) -> bool:
        """Whether the server is clean now and holds the weights of `seed`; False: start it anew."""
        self.ask("continue_generation", {})
        self.ask("abort_request", {"abort_all": True})
        if not self._flush():
            return False
        if has_sessions(self._server.spec.version):
            self.ask("end_weight_update", {})  # 400 when none is open
        if not self._unload_adapters():
            return False
        # Without a memory saver release is idempotent, so this leaves no tag behind, whichever were released before.
        if not self.ask("release_memory_occupation", {}).ok or not self.ask("resume_memory_occupation", {}).ok:
            return False
        if not self._own_folder() or not self.load(seed):
            return False
        self.ask("update_weight_version", {"new_version": self.version})
        if self.ask("ready", method="GET").status == 503:
            self.ask("health", method="GET")  # a 503 that a scenario provoked stays until a good one
        answer = self.ask("generate", _generation(CHECK_PROMPT, 8))
        if answer.status != 200:
            return False
        tokens = answer.body["output_ids"]
        return bool(self._tokens.setdefault(seed, tokens) == tokens and self._flush())

    def _unload_adapters(self) -> bool:
        """Whether no adapter is loaded any more: /v1/models names them (entrypoints/http_server.py:2010@0.5.23)."""
        if "--enable-lora" not in self._server.spec.extra:
            return True
        listed = self.ask("v1/models", method="GET")
        models = listed.body.get("data", []) if isinstance(listed.body, dict) else []
        names = [str(model["id"]) for model in models if model.get("parent")]
        return listed.ok and all(self.ask("unload_lora_adapter", {"lora_name": name}).ok for name in names)

    def _own_folder(self) -> bool:
        """Whether it says that it serves the folder that it was started with: an update from a disk changes that."""
        own = str(self._server.spec.model)
        if self._served() != own:
            self.ask("update_weights_from_disk", {"model_path": own})
        return self._served() == own

    def _served(self) -> str:
        body = self.ask("model_info", method="GET").body
        return str(body.get("model_path")) if isinstance(body, dict) else ""

    def load(self, seed: int) -> bool:
        """A whole clean update to the weights of `seed`, with its flush."""
        sessions = has_sessions(self._server.spec.version)
        if sessions and not self.ask("begin_weight_update", {}).ok:
            return False
        payloads = self._payloads() if self._payloads else TorchPayloads()
        each = payloads.many([self._model.weights(seed)] * self._model.tp)
        loaded = self.ask(
            "update_weights_from_tensor", {"serialized_named_tensors": each, "load_format": "flattened_bucket"}
        )
        payloads.release()
        ended = not sessions or self.ask("end_weight_update", {}).ok
        return loaded.ok and ended

    def answer(self, prompt: list[int], n: int) -> Outcome:
        """A greedy generation with log-probabilities from an empty cache."""
        if not self._flush():
            return Outcome(ending="timeout", error="the cache could not be flushed")
        return self.ask("generate", {**_generation(prompt, n), "return_logprob": True})

    def _flush(self) -> bool:
        for _ in range(_TRIES):
            if self.ask("flush_cache").status == 200:
                return True
            time.sleep(_WAIT_S)
        return False


def _generation(prompt: Any, n: int) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": n, "ignore_eos": True}
    return {"input_ids": list(prompt), "sampling_params": sampling}
