"""The guards by themselves: what each finds, and what it says of what it cannot look at."""

from __future__ import annotations

import dataclasses
import json

import pytest

from harness.cli import invoke
from harness.errors import HarnessError, UsageError
from harness.guards import cases, subjects
from harness.guards.arguments import unknown_arguments
from harness.guards.child import ask_child
from harness.guards.imports import forbidden_imports
from harness.guards.subjects import Subject


@pytest.fixture
def package(tmp_path, monkeypatch):
    def write(**files: str) -> str:
        folder = tmp_path / "toy_trainer"
        folder.mkdir(exist_ok=True)
        for name, text in {"__init__": "", **files}.items():
            (folder / f"{name}.py").write_text(text)
        return str(tmp_path)

    return write


@pytest.mark.parametrize("case", [case for case in cases.IMPORTS if not case.executed], ids=lambda case: case.id)
def test_each_spelling_is_found_where_it_stands(case):
    with cases.subject_of(case) as toy:
        found = subjects.import_findings(toy)
    assert bool(found) == bool(case.word)
    assert not found or all(case.word in line for line in found)


def test_a_computed_import_is_found_by_the_run_alone():
    (case,) = [case for case in cases.IMPORTS if case.executed]
    with cases.subject_of(case) as toy:
        assert forbidden_imports(toy.drivers, toy.not_installed, toy.paths) == []
        (line,) = subjects.import_findings(toy)
    assert line.endswith("raises ModuleNotFoundError: No module named 'no_such_engine'")
    assert "driver.py:2: importlib.import_module('no_such_' + 'engine')" in line


def test_the_way_to_an_import_is_told(package):
    path = package(driver="from . import one\n", one="import toy_trainer.two\n", two="import sglang.srt\n")
    (found,) = forbidden_imports(["toy_trainer.driver"], ["sglang"], [path])
    assert str(found).endswith(
        "two.py:1: import sglang.srt: imports sglang.srt"
        " (through toy_trainer.driver -> toy_trainer.one -> toy_trainer.two)"
    )


def test_patterns_and_packages_stand_for_all_that_is_in_them(package):
    path = package(driver="import toy_trainer.a_worker\nimport toy_trainer.workers\n", a_worker="", workers="")
    of = lambda *names: [f.imported for f in forbidden_imports(["toy_trainer.driver"], names, [path])]  # noqa: E731
    assert of("toy_trainer.*_worker") == ["toy_trainer.a_worker"]
    assert of("toy_trainer.worker") == []
    assert of("toy_trainer") == ["toy_trainer.a_worker", "toy_trainer.workers"]


def test_packages_without_an_init_are_packages_too(tmp_path):
    inner = tmp_path / "toy_space" / "inner"
    inner.mkdir(parents=True)
    (inner / "driver.py").write_text("from .helper import x\n")
    (inner / "helper.py").write_text("import torch.nn\n")
    (found,) = forbidden_imports(["toy_space.inner.driver"], ["torch"], [str(tmp_path)])
    assert (found.module, found.imported) == ("toy_space.inner.helper", "torch.nn")


def test_circular_imports_end(package):
    path = package(driver="from . import one\n", one="from . import driver\nimport torch\n")
    assert [f.module for f in forbidden_imports(["toy_trainer.driver"], ["torch"], [path])] == ["toy_trainer.one"]


def test_an_installed_package_that_is_missing_there_is_found_by_the_run(package):
    path = package(driver="__import__('ju' + 'nitparser')\n")
    (line,) = subjects.import_findings(
        Subject(drivers=("toy_trainer.driver",), not_installed=("junitparser",), paths=(path,))
    )
    assert "No module named 'junitparser'" in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def (:\n", "no Python that this interpreter reads"),
        ("\x00", "no Python that this interpreter reads"),
        ("x = " + "(" * 3000 + ")" * 3000, "driver.py: "),
        ("# coding: nonsense\n", "unknown encoding"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_line(package, text, told):
    path = package(driver=text)
    with pytest.raises(UsageError, match=told):
        forbidden_imports(["toy_trainer.driver"], ["torch"], [path])


def test_a_driver_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"no_such_trainer\.driver: no Python source"):
        forbidden_imports(["no_such_trainer.driver"], ["torch"])


def test_a_driver_that_fails_for_another_reason_is_no_verdict(package):
    path = package(driver="raise KeyError('config')\n")
    with pytest.raises(HarnessError, match=r"for another reason: KeyError: 'config' \(.*driver\.py:1: raise KeyError"):
        subjects.import_findings(Subject(drivers=("toy_trainer.driver",), not_installed=("torch",), paths=(path,)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\nos._exit(7)\n", "toy_trainer.driver: it ended the process with 7"),
        ("print('bye')\nraise SystemExit(3)\n", "it ended the process with 3: bye"),
    ],
)
def test_a_driver_that_ends_its_process_is_one_line(package, text, told):
    asked = {"drivers": ["toy_trainer.driver"], "blocked": []}
    with pytest.raises(UsageError, match=told):
        ask_child("imports", asked, [package(driver=text)])


def test_a_driver_that_does_not_come_back_is_ended(package):
    path = package(driver="import time\nwhile True: time.sleep(60)\n")
    with pytest.raises(UsageError, match=r"toy_trainer\.driver: it has not come back after 0\.5 s"):
        ask_child("imports", {"drivers": ["toy_trainer.driver"], "blocked": []}, [path], limit_s=0.5)


@pytest.mark.parametrize("rays", [True, False])
def test_actors_are_judged_by_rays_own_rule(rays, tmp_path):
    if rays:
        pytest.importorskip("ray", reason="the rule is Ray's: pip install 'refitcheck[ray]'")
    else:
        (tmp_path / "ray.py").write_text("raise ImportError('not here')\n")
    with cases.toy_actors() as toys:
        paths = toys.paths if rays else (str(tmp_path), *toys.paths)
        found = subjects.actor_findings(dataclasses.replace(toys, paths=paths))
    asynchronous = {name for name, (_, word) in cases.ACTORS.items() if word}
    assert {line.partition(":")[0].rpartition(".")[2] for line in found} == asynchronous
    assert any("send of guarded_toy.inherited.Mixin" in line for line in found)
    assert all(("it is not installed here" in line) is not rays for line in found)


@pytest.mark.parametrize(("version", "argument", "word"), cases.ARGUMENTS)
def test_arguments_by_version(version, argument, word):
    found = unknown_arguments(version, [argument])
    assert bool(found) == bool(word)
    assert all(word in line for line in found)


ORDER = """
import os
import torch.distributed as dist

def made():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()

def good():
    os.environ["NCCL_CUMEM_ENABLE"] = "0"
    made()
    os.environ["NCCL_CUMEM_ENABLE"] = "0"

def late():
    made()
    os.environ["NCCL_CUMEM_ENABLE"] = "0"

def changed():
    good()
    del os.environ["NCCL_CUMEM_ENABLE"]

def none():
    raise ValueError("no nodes")
"""


@pytest.mark.parametrize(
    ("function", "code", "told"),
    [
        ("good", 0, ["ok  1 groups: NCCL_CUMEM_ENABLE were set before them"]),
        ("late", 1, ["the first group found NCCL_CUMEM_ENABLE=None, not 0", "NCCL_CUMEM_ENABLE=0 after the first"]),
        ("changed", 1, ["NCCL_CUMEM_ENABLE=None after the first group"]),
        ("none", 2, ["made no process group: it raised ValueError: no nodes"]),
    ],
)
def test_the_environment_is_set_before_the_first_group(package, capsys, monkeypatch, function, code, told):
    pytest.importorskip("torch", reason="process groups are torch's")
    monkeypatch.delenv("NCCL_CUMEM_ENABLE", raising=False)
    path = package(groups=ORDER)
    assert invoke(["guard", "environment", f"toy_trainer.groups:{function}", "--path", path]) == code
    out = capsys.readouterr().out
    assert len(out.splitlines()) == len(told)
    assert all(text in line for text, line in zip(told, out.splitlines(), strict=True))


def test_the_command_says_each_finding_and_ends_with_1(package, capsys):
    path = package(driver="import json\n", other="def f():\n    import sglang\n")
    line = ["guard", "imports", "toy_trainer.driver", "--missing", "sglang", "--path", path]
    assert invoke(line) == 0
    assert capsys.readouterr().out == "ok  1 driver modules read and imported: nothing forbidden\n"
    assert invoke([*line, "toy_trainer.other", "--read-only"]) == 1
    assert capsys.readouterr().out.endswith("other.py:2: import sglang, inside a function: imports sglang\n")


def test_arguments_come_from_a_file_too(tmp_path, capsys):
    file = tmp_path / "engine.json"
    file.write_text(json.dumps({"tp_size": 2, "cuda_graph_bs": [1]}))
    assert invoke(["guard", "arguments", "--file", str(file), "--engine", "0.5.23"]) == 1
    assert capsys.readouterr().out.startswith("✗ cuda_graph_bs: not in 0.5.23; 0.5.12.post1")
    assert invoke(["guard", "arguments", "--file", str(file), "--engine", "fake:0.5.12.post1"]) == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["imports", "harness.words"], "nothing is forbidden"),
        (["arguments"], "no arguments are given"),
        (["arguments", "tp_size", "--engine", "0.1"], "unknown engine version '0.1'"),
        (["arguments", "--file", "/dev/null"], "no JSON"),
        (["arguments", "--file", "/no/such/file"], "No such file"),
        (["environment", "harness.words:one_line", "--variable", "NCCL"], "not NAME=VALUE"),
        (["environment", "no_such_module:main"], "no_such_module"),
    ],
)
def test_a_wrong_line_is_told_in_one(capsys, line, told):
    assert invoke(["guard", *line]) == 4
    out = "".join(capsys.readouterr())
    assert told in out
    assert len(out.strip().splitlines()) == 1


def test_what_an_adapter_says_has_a_form():
    with pytest.raises(HarnessError, match="guards is a mapping with actors, drivers"):
        Subject.of({"driver": ("a",)}, "the adapter")
    with pytest.raises(HarnessError, match=r"guards\['drivers'\] is no tuple of strings but 'a'"):
        Subject.of({"drivers": "a"}, "the adapter")
    assert Subject.of({"drivers": ["a"], "executed": 0}, "the adapter") == Subject(drivers=("a",), executed=False)
