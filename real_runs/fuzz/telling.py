"""A divergence for a reader: the shortest sequence, both answers side by side, and a test that is ready to be kept."""

from __future__ import annotations

import json
import pprint
import re
from typing import Any

from real_runs.fuzz.search import Divergence


def told(found: Divergence, version: str, replay: str) -> str:
    """The whole finding as text."""
    lines = [f"✗ the fake differs from {version} after {len(found.steps)} step(s)   seed {found.seed}"]
    for number, step in enumerate(found.steps, 1):
        lines.append(f"  {number}. {json.dumps(step)}")
    width = max(len(key) for key in found.what) + 2
    lines.append(f"  {'':{width}}{'real':<60}  fake")
    for key, (real, fake) in found.what.items():
        lines += _beside(key, _short(real), _short(fake), width)
    lines += [
        f"  replay  {replay}",
        "",
        "a test for tests/real_runs/fuzz/test_found.py:",
        "",
        regression(found, version),
    ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return json.dumps(value)


def _beside(key: str, real: str, fake: str, width: int) -> list[str]:
    rows = max(1, -(-len(real) // 60), -(-len(fake) // 60))
    return [
        f"  {key if row == 0 else '':{width}}{real[row * 60 : row * 60 + 60]:<60}  {fake[row * 60 : row * 60 + 60]}"
        for row in range(rows)
    ]


def regression(found: Divergence, version: str) -> str:
    """A test that fails until the fake answers as the real one did."""
    name = re.sub(r"\W+", "_", f"{found.steps[-1]['op']} {' '.join(found.what)} {version}").strip("_").lower()
    steps = pprint.pformat(list(found.steps), width=112, sort_dicts=False)
    answer = pprint.pformat(found.real[-1], width=112, sort_dicts=False)
    return (
        f"def test_{name}():\n"
        f"    steps = {_indented(steps)}\n"
        f"    assert FakeUpdater({version!r}).play(steps)[-1] == {_indented(answer)}\n"
    )


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
