"""What scenarios will want to know of clean engines, so that a fresh server is asked before any scenario touches it.

Without this, the first such question in the middle of a scenario costs a second server. `questions.json` is written by
`refitcheck real questions` from a run of the same scenarios on fakes; a question that it lacks only costs that start.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from harness.errors import Unsupported
from harness.lanes.base import EngineSpec, Expected
from harness.lanes.fake import FakeLane

Question = tuple[int, tuple[int, ...], int]
"""(seed of the weights, prompt, number of tokens)"""

LANE = "sglang-cpu"
VERSIONS = ("0.5.20", "0.5.23")  # without and with sessions; scenarios differ little beyond that
TP = 2  # has every scenario that tp 1 has


def path() -> Path:
    """Where they are kept."""
    return Path(str(resources.files("real_runs"))) / "questions.json"


def kept(spec: EngineSpec) -> list[Question]:
    """The known questions for the model of `spec`, those of one seed together."""
    found = json.loads(path().read_text("utf-8")).get(_model(spec), [])
    return [(seed, tuple(prompt), n) for seed, n, prompt in found]


def collect(versions: Sequence[str] = VERSIONS) -> dict[str, list[Question]]:
    """Run what fits the real lane on fakes, and note what is asked: by model, sorted."""
    from harness.runner import Runner
    from harness.settings import Settings
    from harness.suites import load_book
    from harness.units import units_of

    lane, book = _Noting(), load_book()
    settings = Settings(versions=tuple(versions), tp=TP, exploration="off")
    runner = Runner(settings, book, lane)
    try:
        for unit in units_of(settings, book, LANE, TP):
            with contextlib.suppress(Unsupported):
                runner.run_once(book.scenarios[unit.scenario], unit.version, unit.sut)
    finally:
        runner.close()
    return {model: sorted(asked) for model, asked in sorted(lane.asked.items())}


def write(found: dict[str, list[Question]]) -> None:
    """Replace the kept ones."""
    models = [f'"{model}": [\n{_lines(asked)}\n]' for model, asked in found.items()]
    path().write_text("{" + ",\n".join(models) + "}\n", encoding="utf-8")


def _lines(asked: Iterable[Question]) -> str:
    return ",\n".join(json.dumps([seed, n, list(prompt)]) for seed, prompt, n in asked)


def _model(spec: EngineSpec) -> str:
    return f"{spec.shape}{'-tied' if spec.tied else ''}-{spec.dtype}"


class _Noting(FakeLane):
    """The fake lane, which notes what it is asked of clean engines."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: dict[str, set[Question]] = {}

    def expected(self, spec: EngineSpec, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        """What the fake's model answers."""
        self.asked.setdefault(_model(spec), set()).add((seed, tuple(prompt), n))
        return super().expected(spec, seed, prompt, n)
