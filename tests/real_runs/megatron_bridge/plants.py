"""The real trainer with a mistake in how its export is used, and a client that does not look at what comes."""

from real_runs.megatron_bridge.sut import MegatronBridgeSut

LOST = "model.layers.1.self_attn.q_proj.weight"


class _Careless(MegatronBridgeSut):
    """Streams what `spoilt` makes of the export, and takes that for the state."""

    def setup(self, fleet):
        super().setup(fleet)
        if self._bridge is not None:
            stream = self._bridge.stream
            self._bridge.stream = lambda rank, *about: self.spoilt(rank, stream(rank, *about))

    def set_weights(self, state, version):
        super().set_weights(state, version)
        self._state = dict(self.spoilt(0, iter(state.items())))

    def spoilt(self, rank, walk):
        return walk


class Renames(_Careless):
    """A mapping of names that is wrong for one tensor."""

    def spoilt(self, rank, walk):
        for name, tensor in walk:
            yield name.replace("q_proj", "query") if name == LOST else name, tensor


class LeavesOut(_Careless):
    """A bucket boundary that loses a tensor; the iterator is drained all the same."""

    def spoilt(self, rank, walk):
        return ((name, tensor) for name, tensor in walk if name != LOST)


class StopsAlone(_Careless):
    """The rank without an engine, or the last one, takes no more of the iterator than it wants."""

    def spoilt(self, rank, walk):
        for taken, item in enumerate(walk):
            if rank and taken == 3:
                return
            yield item
