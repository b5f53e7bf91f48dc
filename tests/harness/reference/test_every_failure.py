"""Every call of a refit failing in every way, under every policy: one line for each, against what it was.

A line says what was raised, what was then asked of each engine and for how long, how the engines were left, which
markers were written, and when it was over; then the same for the refit after it. The texts were made by the client
itself and pin what it does; the rules of conformance judge whether it is right. When behaviour changes on purpose,
write them anew with `APPROVE=1 pytest tests/harness/reference/test_every_failure.py` and read the difference.
"""

from __future__ import annotations

import difflib
import lzma
import os
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.sut.protocol import Policy
from tests.harness.reference.fleet import BEGIN, END, UPDATE, Rig, ScriptedEngine, client

HOWS = ("400 before", "200 false before", "500 after", "drop before", "drop after", "hang after", "die", "interrupt")
OPS = ("model_info", "pause_generation", "flush_cache", BEGIN, UPDATE, END, "continue_generation")
MEMORY = ("release_memory_occupation", "resume_memory_occupation")
APPROVED = Path(__file__).with_name("every_failure.txt.xz")
SHORT = {"model_info": "info", "pause_generation": "pause", "flush_cache": "flush", BEGIN: "begin", UPDATE: "update"}
SHORT |= {END: "end", "continue_generation": "continue"}
SHORT |= {"release_memory_occupation": "release", "resume_memory_occupation": "resume"}


def watched(rig: Rig) -> list[str]:
    """Every call with its timeout, as it is made."""
    calls: list[str] = []
    for engine in rig.e:

        def told(
            op: str, body: Any = None, *, method: str = "POST", timeout_s: float, e: ScriptedEngine = engine
        ) -> Any:
            more = f"({'+'.join(body['tags'])})" if op in MEMORY else ""
            more += f"[{body['weight_version']}]" if op == UPDATE and "weight_version" in body else ""
            calls.append(f"{e.name}.{SHORT.get(op, op)}{more} {timeout_s:.1f}s @{rig.world.now:.1f}")
            return ScriptedEngine.start(e, op, body, method=method, timeout_s=timeout_s)

        engine.start = told  # type: ignore[method-assign]
    return calls


def outcome(rig: Rig, sut: Any, calls: list[str], what: str) -> str:
    """Run a refit or a phase and say all that can be seen of it."""
    calls.clear()
    rig.records.clear()
    try:
        made = sut.refit(100.0) if what == "refit" else sut.phase("train")
        said = f"ok {made.buckets if made else ''} {made.detail if made else ''}".strip()
    except BaseException as error:
        notes = "".join(f" + {note}" for note in getattr(error, "__notes__", []))
        said = f"{type(error).__name__}: {error}{notes}"
    left = " ".join(
        f"{e.name}:{'p' if e.paused else '-'}{'o' if e.open else '-'}{'d' if e.dead else '-'}{len(e.released)}{e.label}"
        for e in rig.e
    )
    marks = " ".join(
        f"{name}{tuple(v for k, v in data.items() if k not in ('message', 'names'))}" for name, _, data in rig.records
    )
    version = sut.reported_version()
    return (
        f"{said} | {', '.join(calls)} | {left} {version} live={rig.kit.live_exports()} {rig.world.now:.1f}s | {marks}"
    )


def tale(version: str, policy: str, *, away: bool, op: str, nth: int, how: str) -> str:
    rig = Rig(version, engines=2)
    sut = client(rig, policy=policy)
    calls = watched(rig)
    lines = []
    if away:
        sut.phase("train")
    sut.set_weights(sut._state, "v2")
    rig.e[1].script[op, rig.e[1].ops.count(op) + nth] = how
    what = "train" if op == "release_memory_occupation" else "refit"
    for number in (1, 2):
        lines.append(f"{number}: {outcome(rig, sut, calls, what)}")
    return f"{version} {policy}{' away' if away else ''} {op} {nth} {how}\n  " + "\n  ".join(lines)


def cases(op: str) -> list[dict[str, Any]]:
    places = [(False, 1), (False, 3)] if op == UPDATE else [(True, 1), (True, 2)] if op == MEMORY[1] else [(False, 1)]
    return [{"away": away, "op": op, "nth": nth, "how": how} for away, nth in places for how in HOWS]


def approved() -> dict[str, str]:
    text = lzma.decompress(APPROVED.read_bytes()).decode() if APPROVED.exists() else ""
    return {title: body for title, _, body in (part.partition("\n") for part in text.split("\n=== ")[1:])}


WANTED = approved()


@pytest.mark.parametrize("op", [*OPS, *MEMORY])
@pytest.mark.parametrize("policy", get_args(Policy))
@pytest.mark.parametrize("version", ["0.5.23", "miles", "0.5.20"])
def test_every_failure_of_one_call(version: str, policy: str, op: str) -> None:
    if version == "0.5.20" and op in (BEGIN, END):
        return  # it has no such call
    title = f"{version} {policy} {op}"
    text = "\n".join(tale(version, policy, **case) for case in cases(op))
    if os.environ.get("APPROVE"):
        whole = "".join(f"\n=== {name}\n{found}" for name, found in sorted({**approved(), title: text}.items()))
        APPROVED.write_bytes(lzma.compress(whole.encode()))
        return
    if text != WANTED.get(title):
        wanted = WANTED.get(title, "").splitlines()
        pytest.fail("\n".join(difflib.unified_diff(wanted, text.splitlines(), "approved", "now", lineterm="", n=1)))
