"""A client that ends the process, raises, or is never met by a fault must not pass for one that was judged."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import exits, watchdog
from harness.cli import invoke
from harness.errors import HarnessError, UsageError
from harness.sut.protocol import Caps, RefitResult
from harness.vigil import Vigil
from tests.examples.minimal_adapter import Adapter
from tests.harness.toys import soon, without_progress


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


class RaisesAtOnce(Raises):
    def setup(self, fleet):
        pass

    def close(self):
        pass


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run_(*options, sut="reference"):
        name = sut if isinstance(sut, str) else f"{__name__}:{sut.__name__}"
        if "--scenario" not in options:
            options = ("--scenario", "refit/envelope/two-refits", *options)
        options = ("--rule", "SESS-1", "--exploration", "off", "-n", "1", *options)
        code = invoke(("run", "--sut", name, *options))
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


class ExitsInAThread(Adapter):
    def refit(self, deadline_s):
        thread = threading.Thread(target=os._exit, args=(0,))
        thread.start()
        thread.join()
        return super().refit(deadline_s)


class WaitsForAThreadThatExits(Adapter):
    def refit(self, deadline_s):
        threading.Thread(target=os._exit, args=(0,)).start()
        threading.Event().wait()


class SwallowsTheExitOfAThread(Adapter):
    def refit(self, deadline_s):
        with ThreadPoolExecutor() as pool, contextlib.suppress(SystemExit, HarnessError):
            pool.submit(os._exit, 0).result()
        raise ConnectionError("lost")


@pytest.mark.parametrize("client", [ExitsInAThread, WaitsForAThreadThatExits, SwallowsTheExitOfAThread])
def test_a_thread_that_ends_the_process_is_told_and_nothing_is_judged_after_it(run, client):
    code, said = run("--rule", "VERIF-1", sut=client)
    assert code == 3
    assert "the system under test called os._exit(0)" in said
    assert "✗" not in said


class AsksForAUrlInAThread(Adapter):
    """And swallows what comes of it."""

    def refit(self, deadline_s):
        with ThreadPoolExecutor() as pool:
            pool.submit(lambda: self.trainer.fleet.endpoints[0].url).exception()
        return RefitResult(self.version)


class ForgetsATimeOut(Adapter):
    def refit(self, deadline_s):
        with contextlib.suppress(Exception):
            self.trainer.fleet.endpoints[0].request("flush_cache", timeout_s=None)
        return RefitResult(self.version)


@pytest.mark.parametrize(
    ("client", "told"),
    [(AsksForAUrlInAThread, "has no url: an adapter of urls"), (ForgetsATimeOut, "/flush_cache with timeout_s=None")],
)
def test_an_endpoint_that_is_used_wrongly_ends_the_run_though_the_client_swallows_it(run, client, told):
    code, said = run(sut=client)
    assert (code, said.count("\n")) == (4, 1)
    assert told in said


class Unspeakable(Exception):
    def __str__(self):
        raise KeyboardInterrupt


class Endless(Exception):
    def __str__(self):
        soon()
        while True:
            pass


class RaisesTheUnspeakable(Adapter):
    def refit(self, deadline_s):
        raise Unspeakable


class RaisesTheEndless(Adapter):
    def refit(self, deadline_s):
        raise Endless


class SetUpRaisesTheEndless(Adapter):
    def setup(self, fleet):
        raise HarnessError("ours") from Endless()


def test_an_exception_whose_text_cannot_be_made_is_told_without_it(run):
    code, said = run(sut=RaisesTheUnspeakable)
    assert code == 2
    assert "Unspeakable: (a Unspeakable whose text cannot be made: KeyboardInterrupt)" in " ".join(said.split())


def test_an_exception_whose_text_never_ends_is_a_client_that_hangs(run):
    code, said = run(sut=RaisesTheEndless)
    assert code == 1
    assert "✗ EXPLORE-8" in said
    assert "in __str__: while True:" in " ".join(said.split())


def test_what_is_known_of_an_error_is_told_though_what_it_came_of_never_ends(run):
    code, said = run(sut=SetUpRaisesTheEndless)
    assert code == 3
    assert "refit/envelope/two-refits: ours" in " ".join(said.split())


class Interrupts(Adapter):
    def refit(self, deadline_s):
        raise KeyboardInterrupt


def test_an_interrupt_that_nobody_sent_is_the_clients_own(run, monkeypatch):
    vigil = Vigil(multiprocessing.get_context("spawn"), 1)
    vigil.take(0)
    monkeypatch.setattr(watchdog, "VIGIL", [vigil])
    monkeypatch.setattr(exits, "VIGIL", [vigil])
    code, said = run(sut=Interrupts)
    assert code == 3
    assert "the system under test raised KeyboardInterrupt" in said


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


def test_what_ends_a_run_ends_no_other():
    with pytest.raises(UsageError, match="mine"), exits.outlived():
        exits.ends_run(UsageError("mine"))
    exits.ends_run(UsageError("nobody looks"))
    exits.check_ends()
    with exits.outlived():
        exits.check_ends()
