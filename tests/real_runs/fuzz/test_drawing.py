"""A seed repeats: in every process, whatever modules are loaded there."""

import json
import subprocess
import sys

import pytest
from hypothesis import strategies as st

from fakes.engine.profiles import profile
from harness.errors import HarnessError
from real_runs.fuzz.drawing import Even, draw
from real_runs.fuzz.server_search import CHUNK
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.steps import WIDTH, Vocabulary
from tests.real_runs.fuzz.scripted_oracle import PARTS


def drawn(strategy, number, count=20):
    out = []
    draw(strategy, number, count, out.append)
    return out


ALONE = """
import json, sys
from types import ModuleType
from fakes.engine.profiles import profile
from real_runs.fuzz.drawing import draw
from real_runs.fuzz.server_steps import ServerVocabulary
out = []
draw(ServerVocabulary(profile("0.5.23")).strategy(), 3, 20, out.append)
print(json.dumps(out))
"""


def test_another_process_with_other_modules_draws_the_same(tmp_path):
    constants = "\n".join(f"A{n} = {n * 7919 % WIDTH}" for n in range(400))  # of a module as hypothesis looks for them
    (tmp_path / "only_there.py").write_text(constants)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import only_there\n{ALONE}"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=120).stdout
    assert json.loads(said) == drawn(ServerVocabulary(profile("0.5.23")).strategy(), 3)


def test_another_seed_draws_others():
    strategy = Vocabulary(profile("0.5.23"), PARTS).strategy()
    assert drawn(strategy, 3) == drawn(strategy, 3) != drawn(strategy, 4)


def test_as_many_are_drawn_as_were_asked_for_and_evenly():
    values = drawn(st.integers(0, WIDTH - 1), 0, CHUNK * 20)
    assert len(values) == CHUNK * 20
    assert len(set(values)) > CHUNK * 19
    assert WIDTH * 0.4 < sum(values) / len(values) < WIDTH * 0.6


def test_the_smallest_value_of_an_exception_is_found():
    tried = []

    def use(value):
        tried.append(value)
        if value > 1000:
            raise KeyError(value)

    with pytest.raises(KeyError, match="1001"):
        draw(st.integers(0, WIDTH - 1), 0, 50, use, shrink=True)
    assert max(tried) > 1001


def test_an_exception_ends_it_and_comes_as_it_is():
    tried = []

    def use(value):
        tried.append(value)
        if len(tried) == 3:
            raise HarnessError("gone")

    with pytest.raises(HarnessError, match="gone"):
        draw(st.integers(0, WIDTH - 1), 0, 50, use)
    assert len(tried) == 3


def test_what_is_not_drawn_evenly_is_refused():
    even = Even(None)
    for refused in (even.draw_integer, even.draw_float, even.draw_string, even.draw_bytes):
        with pytest.raises(NotImplementedError, match="bounded integers"):
            refused()
