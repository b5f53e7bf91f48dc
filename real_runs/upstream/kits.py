"""Which of SGLang's own test kits are run against the fake, and which cannot be, with the reason.

The kits lie in SGLang's wheel (sglang/test/kits) and run in its environment as they are. What a kit lets a test choose
(how many requests, how long) is chosen so that it fits the tiny model.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from fakes.trace import TraceWriter
from harness.errors import HarnessError, UsageError
from harness.gate import FaultGate
from harness.lanes.base import EngineSpec
from harness.lanes.http import HttpEngine, HttpLane
from real_runs import env as environments
from real_runs.upstream.texts import door

TIMEOUT_S = 300.0
RUN: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "basic_api_contract_kit": {"BasicAPIContractMixin": {}},
    "abort_timeout_kit": {
        "AbortAllMixin": {
            "abort_all_num_requests": 8,
            "abort_all_max_new_tokens": 480,
            "abort_all_sleep": 0.5,
        }
    },
    "pause_generation_kit": {
        "PauseResumeInPlaceMixin": {
            "pause_num_requests": 4,
            "pause_max_new_tokens": 440,
            "pause_duration": 1.0,
            "pause_ignore_eos": True,
        }
    },
}
"""Kit, class, what it lets us choose."""
_CLEVER = "wants right answers, which a random model does not give"
_GUIDED = "wants constrained decoding, which is not modelled"
_KERNELS = "tests kernels, not a server"
_SPEC = "wants speculative decoding, which is not modelled"
_OPENAI = "wants the OpenAI routes, which are not modelled"
LEFT_OUT: Mapping[str, str] = {
    "test_openai_chat_completion": _OPENAI,
    "test_openai_completion": _OPENAI,
    "WaitingTimeoutMixin": "wants SGLANG_REQ_WAITING_TIMEOUT, which is not modelled",
    "RunningTimeoutTwoWaveMixin": "wants SGLANG_REQ_RUNNING_TIMEOUT, which is not modelled",
    "anthropic_messages_kit": "wants the Anthropic routes, which are not modelled",
    "attention_unittest": _KERNELS,
    "basic_decode_correctness_kit": _CLEVER,
    "basic_scheduler_stress_kit": _CLEVER,
    "cache_hit_kit": "wants SGLang's benchmark and a real tokenizer",
    "dsa_metadata_kit": _KERNELS,
    "ebnf_constrained_kit": _GUIDED,
    "eval_accuracy_kit": _CLEVER,
    "fwd_occupancy_kit": "measures a GPU",
    "json_constrained_kit": _GUIDED,
    "json_mode_kit": _GUIDED,
    "kl_divergence_kit": _CLEVER,
    "lm_eval_kit": _CLEVER,
    "matched_stop_kit": _OPENAI,
    "mmmu_vlm_kit": _CLEVER,
    "pd_parity_kit": "wants prefill and decode on engines of their own, which is not modelled",
    "perf_bench_kit": "measures a GPU",
    "prefix_cache_branching_kit": "wants the page size of a hybrid cache, which is not modelled",
    "radix_cache_server_kit": "wants a context and a vocabulary of 32,000 tokens, which the tiny model has not",
    "reasoning_kit": _OPENAI,
    "regex_constrained_kit": _GUIDED,
    "spec_decoding_kit": _SPEC,
    "spec_server_kits": _SPEC,
    "streaming_session_kit": "wants streaming sessions (/open_session), which are not modelled",
    "unified_radix_cache": _KERNELS,
    "unified_radix_cache_kit": "wants a hybrid cache, which is not modelled",
    "vlm_perf_kit": "measures a GPU",
}
"""Kits, and classes and tests of a kit that is run, that cannot apply."""
ELSEWHERE = (
    "test_weight_checker_e2e.py, test_update_weights_from_disk.py and test_weight_version_spans*.py"
    " (test/registered/rl) are not in the wheel: they lie in SGLang's repository alone"
)


@dataclass(frozen=True)
class Ran:
    """One test: `said` is "passed", or the last line of what went wrong."""

    kit: str
    test: str
    said: str

    @property
    def passed(self) -> bool:
        """Whether it did."""
        return self.said == "passed"


def folder_of(version: str) -> tuple[Path, Path]:
    """SGLang's interpreter and the folder of its kits. UsageError without an environment that has them."""
    environments.pins(version)
    env = environments.find(version)
    if env is None:
        raise UsageError(f"there is no environment of SGLang {version}; `refitcheck env make {version}` makes it")
    for site in sorted((env.folder / "lib").glob("python*/site-packages/sglang/test/kits")):
        return env.python, site
    raise UsageError(f"SGLang {version} at {env.folder} has no test kits")


def run(version: str) -> list[Ran]:
    """Every kit that applies, of the installed `version`, against the fake of that version over HTTP.

    UsageError without an environment, HarnessError when the child breaks.
    """
    python, kits = folder_of(version)
    wanted = {kit: dict(classes) for kit, classes in RUN.items() if (kits / f"{kit}.py").exists()}
    child = Path(str(resources.files("real_runs.upstream"))) / "kits_child.py"
    lane = HttpLane({"time_scale": 1.0})
    try:
        lane.begin(FaultGate(TraceWriter(), lane.now), 0)
        engine = lane.engine(EngineSpec(version, dtype="float32", options=(("max_running_requests", 64),)))
        assert isinstance(engine, HttpEngine)
        with door(engine.url) as url:
            done = subprocess.run(
                [str(python), "-I", str(child), str(kits), url, json.dumps(wanted), json.dumps(list(LEFT_OUT))],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
    except subprocess.TimeoutExpired:
        raise HarnessError(f"the kits of SGLang {version} were not done after {TIMEOUT_S:.0f} s") from None
    finally:
        lane.close()
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise HarnessError(f"the kits of SGLang {version}: {last[0]}")
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return [Ran(kit, test, said) for kit, _, test, said in told]


def table(ran: list[Ran]) -> str:
    """What passed, what cannot, and what is left out, with reasons."""
    lines = [f"  {one.kit:<24} {one.test:<32} {one.said}" for one in ran]
    lines += [f"  {name:<57} cannot apply: {why}" for name, why in sorted(LEFT_OUT.items())]
    return "\n".join([*lines, f"  {ELSEWHERE}"])
