"""SGLang's command line, by version: which options exist, and what the fake makes of them.

`launch_options.json` holds every option of `ServerArgs.add_cli_args` of eight releases (names, arity, type, choices),
read from the installed packages. An option that SGLang has is accepted, whether or not the fake models what it does;
any other is refused by name, as argparse does for SGLang (server_args.py:679@0.5.23).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from fakes.engine.profiles import PROFILES
from fakes.engine.protocol import EngineConfig

OPTIONS_FILE = Path(__file__).with_name("launch_options.json")

# The options of miles were not read: it branched off between these releases and has what all of them have.
_NEIGHBOURS = {"miles": ("0.5.19", "0.5.20", "0.5.21")}

_DTYPES = {"bfloat16": "bfloat16", "float32": "float32", "float": "float32"}

DEFAULT_CORE = "fakes.engine.core:EngineCore"

MAX_SCALE = 100
"""Real seconds per second; more would be a server that seems to hang."""

HEALTH_VARIABLE = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"


class LaunchArgs(argparse.Namespace):
    """The parsed command line: SGLang's options that were given, under SGLang's names, and our own."""

    fake_version: str
    time_scale: float
    trace: Path | None
    engine_name: str
    incarnation: int
    epoch: float | None
    port_file: Path | None
    max_body_mb: int
    core: str
    checker_cuda_shim: bool
    strict_memory: bool
    checkpoint_engine: str
    parent_fd: int | None
    ready_fd: int | None
    given: dict[str, Any]
    command: str

    @property
    def host(self) -> str:
        """Loopback unless told otherwise, as SGLang."""
        return str(self.given.get("host", "127.0.0.1"))

    @property
    def port(self) -> int:
        """SGLang's default is 30000; 0 lets the system choose."""
        return int(self.given.get("port", 30000))

    @property
    def log_level(self) -> str:
        """For uvicorn."""
        return str(self.given.get("log_level", "info")).lower()


class _Parser(argparse.ArgumentParser):
    """Says one line: SGLang prints its usage of 500 options before it."""

    code = 2
    """argparse's, and so SGLang's."""

    def error(self, message: str) -> NoReturn:
        """One line and the exit code."""
        self.exit(self.code, f"{self.prog}: error: {message}\n")


class _OwnParser(_Parser):
    code = 4


def parse(argv: Sequence[str], prog: str = "launch_server") -> LaunchArgs:
    """Parse a command line; SystemExit with one line, 2 for what SGLang would refuse, 4 for an option of our own."""
    args, rest = _own_parser(prog).parse_known_args(argv, namespace=LaunchArgs())
    args.given = vars(_sglang_parser(prog, args.fake_version).parse_args(rest))
    args.command = " ".join(rest)
    return args


def engine_config(args: LaunchArgs, model_dtype: str | None) -> EngineConfig:
    """The launch options that change behaviour. `model_dtype` is config.json's, for --dtype auto.

    ValueError, in one line, for a value that SGLang would serve and the fake cannot.
    """
    given = args.given
    wanted = given.get("dtype", "auto")
    dtype = _DTYPES.get(model_dtype or "bfloat16" if wanted == "auto" else wanted)
    if dtype is None:
        raise ValueError(
            f"dtype {wanted if wanted != 'auto' else model_dtype} is not modelled; use bfloat16 or float32"
        )
    device = given.get("device", "cpu")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device {device} is not modelled; use cpu or cuda")
    fields: dict[str, Any] = {"profile": args.fake_version, "dtype": dtype, "device": device}
    fields |= {"strict_memory": args.strict_memory, "checker_cuda_shim": args.checker_cuda_shim}
    fields["checkpoint_engine"] = args.checkpoint_engine
    fields["launch_command"] = args.command
    fields["health_generation"] = os.environ.get(HEALTH_VARIABLE, "true").lower() in ("true", "1", "yes", "y")
    for name in EngineConfig.__struct_fields__:
        if name not in fields and name in given:
            fields[name] = given[name]
    return EngineConfig(**fields)


def _scale(text: str) -> float:
    value = _finite(text)
    if not 0 < value <= MAX_SCALE:
        raise argparse.ArgumentTypeError(f"must be greater than 0 and at most {MAX_SCALE}, not {text}")
    return value


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, not {text!r}")
    return value


def _at_least(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, not {text}")
        return value

    return whole


def _own_parser(prog: str) -> _Parser:
    parser = _OwnParser(prog=prog, allow_abbrev=False, add_help=False)
    add = parser.add_argument
    add("--fake-version", choices=list(PROFILES), default="0.5.23", help="which SGLang to be")
    add("--time-scale", type=_scale, default=1.0, help="real seconds per second of every duration (death, health, ...)")
    add("--trace", type=Path, help="append the core's facts to this JSON-lines file")
    add("--engine-name", default="e0", help="the engine's name in the trace")
    add("--incarnation", type=_at_least(0), default=0, help="the engine's incarnation in the trace")
    add("--epoch", type=_finite, help="CLOCK_MONOTONIC at time 0 of the trace; default: the start of this process")
    add("--port-file", type=Path, help="write the chosen port to this file when ready")
    add("--max-body-mb", type=_at_least(1), default=256, help="larger request bodies are refused with 413")
    add("--core", default=DEFAULT_CORE, help="module:factory of another engine core")
    add("--checker-cuda-shim", action="store_true", help="weights_checker as if Tensor.cuda() were the identity")
    add("--strict-memory", action="store_true", help="poison resumed weights instead of zeroing them")
    versions = ["", "0.1.2", "0.4.2"]
    add("--checkpoint-engine", choices=versions, default="", help="the checkpoint-engine package beside SGLang")
    add("--parent-fd", type=_at_least(0), help=argparse.SUPPRESS)
    add("--ready-fd", type=_at_least(0), help=argparse.SUPPRESS)
    return parser


def options_of(version: str) -> dict[str, str]:
    """Every option of a version by SGLang's name for its value, with its kind: store, true, optional, gone or const."""
    return {option["dest"]: option["kind"] for option in _options(version)}


def flags_of(version: str) -> dict[str, tuple[str, bool]]:
    """Every flag of a version: SGLang's name for its value, and whether the flag ends the launch all the same."""
    found: dict[str, tuple[str, bool]] = {}
    for option in _options(version):
        for flag in option["flags"]:
            found.setdefault(flag, (option["dest"], option["kind"] in ("gone", "const") and "error" in option))
    return found


def _options(version: str) -> list[dict[str, Any]]:
    """The rows of a version; of one that was not read, those of its neighbours."""
    table = json.loads(OPTIONS_FILE.read_text(encoding="utf-8"))
    mask = sum(1 << table["versions"].index(name) for name in _NEIGHBOURS.get(version, (version,)))
    return [option for option in table["options"] if option.get("in", mask) & mask]


def _sglang_parser(prog: str, version: str) -> _Parser:
    parser = _Parser(prog=prog, argument_default=argparse.SUPPRESS)
    seen: set[str] = set()
    for option in _options(version):
        flags = [flag for flag in option["flags"] if flag not in seen]
        if flags:
            seen.update(flags)
            _add(parser, flags, option)
    return parser


def _add(parser: argparse.ArgumentParser, flags: list[str], option: dict[str, Any]) -> None:
    kind = option["kind"]
    keywords: dict[str, Any] = {"dest": option["dest"], "required": option.get("required", False)}
    if kind == "true":
        keywords["action"] = "store_true"
    elif kind == "optional":
        keywords["action"] = argparse.BooleanOptionalAction
    elif kind in ("gone", "const"):
        keywords |= {"action": _Retired, "nargs": 0, "message": option.get("error")}
    else:
        keywords |= {name: option[name] for name in ("nargs", "choices") if name in option}
        keywords["type"] = _TYPES[option.get("type")]
        if keywords["type"] is int and "choices" in keywords:
            keywords["choices"] = [int(choice) for choice in keywords["choices"]]
    parser.add_argument(*flags, **keywords)


class _Retired(argparse.Action):
    """An option that SGLang still knows: some end the launch with a pointer to their successor, others are ignored."""

    def __init__(self, option_strings: Sequence[str], dest: str, message: str | None = None, **keywords: Any) -> None:
        self.message = message
        super().__init__(option_strings, dest, **keywords)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.message is not None:
            parser.error(self.message)


_SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def size(value: str) -> int:
    """25.6k, 1Mi, 2048: SI suffixes with decimals, IEC suffixes without (utils/common.py:3450@0.5.22)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?", value.strip())
    if match and match[2] in _SI:
        return int(Decimal(match[1]) * _SI[match[2]])
    if match and "." not in match[1]:
        return int(match[1]) * _IEC.get(match[2], 1)
    raise argparse.ArgumentTypeError(f"Invalid integer value: '{value}'.")


_TYPES: dict[str | None, Any] = {None: str, "int": int, "float": float, "json": json.loads, "size": size}
_TYPES["json_list"] = json.loads
