"""What a clean real server answers: asked of an oracle that no scenario touches, remembered on disk.

The oracle is a server of the same kind that is only ever loaded whole and flushed: the first one, before any scenario
has it, and a second one for what could not be foreseen. Answers are kept by environment, server and weights, so that a
second run asks nothing at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.lanes.base import Expected
from real_runs.env import cache_dir
from real_runs.models import TinyModel

Ask = Callable[[int, Sequence[int], int], Expected | None]
"""(seed, prompt, number of tokens) -> what the oracle answers; None when it cannot."""


class Expectations:
    """The answers of one kind of server; `kind` names environment and launch options, `ask` starts the oracle."""

    def __init__(self, kind: str, model: TinyModel, ask: Ask, folder: Path | None = None) -> None:
        self._model, self._ask = model, ask
        name = hashlib.sha256(kind.encode()).hexdigest()[:16]
        self._path = (folder or cache_dir() / "expected") / f"{name}.json"
        self._known = _read(self._path)
        self._changed = False

    def get(self, seed: int, prompt: Sequence[int], n: int) -> Expected | None:
        """Greedy tokens and log-probabilities of the weights of `seed`, nothing cached."""
        if not self.knows(seed, prompt, n):
            answer = self._ask(seed, prompt, n)
            if answer is None:
                return None
            self.add(seed, prompt, n, answer)
        found = self._known[self._key(seed, prompt, n)]
        return Expected(tuple(found["tokens"]), tuple(found["logprobs"]) or None)

    def knows(self, seed: int, prompt: Sequence[int], n: int) -> bool:
        """Whether `get` need not ask."""
        return self._key(seed, prompt, n) in self._known

    def add(self, seed: int, prompt: Sequence[int], n: int, answer: Expected) -> None:
        """What a clean server with the weights of `seed` answered."""
        self._known[self._key(seed, prompt, n)] = {
            "tokens": list(answer.tokens),
            "logprobs": list(answer.logprobs or ()),
        }
        self._changed = True

    def _key(self, seed: int, prompt: Sequence[int], n: int) -> str:
        return f"{self._model.digest(seed)}/{n}/{','.join(map(str, prompt))}"

    def save(self) -> None:
        """Write what is new, beside what another run wrote meanwhile."""
        if not self._changed:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        merged = {**_read(self._path), **self._known}
        handle, temporary = tempfile.mkstemp(dir=self._path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(merged, file)
        os.replace(temporary, self._path)
        self._changed = False


def _read(path: Path) -> dict[str, dict[str, list[Any]]]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
