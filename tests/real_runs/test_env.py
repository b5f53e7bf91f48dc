"""Environments, with pip and venv replaced: nothing is installed here."""

import json
import subprocess
import sys
import threading
from collections import namedtuple

import pytest

from real_runs import env, making

ON_311 = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the pins of real SGLang are for Python 3.11")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    monkeypatch.delenv(env.given_env_variable("0.5.23"), raising=False)
    return tmp_path


class Pip:
    """Stands for subprocess.run: makes what venv makes, notes the commands, fails where told."""

    def __init__(self, fail="", output=""):
        self.commands, self.fail, self.output = [], fail, output

    def __call__(self, command, **options):
        self.commands.append(command)
        self.environment = options["env"]
        text = " ".join(command)
        if "-m venv" in text:
            from pathlib import Path

            (Path(command[-1]) / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
            (Path(command[-1]) / "bin").mkdir()
            (Path(command[-1]) / "bin" / "python").touch()
        failed = self.fail and self.fail in text
        return subprocess.CompletedProcess(command, int(bool(failed)), self.output if failed else "0.5.23 93\n")


@pytest.fixture
def pip(monkeypatch):
    fake = Pip()
    monkeypatch.setattr(making.subprocess, "run", fake)
    return fake


@ON_311
def test_an_environment_is_made_once_and_found_again(pip):
    assert env.find("0.5.23") is None
    made = env.make("0.5.23", progress=lambda line: None)
    count = len(pip.commands)

    assert env.find("0.5.23") == made
    assert env.make("0.5.23") == made
    assert len(pip.commands) == count
    assert json.loads((made.folder / "ready.json").read_text())["version"] == "0.5.23"


@ON_311
def test_torch_comes_as_a_cpu_build_and_the_rest_without_dependencies(pip):
    env.make("0.5.23", progress=lambda line: None)
    installs = [command for command in pip.commands if "install" in command]

    assert all("--no-deps" in command for command in installs)
    assert installs[0][-1] == "torch==2.13.0+cpu"
    assert installs[1][-1] == "sglang==0.5.23"
    assert not any("--index-url" in command for command in installs)


@ON_311
def test_an_index_for_torch_is_used_only_when_it_is_given(pip):
    env.make("0.5.23", progress=lambda line: None, torch_index="https://index.invalid/cpu")
    installs = [command for command in pip.commands if "install" in command]

    assert ["--index-url" in command for command in installs] == [True, False]


@ON_311
def test_the_shim_is_switched_on_by_a_pth_file(pip):
    site = env.make("0.5.23", progress=lambda line: None).folder / "lib" / "python3.11" / "site-packages"

    assert (site / "refitcheck_sglang_shim.pth").read_text().endswith("refitcheck_sglang_shim.install()\n")
    assert (site / "refitcheck_sglang_shim.py").exists()


@ON_311
def test_our_python_settings_do_not_reach_pip(pip, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    env.make("0.5.23", progress=lambda line: None)

    assert "PYTHONPATH" not in pip.environment


@ON_311
@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "x\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "disk is full",
        ),
        (
            "WARNING: Retrying ... NewConnectionError('Failed to establish')\nERROR: No matching distribution",
            "no network",
        ),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu\n", "--torch-index URL"),
        ("ERROR: something of its own\n", "ERROR: something of its own"),
        ("", "without a word"),
    ],
)
def test_a_failed_step_is_one_line_and_leaves_nothing(monkeypatch, cache, output, line):
    monkeypatch.setattr(making.subprocess, "run", Pip("pip install", output))

    with pytest.raises(env.EnvError) as caught:
        env.make("0.5.23", progress=lambda line: None)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert env.find("0.5.23") is None
    assert [path for path in (cache / "sglang").iterdir() if path.is_dir()] == []


@ON_311
def test_an_import_that_fails_makes_no_environment(monkeypatch):
    monkeypatch.setattr(making.subprocess, "run", Pip("import sglang", "Traceback\nImportError: no triton\n"))

    with pytest.raises(env.EnvError, match="ImportError: no triton"):
        env.make("0.5.23", progress=lambda line: None)
    assert env.find("0.5.23") is None


@ON_311
def test_a_full_disk_is_said_before_anything_is_made(pip, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(making.shutil, "disk_usage", lambda path: usage(1, 1, 2**30))

    with pytest.raises(env.EnvError, match=r"needs 3 GiB .* 1\.0 are free"):
        env.make("0.5.23", progress=lambda line: None)
    assert pip.commands == []


@ON_311
def test_what_a_killed_run_left_is_swept(pip, cache):
    left = cache / "sglang" / f".{env.key('0.5.23')}.abc"
    left.mkdir(parents=True)

    env.make("0.5.23", progress=lambda line: None)

    assert not left.exists()


@ON_311
def test_two_runs_at_once_make_it_once(pip):
    said, made = [], []
    threads = [threading.Thread(target=lambda: made.append(env.make("0.5.23", progress=said.append))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 2
    assert made[0] == made[1]
    assert sum("-m venv" in " ".join(command) for command in pip.commands) == 1


@ON_311
def test_an_unwritable_cache_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "file"))

    with pytest.raises(env.EnvError, match="cannot make the environment under"):
        env.make("0.5.23", progress=lambda line: None)


def test_a_given_environment_is_used_as_it_is(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setenv("REFITCHECK_SGLANG_ENV_0_5_23", str(tmp_path))

    assert env.make("0.5.23").given
    monkeypatch.setenv("REFITCHECK_SGLANG_ENV_0_5_23", str(tmp_path / "nowhere"))
    with pytest.raises(env.EnvError, match="has no bin/python"):
        env.find("0.5.23")


@pytest.mark.parametrize("version", ["0.4.1", "main", ""])
def test_an_unknown_version_is_one_line(version):
    with pytest.raises(env.EnvError, match=r"known versions: 0\.5\.12\.post1"):
        env.make(version)


def test_pins_by_version():
    new, old, oldest = env.pins("0.5.23"), env.pins("0.5.17"), env.pins("0.5.12.post1")

    assert env.pins("0.5.20") == new
    assert [line for line in new if line.startswith("transformers")] == ["transformers==5.19.0"]
    assert [line for line in old if line.startswith("transformers")] == ["transformers==5.12.1"]
    assert [line for line in oldest if line.startswith("transformers")] == ["transformers==5.6.0"]
    assert [line for line in oldest if line.startswith("xgrammar")] == ["xgrammar==0.2.0"]
    assert not [line for line in new if line.startswith(("torch=", "sglang"))]


def test_the_key_changes_with_what_goes_in(monkeypatch):
    before = env.key("0.5.23")
    monkeypatch.setattr(env, "_shim_text", lambda: "another shim")

    assert env.key("0.5.23") != before
    assert env.key("0.5.22") != env.key("0.5.23")


@ON_311
def test_pip_keeps_the_lock_when_its_run_is_killed(monkeypatch):
    """Else the next run would sweep away the folder under it."""
    inherited = []

    def pip(command, **options):
        inherited.extend(options["pass_fds"])
        return Pip()(command, **options)

    monkeypatch.setattr(making.subprocess, "run", pip)
    made = env.make("0.5.23", progress=lambda line: None)

    assert len(set(inherited)) == 1
    assert made.folder.with_name(made.folder.name + ".lock").exists()


@ON_311
@pytest.mark.parametrize(
    ("output", "kind"),
    [("ERROR: Could not install: [Errno 28] No space left on device", env.EnvUsage), ("ERROR: odd", env.EnvError)],
)
def test_a_full_disk_is_the_callers_to_mend(monkeypatch, output, kind):
    monkeypatch.setattr(making.subprocess, "run", Pip(fail="install", output=output))
    with pytest.raises(env.EnvError) as caught:
        env.make("0.5.23", progress=lambda line: None)
    assert type(caught.value) is kind


def test_what_cannot_be_removed_is_one_line(monkeypatch, cache):
    folder = cache / "sglang" / env.key("0.5.23")
    folder.mkdir(parents=True)

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(making.shutil, "rmtree", refuse)
    with pytest.raises(env.EnvUsage, match=r"cannot remove .*: Permission denied"):
        env.remove("0.5.23")
