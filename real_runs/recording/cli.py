"""`refitcheck record`: a transparent proxy in front of running servers, whose history `refitcheck judge` reads."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import RefitcheckError, UsageError
from harness.interrupts import INTERRUPTED, SIGNALS, came
from harness.words import quoted

LOOPBACK = ("127.0.0.1", "localhost")
MOST_TP = 1024
POLICIES = ("resume", "quarantine", "terminal")


def record(
    upstream: Annotated[list[str], typer.Option(help="http://HOST:PORT of a server; repeat it for e1, e2, ...")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The history to write; it must be new.")],
    host: Annotated[str, typer.Option(help="Where to listen; anything but loopback lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The first door's port, 0 for any.")] = 0,
    engine: Annotated[str, typer.Option(help="Their SGLang version and tp, as 0.5.23:2, instead of asking.")] = "",
    policy: Annotated[str, typer.Option(help="What the trainer does after a partial update.")] = "resume",
    keep_tokens: Annotated[bool, typer.Option("--keep-tokens", help="Write prompts and answers too.")] = False,
    keep_keys: Annotated[bool, typer.Option("--keep-keys", help="Write fields that are called like keys too.")] = False,
    most_body: Annotated[int, typer.Option(min=1, help="Bytes of one body that are looked at.")] = 64 * 2**20,
    most: Annotated[int, typer.Option(min=10_000, help="Bytes of the history; more is passed and not recorded.")] = 200
    * 2**20,
) -> None:
    """Record what passes between a trainer and its servers, for `refitcheck judge`.

    Point the trainer at the printed urls. Headers are never written, nor prompts, answers and keys unless asked for.
    It goes on while servers die and come back, and ends with Ctrl-C or SIGTERM; a second one ends it on the spot.
    """
    from real_runs.recording.keeping import Keeping
    from real_runs.recording.serving import Plan, Recorder

    def say(line: str) -> None:
        typer.echo(f"refitcheck: {line}", err=True)

    with ExitStack() as ends:
        try:
            urls = tuple(_url(url) for url in upstream)
            if policy not in POLICIES:
                raise UsageError(f"--policy {policy}: give resume, quarantine or terminal")
            if out.exists():
                raise UsageError(f"{out} is there already; a history is one recording")
            version, tp = _given(engine) if engine else _asked(list(urls))
            keeping = Keeping(tokens=keep_tokens, keys=keep_keys)
            plan = Plan(urls, version, tp, out, host, port, policy, keeping, most_body, most)
            told = ends.enter_context(_told())  # before the first door: there is a file to be ended from now on
            recorder = ends.enter_context(Recorder(plan, say))
        except OSError as error:
            say(f"{error.filename or out}: {error.strerror or error}")
            raise typer.Exit(4) from None
        except RefitcheckError as error:
            say(str(error))
            raise typer.Exit(error.exit_code) from None
        if host not in LOOPBACK:
            say(f"listening on {host}: whoever reaches it reaches the servers")
        for number, (door, url) in enumerate(zip(recorder.urls, urls, strict=True)):
            typer.echo(f"e{number}  {door}  ->  {url}  sglang {version} tp {tp}")
        told.wait()
    trace = recorder.trace
    say(f"{trace.written} records in {out}; refitcheck judge {out}")
    if trace.lost:
        say(f"{trace.lost} records are missing at its end")
        raise typer.Exit(3)


@contextmanager
def _told() -> Iterator[threading.Event]:
    """Is set by the first SIGINT or SIGTERM; the second ends the process, and what was recorded is in the file."""
    told = threading.Event()

    def hear(number: int, frame: object) -> None:
        if told.is_set():
            os.write(2, b"refitcheck: interrupted\n")
            os._exit(INTERRUPTED)
        told.set()

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    if came():  # earlier, and what it raised was swallowed by an import
        told.set()
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _url(text: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise UsageError(f"--upstream {text}: give http://HOST:PORT")
    return text.rstrip("/")


def _given(text: str) -> tuple[str, int]:
    from fakes.engine.profiles import PROFILES

    version, _, tp = text.partition(":")
    count = int(tp or 1) if re.fullmatch(r"[0-9]{0,4}", tp) else 0
    if version not in PROFILES or not 1 <= count <= MOST_TP:
        told = f"give VERSION:TP, TP from 1 to {MOST_TP}; versions are {', '.join(PROFILES)}"
        raise UsageError(f"--engine {quoted(text, 60)}: {told}")
    return version, count


def _asked(urls: list[str]) -> tuple[str, int]:
    from real_runs.sglang_url import API_KEY, looked_at

    found = looked_at(urls, os.environ.get(API_KEY) or None)
    if not 1 <= found[0].tp <= MOST_TP:
        raise UsageError(f"{urls[0]} says tp {quoted(found[0].tp, 20)}: give --engine VERSION:TP")
    return found[0].version, found[0].tp
