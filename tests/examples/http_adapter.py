"""Judge a trainer that speaks HTTP: refitcheck run --lane http --sut tests.examples.http_adapter:Adapter."""

from harness.sut.protocol import Caps, RefitResult
from tests.examples.http_trainer import HttpTrainer


class Adapter:
    def capabilities(self):
        return Caps(pause_mode="retract")

    def setup(self, fleet):
        self.trainer = HttpTrainer({endpoint.url: endpoint.tp for endpoint in fleet.endpoints})
        self.second = fleet.options.get("time_scale", 1.0)  # real seconds of one of the engines'

    def set_weights(self, state, version):
        self.state, self.version = state, version

    def refit(self, deadline_s):
        self.trainer.push(self.state, self.version, deadline_s * self.second)
        return RefitResult(self.version)

    def close(self):
        self.trainer.client.close()


class ForgetsBegin(Adapter):
    """The same with a trainer that sends its buckets outside a session."""

    def setup(self, fleet):
        super().setup(fleet)
        self.trainer.begin = lambda url: None
