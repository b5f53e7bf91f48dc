"""The least that a trainer must do, on gated endpoints: in process it runs in virtual time, on simulated GPU memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.sut.protocol import Endpoint, Fleet

BUCKET = 8  # tensors


class PushError(Exception):
    """An engine said no, or nothing."""


class MinimalTrainer:
    """Pushes weights from the trainer ranks whose GPUs the engines share."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.torn: set[str] = set()

    def push(self, state: Mapping[str, Any], version: str) -> None:
        for engine in self.fleet.endpoints:
            try:
                self.call(engine, "pause_generation", {"mode": "retract"})
                self.flush(engine)
                self.update(engine, state, version)
            finally:
                if engine.name not in self.torn:
                    self.call(engine, "continue_generation", {})

    def update(self, engine: Endpoint, state: Mapping[str, Any], version: str) -> None:
        self.begin(engine)
        names = list(state)
        try:
            for at in range(0, len(names), BUCKET):
                label = {"weight_version": version} if at + BUCKET >= len(names) else {}
                self.send(engine, [(name, state[name]) for name in names[at : at + BUCKET]], label)
        finally:
            self.call(engine, "end_weight_update", {})
        self.torn.discard(engine.name)

    def begin(self, engine: Endpoint) -> None:
        self.call(engine, "begin_weight_update", {})

    def send(self, engine: Endpoint, named: list[tuple[str, Any]], label: dict[str, str]) -> None:
        self.torn.add(engine.name)
        exports = [
            self.fleet.trainer.export(gpu, named, ((engine.name, rank),)) for rank, gpu in enumerate(engine.gpu_ids)
        ]
        try:
            body = {"serialized_named_tensors": [export.payload for export in exports], "flush_cache": False}
            self.call(engine, "update_weights_from_tensor", {**body, "load_format": "flattened_bucket", **label})
        finally:
            for export in exports:
                export.release()

    def flush(self, engine: Endpoint) -> None:
        until, wait_s = self.fleet.clock.now() + 20.0, 0.1
        while (outcome := engine.request("flush_cache", timeout_s=10.0)).status == 400:
            if self.fleet.clock.now() > until:
                break
            self.fleet.clock.sleep(wait_s)
            wait_s *= 2
        if not outcome.ok:
            raise PushError(f"flush_cache: {outcome.text}")

    def call(self, engine: Endpoint, op: str, body: Any) -> None:
        outcome = engine.request(op, body, timeout_s=10.0)
        if not outcome.ok:
            raise PushError(f"{op}: {outcome.text}")
