"""The guards by themselves: what each finds, and what it says of what it cannot look at."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress

import psutil
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
    assert "driver.py:3: importlib.import_module(name + 'engine')" in line


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
    path = package(driver="name = 'ju'\n__import__(name + 'nitparser')\n")
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


FORGES = """import os
for fd in range(3, 20):
    try:
        os.write(fd, b"{}\\n")
    except OSError:
        pass
os._exit(0)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\nos._exit(7)\n", "toy_trainer.driver: it ended the process with 7"),
        ("import os\nprint('bye', flush=True)\nos._exit(0)\n", "it ended the process with 0: bye"),
        (FORGES, "it ended the process with"),
    ],
)
def test_a_driver_that_ends_its_process_is_one_line(package, text, told):
    asked = {"drivers": ["toy_trainer.driver"], "blocked": []}
    with pytest.raises(UsageError, match=told):
        ask_child("imports", asked, [package(driver=text)])


def test_a_driver_that_does_not_come_back_is_ended(package):
    path = package(driver="import signal\nsignal.pause()\n")
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
        (["arguments", "tp_size", "--engine", "0.1"], "unknown engine version 0.1;"),
        (["arguments", "--file", "/dev/null"], "no JSON"),
        (["arguments", "--file", "/no/such/file"], "No such file"),
        (["environment", "harness.words:one_line", "--variable", "NCCL"], "not NAME=VALUE"),
        (["environment", "no_such_module:main"], "no_such_module:main: ModuleNotFoundError"),
        (["environment", "no_such_module"], "'no_such_module' is not package.module:name"),
        (["actor", ""], "'' is not package.module:name"),
        (["arguments", ""], "'' is no argument's name"),
        (["arguments", *["tp_size"] * 10_001], "10001 arguments; more than 10000"),
        (["imports", "harness.words", "--missing", "x", "--limit", "inf"], "--limit"),
        (
            ["imports", "harness.words", "--missing", "x", "--path", "/no/such/folder"],
            "/no/such/folder: no such folder",
        ),
    ],
)
def test_a_wrong_line_is_told_in_one(capsys, line, told):
    assert invoke(["guard", *line]) == 4
    out = "".join(capsys.readouterr())
    assert told in out
    assert len(out.strip().splitlines()) == 1


LAUNCH = ("--tp-size", "2", "--model-path", "m", "--mem-fraction-static", "0.8", "--enable-memory-saver", "--tp=2")


def test_a_command_line_is_read_as_one():
    assert unknown_arguments("0.5.23", LAUNCH) == []
    assert unknown_arguments("0.5.23", ("tp_size", "--port", "-1", "--no-such", "x")) == [
        "--no-such: no release has it" + unknown_arguments("0.5.23", ("--no-such",))[0].partition("has it")[2]
    ]
    (line,) = unknown_arguments("0.5.23", ("--enable-lora-x",))
    assert line.startswith("--enable-lora-x: no release has it; is --enable-lora")
    assert unknown_arguments("0.5.23", ("--dis",))[0].startswith("--dis: may be any of ")


@pytest.mark.parametrize("name", ["harness", "json", "pathlib", "psutil", "fakes"])
def test_modules_of_the_user_may_be_named_like_ours_or_pythons(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / f"{name}.py").write_text("VALUE = 'mine'\n")
    (tmp_path / "named.py").write_text(f"import sys\nfound = __import__({name!r})\nimport no_such_engine\n")
    subject = Subject(drivers=("named",), not_installed=("no_such_engine",), paths=(str(tmp_path),))
    assert any("No module named 'no_such_engine'" in line for line in subjects.import_findings(subject))


def test_what_a_driver_starts_ends_with_it(package, tmp_path):
    wrote = tmp_path / "pid"
    text = (
        "import os, signal, threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "there, here = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.write(here, str(os.getpid()).encode())\n"
        "    signal.pause()\n"
        f"open({str(wrote)!r}, 'wb').write(os.read(there, 20))\n"
    )
    path = package(driver=text)
    assert ask_child("imports", {"drivers": ["toy_trainer.driver"], "blocked": []}, [path]) == {}
    assert not psutil.pid_exists(int(wrote.read_text()))


def test_a_child_ends_with_the_process_that_asked(package, tmp_path):
    wrote = tmp_path / "pid"
    os.mkfifo(wrote)  # both ends wait for each other
    hang = f"import os, signal\nopen({str(wrote)!r}, 'w').write(str(os.getpid()))\nsignal.pause()\n"
    path = package(driver=hang)
    line = [sys.executable, "-m", "harness.cli", "guard", "imports", "toy_trainer.driver", "--missing", "x"]
    asked = subprocess.Popen([*line, "--path", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = int(wrote.read_text())
    asked.kill()
    asked.wait()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)
    assert not psutil.pid_exists(pid)


def test_many_findings_stay_findings(package, capsys, monkeypatch):
    pytest.importorskip("torch", reason="process groups are torch's")
    monkeypatch.delenv("NCCL_CUMEM_ENABLE", raising=False)
    more = (
        ORDER
        + "\ndef often():\n    good()\n    for i in range(100_000):\n        os.environ['NCCL_CUMEM_ENABLE'] = str(i)\n"
    )
    assert invoke(["guard", "environment", "toy_trainer.groups:often", "--path", package(groups=more)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 20


def test_what_a_stranger_wrote_is_one_visible_line(tmp_path, capsys):
    file = tmp_path / "names.json"
    file.write_text(json.dumps(["\x1b[31mX\n::error::boo"]))
    assert invoke(["guard", "arguments", "--file", str(file)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isprintable()


def test_an_adapter_whose_guards_spin_is_ended(monkeypatch):
    from harness.bench import Bench
    from harness.sut.protocol import Caps

    class Spins:
        def capabilities(self):
            return Caps()

        @property
        def guards(self):
            threading.Event().wait()

    bench = Bench.__new__(Bench)
    bench._sut, bench._candidate, bench._sut_factory = Spins(), None, Spins
    bench._sut_name, bench._hang_timeout = "spins", 0.2
    with pytest.raises(HarnessError, match=r"'spins': its attribute guards: no return after 0\.2 s"):
        bench.adapter_attribute("guards")


def test_what_an_adapter_says_has_a_form():
    with pytest.raises(HarnessError, match="guards is a mapping with actors, drivers"):
        Subject.of({"driver": ("a",)}, "the adapter")
    with pytest.raises(HarnessError, match=r"guards\['drivers'\] is no tuple of strings but 'a'"):
        Subject.of({"drivers": "a"}, "the adapter")
    assert Subject.of({"drivers": ["a"], "executed": 0}, "the adapter") == Subject(drivers=("a",), executed=False)
