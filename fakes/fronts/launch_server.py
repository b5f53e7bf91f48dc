"""`python -m fakes.fronts.launch_server`: the fake under SGLang's command line (sglang.launch_server).

Ready when /health answers 200. Prints the address it listens on; `--port 0` lets the system choose.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fakes.fronts.http import HttpFront, serve
from fakes.fronts.launch_args import LaunchArgs, engine_config, parse
from fakes.trace import Header, TraceWriter


class LaunchError(Exception):
    """The server cannot be started; the message is one line for a person."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until the end. Exit 2 for options that SGLang would refuse, 1 for what cannot be served."""
    args = parse(sys.argv[1:] if argv is None else argv)
    try:
        front = build(args)
        serve(
            front,
            args.host,
            args.port,
            log_level=args.log_level,
            ready=lambda port: _announce(args, port),
            parent_fd=args.parent_fd,
        )
    except LaunchError as error:
        print(f"launch_server: error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except OSError as error:
        print(f"launch_server: error: cannot listen on {args.host}:{args.port}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def build(args: LaunchArgs) -> HttpFront:
    """The front of one engine with the weights of --model-path."""
    from fakes.tiny import read_model

    folder = Path(args.given["model_path"])
    try:
        model_config, weights = read_model(folder)
    except OSError as error:
        raise LaunchError(f"--model-path {folder}: {error.strerror}: {error.filename}") from error
    except ValueError as error:
        raise LaunchError(f"--model-path {folder}: {error}") from error
    try:
        config = engine_config(args, model_config.get("torch_dtype") or model_config.get("dtype"))
        core = _factory(args.core)(config, weights, model_config)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    return HttpFront(
        core,
        config,
        name=args.engine_name,
        incarnation=args.incarnation,
        scale=args.time_scale,
        epoch=args.epoch,
        trace=_trace(args, config.tp_size),
        max_body=args.max_body_mb << 20,
    )


def _factory(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LaunchError(f"--core {name}: {error}") from error
    return factory


def _trace(args: LaunchArgs, tp_size: int) -> TraceWriter | None:
    if args.trace is None:
        return None
    try:
        writer = TraceWriter(args.trace)
    except OSError as error:
        raise LaunchError(f"--trace {args.trace}: {error.strerror}") from error
    meta = {"time_scale": args.time_scale, "pid": os.getpid()}
    header = Header(
        engine=args.engine_name,
        incarnation=args.incarnation,
        clock="real" if args.time_scale == 1.0 else "scaled",
        lane="http",
        engine_version=args.fake_version,
        tp=tp_size,
        meta=meta,
    )
    writer.write(header)
    return writer


def _announce(args: LaunchArgs, port: int) -> None:
    address = f"[{args.host}]" if ":" in args.host else args.host
    print(f"refitcheck: fake SGLang {args.fake_version} on http://{address}:{port}", flush=True)  # noqa: T201
    if args.port_file is not None:
        partial = args.port_file.with_suffix(".part")
        partial.write_text(f"{port}\n", encoding="utf-8")
        partial.replace(args.port_file)
    if args.ready_fd is not None:
        os.write(args.ready_fd, json.dumps({"port": port, "pid": os.getpid()}).encode() + b"\n")
        os.close(args.ready_fd)


if __name__ == "__main__":
    sys.exit(main())
