"""Drivers with one defect each, on gated endpoints."""

import time

from harness.errors import Unsupported
from harness.sut.protocol import RefitResult
from tests.examples.minimal_adapter import Adapter


class Works(Adapter):
    pass


class NoSession(Adapter):
    """No begin and no end, and no continue where something fails."""

    def setup(self, fleet):
        super().setup(fleet)
        real = self.trainer.call

        def call(engine, op, body):
            if op.endswith("_weight_update") or (op == "continue_generation" and self.trainer.torn):
                return
            real(engine, op, {"mode": "abort"} if op == "pause_generation" else body)

        self.trainer.call = call
        self.trainer.update = self.update

    def update(self, engine, state, version):
        names = list(state)
        self.trainer.send(engine, [(name, state[name]) for name in names], {"weight_version": version})
        self.trainer.torn.discard(engine.name)


class DropsReplies(NoSession):
    def setup(self, fleet):
        super().setup(fleet)
        real = self.trainer.call

        def call(engine, op, body):
            try:
                real(engine, op, body)
            except Exception:
                self.trainer.torn.discard(engine.name)

        self.trainer.call = call


class SendsNothing(Adapter):
    def refit(self, deadline_s):
        return RefitResult(self.version)


class Hangs(Adapter):
    def refit(self, deadline_s):
        while True:
            time.sleep(0.01)


class FailsThenHangs(Adapter):
    def refit(self, deadline_s):
        if self.version == "v1":
            raise RuntimeError("no such symbol")
        while True:
            time.sleep(0.01)


class CallsUndeclared(Adapter):
    def refit(self, deadline_s):
        self.trainer.fleet.record("undeclared", 0, {"call": "Policy.extra"})
        return super().refit(deadline_s)


class CallsUnknownRoute(Adapter):
    def refit(self, deadline_s):
        for engine in self.trainer.fleet.endpoints:
            engine.request("post_process_weights", {}, timeout_s=5.0)
        return super().refit(deadline_s)


class NotInstalled(Adapter):
    def setup(self, fleet):
        raise Unsupported("toy is not installed: pip install toy")


class WantsUrls(Adapter):
    def setup(self, fleet):
        assert fleet.endpoints[0].url


class BrokenSetup(Adapter):
    def setup(self, fleet):
        raise ValueError("no config")


class TellsOptions(Adapter):
    def setup(self, fleet):
        super().setup(fleet)
        self.checkout = fleet.options["checkout"]

    def refit(self, deadline_s):
        raise RuntimeError(f"checkout is {self.checkout}")
