"""Judge a trainer in process: refitcheck run --sut tests.examples.minimal_adapter:Adapter."""

from harness.sut.protocol import Caps, RefitResult
from tests.examples.minimal_trainer import MinimalTrainer


class Adapter:
    def capabilities(self):
        return Caps(pause_mode="retract")

    def setup(self, fleet):
        self.trainer = MinimalTrainer(fleet)

    def set_weights(self, state, version):
        self.state, self.version = state, version

    def refit(self, deadline_s):
        self.trainer.push(self.state, self.version)
        return RefitResult(self.version)

    def close(self):
        pass


class ForgetsBegin(Adapter):
    """The same with a trainer that sends its buckets outside a session."""

    def setup(self, fleet):
        super().setup(fleet)
        self.trainer.begin = lambda engine: None
