"""The GPU lane's own logic; servers and torch are scripted: what is started, where payloads go, what is kept."""

import json
import lzma
import os
from types import SimpleNamespace

import numpy as np
import pytest

from fakes.outcome import Outcome
from fakes.tiny import tiny_config, tiny_weights, write_model
from fakes.trace import TraceWriter
from harness.errors import HarnessError, Unsupported, UsageError
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.lanes.loader import load_lane
from real_runs import pool as pool_module
from real_runs import sglang_cpu, sglang_gpu
from real_runs.cleaning import Cleaner
from real_runs.preflight import Finding
from real_runs.sglang_gpu import SglangGpuLane
from tests.real_runs.scripted_lane import FreePayloads, ScriptedServer

SPEC = EngineSpec("0.5.23")


class LoggingServer(ScriptedServer):
    """Also has what evidence asks for."""

    command = ("python", "-m", "sglang.launch_server")
    starts_s = (1.5,)

    def start(self):
        super().start()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path.write_text(f"Load weight begin.\nKeyError: 'kv_cache' in {self.folder}\n")

    def adopt(self, other):
        self.stop()
        self.starts += 1
        self.alive, self.log_path = True, other.log_path
        other.alive = False


@pytest.fixture(autouse=True)
def scripted(monkeypatch, tmp_path):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NCCL_CUMEM_ENABLE", "")  # so that what a lane sets is taken back
    del os.environ["NCCL_CUMEM_ENABLE"]
    monkeypatch.setattr(pool_module, "Server", LoggingServer)
    monkeypatch.setattr("real_runs.engine.SETTLE_S", 0.0)
    monkeypatch.setattr(sglang_cpu.questions, "kept", lambda spec: [])
    monkeypatch.setattr(SglangGpuLane, "payloads", lambda self: FreePayloads())
    looked = []
    monkeypatch.setattr(sglang_gpu, "preflight", lambda machine: looked.append(machine) or [])
    ScriptedServer.made, ScriptedServer.broken_start = [], False
    return looked


@pytest.fixture
def make():
    made = []

    def lane(**options):
        made.append(SglangGpuLane({"quiet": "1", **options}))
        return made[-1]

    yield lane
    for lane in made:
        lane.close()


def begun(lane):
    lane.begin(FaultGate(TraceWriter(), lane.now), 0)
    return lane


def argument(spec, name):
    arguments = spec.arguments(1)
    return arguments[arguments.index(name) + 1]


def test_it_is_installed():
    assert load_lane("sglang-gpu", {"quiet": "1"}).name == "sglang-gpu"


def test_a_server_gets_the_first_gpus_and_the_packages_of_its_site(make, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("SGLANG_SOMETHING", "1")
    spec = make(site="/site").server_spec(EngineSpec("0.5.23", tp=2))
    environment = spec.environment()

    assert (environment["CUDA_VISIBLE_DEVICES"], environment["PYTHONPATH"]) == ("0,1", "/site")
    assert environment["SGLANG_SOMETHING"] == "1"
    assert "SGLANG_USE_CPU_ENGINE" not in environment
    assert argument(spec, "--device") == "cuda"
    assert argument(spec, "--tp-size") == "2"
    assert {"--disable-cuda-graph", "--disable-custom-all-reduce"} <= set(spec.arguments(1))


def test_options_choose_gpus_graphs_and_interpreter(make, tmp_path):
    spec = make(gpus="3,1", cuda_graph="on").server_spec(SPEC)

    assert spec.environment()["CUDA_VISIBLE_DEVICES"] == "3"
    assert "PYTHONPATH" not in spec.environment()
    assert "--disable-cuda-graph" not in spec.arguments(1)
    assert "--disable-custom-all-reduce" not in spec.arguments(1)


def test_the_memory_saver_is_there_by_option(make):
    options = (("enable_memory_saver", True), ("enable_weights_cpu_backup", True))
    lane = make()

    assert lane.server_spec(EngineSpec("0.5.23", options=options)).extra == (
        "--enable-memory-saver",
        "--enable-weights-cpu-backup",
    )
    assert lane.server_spec(EngineSpec("0.5.23", options=(("enable_memory_saver", False),))).extra == ()


def test_adapters_are_launched_with_their_modules(make):
    options = (("enable_lora", True), ("lora_target_modules", ("q_proj", "v_proj")), ("max_lora_rank", 8))
    extra = make().server_spec(EngineSpec("0.5.23", options=options)).extra
    assert extra == ("--enable-lora", "--lora-target-modules", "q_proj", "v_proj", "--max-lora-rank", "8")


@pytest.mark.parametrize(("refused", "clean"), [((), True), (("two",), False)])
def test_adapters_of_one_scenario_are_gone_before_the_next(refused, clean):
    asked = []

    class Listed:
        spec = SimpleNamespace(extra=("--enable-lora",), api_key=None, admin_api_key=None)

        class client:  # noqa: N801
            @staticmethod
            def request(method, op, body, **_):
                if op == "v1/models":
                    models = [{"id": "base", "parent": None}, *({"id": n, "parent": "base"} for n in ("one", "two"))]
                    return Outcome(ending="reply", status=200, body={"data": models})
                asked.append((op, body["lora_name"]))
                return Outcome(ending="reply", status=400 if body["lora_name"] in refused else 200, body={})

    assert Cleaner(Listed(), None)._unload_adapters() is clean
    assert asked == [("unload_lora_adapter", "one"), ("unload_lora_adapter", "two")]
    Listed.spec.extra = ()
    assert Cleaner(Listed(), None)._unload_adapters()
    assert len(asked) == 2


def test_what_it_cannot_have_is_unsupported_by_name(make):
    lane = begun(make())
    for spec, name in (
        (EngineSpec("miles"), "miles"),
        (EngineSpec("0.5.23", tp=4), "tp 4"),
        (EngineSpec("0.5.23", options=(("strict_memory", True),)), "strict_memory=True on a server of lane sglang-gpu"),
    ):
        with pytest.raises(Unsupported, match=name):
            lane.engine(spec)


@pytest.mark.parametrize(("option", "value"), [("gpus", "one"), ("spares", "-1"), ("torch_index", "x")])
def test_an_option_that_is_wrong_is_refused(option, value):
    with pytest.raises(UsageError, match=option):
        SglangGpuLane({option: value})


def test_the_machine_is_looked_at_once_per_kind(make, scripted):
    lane = make(spares="1")
    for tp in (1, 1, 2):
        begun(lane).engine(EngineSpec("0.5.23", tp=tp))
        lane.finish()

    assert [machine.tp for machine in scripted] == [1, 2]


def test_what_is_missing_ends_the_run_with_every_line(make, monkeypatch):
    findings = [Finding("gpus", False, "none"), Finding("nvcc", True, "there"), Finding("python", False, "gone")]
    monkeypatch.setattr(sglang_gpu, "preflight", lambda machine: findings)
    with pytest.raises(UsageError, match=r"^gpus: none; python: gone$"):
        begun(make()).engine(SPEC)


def test_the_trainer_allocates_as_the_engine_can_open_it(make):
    make()
    assert os.environ["NCCL_CUMEM_ENABLE"] == "0"


def test_exports_of_a_rank_lie_on_the_gpu_of_its_tp_rank(make, monkeypatch):
    placed = []

    def share(device):
        placed.append(device)
        return lambda data: SimpleNamespace(tensor=lambda dtype, shape: None, close=lambda: None)

    monkeypatch.setattr("fakes.trainer.cuda_wire.cuda_share", share)
    monkeypatch.setattr(
        "fakes.trainer.cuda_wire._torch", lambda: SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    )
    for options, expected in (({}, [0, 1, 0]), ({"gpus": "3,1"}, [3, 1, 3])):
        placed.clear()
        kit = begun(make(**options)).trainer(3)
        for rank in range(3):
            kit.export(rank, [("a", np.zeros(3, dtype=np.float32))])
        assert placed == expected


def test_a_trainer_between_scenarios_is_an_error(make):
    with pytest.raises(HarnessError, match="between scenarios"):
        make().trainer(1)


def test_a_model_of_ones_own_is_served_with_its_own_weights(make, tmp_path):
    config = tiny_config("qwen2", dtype="bfloat16", num_hidden_layers=1)
    own = tiny_weights(config, 77)
    write_model(tmp_path / "mine", config, own)
    lane = make(model=str(tmp_path / "mine"))

    assert str(lane.server_spec(SPEC).model) == str(tmp_path / "mine")
    assert (lane.weights(SPEC, 0)["model.norm.weight"] == own["model.norm.weight"]).all()
    assert lane.weights(SPEC, 1).keys() == own.keys()
    assert not (lane.weights(SPEC, 1)["model.norm.weight"] == own["model.norm.weight"]).all()


def test_a_model_that_cannot_be_served_is_one_line(make, tmp_path):
    with pytest.raises(UsageError, match="model "):
        begun(make(model=str(tmp_path))).engine(SPEC)


def test_a_death_takes_a_server_that_was_started_ahead(make):
    lane = make(spares="1")
    engine = begun(lane).engine(SPEC)
    assert len(ScriptedServer.made) == 3  # the one held, the one that it became, one ahead
    engine.kill()
    engine.restart()

    assert engine.alive
    assert engine.held.server is ScriptedServer.made[0]
    assert lane.starts == 2


def test_evidence_keeps_command_lines_and_logs_without_paths_of_the_machine(make, tmp_path):
    folder = tmp_path / "evidence"
    lane = make(evidence=str(folder))
    begun(lane).engine(SPEC)
    lane.close()
    said = json.loads((folder / "environment.json").read_text())

    assert said["servers"][0]["argv"] == list(LoggingServer.command)
    assert said["servers"][0]["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert said["provides"] == []
    assert len(said["refitcheck"]["sources"]) == 16
    log = lzma.decompress((folder / "logs" / "001.log.xz").read_bytes()).decode()
    assert "KeyError: 'kv_cache' in <cache>/runs" in log
    assert str(tmp_path) not in log


def test_a_run_without_a_server_leaves_no_evidence(make, tmp_path):
    make(evidence=str(tmp_path / "evidence")).close()

    assert not (tmp_path / "evidence").exists()
