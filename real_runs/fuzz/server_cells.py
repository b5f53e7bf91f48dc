"""Which (operation, state) cells a run against a server reached, and why the others were not: asked of the fake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from real_runs.comparing import Answer
from real_runs.fuzz.cells import Cell
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import Side

SAME = {"get_model_info": "model_info", "health_generate": "health"}
"""Operations that count as another."""
LIVES = "not drawn"
KILLS = "kills the engine: a start each"
HANGS = "is not answered within a minute"


def why_not(vocabulary: ServerVocabulary, fake: Side, reached: Iterable[Cell]) -> dict[Cell, str]:
    """Every cell that was not reached, with the reason."""
    got = set(reached)
    return {cell: reason(vocabulary, fake, cell) for cell in vocabulary.cells if cell not in got}


def reason(vocabulary: ServerVocabulary, fake: Side, cell: Cell) -> str:
    """What becomes of the plainest call of a cell."""
    done = fake.perform(vocabulary.at(cell))
    if done.died:
        return KILLS
    return HANGS if any(answer.ending == "timeout" for answer in done.answers) else LIVES


def operation(answer: Answer) -> str:
    """The operation of a call as it stands in a cell: a pause counts by its mode."""
    if answer.op == "pause_generation" and isinstance(answer.request, Mapping):
        return f"pause {answer.request.get('mode', 'abort')}"
    return SAME.get(answer.op, answer.op)
