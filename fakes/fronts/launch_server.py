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

from fakes.fronts.http import HttpFront, listener, serve
from fakes.fronts.launch_args import DEFAULT_CORE, LaunchArgs, engine_config, parse
from fakes.fronts.launch_checks import MAKE_ONE, LaunchError, check, checkpoint, tensor_parallel, without_effect
from fakes.fronts.log import tell
from fakes.trace import AnyRecord, Header, TraceWriter

USAGE = 4
"""The exit code for what the caller has to mend."""

TRACE_LOST = 3
"""The exit code of a server that cannot write its trace any more: what it did since is known to nobody."""


class _Trace(TraceWriter):
    """Ends the process when a record cannot be written: an answer without its fact would be judged."""

    def write(self, record: AnyRecord) -> AnyRecord:
        """OSError for the header, while somebody can still be told."""
        try:
            return super().write(record)
        except OSError as error:
            if isinstance(record, Header):
                raise
            tell(f"refitcheck: the trace cannot be written: {error.strerror}")
            os._exit(TRACE_LOST)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until the end. SystemExit(2) for options that SGLang would refuse, 4 for what cannot be served."""
    args = parse(sys.argv[1:] if argv is None else argv)
    try:
        check(args)
        front = build(args)
        bound = _bind(args)
        serve(
            front,
            bound,
            log_level=args.log_level,
            ready=lambda port: _announce(args, port),
            parent_fd=args.parent_fd,
        )
    except LaunchError as error:
        print(f"launch_server: error: {error}", file=sys.stderr)  # noqa: T201  # a command speaks on stderr
        return USAGE
    return 0


def build(args: LaunchArgs) -> HttpFront:
    """The front of one engine with the weights of --model-path. LaunchError for what cannot be served."""
    from fakes.tiny import read_model

    folder = Path(args.given["model_path"])
    try:
        model_config, weights = read_model(folder)
    except OSError as error:
        why = f"{error.strerror or error}: {error.filename or folder}"
        raise LaunchError(f"--model-path {folder}: {why}; {MAKE_ONE}") from error
    except (ValueError, RecursionError) as error:
        raise LaunchError(f"--model-path {folder}: {error}; {MAKE_ONE}") from error
    try:
        config = engine_config(args, model_config.get("torch_dtype") or model_config.get("dtype"))
    except ValueError as error:
        raise LaunchError(str(error)) from error
    core = _core(args, config, weights, model_config)
    return HttpFront(
        core,
        config,
        name=args.engine_name,
        incarnation=args.incarnation,
        scale=args.time_scale,
        epoch=args.epoch,
        trace=_trace(args, config.tp_size),
        max_body=args.max_body_mb << 20,
        routes=getattr(core, "routes", None),
    )


def _core(args: LaunchArgs, config: Any, weights: Any, model_config: dict[str, Any]) -> Any:
    factory = _factory(args.core)
    try:
        if args.core == DEFAULT_CORE:
            checkpoint(Path(args.given["model_path"]), model_config, weights)
            tensor_parallel(model_config, config.tp_size)
        core = factory(config, weights, model_config)
    except LaunchError:
        raise
    except Exception as error:  # whatever a checkpoint lacks, and whatever another core's factory says
        told = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        if args.core == DEFAULT_CORE:
            where = args.given["model_path"]
            raise LaunchError(f"--model-path {where}: cannot be served: {told}; {MAKE_ONE}") from error
        raise LaunchError(f"--core {args.core}: {told}; it is called with a config, weights and config.json") from error
    if not callable(getattr(core, "step", None)) or not callable(getattr(core, "next_deadline", None)):
        raise LaunchError(f"--core {args.core}: makes no engine core (nothing with `step` and `next_deadline`)")
    return core


def _factory(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise LaunchError(f"--core {name}: {error}; name it as module:factory") from error
    return factory


def _bind(args: LaunchArgs) -> Any:
    try:
        return listener(args.host, args.port)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise LaunchError(f"cannot listen on {args.host}:{args.port}: {why}; --port 0 takes any free one") from error


def _trace(args: LaunchArgs, tp_size: int) -> TraceWriter | None:
    if args.trace is None:
        return None
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
    try:
        writer = _Trace(args.trace)
        writer.write(header)
    except OSError as error:
        raise LaunchError(f"--trace {args.trace}: {error.strerror}; name a file that can be written") from error
    return writer


def _announce(args: LaunchArgs, port: int) -> None:
    if args.port_file is not None:
        partial = args.port_file.with_suffix(".part")
        try:
            partial.write_text(f"{port}\n", encoding="utf-8")
            partial.replace(args.port_file)
        except OSError as error:
            raise LaunchError(f"--port-file {args.port_file}: {error.strerror}") from error
    address = f"[{args.host}]" if ":" in args.host else args.host
    said = f"refitcheck: fake SGLang {args.fake_version} on http://{address}:{port}"
    print(said, flush=True)  # noqa: T201  # a command speaks on stdout
    lost = without_effect(args.given)
    if lost:
        tell(f"refitcheck: not modelled, without effect here: {', '.join(lost)}")
    if args.ready_fd is not None:
        os.write(args.ready_fd, json.dumps({"port": port, "pid": os.getpid()}).encode() + b"\n")
        os.close(args.ready_fd)


if __name__ == "__main__":
    sys.exit(main())
