"""Every file and folder that a command is told, and what may lie there instead: one line, exit code 4."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import pytest
import typer

from harness.cli import app, invoke
from harness.watchdog import watched

LONG_S = 120.0  # however slow this machine is
RUN = ("run", "--rule", "SESS-1", "--scenario", "refit/envelope/two-refits", "--exploration", "off", "-n", "1")
DIFF = ("diff", "--against", "http://127.0.0.1:1")
RECORD = ("record", "--upstream", "http://127.0.0.1:1", "--engine", "0.5.23", "-o")

READS = {
    "judge files": ("judge", "PLACE"),
    "judge beside": ("judge", "HISTORY", "--beside", "PLACE"),
    "bundle verify sources": ("bundle", "verify", "PLACE"),
    "bundle show source": ("bundle", "show", "PLACE"),
    "bundle rejudge source": ("bundle", "rejudge", "PLACE"),
    "bundle compare source": ("bundle", "compare", "PLACE"),
    "bundle make run": ("bundle", "make", "PLACE", "--out", "new.tar.xz"),
    "evidence validate run": ("evidence", "validate", "PLACE"),
    "guard arguments file": ("guard", "arguments", "--file", "PLACE"),
    "real keep results": ("real", "keep", "PLACE", "--out", "new"),
    "real compare record": ("real", "compare", "PLACE"),
    "real records folder": ("real", "records", "PLACE"),
    "serve model-path": ("serve", "--model-path", "PLACE"),
}
WRITES = {
    "run junitxml": (*RUN, "--junitxml", "PLACE"),
    "run report": (*RUN, "--report", "PLACE"),
    "run summary": (*RUN, "--summary", "PLACE"),
    "run histories": (*RUN, "--histories", "PLACE"),
    "model folder": ("model", "PLACE"),
    "adopt folder": ("adopt", "PLACE"),
    "diff tape": (*DIFF, "--tape", "PLACE"),
    "diff keep_record": (*DIFF, "--keep-record", "PLACE"),
    "diff keep_corpus": (*DIFF, "--keep-corpus", "PLACE"),
    "diff keep_test": (*DIFF, "--keep-test", "PLACE"),
    "evidence validate output": ("evidence", "validate", "EVIDENCE", "-o", "PLACE"),
    "evidence example folder": ("evidence", "example", "PLACE"),
    "matrix out": ("matrix", "--sut", "reference", "--engine", "fake:0.5.23", "--out", "PLACE"),
    "record out": (*RECORD, "PLACE"),
}
ELSEWHERE = {
    "bundle make out": "the run is looked at first",
    "mutate replay": "tests/harness/mutate has it, where a session is cheap",
    "mutate report": "tests/harness/mutate has it, where a session is cheap",
    "mutate equivalents": "tests/harness/mutate has it, where a session is cheap",
    "diff checkout": "starts SGLang's environment first",
    "launch run": "what a recipe needs is looked at first",
    "launch write": "what a recipe needs is looked at first",
    "real record out": "starts a server first",
    "real keep out": "the results are looked at first",
    "real speed python": "starts a server first",
}


def commands(command, path=()):
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), inspect.unwrap(command.callback)


def test_no_option_for_a_place_is_left_out():
    found = {
        f"{name} {option}"
        for name, function in commands(typer.main.get_command(app))
        for option, kind in typing.get_type_hints(function).items()
        if "Path" in str(kind)
    }
    known = READS.keys() | WRITES.keys() | ELSEWHERE.keys()
    assert sorted(found - known) == []


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A history and the evidence of a run that are good."""
    folder = tmp_path_factory.mktemp("given")
    assert invoke([*RUN, "--histories", str(folder / "h")]) == 0
    assert invoke(["evidence", "example", str(folder / "e")]) == 0
    return {"HISTORY": str(next((folder / "h").iterdir())), "EVIDENCE": str(folder / "e")}


@pytest.fixture
def lies(tmp_path, monkeypatch):
    """Puts what is named into a place of an empty working folder, and gives the place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    Path("FOLDER").mkdir()

    def put(name, place):
        if name == "a loop of links":
            Path(place).symlink_to(place)
        elif name == "a folder":
            Path(place).mkdir()
        elif name in FILES:
            Path(place).write_bytes(FILES[name])
        return {"zeros without end": "/dev/zero", "a full disk": "/dev/full", "below a file": "file/x"}.get(name, place)

    Path("file").write_bytes(b"x")
    return put


FILES = {
    "nothing": b"",
    "noise": bytes(range(256)) * 20,
    "zeros": bytes(2**20),
    "deep JSON": b"[" * 200_000,
    "a number of 6000 digits": b'{"a": ' + b"9" * 6000 + b"}",
    "NaN": b'{"a": NaN}',
    "a key twice": b'{"a": 1, "a": 2}',
    "another type": b'"words"',
}
VERDICTS = {
    ("bundle verify sources", "a folder"): 1,
    ("evidence validate run", "a folder"): 1,
    ("guard arguments file", "NaN"): 1,  # an argument that no release has
    ("guard arguments file", "a key twice"): 1,
    ("real records folder", "a folder"): 0,
}
NO_FILES = ("missing", "a folder", "a loop of links", "zeros without end", "below a file")


def told(argv, given, place, capfd):
    words = [given.get(word, word.replace("PLACE", place)) for word in argv]
    with watched(LONG_S, " ".join(words)):
        code = invoke(words)
    return code, *capfd.readouterr()


@pytest.mark.parametrize("option", READS)
def test_what_cannot_be_read_is_one_line(given, lies, capfd, option):
    capfd.readouterr()
    wrong = []
    for number, name in enumerate((*FILES, *NO_FILES)):
        argv = READS[option]
        place = lies(name, f"p{number}")
        code, out, err = told(argv, given, place, capfd)
        if code == VERDICTS.get((option, name), 4) and (code != 4 or (out == "" and err.count("\n") == 1)):
            continue
        wrong.append((name, code, out[-200:], err[-300:]))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("option", WRITES)
def test_where_nothing_can_be_written_is_one_line_that_names_it(given, lies, capfd, option):
    capfd.readouterr()
    wrong = []
    for number, name in enumerate(("a loop of links", "below a file", "a full disk")):
        place = lies(name, f"p{number}")
        code, out, err = told(WRITES[option], given, place, capfd)
        if (code, err.count("\n"), place in err) != (4, 1, True):
            wrong.append((name, code, out[-200:], err[-300:]))
    assert not wrong, "\n".join(map(str, wrong))
