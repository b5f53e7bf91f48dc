"""Every exchange that was seen on real servers on CPU, again with the fake: status, body, ending, and how long it took.

observed.jsonl.xz holds the exchanges of 0.5.12.post1 and 0.5.19 to 0.5.23 (recorded 2026-11-30; bodies cut at 420
characters, some at 160). Weights, ids, times and digests differ; output tokens are compared by identity: two replies
have equal tokens on the fake exactly if they had on the real server.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fakes.engine.protocol import Raised
from fakes.outcome import Outcome
from tests.fakes.engine.control.driver import PROMPT, Driver, generate_body

EXCHANGES: list[dict[str, Any]] = [
    json.loads(line)
    for line in lzma.decompress(Path(__file__).with_name("observed.jsonl.xz").read_bytes()).decode().splitlines()
]
SECTIONS = {
    f"{index} {name}": list(rows)
    for index, (name, rows) in enumerate(groupby(EXCHANGES, key=lambda row: row["section"]))
}
NORM = "model.norm.weight"
UNSAFE = Raised("RuntimeError", "Blocked unsafe global (posix.system) during pickle deserialization")
GONE = Raised("RuntimeError", "No such file or directory")


def fields_of(row: dict[str, Any]) -> dict[str, Any]:
    found = re.search(r"Weight version updated to (\w+)\.", row["body"])
    fields: dict[str, Any] = {"weight_version": found.group(1)} if found and "update_weight" in row["op"] else {}
    if "flush_cache=False" in row["request"]:
        fields["flush_cache"] = False
    if row["request"].startswith("load_format="):
        fields["load_format"] = row["request"].partition("=")[2]
    return fields


def payloads_of(row: dict[str, Any], engine: Driver) -> list[str]:
    a, b, text = engine.weights(0), engine.weights(1), row["request"]
    if text in ("[]",):
        return []
    if text == "b64('hello world')":
        return ["aGVsbG8gd29ybGQ="]
    named: Any = {
        "[S([])]": {},
        "{norm only}": {NORM: a[NORM]},
        "unknown name": {"nope": a[NORM]},
        "norm (3,)": {NORM: a[NORM][:3]},
        "norm fp32": {NORM: a[NORM].astype("float32")},
        "os.system pickle": UNSAFE,
        "dead producer payload": GONE,
        "load_format=bogus": {NORM: a[NORM]},
        "load_format=direct": {NORM: a[NORM]},
        "{A minus layers.1.mlp.down_proj}": {n: v for n, v in a.items() if "layers.1.mlp.down_proj" not in n},
    }.get(text)
    if named is None:
        named = a if re.search(r"\bA\b", text) and "B" not in text else b
    count = 2 if text.startswith(("2 payloads", "{2x")) else 1
    return [engine.payload(named)] * count


def body_of(row: dict[str, Any], engine: Driver) -> Any:
    text, op = row["request"], row["op"]
    if op == "update_weights_from_tensor" and not text.startswith('{"') and text != "{}":
        return {"serialized_named_tensors": payloads_of(row, engine), **fields_of(row)}
    if op == "update_weights_from_distributed" and not text.startswith('{"'):
        named = engine.weights(0 if "A" in row["label"] else 1)
        engine.broadcast = list(named.items())
        shapes = [list(v.shape) for v in named.values()]
        spec = {"names": list(named), "dtypes": ["bfloat16"] * len(named), "shapes": shapes, "group_name": "g1"}
        return {**spec, **fields_of(row)}
    if op == "update_weights_from_disk" and "PATH" in text:
        engine.disk["PATH"] = list(engine.weights(1).items())
    return json.loads(text) if text else None


def plain(text: str) -> str:
    """A body without what differs from run to run."""
    text = re.sub(r'"output_ids":\[[\d,]*\]', '"output_ids":[]', text)
    text = re.sub(r"/models/tiny", "PATH", text)
    text = re.sub(r"-?\d+\.\d+(e-?\d+)?", "F", text)
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "HEX", text)
    text = re.sub(r"num_exceed=\d+", "num_exceed=N", text)
    return text.replace("llama", "MODEL")


def said(reply: Outcome) -> str:
    if reply.body is None:
        return "null" if reply.value is None else ""
    return reply.body if isinstance(reply.body, str) else json.dumps(reply.body, separators=(",", ":"))


def same(row: dict[str, Any], reply: Outcome) -> bool:
    if row["op"] == "server_info":
        return reply.status == 200
    if row["op"] == "get_weights_by_name" and row["status"] == 200:
        return said(reply)[:1] == row["body"][:1]
    if row["body"] == "":
        return reply.body is None
    want, got = plain(row["body"]), plain(said(reply))
    return got.startswith(want[:-60]) if len(row["body"]) >= 150 else got == want


def time_fits(row: dict[str, Any], reply: Outcome, version: str) -> bool:
    if reply.ending == "dropped":
        return reply.elapsed_s < 0.2 if version == "0.5.12.post1" else 5.0 <= reply.elapsed_s <= 5.3
    if row["status"] == 503:
        return abs(reply.elapsed_s - 20.0) < 0.1
    if reply.ending == "timeout":
        return reply.elapsed_s == 12.0
    if row["op"].startswith("health"):
        return abs(reply.elapsed_s - 1.0) < 0.1
    if row["label"].startswith("pause abort with"):
        return abs(reply.elapsed_s - 1.0) < 0.1
    return reply.elapsed_s < 0.7


class Replay:
    """One section: engines come and go with the deaths."""

    def __init__(self, section: str) -> None:
        self.version = section.split()[1]
        self._tp = 2 if "tp-size 2" in section else 1
        self._shim = "Tensor.cuda()" in section
        self.tokens: dict[str, list[int]] = {}
        self.engine = self.fresh()
        self._running: int | None = None

    def fresh(self) -> Driver:
        return Driver(self.version, tp_size=self._tp, checker_cuda_shim=self._shim)

    def run(self, row: dict[str, Any]) -> Outcome:
        label = row["label"]
        if self.engine.died is not None or label.startswith("init group backend=nccl"):
            self.engine = self.fresh()
        if "with one running request" in label or label in (
            "flush_cache with running request",
            "release while request running",
        ):
            self._running = self.engine.start("generate", generate_body(100, [7, 8, 9]))
            self.engine.advance(0.1)
        if "nobody listening" in label:
            self.engine.hang.add("Join")
        body = body_of(row, self.engine)
        timeout = 12.0 if row["status"] == "TimeoutError" else 60.0
        reply = self.engine.call(row["op"], body, method=row["method"], timeout=timeout)
        if label.startswith("continue (") and self._running is not None:
            assert self.engine.result(self._running).status == 200
        return reply

    def check_tokens(self, row: dict[str, Any], reply: Outcome) -> None:
        """Equal on the fake exactly if equal on the real server."""
        found = re.search(r'"output_ids":(\[[\d,]*\])', row["body"])
        if row["op"] != "generate" or found is None:
            return
        known = self.tokens.setdefault(found.group(1), reply.body["output_ids"])
        assert known == reply.body["output_ids"], row
        assert len({tuple(tokens) for tokens in self.tokens.values()}) == len(self.tokens), row


def problems(section: str) -> Iterator[str]:
    replay = Replay(section)
    for row in SECTIONS[section]:
        reply = replay.run(row)
        where = f"{row['n']}. {row['label']}"
        if row["status"] in ("RemoteDisconnected", "TimeoutError"):
            ending = "dropped" if row["status"] == "RemoteDisconnected" else "timeout"
            if reply.ending != ending:
                yield f"{where}: {reply} instead of {ending}"
            elif ending == "dropped" and not died_of(replay.engine, row["error"]):
                yield f"{where}: died of {replay.engine.died} instead of {row['error']}"
        elif reply.status != row["status"] or not same(row, reply):
            yield f"{where}: {reply.status} {said(reply)[:600]} instead of {row['status']} {row['body']}"
        else:
            replay.check_tokens(row, reply)
        if not time_fits(row, reply, replay.version):
            yield f"{where}: {reply.elapsed_s} s instead of {row['ms']} ms"


def died_of(engine: Driver, error: str) -> bool:
    """Whether the exception is the one of the real log; at tp 2 that log may name a peer's instead."""
    assert engine.died is not None
    raised = engine.died.error
    return not error or error == f"{raised.type}: {raised.message}" or "Connection closed by peer" in error


def test_the_table_is_whole() -> None:
    assert len(EXCHANGES) == 358
    assert {name.split()[1] for name in SECTIONS} == {"0.5.12.post1", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"}
    assert PROMPT == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("section", SECTIONS)
def test_what_was_seen_on_a_real_server_is_seen_here(section: str) -> None:
    assert list(problems(section)) == []
