import json
import os

import pytest

from fakes.engine.protocol import ReadDisk
from fakes.fronts.lora_folder import read_adapter
from fakes.regular import read_regular
from fakes.tiny import read_model, read_tensors, tiny_config, tiny_weights, write_model, write_tensors


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse


ODD = pytest.mark.parametrize("make", [pipe, endless, huge])


@ODD
def test_only_a_regular_file_of_bounded_size_is_read(tmp_path, make):
    make(tmp_path / "odd")
    with pytest.raises(ValueError, match=r"odd is (not a regular file|larger than 10 bytes)"):
        read_regular(tmp_path / "odd", 10)


def test_it_is_read_whole_up_to_its_limit(tmp_path):
    (tmp_path / "fits").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "fits")
    assert read_regular(tmp_path / "link", 10) == b"0123456789"
    with pytest.raises(ValueError, match="larger than 9 bytes"):
        read_regular(tmp_path / "fits", 9)
    with pytest.raises(ValueError, match="not a regular file"):
        read_regular(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10)


@ODD
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_model_with_such_a_file_is_refused(tmp_path, make, name):
    config = tiny_config()
    write_model(tmp_path, config, tiny_weights(config, 0))
    (tmp_path / name).unlink()
    make(tmp_path / name)
    with pytest.raises(ValueError, match=name):
        read_model(tmp_path)


def test_files_together_are_bounded_too(tmp_path, monkeypatch):
    weights = {name: tiny_weights(tiny_config(), 0)[name] for name in ("model.norm.weight", "lm_head.weight")}
    for name, array in weights.items():
        write_tensors(tmp_path / f"{name}.safetensors", {name: array})
    assert set(read_tensors(tmp_path)) == set(weights)
    monkeypatch.setattr("fakes.tiny.MAX_FILE_BYTES", (tmp_path / "lm_head.weight.safetensors").stat().st_size)
    with pytest.raises(ValueError, match="is larger than"):
        read_tensors(tmp_path)


@ODD
@pytest.mark.parametrize("name", ["adapter_config.json", "added_tokens.json"])
def test_an_adapter_with_such_a_file_is_refused(tmp_path, make, name):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    with pytest.raises(ValueError, match=name):
        read_adapter(ReadDisk(id=1, path=str(tmp_path)))


@ODD
def test_an_adapter_whose_tensors_are_such_a_file_says_so(tmp_path, make):
    (tmp_path / "adapter_config.json").write_text("{}")
    make(tmp_path / "adapter_model.safetensors")
    *_, why = read_adapter(ReadDisk(id=1, path=str(tmp_path)))
    assert "adapter_model.safetensors is" in why


def test_deep_json_is_a_value_error(tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "adapter_config.json").write_text(deep)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_adapter(ReadDisk(id=1, path=str(tmp_path)))
    (tmp_path / "config.json").write_text(deep)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(ValueError, match="cannot be served"):
        read_model(tmp_path)
