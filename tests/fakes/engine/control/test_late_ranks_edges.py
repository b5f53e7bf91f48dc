"""What a rank that reads late does with what it finds, and when exactly it looks."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from fakes.engine.late_ranks import LATE_LOOKS, LOOKS_WITHIN_S, READS_WITHIN_S, LateRanks
from fakes.engine.protocol import Block, Raised, ReadDisk
from tests.fakes.engine.control.driver import Driver
from tests.fakes.engine.quantised.test_updates import Quantised

OP = "update_weights_from_disk"


class Late(Driver):
    """An engine of tp 2; `then` is what lies in the folder when rank 1 reads it."""

    def __init__(self, then: Any) -> None:
        super().__init__("0.5.23", tp_size=2)
        self.disk["/new"] = list(self.weights(1).items())
        assert self.call(OP, {"model_path": "/new"}).status == 200
        self.disk["/new"] = then
        self.died_of()

    def died_of(self) -> tuple[int, str] | None:
        self.advance(LOOKS_WITHIN_S + READS_WITHIN_S + 6.0)
        return None if self.died is None else (self.died.rank, self.died.error.type)


def test_it_reads_once_and_says_so() -> None:
    engine = Late(list(Driver("0.5.23").weights(1).items()))
    assert engine.died is None
    told = [(load["rank"], load["load_format"], load["update"]) for load in engine.named("load")]
    assert told == [(0, "disk", 1), (1, "disk", 1)]
    mine = [e for e in engine.effects if isinstance(e, ReadDisk | Block) and e.rank == 1]
    assert [(type(e).__name__, getattr(e, "looks_only", None)) for e in mine] == [
        ("ReadDisk", True), ("Block", None), ("ReadDisk", False), ("Block", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("then", "kind"),
    [
        ([("model.norm.weight", Driver("0.5.23").weights(1)["model.norm.weight"][:3])], "AssertionError"),
        ([(f"model.layers.{'1' * 5000}.x", Driver("0.5.23").weights(1)["model.norm.weight"])], "ValueError"),
        (Raised("OSError", "gone"), "OSError"),
    ],
    ids=["wrong-shape", "wrong-name", "gone"],
)
def test_what_it_cannot_load_kills_by_its_own_name(then: Any, kind: str) -> None:
    assert Late(then).died_of() == (1, kind)


@pytest.mark.parametrize("quantisation", ["mxfp8", "mxfp8-trtllm"])
def test_it_derives_once(quantisation: str) -> None:
    """model_loader/loader.py:1079@0.5.23, on every rank."""

    class Two(Quantised):
        def __init__(self) -> None:
            self._held = quantisation
            Driver.__init__(self, "0.5.23", shape="qwen3", device="cuda", quantisation=quantisation, tp_size=2)

    engine, other = Two(), Two()
    engine.disk["/q"] = list(engine.weights(1).items())
    assert engine.call(OP, {"model_path": "/q"}).status == 200
    engine.advance(LOOKS_WITHIN_S + READS_WITHIN_S + 1.0)
    for rank in other.core.scheduler.ranks:
        rank.load(other.weights(1).items())
        rank.finalise()
    assert engine.state() == other.state()


def test_looks_and_reads_are_drawn_evenly_up_to_their_bounds() -> None:
    engine = Driver("0.5.23", tp_size=2)
    late = LateRanks(engine.core.scheduler, seed=7)
    for update in range(3000):
        late.told(update, "/new", None)
    reads = list(late._queues[1])
    assert len(reads) == 3000
    looks = [read.at for read in reads if read.at]
    assert 0.9 < len(looks) * LATE_LOOKS / len(reads) < 1.1
    for found, bound in ((looks, LOOKS_WITHIN_S), ([read.reads_at - read.at for read in reads], READS_WITHIN_S)):
        steps = {round(time / bound * 256, 6) for time in found}
        assert steps <= set(range(1, 257))
        assert len(steps) > 200
        assert max(steps) > 250
    drawn = hashlib.sha256(b"7/0/1").digest()
    first = reads[0]
    assert (first.at > 0) == (drawn[0] % LATE_LOOKS == 0)
    assert first.reads_at - first.at == pytest.approx(READS_WITHIN_S * (1 + drawn[2]) / 256)
    one = next(read for read in reads if read.at)
    drawn = hashlib.sha256(f"7/{one.update}/1".encode()).digest()
    assert one.at == pytest.approx(LOOKS_WITHIN_S * (1 + drawn[1]) / 256)
