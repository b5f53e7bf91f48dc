"""A file of the user's that ends, interrupts, hangs or doubles the process is one line with its name, exit code 4."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from harness.errors import RefitcheckError
from harness.mutate import catalogue, command, guard
from harness.mutate.cli import _workers
from harness.mutate.files import load_object
from harness.mutate.rule_checks import book_with

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "house_rules.py")
LOADS = {
    "mutants": lambda name: catalogue.load([name], installed=False),
    "suite": lambda name: book_with([name]),
}
ENDS = {
    "import sys; sys.exit(7)": "SystemExit: 7",
    "raise BaseException('x')": "BaseException: x",
    "raise GeneratorExit": "GeneratorExit: ",
    "import posix; posix._exit(0)": "mine.py: its import ended the process (exit 0)",
    "import os; os.kill(os.getpid(), 9)": "mine.py: its import ended the process (SIGKILL)",
    "raise KeyboardInterrupt": "mine.py: its import raised KeyboardInterrupt, and nobody interrupted it",
    "while True: pass": "mine.py: its import hangs: no end within 0.5 s",
    "import time; time.sleep(1e6)": "mine.py: its import hangs: no end within 0.5 s",
    "import signal; signal.pthread_sigmask(0, range(1, 32)); signal.pause()": "hangs: no end within 0.5 s",
}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("mine.py").write_text(text)
        return "mine.py"

    return write


@pytest.mark.parametrize("attribute", LOADS)
@pytest.mark.parametrize("called", [False, True], ids=["imported", "called"])
@pytest.mark.parametrize("line", ENDS)
def test_it_is_one_line(mine, monkeypatch, line, called, attribute):
    monkeypatch.setattr(guard, "IMPORT_S", 0.5 if "no end" in ENDS[line] else 500.0)
    name = mine(f"def {attribute}():\n{textwrap.indent(line, '    ')}\n" if called else line)
    with pytest.raises(RefitcheckError) as caught:
        guard.guarded(lambda: len(LOADS[attribute](name)))
    assert caught.value.exit_code == 4
    assert ENDS[line] in str(caught.value)
    assert "mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_it_prints_is_no_part_of_what_we_print(mine, capsys):
    assert load_object(mine("print('x'); mutants = 5"), "mutants") == 5
    assert capsys.readouterr() == ("", "x\n")


FORKS = "import os\nif pid := os.fork():\n    os.waitpid(pid, 0)\n"


@pytest.mark.parametrize(
    "text", [FORKS + "mutants = []", "def mutants():\n" + textwrap.indent(FORKS, "    ") + "    return []"]
)
def test_a_fork_that_comes_out_of_it_ends_there(mine, tmp_path, text):
    name = mine(text)

    def work():
        catalogue.load([name], installed=False)
        with (tmp_path / "came").open("a") as file:
            file.write("x")
        return 0

    assert guard.guarded(work) == 0
    assert (tmp_path / "came").read_text() == "x"


def test_the_limit_is_that_of_the_import_alone(monkeypatch):
    said = []
    monkeypatch.setattr(guard, "stage", lambda name, limit=0.0: said.append((name, limit)))
    monkeypatch.setattr(guard, "_now", ("outside", 7.0))
    with pytest.raises(KeyError), guard.staged("inside", 3.0):
        raise KeyError
    assert said == [("inside", 3.0), ("outside", 7.0)]


def test_list_shows_the_rules_and_the_mutants_of_a_file(capsys):
    request = command.Request(only_list=True, rule_files=(EXAMPLE,), catalogues=(EXAMPLE,), rules=("HOUSE",))
    assert command.run(request) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["HOUSE-1", "MUST"], ["house-abort", "HOUSE-1"]]


@pytest.mark.parametrize("text", ["0", "00", "-1", "x", "\u0662", "257", "100000", "9" * 5000])
def test_a_number_of_processes_that_no_machine_has_is_one_line(text):
    with pytest.raises(RefitcheckError, match=r"^-j ") as caught:
        _workers(text)
    assert len(str(caught.value)) < 120


def test_a_folder_of_recordings_that_is_none_is_told_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "load", lambda files: pytest.fail("loaded"))
    (tmp_path / "file").touch()
    for place in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(RefitcheckError, match="no recordings") as caught:
            command.run(command.Request(replay=place))
        assert caught.value.exit_code == 4


def test_as_many_processes_as_are_asked_for():
    assert [_workers(text) for text in ("1", "08", "256")] == [1, 8, 256]
