"""The adapter without its environment: options, and what it says where nothing is installed."""

import sys
import tomllib
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.sut.options import declared
from real_runs import making
from real_runs.megatron_bridge import environment
from real_runs.megatron_bridge.sut import MegatronBridgeSut, distributed
from tests.harness.reference.fleet import Rig

NAME = "real_runs.megatron_bridge.sut:MegatronBridgeSut"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    monkeypatch.delenv(environment.GIVEN, raising=False)


def test_sizes_are_checked_before_anything_runs():
    assert {"megatron_tp", "megatron_pp"} <= declared(NAME, {"megatron_tp": "2", "megatron_pp": "1"}, 5.0)
    with pytest.raises(UsageError, match="megatron_pp is 1 or 2, not '4'"):
        declared(NAME, {"megatron_pp": "4"}, 5.0)


def test_where_it_is_not_made_it_says_which_command_makes_it():
    from harness.errors import Unsupported

    with pytest.raises(Unsupported, match=r"^megatron-bridge is not installed: refitcheck env make megatron-bridge$"):
        MegatronBridgeSut().setup(Rig().fleet)


def test_a_given_environment_without_python_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv(environment.GIVEN, str(tmp_path))
    said = r"REFITCHECK_MEGATRON_BRIDGE_ENV=.* has no bin/python$"
    with pytest.raises(making.EnvUsage, match=said):
        environment.find()
    with pytest.raises(UsageError, match=f"^megatron-bridge: {said}"):
        MegatronBridgeSut().setup(Rig().fleet)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert environment.make() == tmp_path


def test_it_declares_what_the_reference_client_does():
    transports = MegatronBridgeSut().capabilities().transports
    assert transports >= {"tensor", "distributed", "checkpoint-engine", "disk"}
    assert "lora" not in transports  # no walk of the export brings adapters
    assert distributed().capabilities().transports == {"distributed"}


def test_nothing_of_cuda_or_transformer_engine_goes_in():
    recipe = environment.recipe()
    assert recipe.wanted == ("megatron-core==0.16.1", "megatron-bridge==0.3.1")
    assert all("==" in line for line in recipe.pins)
    assert not [line for line in recipe.pins if line.startswith(("torch", "nvidia", "triton", "transformer-engine"))]


def test_its_folder_is_named_by_what_goes_in(monkeypatch):
    before = environment.recipe().name
    assert before.startswith(f"0.3.1-cpu-py3{sys.version_info[1]}-")
    monkeypatch.setattr(environment, "WANTED", ("megatron-core==0.16.1", "megatron-bridge==0.3.2"))
    assert environment.recipe().name != before


def test_its_versions_are_those_of_the_project():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["dependency-groups"]["megatron"] == list(environment.WANTED)
