"""Folders of killed runs go at the next start; folders of live ones never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.lanes.run_folder import UNLOCKED_S, RunFolder, full, no_room, sweep
from harness.run import LEFT
from tests.harness.test_cli import RUN, cli  # noqa: F401 - a fixture

PREFIX = "refitcheck-test-"


@pytest.fixture(autouse=True)
def tmpdir(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    monkeypatch.undo()
    tempfile.tempdir = None


def killed_owner(tmpdir, note):
    code = (
        "import sys; from harness.lanes.run_folder import RunFolder;"
        f"folder = RunFolder({PREFIX!r}, {note!r}); (folder.path / 'x').write_text('x');"
        "print(folder.path, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmpdir)},
    )  # fmt: skip
    path = Path(owner.stdout.readline().strip())
    return owner, path


def test_a_folder_outlives_sweeps_as_long_as_its_owner(tmpdir):
    owner, path = killed_owner(tmpdir, "note")
    with owner:
        assert sweep(PREFIX) == []
        assert (path / "x").exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert sweep(PREFIX) == ["note"]
    assert not path.exists()
    assert sweep(PREFIX) == []


def test_a_closed_folder_is_gone_and_may_be_closed_again(tmpdir):
    folder = RunFolder(PREFIX)
    assert folder.path.parent == tmpdir
    assert sweep(PREFIX) == []
    folder.close()
    folder.close()
    assert list(tmpdir.iterdir()) == []


def test_a_folder_that_was_never_locked_is_swept_when_it_is_old(tmpdir):
    old, young, other = tmpdir / f"{PREFIX}old", tmpdir / f"{PREFIX}young", tmpdir / "unrelated"
    for folder in (old, young, other):
        folder.mkdir()
    then = young.stat().st_mtime - UNLOCKED_S - 60
    os.utime(old, (then, then))
    os.utime(other, (then, then))
    sweep(PREFIX)
    assert (old.exists(), young.exists(), other.exists()) == (False, True, True)


def test_a_link_is_no_folder_of_ours(tmpdir):
    precious = tmpdir / "precious"
    precious.mkdir()
    (precious / "owner").write_text("x")
    (tmpdir / f"{PREFIX}link").symlink_to(precious)
    assert sweep(PREFIX) == []
    assert (precious / "owner").exists()


def test_no_room_is_told_with_what_to_do(tmpdir, monkeypatch):
    assert full(tmpdir) == ""
    assert list(tmpdir.iterdir()) == []
    assert full(tmpdir / "nowhere").startswith(f"{tmpdir / 'nowhere'}: No such file or directory; set TMPDIR")
    said = no_room(Path("/t"), OSError(28, "No space left on device"))
    assert said == "/t: No space left on device; free some space, or set TMPDIR to a folder with more"
    monkeypatch.setattr(tempfile, "tempdir", str(tmpdir / "nowhere"))
    with pytest.raises(HarnessError, match="set TMPDIR"):
        RunFolder(PREFIX)


def test_a_run_sweeps_what_killed_runs_left_of_their_scenarios(tmp_path, cli):  # noqa: F811 - the fixture
    for name in LEFT:
        for kind in ("old", "new"):
            (tmp_path / f"{name}{kind}").mkdir()
        os.utime(tmp_path / f"{name}old", (0, 0))
    assert cli(*RUN, "--rule", "TOY-1")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}new" for name in LEFT)
