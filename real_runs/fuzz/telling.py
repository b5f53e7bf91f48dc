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
        lines += beside(key, _short(real), _short(fake), width)
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


def beside(key: str, real: str, fake: str, width: int) -> list[str]:
    """Two texts in columns of 60 characters."""
    rows = max(1, -(-len(real) // 60), -(-len(fake) // 60))
    return [
        f"  {key if row == 0 else '':{width}}{real[row * 60 : row * 60 + 60]:<60}  {fake[row * 60 : row * 60 + 60]}"
        for row in range(rows)
    ]


def regression(found: Divergence, version: str) -> str:
    """A test that fails until the fake answers as the real one did."""
    steps = pprint.pformat(list(found.steps), width=112, sort_dicts=False)
    answer = pprint.pformat(found.real[-1], width=112, sort_dicts=False)
    return (
        f"def {name_of(found, version)}():\n"
        f"    steps = {_indented(steps)}\n"
        f"    assert FakeUpdater({version!r}).play(steps)[-1] == {_indented(answer)}\n"
    )


def name_of(found: Divergence, version: str) -> str:
    """The test's name."""
    words = f"{found.steps[-1]['op']} {' '.join(found.what)} {version}"
    return "test_" + re.sub(r"\W+", "_", words).strip("_").lower()


def whole_file(found: Divergence, version: str) -> str:
    """The test as a file of its own."""
    return f"from real_runs.fuzz.fake_updater import FakeUpdater\n\n\n{regression(found, version)}"


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
