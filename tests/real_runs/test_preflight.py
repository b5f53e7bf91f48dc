"""What is missing on a machine is said line by line, before anything is started."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from real_runs import preflight as module
from real_runs.preflight import Machine, preflight

CARD = "NVIDIA H200, 580.1, 140000"
FOUND = {"sglang": "0.5.23", "torch": "2.11.0", "triton": "3.6.0", "transformers": None, "sglang-kernel": None}


def scripted(cards=(CARD,), found=FOUND, count=1, cuda="13.0", fails=()):
    def run(command, environment):
        kind = "nvidia-smi" if "nvidia-smi" in command[0] else "python"
        if kind in fails:
            raise subprocess.CalledProcessError(1, command, stderr="line one\nImportError: no module named torch\n")
        if kind == "nvidia-smi":
            return "\n".join(cards) + "\n"
        return "a warning\n" + json.dumps([found, count, cuda]) + "\n"

    return run


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    monkeypatch.setitem(
        sys.modules,
        "torch",
        SimpleNamespace(__version__="2.11.0", cuda=SimpleNamespace(device_count=lambda: 2)),
    )
    monkeypatch.setattr(module.shutil, "which", lambda name: "/bin/nvcc")
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))


def asked(tmp_path, **fields):
    python = tmp_path / "python"
    python.touch()
    return Machine(**{"python": python, "site": "", "version": "0.5.23", **fields})


def missing(machine, run):
    return {finding.what: finding.said for finding in preflight(machine, run) if not finding.ok}


def test_nothing_is_missing_on_a_good_machine(tmp_path):
    assert missing(asked(tmp_path), scripted()) == {}
    assert missing(asked(tmp_path, tp=2), scripted(cards=(CARD, CARD), count=2)) == {}


@pytest.mark.parametrize(
    ("fields", "script", "what", "said"),
    [
        ({}, {"fails": ["nvidia-smi"]}, "driver", "does not answer"),
        ({}, {"cards": ()}, "driver", "lists no GPU"),
        ({}, {"cards": ("[Unknown Error]",)}, "driver", "does not answer"),
        ({"tp": 2}, {}, "gpus", "1 found (NVIDIA H200); tp 2 on GPU 0, 1 needs more"),
        ({"gpus": (3,)}, {}, "gpus", "tp 1 on GPU 3"),
        ({"gpus": (0,), "tp": 2}, {"cards": (CARD, CARD)}, "gpus", "tp 2 on GPU 0"),
        ({}, {"cards": ("NVIDIA H200, 580.1, 1000",)}, "gpu memory", "GPU 0 has 1.0 GiB free"),
        ({}, {"fails": ["python"]}, "python", "ImportError: no module named torch"),
        ({"version": "0.5.21"}, {}, "versions", "sglang 0.5.23, asked for 0.5.21"),
        ({}, {"found": {**FOUND, "sglang": None}}, "versions", "sglang is not installed, asked for 0.5.23"),
        ({}, {"cuda": None}, "cuda", "built for CUDA None"),
        ({}, {"count": 0}, "cuda", "sees 0 GPUs"),
    ],
)
def test_what_is_missing_is_named(tmp_path, fields, script, what, said):
    assert said in missing(asked(tmp_path, **fields), scripted(**script))[what]


def test_an_interpreter_or_a_site_that_is_not_there(tmp_path):
    assert "does not exist" in missing(asked(tmp_path, python=tmp_path / "none"), scripted())["python"]
    assert "has no sglang" in missing(asked(tmp_path, site=str(tmp_path / "none")), scripted())["site"]


def test_a_trainer_without_a_gpu_a_compiler_or_room(tmp_path, monkeypatch):
    sys.modules["torch"].cuda.device_count = lambda: 0
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    found = missing(asked(tmp_path), scripted())

    assert set(found) == {"trainer", "nvcc", "shared memory", "cache"}


def test_a_process_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)

    assert "has no torch" in missing(asked(tmp_path), scripted())["trainer"]


def test_the_packages_of_a_site_are_asked_of_its_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    (tmp_path / "sglang").mkdir()
    seen = []

    def run(command, environment):
        seen.append(environment.get("PYTHONPATH"))
        return scripted()(command, environment)

    assert missing(asked(tmp_path, site=str(tmp_path)), run) == {}
    assert seen[-1] == str(tmp_path)
    assert missing(asked(tmp_path), run) == {}
    assert seen[-1] is None
