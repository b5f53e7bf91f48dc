"""The importable sglang: what it has by version, how it names what it lacks, and that it never hides a real one."""

import importlib
import os
import subprocess
import sys

import pytest

from fakes.fronts import sglang_shim

IO = "sglang.srt.managers.io_struct"


def test_every_module_of_every_version_is_importable_and_says_that_it_is_the_shim():
    from fakes.engine.profiles import PROFILES
    from fakes.fronts.sglang_shim import table

    for version in PROFILES:
        with sglang_shim.installed(version):
            for name in table.modules(version):
                module = importlib.import_module(name)
                assert version in module.__file__
                for value in vars(module).values():
                    if isinstance(value, type):
                        assert value.__module__.startswith("sglang"), value
            assert sglang_shim.lacking() == ()


def test_afterwards_nothing_of_it_is_left():
    before = list(sys.path)
    with sglang_shim.installed("0.5.23"):
        importlib.import_module(IO)
    assert not [name for name in sys.modules if name.split(".")[0] == "sglang"]
    assert sys.path == before
    assert sglang_shim.VERSION_VARIABLE not in os.environ
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sglang")


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("from sglang.srt.utils import get_free_port", "sglang.srt.utils.get_free_port"),
        ("import sglang.srt.layers.moe", "sglang.srt.layers.moe"),
        ("import sglang.srt.utils as u; u.get_free_port", "sglang.srt.utils.get_free_port"),
        (
            "from sglang.srt.server_args import ServerArgs; ServerArgs(model_path='m').mamba_ssm_dtype",
            "sglang.srt.server_args.ServerArgs.mamba_ssm_dtype",
        ),
    ],
)
def test_what_it_lacks_is_named_and_kept_even_where_a_driver_catches_the_error(statement, named):
    with sglang_shim.installed("0.5.23"):
        with pytest.raises((ImportError, AttributeError), match=named.rsplit(".", 1)[1]):
            exec(statement)
        assert sglang_shim.lacking() == (named,)


@pytest.mark.parametrize(
    ("version", "statement"),
    [
        ("0.5.20", "from sglang.srt.managers.io_struct import BeginWeightUpdateReqInput"),
        ("0.5.17", "from sglang.srt.model_executor.model_runner import FlattenedTensorBucket"),
        ("0.5.12.post1", "import sglang.srt.model_executor.model_runner_components.weight_updater"),
        ("0.5.23", "import sglang.srt.patch_torch"),
    ],
)
def test_what_that_sglang_lacks_itself_is_no_lack_of_the_shim(version, statement):
    with sglang_shim.installed(version):
        with pytest.raises(ImportError):
            exec(statement)
        assert sglang_shim.lacking() == ()


def test_local_tensors_moved_house():
    homes = {}
    for version in ("0.5.12.post1", "0.5.23"):
        with sglang_shim.installed(version):
            from fakes.fronts.sglang_shim.weight_sync import _classes

            homes[version] = _classes()[0].__module__
    assert homes["0.5.12.post1"] == "sglang.srt.model_executor.model_runner"
    assert homes["0.5.23"].endswith("weight_updater")


def test_from_0521_on_an_engine_of_a_driver_must_have_the_session_calls():
    body = {
        name: lambda self: None
        for name in (
            *("generate", "flush_cache", "update_weights_from_tensor", "release_memory_occupation"),
            *("resume_memory_occupation", "shutdown"),
        )
    }
    for version, works in (("0.5.20", True), ("0.5.21", False), ("0.5.23", False)):
        with sglang_shim.installed(version):
            base = importlib.import_module("sglang.srt.entrypoints.EngineBase").EngineBase
            driver = type("Driver", (base,), body)
            if works:
                driver()
            else:
                with pytest.raises(TypeError, match="begin_weight_update"):
                    driver()


def test_requests_have_the_fields_and_the_kind_of_their_version():
    with sglang_shim.installed("0.5.23"):
        made = importlib.import_module(IO).UpdateWeightsFromTensorReqInput(serialized_named_tensors=[b"x"])
        assert (made.flush_cache, made.selector, made.weight_version) == (True, "all", None)
        with pytest.raises(TypeError):
            importlib.import_module(IO).PauseGenerationReqInput("abort")
    with sglang_shim.installed("0.5.12.post1"):
        made = importlib.import_module(IO).UpdateWeightsFromTensorReqInput([b"x"], "direct")
        assert (made.load_format, made.disable_draft_model) == ("direct", None)
        assert not hasattr(made, "selector")


def test_server_args_take_the_options_of_their_version_only():
    with sglang_shim.installed("0.5.23"):
        args = importlib.import_module("sglang.srt.server_args").ServerArgs(model_path="m", tp_size=2)
        assert (args.tp_size, args.node_rank, args.enable_memory_saver, args.url()) == (
            *(2, 0, False),
            "http://127.0.0.1:30000",
        )
        with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_option'"):
            type(args)(model_path="m", no_such_option=1)


def test_a_real_sglang_is_never_hidden(tmp_path, monkeypatch):
    real = tmp_path / "sglang"
    real.mkdir()
    (real / "__init__.py").write_text("__version__ = '0.5.23'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(sglang_shim.ShimRefused, match=str(real)), sglang_shim.installed("0.5.23"):
        pass
    monkeypatch.undo()
    environment = {**os.environ, **sglang_shim.environment("0.5.23")}
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    child = [sys.executable, "-c", "import sglang"]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert f"a real sglang is installed ({real}" in done.stderr


def test_children_get_it_by_their_environment():
    environment = {**os.environ, **sglang_shim.environment("0.5.20")}
    child = [sys.executable, "-c", "import sglang; print(sglang.__version__)"]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "0.5.20\n"


def test_a_process_is_one_version_and_it_must_be_said():
    with sglang_shim.installed("0.5.23"):
        importlib.import_module("sglang")
        with pytest.raises(sglang_shim.ShimRefused, match="one process is one version"):
            sglang_shim.install("0.5.20")
    with pytest.raises(sglang_shim.ShimRefused, match="which SGLang"):
        sglang_shim.version()
    with pytest.raises(ValueError, match="no profile"):
        sglang_shim.install("0.4.0")
