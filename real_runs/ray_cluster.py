"""The lane `ray-cluster`: SGLang servers that Ray places on GPUs of a cluster, behind the same gate."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.errors import Unsupported, UsageError
from harness.lanes.base import EngineSpec
from harness.lanes.loader import refuse_options
from real_runs import env as environments
from real_runs.attached import About, AttachedPool
from real_runs.causes import chained
from real_runs.models import TinyModel
from real_runs.preflight import Finding
from real_runs.server import Server
from real_runs.sglang_cpu import is_on, number
from real_runs.sglang_gpu import GpuServerSpec
from real_runs.sglang_url import SglangUrlLane, looked_at

INSTALL = "ray is not installed: pip install 'refitcheck[ray]'"
START_S = 900.0


@dataclass(frozen=True)
class Wanted:
    """What is asked of a cluster: so many engines of `tp` GPUs each."""

    address: str
    engines: int
    tp: int
    version: str


def preflight(wanted: Wanted, ray: Any) -> list[Finding]:
    """Whether the cluster can be reached and has what is wanted; each bad finding with the chain of its causes.

    Engines are to be on this very node: weights go to them through its memory.
    """
    try:
        ray.init(address=wanted.address, ignore_reinit_error=True, log_to_driver=False)
        nodes = [node for node in ray.nodes() if node.get("Alive")]
        here = ray.get_runtime_context().get_node_id()
    except Exception as error:  # whatever Ray and its transports raise
        return [Finding("ray", False, f"no cluster at {wanted.address}: {chained(error)}")]
    out = [Finding("ray", True, f"{ray.__version__}, {len(nodes)} nodes")]
    mine = next((node for node in nodes if node.get("NodeID") == here), None)
    gpus = int((mine or {}).get("Resources", {}).get("GPU", 0))
    needed = wanted.engines * wanted.tp
    free = int(ray.available_resources().get("GPU", 0))
    said = f"this node has {gpus}, {free} are free in the cluster; {wanted.engines} engines of tp {wanted.tp}"
    out.append(Finding("gpus", gpus >= needed and free >= needed, f"{said} need {needed} here"))
    return out


class Host:
    """One server inside a Ray actor, which ends with it."""

    def __init__(self, version: str, tp: int, model: str, site: str, cuda_graph: bool, folder: str) -> None:
        gpus = tuple(int(n) for n in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if n.strip().isdecimal())
        spec = GpuServerSpec(
            version, Path(model), tp=tp, site=site, gpus=gpus or tuple(range(tp)), cuda_graph=cuda_graph
        )
        python = Path(sys.executable)
        env = environments.SglangEnv(version, python, Path(site or python.parent), given=True)
        self._server = Server(env, spec, Path(folder))

    def start(self) -> str:
        """Its url, when it serves. ServerError in one line where it does not come up."""
        self._server.start()
        return f"http://127.0.0.1:{self._server.client.port}"

    def stop(self) -> None:
        """End it."""
        self._server.stop()


class RayClusterLane(SglangUrlLane):
    """Servers on GPUs that Ray gives, each in an actor of its own, on the node of this process.

    As on `sglang-url`, scenarios that end an engine are unsupported. Options: `address` (a cluster's, or auto),
    `engines` (1), `version`, `tp`, `model`, `site` and `cuda_graph` as on `sglang-gpu`, `quiet`. Without ray everything
    is unsupported, with the line that installs it.
    """

    name = "ray-cluster"
    where = "real, http, cuda, ray"
    option_names = ("address", "cuda_graph", "engines", "model", "quiet", "site", "tp", "version")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        refuse_options(self.name, given.keys() - set(self.option_names), self.option_names)
        self._hosts: list[Any] = []
        self._ray: Any = None
        super().__init__(given)

    def configure(self, given: dict[str, Any]) -> None:
        """Its own options; the cluster is looked at when the first engine is asked for."""
        self._device, self._key = "cuda", None
        self._folder = str(given.pop("model", ""))
        self._site = str(given.pop("site", ""))
        self._graphs = is_on(given.pop("cuda_graph", ""))
        self._wanted = Wanted(
            address=str(given.pop("address", "auto")),
            engines=number("engines", given.pop("engines", "")) or 1,
            tp=number("tp", given.pop("tp", "")) or 1,
            version=str(given.pop("version", environments.SUPPORTED[-1])),
        )
        if self._wanted.version not in environments.SUPPORTED:
            known = ", ".join(environments.SUPPORTED)
            raise UsageError(f"--lane-option version={self._wanted.version}: there are {known}")
        # Until they run, what they will be; their url is nobody's.
        asked = About("", self._wanted.version, self._wanted.tp, self._folder, "bfloat16", "", "default")
        self._found = [asked]

    def refuse(self, spec: EngineSpec) -> None:
        """Unsupported for an engine that these are not; without ray for every one."""
        if find_spec("ray") is None:
            raise Unsupported(INSTALL)
        self._up(spec)
        super().refuse(spec)

    def model(self, spec: EngineSpec) -> TinyModel:
        """What `model` names, or the tiny model of a spec."""
        return super().model(spec) if self._folder else super(SglangUrlLane, self).model(spec)

    def close(self) -> None:
        """End the servers and let go of the cluster."""
        super().close()
        hosts, self._hosts = self._hosts, []
        for host in hosts:
            self._ray.get(host.stop.remote(), timeout=START_S)
            self._ray.kill(host)
        if self._ray is not None:
            self._ray.shutdown()
            self._ray = None

    def _up(self, spec: EngineSpec) -> None:
        """Start them all, once. UsageError with all that the cluster lacks."""
        if self._hosts:
            return
        import ray

        self._ray = ray
        wrong = [finding.line for finding in preflight(self._wanted, ray) if not finding.ok]
        if wrong:
            raise UsageError("; ".join(wrong))
        actor = ray.remote(num_gpus=self._wanted.tp, max_restarts=0)(Host)
        folder = environments.cache_dir() / "runs" / f"ray-{os.getpid()}"
        arguments = (self._wanted.version, self._wanted.tp, self.model(spec).folder(0), self._site, self._graphs)
        for index in range(self._wanted.engines):
            self._hosts.append(actor.remote(*arguments, str(folder / f"e{index}")))
        try:
            urls = ray.get([host.start.remote() for host in self._hosts], timeout=START_S)
        except Exception as error:
            raise UsageError(f"a server did not come up: {chained(error)}") from error
        self._found = looked_at(urls, None)
        self._pool = AttachedPool(self._found, self.payloads)  # type: ignore[assignment]  # as much as is asked of it
