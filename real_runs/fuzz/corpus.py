"""Sequences with the answers of the real one, kept small: those that first reached a cell or an outcome."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from real_runs.fuzz.cells import reached
from real_runs.fuzz.steps import Answer, Step


class Kept(msgspec.Struct, frozen=True):
    """One sequence and what the real one answered to each of its steps."""

    steps: list[Step]
    answers: list[Answer]


class Corpus:
    """Keeps a sequence when it shows a cell with an outcome that none before it showed."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self._seen: set[tuple[str, ...]] = set()

    def offer(self, steps: Sequence[Step], answers: Sequence[Answer]) -> None:
        """Keep it if it is new."""
        shown = {
            (*cell, "raised" if "raised" in answer else str(answer["success"]), _kind(answer))
            for cell, answer in zip(reached(steps, answers), answers, strict=False)
        }
        if shown - self._seen:
            self._seen |= shown
            self.kept.append(Kept(list(steps[: len(answers)]), list(answers)))


def _kind(answer: Answer) -> str:
    return str(answer["raised"][0]) if "raised" in answer else (answer["message"] or "")[:40]


def write(path: Path, kept: Iterable[Kept]) -> None:
    """One JSON line a sequence, compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(b"".join(msgspec.json.encode(entry) + b"\n" for entry in kept), preset=9))


def read(path: Path) -> list[Kept]:
    """The sequences of a file."""
    return [msgspec.json.decode(line, type=Kept) for line in lzma.decompress(path.read_bytes()).splitlines()]
