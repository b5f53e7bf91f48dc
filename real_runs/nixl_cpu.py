"""The reference client's streams over real NIXL (UCX, CPU memory): `python -m real_runs.nixl_cpu OUT.json`.

Needs one of the packages nixl, nixl-cu12, nixl-cu13 (`pip install --no-deps nixl-cu12`: the libraries of CUDA are not
needed). Agents of both sides live in one process, as do those of the fake; engines are stubs that keep what was posted.
Runs in a child, since NIXL may crash while it is torn down: the child writes its verdict first, and a crash after that
is told apart from one before.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np

from fakes.outcome import Outcome
from fakes.trainer import TrainerKit
from fakes.transport.nixl import Fabric, Host

PACKAGES = ("nixl", "nixl_cu12", "nixl_cu13")
DTYPES = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.uint8))
TIMEOUT_S = 300.0
DEADLINE_S = 60.0  # of one refit: seconds on an idle machine


def package() -> str | None:
    """The importable package that has NIXL's API, if there is one."""
    return next((name for name in PACKAGES if importlib.util.find_spec(name) is not None), None)


@dataclass(frozen=True)
class Verdict:
    """What a child said: `ok`, `told` in one line, and whether it crashed after it had said so."""

    ok: bool
    told: str
    crashed_after: bool = False


def judge(out: Path, env: Mapping[str, str] | None = None) -> Verdict:
    """Run a child. Its verdict counts, whatever becomes of it afterwards."""
    command = [sys.executable, "-m", "real_runs.nixl_cpu", str(out)]
    try:
        done = subprocess.run(
            command, env={**os.environ, **(env or {})}, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        code, errors = done.returncode, done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        code, errors = -1, f"not over after {TIMEOUT_S:g} s"
    if not out.exists():
        return Verdict(False, f"no verdict, exit code {code}: {errors.strip()[-300:]}")
    said = json.loads(out.read_text())
    return Verdict(bool(said["ok"]), str(said["told"]), crashed_after=code != 0)


class RealFabric(Fabric):
    """Agents of the real library."""

    def agent(self, name: str, host: Host, config: Any = None) -> Any:
        """`nixl_agent(name, nixl_agent_config(backends=["UCX"]))` for numpy arrays."""
        api = importlib.import_module(f"{package()}._api")
        return RealAgent(name, api.nixl_agent(name, api.nixl_agent_config(backends=["UCX"])))


class RealAgent:
    """`nixl_agent`, whose lists of memory are numpy arrays: the library takes torch tensors, or addresses."""

    def __init__(self, name: str, agent: Any) -> None:
        self.name = name
        self._agent = agent
        self._kept: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def register_memory(self, arrays: Sequence[np.ndarray]) -> Any:
        """Register the bytes of the arrays, which are kept alive."""
        self._kept.extend(arrays)
        return self._agent.register_memory([(*_span(a), 0, "") for a in arrays], "DRAM")

    def get_xfer_descs(self, arrays: Sequence[np.ndarray]) -> Any:
        """Descriptors of the arrays' bytes."""
        return self._agent.get_xfer_descs([(*_span(a), 0) for a in arrays], "DRAM")

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """A peer's name."""
        name = self._agent.add_remote_agent(metadata)
        return name if isinstance(name, bytes) else str(name).encode()


def _span(array: np.ndarray) -> tuple[int, int]:
    return int(array.__array_interface__["data"][0]), array.nbytes


@dataclass
class Stub:
    """An engine that keeps what was posted."""

    name: str
    tp: int
    gpu_ids: tuple[int, ...]
    incarnation: int = 0
    url: str | None = None
    posts: list[dict[str, Any]] = field(default_factory=list)

    def request(self, op: str, body: Any = None, **_about: Any) -> Outcome:
        """200 for everything."""
        self.posts.append(body)
        return Outcome(ending="reply", status=200, body={"success": True})

    def start(self, op: str, body: Any = None, **about: Any) -> Any:
        """Nothing here is called in the background."""
        raise NotImplementedError


class Wall:
    """Real seconds."""

    def now(self) -> float:
        """A monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


def refit_all(tp: int = 2, engines: int = 2, refits: int = 2) -> str:
    """Refits of random states over real agents. "" or the first thing that is wrong."""
    from harness.reference.deadline import Deadline
    from harness.reference.engines import Engine
    from harness.reference.transports.checkpoint_engine import CheckpointEngineTransport
    from harness.sut.protocol import Endpoint

    kit = TrainerKit(None, engines * tp + 1)
    kit._fabric = RealFabric()
    trainer: Any = kit
    copies: dict[str, list[tuple[str, bytes]]] = {}

    def export(gpu: int, named: Any, consumers: Any, *_rest: Any, **_more: Any) -> Any:
        payload = f"{consumers} {len(copies)}"
        copies[payload] = [(name, tensor.tobytes()) for name, tensor in named]
        return type("Export", (), {"payload": payload, "release": lambda self: None})()

    trainer.export = export  # what was received is compared, not opened
    stubs = [Stub(f"e{i}", tp, tuple(range(i * tp, (i + 1) * tp))) for i in range(engines)]
    transport = CheckpointEngineTransport(trainer, 64 * 1024)
    members = [Engine(cast(Endpoint, stub), stub.gpu_ids, 0) for stub in stubs]
    for refit in range(refits):
        state = random_state(refit)
        deadline = Deadline(Wall(), DEADLINE_S)
        transport.connect(members, deadline)
        transport.send(members, deadline, state, f"v{refit}")
        for stub in stubs:
            for rank in range(tp):
                came = [item for post in stub.posts for item in copies[post["serialized_named_tensors"][rank]]]
                if dict(came) != {name: tensor.tobytes() for name, tensor in state.items()} or len(came) != len(state):
                    return f"refit {refit}: {stub.name} tp rank {rank} did not receive the state"
            if stub.posts[-1].get("weight_version") != f"v{refit}":
                return f"refit {refit}: {stub.name} was not told its version"
            stub.posts.clear()
    transport.close(members)
    return ""


def random_state(seed: int) -> dict[str, np.ndarray]:
    """Twelve tensors of mixed dtypes, some larger than a bucket."""
    rng = np.random.default_rng(seed)
    state = {}
    for i in range(12):
        dtype, size = DTYPES[i % 3], int(rng.integers(1, 10_000 if i % 5 else 80_000))
        state[f"t{i}"] = rng.integers(0, 120, size * dtype.itemsize, dtype=np.uint8).view(dtype)
    return state


def main(out: Path) -> int:
    """The child: write the verdict, and only then let go of NIXL."""
    began = time.monotonic()
    try:
        wrong = refit_all()
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    told = wrong or f"2 refits of 2 engines of tp 2 over {package()} in {time.monotonic() - began:.1f} s"
    part = out.with_suffix(".part")
    part.write_text(json.dumps({"ok": not wrong, "told": told}))
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
