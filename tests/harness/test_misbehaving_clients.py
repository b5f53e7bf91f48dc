"""A client that ends the process, raises, or is never met by a fault must not pass for one that was judged."""

from __future__ import annotations

import os
import sys

import pytest

from harness.cli import invoke
from harness.sut.protocol import Caps
from tests.examples.minimal_adapter import Adapter
from tests.harness.toys import without_progress


class Exits(Adapter):
    def refit(self, deadline_s):
        sys.exit(0)


class ExitsAtOnce(Adapter):
    def capabilities(self):
        os._exit(0)


class ExitsWhenMade(Adapter):
    def __init__(self):
        sys.exit(0)


class Raises(Adapter):
    def refit(self, deadline_s):
        raise ImportError("no module named trainer")


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run_(*options, sut="reference"):
        name = sut if isinstance(sut, str) else f"{__name__}:{sut.__name__}"
        code = invoke(("run", "--sut", name, "--rule", "SESS-1", "--exploration", "off", "-n", "1", *options))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + without_progress(err)

    return run_


def test_a_client_that_exits_is_a_harness_error_that_names_what_it_did(run):
    code, said = run(sut=Exits)
    assert code == 3
    assert "the system under test called sys.exit(0)" in said


def test_a_client_that_ends_the_process_does_not_end_the_run(run):
    leave = os._exit
    code, said = run(sut=ExitsAtOnce)
    assert code == 3
    assert "the system under test called os._exit(0)" in said
    assert os._exit is leave


def test_a_factory_that_exits_is_one_line(run):
    code, said = run(sut=ExitsWhenMade)
    assert code == 4
    assert "its factory raised SystemExit" in said


def test_what_a_refit_raised_without_any_fault_is_shown(run):
    code, said = run(sut=Raises)
    assert code == 2
    assert "refits fail without any fault: ImportError: no module named trainer" in " ".join(said.split())


def test_a_fault_that_meets_no_call_is_not_a_pass(run):
    code, said = run("--fault", "e0:flush_cache#99:before:drop")
    assert code == 2
    assert "--fault e0:flush_cache#99:before:drop met no call of the client" in said


def test_a_fault_that_meets_a_call_is_judged(run):
    assert run("--fault", "e0:flush_cache#1:before:status400")[0] == 0


def test_a_run_of_nobody_and_one_of_nothing_are_usage_errors(run):
    assert run(sut=",") == (4, "refitcheck: --sut names no system under test; see refitcheck doctor\n")
    code, said = run("--scenario", "refit/faults/not-idle-yet")
    assert (code, said) == (4, "refitcheck: scenario refit/faults/not-idle-yet exercises none of SESS-1\n")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_client_of_urls_is_told_in_process_to_take_the_other_lane(run, workers):
    code, said = run("-n", workers, sut="tests.examples.http_adapter:Adapter")
    told = "engine e0 runs in process and has no url: an adapter of urls needs --lane http"
    assert (code, said) == (4, f"refitcheck: {told}\n")


class Quarantines(Adapter):
    def capabilities(self):
        return Caps(pause_mode="retract", policy="quarantine")


class NoCaps(Adapter):
    def capabilities(self):
        return None


class AnyResult(Adapter):
    def refit(self, deadline_s):
        super().refit(deadline_s)
        return 7


def test_a_policy_that_the_adapter_does_not_declare_is_judged_with_a_remark(run):
    remark = f"policy resume is judged, as --policy says; {__name__}:Quarantines declares quarantine (Caps.policy)"
    code, said = run(sut=Quarantines)
    assert code == 0
    assert remark in " ".join(said.split())
    assert "(Caps.policy)" not in run("--policy", "quarantine", sut=Quarantines)[1]


def test_capabilities_that_are_none_are_a_harness_error_that_says_so(run):
    code, said = run(sut=NoCaps)
    assert code == 3
    assert "capabilities() gave None, no Caps" in said


def test_what_a_refit_returns_beside_a_result_is_taken_for_success(run):
    assert run(sut=AnyResult)[0] == 0
