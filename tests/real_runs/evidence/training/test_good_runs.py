"""Runs that stand although they look otherwise than the example: refusing what is good is no use either."""

from __future__ import annotations

import json

import pytest

from real_runs.evidence.training import dishonest, good, validating
from real_runs.evidence.training.dishonest import log, metric, put, said
from real_runs.evidence.training.metrics import GRADIENTS, windows
from real_runs.evidence.training.run import LOG, Kept, TrainingRun

GOOD = {
    "lines that end as on Windows": log("\n", "\r\n", 999),
    "a progress bar before a marker": log("NRL_SGLANG_REFIT_START", " 50%|##   |\rNRL_SGLANG_REFIT_START", 999),
    "markers of another trainer": log("NRL_SGLANG_REFIT", "OURS_REFIT", 999),
    "markers without a prefix": log("NRL_SGLANG_REFIT", "REFIT", 999),
    "the environment as a mapping": said("{'NRL_REFIT_VALUE_CHECK': '1', 'NRL_REFIT_BUFFER_MEMORY_RATIO': '0.3'}"),
    "the topology said by every rank": said(dishonest.READY),
    "no shape check": log("NRL_REFIT_EXPORT_SHAPE_CHECK compared=3 exported=3 reference=3 mismatches=0\n", "\n"),
    "words about memory and time": said("timeout=600 watchdog_timeout=300 max_memory=80GB out of 4 engines"),
    "a setting called watchdog, and one called timeout": said('{"watchdog": true, "timeout": 600}'),
    "a duration in powers of ten": log("duration_s=1.200", "duration_s=1.2e0"),
    "an exit of a teardown": put("exit_code", to=139),
    "an exit by a signal": put("exit_code", to=-11),
    "nothing converted": put("conversion", to=None),
    "no submodules": put("submodules", to=[]),
    "no patches": put("patches", to=[]),
    "a gradient of one step alone": metric(GRADIENTS, lambda s: s.update({"1": 0.0, "3": 0.0})),
    "an error of exactly its bound": put("expected", "gate_bound", to=1.013),
    "the cap to the hour": put("launch", "gpu_hours", to=3.0),
}


@pytest.mark.parametrize("name", GOOD)
def test_it_stands(name):
    files = good.files()
    GOOD[name](files)

    assert validating.refusals(TrainingRun(files)) == []


def test_more_than_one_value_check_is_good_too():
    files = good.files()
    check = json.loads(files["value_check.json"].data)[0]
    phases = {phase: ranks for phase, ranks in check["engines"]["e0"].items() if phase != "disk"}
    engines = {"e0": phases}
    later = {"step": 3, "actions": ["checksum", "reset_tensors", "checksum", "checksum"], "engines": engines}
    files["value_check.json"] = Kept(json.dumps([check, later]).encode(), good.STARTED + 60, 1)
    put("expected", "value_checks", to=2)(files)
    log("step 3/4 done", "NRL_REFIT_VALUE_CHECK result=pass\nstep 3/4 done")(files)

    assert validating.refusals(TrainingRun(files)) == []


def test_a_run_of_one_refit_has_no_steady_one(monkeypatch):
    run = TrainingRun(good.files())
    first = run.marked("REFIT_SUCCESS")[:1]
    monkeypatch.setattr(TrainingRun, "marked", lambda run, kind: first)

    assert validating.measured(run).steady_s is None


def test_the_last_window_may_be_shorter():
    assert windows({1: 1.0, 2: 2.0, 3: 6.0, 4: 8.0, 5: 5.0}, 2) == [1.5, 7.0, 5.0]


def test_only_the_first_refusal_of_a_broken_file_is_told():
    files = good.files()
    del files[LOG]
    files["run.json"] = Kept(b"{", 0, 1)

    assert len(validating.refusals(TrainingRun(files))) == 1
