"""launch_server in the shim: the fake server of this version, in the calling process, until its end."""

from __future__ import annotations

import sys
from typing import Any

from fakes.fronts import sglang_shim


def launch_server(server_args: Any, *_: Any, **__: Any) -> None:
    """Serve (entrypoints/http_server.py@0.5.23). SystemExit with the launcher's code where it cannot."""
    from fakes.fronts import launch_server as fake

    code = fake.main(command_line(server_args))
    if code:
        sys.exit(code)


def run_server(server_args: Any) -> None:
    """The same (launch_server.py@0.5.23)."""
    launch_server(server_args)


def command_line(server_args: Any) -> list[str]:
    """The launcher's arguments for what a driver gave: True is a flag, None and False are nothing."""
    out = ["--fake-version", sglang_shim.version()]
    for name, value in dict(server_args.given).items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            out.append(flag)
        elif isinstance(value, (list, tuple)):
            out += [flag, *map(str, value)]
        elif value is not None and value is not False:
            out += [flag, str(value)]
    return out
