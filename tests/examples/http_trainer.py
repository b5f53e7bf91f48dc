"""A small trainer that knows SGLang (0.5.21 or newer) by its urls only: torch, httpx, and nothing of refitcheck."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import httpx
import numpy as np
import torch
import torch.multiprocessing

# A server is no child of this process, so it cannot be handed file descriptors.
torch.multiprocessing.set_sharing_strategy("file_system")
SESSION_OPEN = "a weight-update session is already open"


class Refused(Exception):
    """A server said no."""

    def __init__(self, op: str, reply: httpx.Response) -> None:
        super().__init__(f"{op}: {reply.status_code} {reply.text}")
        self.status, self.text = reply.status_code, reply.text


class HttpTrainer:
    """Pushes weights into servers, given as url -> tensor-parallel size. A call may take `call_s` real seconds.

    A push has a deadline, which every call of it spends; a third of it is kept for putting things back.

    A server that a failed push has left half updated is `torn`: it stays paused until a push has healed it.
    """

    def __init__(self, servers: Mapping[str, int], *, bucket: int = 8, call_s: float = 4.0) -> None:
        self.servers, self.bucket = dict(servers), bucket
        self.call_s = call_s
        self.client = httpx.Client()
        self.torn: set[str] = set()
        self.until = self.back_by = math.inf  # of time.monotonic: of what is sent, and of what puts things back

    def push(self, state: Mapping[str, np.ndarray], version: str, within_s: float = 60.0) -> None:
        """To every server, also where another one fails; then the first failure is raised."""
        now = time.monotonic()
        self.until, self.back_by = now + within_s * 2 / 3, now + within_s
        errors: list[Exception] = []
        for url in self.servers:
            try:
                self._push(url, state, version)
            except (httpx.HTTPError, Refused) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _push(self, url: str, state: Mapping[str, np.ndarray], version: str) -> None:
        try:
            self.post(url, "pause_generation", {"mode": "retract"})
            self._flush(url)
            self._update(url, state, version)
        finally:
            if url not in self.torn:
                self._continue(url)

    def _update(self, url: str, state: Mapping[str, np.ndarray], version: str) -> None:
        try:
            self.begin(url)
        except Refused as no:
            if no.status >= 500:  # it may have begun all the same
                self.post(url, "end_weight_update", {}, back=True)
            raise
        except httpx.HTTPError:
            self.post(url, "end_weight_update", {}, back=True)
            raise
        try:
            self._send(url, state, version)
        finally:
            self.post(url, "end_weight_update", {}, back=True)
        self.torn.discard(url)

    def begin(self, url: str) -> None:
        try:
            self.post(url, "begin_weight_update", {})
        except Refused as no:
            if SESSION_OPEN not in no.text:
                raise
            self.post(url, "end_weight_update", {})  # left open by a push that failed
            self.post(url, "begin_weight_update", {})

    def _send(self, url: str, state: Mapping[str, np.ndarray], version: str) -> None:
        names = list(state)
        for at in range(0, len(names), self.bucket):
            tensors = [(name, state[name]) for name in names[at : at + self.bucket]]
            body: dict[str, Any] = {"serialized_named_tensors": payloads(tensors, self.servers[url])}
            if at + self.bucket >= len(names):
                body["weight_version"] = version
            self.torn.add(url)
            self.post(url, "update_weights_from_tensor", {**body, "flush_cache": False})

    def _flush(self, url: str) -> None:
        """400 is "not idle yet"."""
        wait_s, until = 0.05, min(time.monotonic() + 3.0, self.until)
        while True:
            try:
                self.post(url, "flush_cache")
                return
            except Refused as no:
                if no.status != 400 or time.monotonic() > until:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)

    def _continue(self, url: str, attempts: int = 4) -> None:
        """Until it is confirmed: asking twice does no harm."""
        for left in reversed(range(attempts)):
            try:
                self.post(url, "continue_generation", {}, back=True)
                return
            except (httpx.HTTPError, Refused):
                if not left or time.monotonic() > self.back_by:
                    raise
            time.sleep(0.05)

    def post(self, url: str, op: str, body: Any = None, *, back: bool = False) -> None:
        left = (self.back_by if back else self.until) - time.monotonic()
        reply = self.client.post(f"{url}/{op}", json=body, timeout=max(0.05, min(self.call_s, left)))
        if reply.status_code != 200 or '"success":false' in reply.text.replace(" ", ""):
            raise Refused(op, reply)


def payloads(tensors: Sequence[tuple[str, np.ndarray]], ranks: int) -> list[str]:
    """One per tensor-parallel rank: base64 of pickled (name, tensor) pairs in torch's CPU shared memory."""
    named = [(name, _tensor(array)) for name, array in tensors]
    return [base64.b64encode(bytes(ForkingPickler.dumps(named))).decode() for _ in range(ranks)]


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":  # numpy has it from ml_dtypes only
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())
