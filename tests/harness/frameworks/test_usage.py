"""What the caller of `matrix` and `upgrade` got wrong: one line and exit code 4, before any cell."""

from dataclasses import replace

import pytest

from harness import cli
from harness.frameworks import pages, running
from harness.sut.adapters.table import FRAMEWORKS

HERE = "tests.harness.frameworks.drivers"


@pytest.fixture
def no_cells(monkeypatch):
    def never(*args, **options):
        raise AssertionError("a cell was run")

    monkeypatch.setattr(running, "cells", never)


def refused(capsys, *argv):
    assert cli.invoke(argv) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "harness error" not in said.err
    return said.err


@pytest.mark.parametrize("command", [("matrix", "--engine", "fake:0.5.23"), ("upgrade", "--from", "0.5.20")])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--sut", "nope"), "no system under test 'nope'"),
        (("--sut", "no.such.module:x"), "no module named 'no'"),
        (("--sut", "slime", "--sut-option", "checkout=/nonexistent"), "slime: no folder /nonexistent"),
        (("--sut", "slime", "--sut-option", "slime.checkout=" + "x" * 300), "checkout=xxx"),
        (("--sut", "verl", "--sut-option", "checkout=/"), "/ is no checkout of it"),
        (("--sut", "slime", "--sut-option", "chekout=/"), "slime has no such option; it has checkout"),
        (("--sut", "verl", "--checkout", "verl=/"), "/ is no checkout of it"),
        (("--sut", "slime-nccl", "--checkout", "slime=/"), "slime-nccl: / is no checkout of it"),
        (
            ("--sut", "verl", "--checkout", "verb=/tmp"),
            "--checkout 'verb=/tmp' is not of the form NAME=FOLDER; names: verl",
        ),
    ],
)
def test_a_driver_that_is_none(no_cells, capsys, command, options, text):
    assert text in refused(capsys, *command, "--lane", "fake", *options)


def test_a_driver_of_urls_on_a_lane_without(capsys):
    assert "needs --lane http" in refused(
        capsys, "matrix", "--sut", f"{HERE}:WantsUrls", "--lane", "fake", "--engine", "fake:0.5.23"
    )


def test_a_driver_that_is_not_installed_is_a_cell(capsys):
    argv = ("matrix", "--sut", f"{HERE}:NotInstalled", "--lane", "fake", "--engine", "fake:0.5.23")
    assert cli.invoke(argv) == 2
    assert "not run: toy is not installed" in capsys.readouterr().out
    with_another = (*argv[:2], f"{argv[2]},{HERE}:Works", *argv[3:])
    assert cli.invoke(with_another) == 0


def test_a_framework_that_is_not_installed_is_told_on_every_lane_and_by_every_command(capsys, monkeypatch):
    absent = replace(FRAMEWORKS["slime"], package="no_such_package")
    monkeypatch.setattr("harness.sut.adapters.suts.FRAMEWORKS", {**FRAMEWORKS, "slime": absent})
    slime = ("--sut", "slime", "--lane", "fake")
    run = ("run", "--engine", "fake:0.5.23", "--rule", "SESS-1", "--exploration", "off", "--side", "refit", "-n", "1")
    for command in (("matrix", "--engine", "fake:0.5.23"), ("upgrade", "--from", "0.5.20"), run):
        assert cli.invoke((*command, *slime)) == 2
        out = capsys.readouterr().out
        assert f"slime is not installed: {absent.install}"[:60] in " ".join(out.split())
    assert "? nothing was judged of slime: every rule is unsupported\n" in out


def test_an_out_that_cannot_be_written(no_cells, capsys, tmp_path):
    argv = ("matrix", "--sut", f"{HERE}:Works", "--lane", "fake", "--engine", "fake:0.5.23", "--out")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "matrix.html").mkdir(parents=True)
    for out in (tmp_path / "file", "/proc/x", tmp_path / ("x" * 300), tmp_path / "taken"):
        assert str(out) in refused(capsys, *argv, str(out))
    assert (tmp_path / "file").read_text() == "mine"


def test_the_check_leaves_nothing_but_folders(tmp_path):
    pages.check_folder(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["histories"]
