"""The lane of a Ray cluster: what is missing is said; with a stand-in for Ray its servers are fakes behind HTTP."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from fakes.fronts.launcher import Launcher
from fakes.trace import Header, TraceWriter
from harness.errors import Unsupported, UsageError
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.lanes.info import info_of
from real_runs import questions, ray_cluster
from real_runs.causes import causes, chained
from real_runs.payloads import TorchPayloads
from real_runs.ray_cluster import RayClusterLane, Wanted, preflight

SPEC = EngineSpec("0.5.23", tp=2)


class Handle:
    """An actor's: its methods have `.remote`, whose result `Ray.get` gives."""

    def __init__(self, made):
        self.made = made

    def __getattr__(self, name):
        method = getattr(self.made, name)
        return SimpleNamespace(remote=lambda *arguments: method(*arguments))


class Ray(ModuleType):
    """As much of Ray as the lane asks for; every call is at once."""

    __version__ = "2.56.1"

    def __init__(self, here=2, free=2, fails=None):
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.fails, self.free, self.killed, self.over, self.asked = fails, free, [], False, []
        resources = {"GPU": float(here)} if here else {}
        self._nodes = [
            {"Alive": True, "NodeID": "mine", "Resources": resources},
            {"Alive": True, "NodeID": "other", "Resources": {"GPU": 8.0}},
            {"Alive": False, "NodeID": "dead", "Resources": {"GPU": 8.0}},
        ]

    def init(self, address, **options):
        self.asked.append(address)
        if self.fails is not None:
            raise ConnectionError("no head node") from self.fails

    def nodes(self):
        return self._nodes

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "mine")

    def available_resources(self):
        return {"GPU": float(self.free)}

    def remote(self, num_gpus, max_restarts):
        self.asked.append(num_gpus)
        return lambda actor: SimpleNamespace(remote=lambda *arguments: Handle(actor(*arguments)))

    def get(self, what, timeout):
        return what

    def kill(self, handle):
        self.killed.append(handle)

    def shutdown(self):
        self.over = True


@pytest.fixture
def installed(monkeypatch):
    def install(**options):
        ray = Ray(**options)
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr(ray_cluster, "find_spec", lambda name: ray.__spec__)
        return ray

    return install


def begun(lane):
    trace = TraceWriter()
    trace.write(Header())
    lane.begin(FaultGate(trace, lane.now), 0)
    return lane


def test_without_ray_everything_is_unsupported_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    lane = begun(RayClusterLane({"quiet": "1", "tp": "2"}))

    assert (info_of(lane).versions[0], info_of(lane).tp) == ("0.5.23", 2)
    with pytest.raises(Unsupported, match=r"pip install 'refitcheck\[ray\]'"):
        lane.engine(SPEC)
    lane.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"here": 0, "free": 8}, "gpus: this node has 0, 8 are free in the cluster; 1 engines of tp 2 need 2 here"),
        ({"here": 2, "free": 1}, "this node has 2, 1 are free in the cluster"),
        (
            {"fails": OSError("timed out")},
            "ray: no cluster at auto: ConnectionError: no head node <- OSError: timed out",
        ),
    ],
)
def test_one_preflight_says_what_is_missing(installed, options, said):
    installed(**options)
    lane = begun(RayClusterLane({"quiet": "1", "tp": "2"}))
    with pytest.raises(UsageError, match=said):
        lane.engine(SPEC)
    lane.close()


def test_a_good_cluster_has_nothing_missing(installed):
    found = preflight(Wanted("auto", 1, 2, "0.5.23"), installed())

    assert [(finding.what, finding.ok) for finding in found] == [("ray", True), ("gpus", True)]
    assert found[0].said == "2.56.1, 2 nodes"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "0.4.0"}, "version=0.4.0: there are"),
        ({"engines": "many"}, "engines=many"),
        ({"url": "http://h:1"}, "no option url; it has address"),
        ({"evidence": "x"}, "no option evidence"),
    ],
)
def test_a_wrong_option_is_one_line(options, said):
    with pytest.raises(UsageError, match=said):
        RayClusterLane(options)


def test_servers_are_started_once_used_and_ended(installed, monkeypatch, tmp_path):
    launcher = Launcher()
    started = []

    class Fake:
        def __init__(self, version, tp, model, site, cuda_graph, folder):
            self.arguments = ["--fake-version", version, "--model-path", model, "--tp-size", str(tp)]
            started.append((version, tp, site, cuda_graph))

        def start(self):
            arguments = [*self.arguments, "--time-scale", "0.05", "--log-level", "warning"]
            self.server = launcher.start(arguments, log=tmp_path / f"{len(started)}.log")
            return self.server.url

        def stop(self):
            self.server.stop()

    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ray_cluster, "Host", Fake)
    monkeypatch.setattr(questions, "kept", lambda spec: [])
    monkeypatch.setattr(RayClusterLane, "payloads", lambda lane: TorchPayloads())
    ray = installed()
    lane = begun(RayClusterLane({"quiet": "1", "tp": "2", "cuda_graph": "on"}))
    engine = lane.engine(SPEC)

    assert engine.call("begin_weight_update", {}).status == 200
    assert started == [("0.5.23", 2, "", True)]
    with pytest.raises(Unsupported, match=r"not 0[.]5[.]22"):
        lane.engine(EngineSpec("0.5.22", tp=2))
    assert len(started) == 1
    lane.close()
    launcher.close()
    assert (ray.asked, len(ray.killed), ray.over) == (["auto", 2], 1, True)


def test_a_server_that_does_not_come_up_is_told_with_its_causes(installed, monkeypatch, tmp_path):
    def refuse(*arguments):
        raise RuntimeError("no such model")

    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    monkeypatch.setattr(ray_cluster, "Host", lambda *arguments: SimpleNamespace(start=refuse, stop=lambda: None))
    installed()
    lane = begun(RayClusterLane({"quiet": "1", "tp": "2"}))
    with pytest.raises(UsageError, match="did not come up: RuntimeError: no such model"):
        lane.engine(SPEC)
    lane.close()


def test_causes_are_a_chain_that_ends():
    first, second = OSError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    third = KeyError("c")
    third.__context__, third.__suppress_context__ = first, True

    assert causes(first) == ["OSError: a", "ValueError: b"]
    assert chained(third) == "KeyError: 'c'"
    third.__suppress_context__ = False
    assert chained(third) == "KeyError: 'c' <- OSError: a <- ValueError: b"
    long = error = Exception("0")
    for n in range(1, 20):
        error.__cause__ = error = Exception(str(n))
    assert len(causes(long)) == 8
