"""`sglang.srt.server_args`: ServerArgs takes the options of its version and refuses every other keyword by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fakes.fronts.launch_args import options_of

_DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 30000,
    "node_rank": 0,
    "nnodes": 1,
    "tp_size": 1,
    "pp_size": 1,
    "dp_size": 1,
    "ep_size": 1,
    "base_gpu_id": 0,
    "gpu_id_step": 1,
    "dtype": "auto",
    "load_format": "auto",
    "log_level": "info",
    "weight_version": "default",
    "device": "cpu",
    "random_seed": None,
    "mem_fraction_static": None,
    "attention_backend": None,
    "dist_init_addr": None,
    "api_key": None,
    "admin_api_key": None,
    "served_model_name": None,
    "tokenizer_path": None,
}
"""Of the options that drivers read; a flag is False where nobody set it."""


@lru_cache(maxsize=16)
def names(version: str) -> dict[str, Any]:
    """The module's names."""
    kinds = options_of(version)

    class ServerArgs:
        """SGLang's options as attributes. TypeError for one that this version does not have."""

        def __init__(self, model_path: str, **given: Any) -> None:
            for name in given:
                if name not in kinds:
                    raise TypeError(f"ServerArgs.__init__() got an unexpected keyword argument '{name}'")
            self.__dict__["given"] = {"model_path": model_path, **given}
            self.__dict__.update(self.__dict__["given"])

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if name in _DEFAULTS and name in kinds:
                return _DEFAULTS[name]
            if kinds.get(name) in ("true", "optional"):
                return False
            from fakes.fronts import sglang_shim

            sglang_shim.lacking(f"sglang.srt.server_args.ServerArgs.{name}")
            raise AttributeError(f"refitcheck's shim of SGLang {version} lacks ServerArgs.{name}")

        def url(self) -> str:
            """Where it will listen."""
            return f"http://{self.host}:{self.port}"

    ServerArgs.__module__ = "sglang.srt.server_args"
    ServerArgs.__qualname__ = "ServerArgs"

    def prepare_server_args(argv: Sequence[str]) -> Any:
        """The options of a command line, parsed as SGLang does; SystemExit(2) with one line for what it refuses."""
        from fakes.fronts.launch_args import parse

        return ServerArgs(**parse(["--fake-version", version, *argv]).given)

    return {"ServerArgs": ServerArgs, "prepare_server_args": prepare_server_args}
