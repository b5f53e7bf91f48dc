"""Recipes are whole, launchers are sound shell, and what they run is what the dry run prints."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import subprocess

import pytest
import typer
from typer.testing import CliRunner

from harness.errors import UsageError
from real_runs.launching import cli
from real_runs.launching.launchers import Launch
from real_runs.launching.recipes import book, named, parsed, settled

APP = typer.Typer()
APP.command()(cli.launch)
RECIPES = sorted(book().recipe)
ADDRESS = {"local": "", "slurm": "", "ray": "http://head:8265"}
ODD = "/models/it's $HOME `here`"


PLAIN = "/models/Qwen3-0.6B@main"


def made(name, where, run="", **overrides):
    recipe = named(name)
    run = run or ("/runs/a" if where == "ray" else "/runs/a b")
    if recipe.runs == "trainer":
        overrides.setdefault("train", "bash train.sh --steps 4")
    return Launch(name, where, run, overrides, ADDRESS[where])


EVERY = [(name, where) for name in RECIPES for where in ADDRESS if where != "local" or book().recipe[name].nodes == 1]


def test_the_recipes_are_those_that_were_asked_for():
    found = {(r.nodes, r.gpus_per_node, r.tp, r.world_size, r.engines, r.colocated) for r in book().recipe.values()}

    assert {
        (1, 1, 1, 1, 1, True),
        (1, 2, 2, 2, 1, True),
        (1, 2, 1, 2, 1, False),
        (1, 3, 2, 3, 1, False),
        (1, 4, 2, 3, 1, False),
        (1, 4, 2, 4, 2, True),
        (2, 4, 1, 5, 4, False),
        (16, 8, 2, 65, 32, False),
        (32, 4, 2, 65, 32, False),
    } == found


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_adds_up(name):
    recipe = named(name)
    ranks = recipe.engines * recipe.tp

    assert recipe.gpus >= ranks + (0 if recipe.colocated else recipe.trainer_gpus)
    assert recipe.world_size == ranks + (0 if recipe.colocated else 1)
    assert set(recipe.overrides) <= book().defaults.keys()
    assert (recipe.transfer == "tensor") is recipe.colocated
    assert ("train" in recipe.overrides) is (recipe.runs == "trainer")


@pytest.mark.parametrize(("name", "where"), EVERY)
def test_a_launcher_is_sound_shell_and_can_be_executed(name, where, tmp_path):
    path = tmp_path / "launch.sh"
    made(name, where, model=PLAIN if where == "ray" else ODD).write(path)

    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
    assert "{{" not in path.read_text()
    checked = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    if shutil.which("shellcheck"):  # SC2016: what is quoted is to stay as it is
        checked = subprocess.run(["shellcheck", "--exclude=SC2016", path], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(("name", "where"), EVERY)
def test_a_dry_run_prints_every_command(name, where):
    launch = made(name, where)
    sets = [f"--set={key}={value}" for key, value in launch.overrides.items()]
    address = ["--address", launch.address] if launch.address else []
    found = CliRunner().invoke(APP, [name, "--on", where, "--run", launch.run, *sets, *address, "--dry-run"])

    assert found.exit_code == 0, found.output
    assert found.output == launch.script()
    for command in launch.commands():
        assert shlex.join(command) in found.output


STUB = """#!/usr/bin/env bash
printf '%s\\n' "$(basename "$0")" "$@" --- >>"$STUB_LOG"
"""


@pytest.mark.parametrize("status", [0, 2])
def test_what_runs_is_what_was_said_and_the_run_s_own_exit_comes_last(tmp_path, status):
    launch = made("1gpu", "local", run=str(tmp_path / "the run"), model=ODD)
    path = tmp_path / "launch.sh"
    launch.write(path)
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "refitcheck"
    stub.write_text(STUB + f'if [ "$1" = run ]; then exit {status}; fi\n')
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}", "STUB_LOG": str(tmp_path / "log")}
    done = subprocess.run([path], env=environment, check=False, capture_output=True, text=True)

    assert done.returncode == status, done.stderr
    said = [words.split("\n") for words in (tmp_path / "log").read_text().removesuffix("---\n").split("\n---\n")]
    assert [[word for word in words if word] for words in said] == launch.commands()
    assert (tmp_path / "the run").is_dir()
    again = subprocess.run([path], env=environment, check=False, capture_output=True, text=True)
    assert again.returncode == 4
    assert "is there already" in again.stderr


@pytest.mark.parametrize(
    ("option", "run", "overrides"),
    [
        ("--run", "runs;touch", {}),
        ("--run", "a b", {}),
        ("--set model", "r", {"model": "m$(touch"}),
        ("--set model", "r", {"model": "m x"}),
        ("--set model", "r", {"model": '"m"'}),
        ("--set model", "r", {"model": "~/m"}),
        ("--set image", "r", {"image": "é"}),
        ("--set nvls", "r", {"nvls": "0|1"}),
        ("--set train", "r", {"train": "bash $HOME/x"}),
        ("--set train", "r", {"train": "bash 'x y'"}),
        ("--set train", "r", {"train": "a && b"}),
    ],
)
def test_nothing_gets_into_a_ray_job_that_a_shell_would_read_again(option, run, overrides):
    with pytest.raises(UsageError, match=f"^{option}: .*a shell of the cluster") as found:
        made("2x4", "ray", run=run, **overrides)
    assert found.value.exit_code == 4
    assert len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize("name", RECIPES)
def test_a_ray_job_is_the_same_words_after_ray_has_joined_them_and_a_shell_has_split_them(name):
    launch = made(name, "ray", model="a-z_A.Z/0:9=@%+,")

    for command in launch.commands():
        assert shlex.split(subprocess.list2cmdline(command)) == command
        assert shlex.join(command).replace("'", "") == subprocess.list2cmdline(command)


def test_the_words_of_a_trainer_stay_apart_on_ray_and_are_a_shell_s_elsewhere():
    words = "bash  train.sh --steps 4"

    assert made("2x4", "ray", train=words).commands()[0] == ["bash", "train.sh", "--steps", "4"]
    assert made("2x4", "slurm", train=words).commands()[0] == ["bash", "-c", words]
    with pytest.raises(UsageError, match="--set train="):
        made("2x4", "ray", train="  ")


def test_a_trainer_is_told_what_is_expected_of_it():
    told = made("2x4", "ray", steps="7").environment

    assert {key: told[f"REFITCHECK_{key}"] for key in ("RUN", "RECIPE", "STEPS", "WORLD_SIZE", "ENGINES", "TP")} == {
        **{"RUN": "/runs/a", "RECIPE": "2x4", "STEPS": "7", "WORLD_SIZE": "5", "ENGINES": "4", "TP": "1"}
    }
    assert (told["NCCL_NVLS_ENABLE"], told["NCCL_CUMEM_ENABLE"]) == ("0", "0")
    assert "REFITCHECK_RUN" not in made("1gpu", "local").environment


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": "64gpu"}, "no recipe 64gpu; there are 1gpu"),
        ({"where": "cloud"}, "give local, ray, slurm"),
        ({"recipe": "16x8"}, "has 16 nodes: --on ray or --on slurm"),
        ({"recipe": "16x8", "where": "slurm"}, "--set train="),
        ({"where": "ray"}, "--address is that of the Ray cluster"),
        ({"address": "http://h:8265"}, "--address is that of the Ray cluster"),
        ({"run": ""}, "needs a folder"),
        ({"run": "."}, "needs a folder"),
        ({"run": "/"}, "needs a folder"),
        ({"run": "a/.."}, "needs a folder"),
        ({"run": "-rf"}, "would be read as an option"),
        ({"overrides": {"seed": "-1"}}, "--set seed=-1: give 0 to"),
        ({"overrides": {"time_limit_minutes": "-5"}}, "--set time_limit_minutes=-5: give 1 to"),
        ({"overrides": {"time_limit_minutes": "0"}}, "--set time_limit_minutes=0: give 1 to"),
        ({"recipe": "2x4", "where": "slurm", "overrides": {"gate_bound": "nan"}}, "gate_bound=nan: give 1 to 2"),
        ({"recipe": "2x4", "where": "slurm", "overrides": {"steps": "0"}}, "steps=0: give 1 to"),
        ({"recipe": "2x4", "where": "slurm", "overrides": {"window": "-1"}}, "window=-1: give 1 to"),
        ({"run": "a\n#SBATCH --nodes=99"}, "control characters"),
        ({"overrides": {"model": "a\nb"}}, "control characters"),
        ({"overrides": {"learning_rate": "1"}}, "learning_rate is no key of this recipe; it has version, seed"),
        ({"overrides": {"steps": "4"}}, "steps is no key of this recipe"),
        ({"overrides": {"seed": "lots"}}, "seed=lots is no int"),
    ],
)
def test_what_cannot_be_launched_is_one_line(changes, said):
    fields = {"recipe": "1gpu", "where": "local", "run": "r", "overrides": {}, "address": ""} | changes
    with pytest.raises(UsageError, match=said):
        Launch(**fields)


def test_overrides_are_parsed_and_have_the_type_of_their_default():
    assert settled(named("2x4"), parsed(["gate_bound=1.1", "model=a=b"]))["gate_bound"] == 1.1
    assert parsed(["model=a=b"]) == {"model": "a=b"}
    for words in (["model"], ["=x"], ["a=1", "a=2"]):
        with pytest.raises(UsageError, match="give every key once"):
            parsed(words)


def test_the_list_and_a_written_launcher(tmp_path):
    listed = CliRunner().invoke(APP, [])
    assert [line.split()[0] for line in listed.output.splitlines()] == list(book().recipe)
    path = tmp_path / "x.sh"
    found = CliRunner().invoke(APP, ["1gpu", "--run", "r", "--write", str(path)])
    assert (found.exit_code, found.output) == (0, f"{path}\n")
    assert path.read_text() == dataclasses.replace(made("1gpu", "local"), run="r").script()
    assert CliRunner().invoke(APP, ["1gpu", "--set", "x=1"]).exit_code == 4
    assert CliRunner().invoke(APP, ["1gpu", "--write", str(tmp_path / "no" / "x.sh")]).exit_code == 4


@pytest.mark.parametrize("words", [["--write", "x.sh"], ["--run", "x"]])
def test_a_file_that_is_there_stays(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "STARTERS", {})
    (tmp_path / "x.sh").write_text("kept")
    found = CliRunner().invoke(APP, ["1gpu", *words])

    assert (found.exit_code, "x.sh is there already" in found.output) == (4, True)
    assert (tmp_path / "x.sh").read_text() == "kept"


@pytest.mark.parametrize("word", ["--run=", "--run=-rf", "--run=."])
def test_a_run_without_a_folder_of_its_own_is_one_line(tmp_path, word):
    found = CliRunner().invoke(APP, ["1gpu", word, "--write", str(tmp_path / "x.sh")])

    assert (found.exit_code, len(found.output.splitlines())) == (4, 1)
    assert not (tmp_path / "x.sh").exists()


def test_it_is_started_and_its_exit_is_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "STARTERS", {"local": ["bash", "-c", 'exit 3 # "$0"']})
    found = CliRunner().invoke(APP, ["1gpu", "--run", str(tmp_path / "r")])

    assert found.exit_code == 3
    assert os.access(tmp_path / "r.sh", os.X_OK)
