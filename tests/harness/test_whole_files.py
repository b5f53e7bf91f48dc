"""No file of ours is ever there by half: not on a full disk, not after kill -9, not when two runs write the same."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.history_files import read_history
from harness.whole_files import write_whole
from tests.harness.test_cli import RUN, cli  # noqa: F401 - a fixture
from tests.harness.toys import without_progress

ROOT = Path(__file__).parents[2]


def python(code, *arguments, **more):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False, **more)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_and_keeps_its_mode_and_its_link(tmp_path):
    path, link = tmp_path / "r.json", tmp_path / "link"
    write_whole(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~current_umask()
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, b"two")
    assert path.read_bytes() == b"two"
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == ["link", "r.json"]


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_no_plain_file_is_written_in_place(tmp_path):
    read, write = os.pipe()
    write_whole(Path(f"/dev/fd/{write}"), b"through a pipe")
    os.close(write)
    assert os.read(read, 100) == b"through a pipe"
    os.close(read)


def test_standard_output_that_is_a_file_stays_the_file_it_is(tmp_path):
    code = (
        "from pathlib import Path; from harness.whole_files import write_whole; write_whole(Path('/dev/stdout'), b'x')"
    )
    with (tmp_path / "out").open("wb") as out:
        place = os.fstat(out.fileno()).st_ino
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=out, check=True)
    assert ((tmp_path / "out").stat().st_ino, (tmp_path / "out").read_bytes()) == (place, b"x")


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["r.json"])


def test_a_disk_that_fills_up_half_way_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    code = (
        "import resource, sys; from pathlib import Path; from harness.whole_files import write_whole\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_whole(Path(sys.argv[1]), b'x' * 100000)\n"
        "except OSError as error: print(error.strerror)"
    )
    assert python(code, path).stdout == "File too large\n"
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["r.json"])


def test_what_is_appended_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.md"
    path.write_bytes(b"of others\n")
    code = (
        "import resource, sys; from pathlib import Path; from harness.whole_files import append_whole\n"
        "append_whole(Path(sys.argv[1]), b'ours\\n')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: append_whole(Path(sys.argv[1]), b'x' * 100000)\n"
        "except OSError as error: print(error.strerror)"
    )
    assert python(code, path).stdout == "File too large\n"
    assert path.read_bytes() == b"of others\nours\n"


def test_kill_nine_in_the_middle_of_writing_leaves_the_old_content(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    code = (
        "import os, sys; from pathlib import Path; from harness.whole_files import write_whole\n"
        "os.fchmod = lambda *_: os.kill(os.getpid(), 9)\n"
        "write_whole(Path(sys.argv[1]), b'new')"
    )
    assert python(code, path).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"


REAL = ("--rule", "SESS-1", "--exploration", "off", "-n", "1")


def test_two_runs_at_once_may_write_the_same_files(tmp_path):
    files = ("--report", tmp_path / "r.json", "--junitxml", tmp_path / "j.xml", "--histories", tmp_path / "h")
    command = [sys.executable, "-m", "harness.cli", "run", *REAL, *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        _, err = process.communicate(timeout=500)
        assert (process.returncode, without_progress(err)) == (0, "")
    assert json.loads((tmp_path / "r.json").read_text())["counts"]["held"] == 1
    kept = list((tmp_path / "h").iterdir())
    assert len(kept) > 1
    assert all(read_history(path).calls_ for path in kept)
    assert names(tmp_path) == ["h", "j.xml", "r.json"]


def test_a_disk_that_takes_no_more_histories_hides_no_verdict(tmp_path):
    code = (
        "import resource, sys; from harness.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))\n"
        "main(sys.argv[1:])"
    )
    done = python(code, "run", *REAL, "--plant", "no-session", "--histories", tmp_path)
    assert done.returncode == 1
    assert "✗ SESS-1" in done.stdout
    told = without_progress(done.stderr)
    assert told.startswith(f"refitcheck: {tmp_path}/")
    assert told.endswith(": File too large (and no history after it)\n")
    assert told.count("\n") == 1
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_takes_no_histories_is_told_before_anything_runs(cli, tmp_path):  # noqa: F811
    tmp_path.chmod(0o555)
    code, out, err = cli(*RUN, "--histories", str(tmp_path))
    tmp_path.chmod(0o755)
    assert (code, out, err) == (4, "", f"refitcheck: {tmp_path}: Permission denied\n")
