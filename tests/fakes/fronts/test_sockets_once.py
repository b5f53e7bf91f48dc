"""A checkpoint engine's ranks ask for their sockets at once, from threads: the engine has one set of them."""

import threading

from fakes.engine.protocol import EngineConfig
from fakes.fronts.io import Performer


def test_two_ranks_at_once_get_the_same_sockets():
    made, found = [], []
    both = threading.Barrier(2)

    def make():
        made.append(object())
        threading.Event().wait(0.05)  # the other one is asking by now
        return made[-1]

    performer = Performer(EngineConfig(), sockets=make)

    def ask():
        both.wait()
        found.append(performer.sockets())

    ranks = [threading.Thread(target=ask) for _ in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert found == [made[0]] * 2
    assert len(made) == 1
