"""Exploration finds nothing in the reference client, and finds each broken client by the invariant that it breaks."""

from __future__ import annotations

import pytest

from harness.explore import KINDS, explore
from harness.explore.invariants import CHECKS
from harness.explore.plans import Kind
from harness.explore.rules import BY_NAME
from harness.reference import control, deadline, engines, errors, markers, refit
from harness.reference.adapter import ReferenceSut
from harness.reference.transports import tensor
from tests.harness.explore.scripted_lane import runner


def reference() -> ReferenceSut:
    return ReferenceSut(bucket_bytes=64)


def broken(*kinds: Kind, policy: str = "resume", offload: bool = False) -> set[str]:
    """The invariants that a run with some of these faults, planted into the calls to the first engine, breaks."""
    run = runner(reference, policy=policy, engines=2, offload=offload)
    return {b.invariant for explored in explore(run, engines=["e0"], kinds=kinds) for b in explored.broken}


@pytest.mark.parametrize("policy", ["resume", "quarantine", "terminal"])
@pytest.mark.parametrize(("version", "offload"), [("0.5.20", False), ("miles", False), ("0.5.23", True)])
def test_the_reference_keeps_every_invariant_under_every_fault(version, policy, offload):
    run = runner(reference, version=version, policy=policy, engines=2, offload=offload)
    explored = list(explore(run, engines=["e0"], kinds=KINDS))
    assert len(explored) > 50
    assert {x.reproduce: [str(b) for b in x.broken] for x in explored if x.broken} == {}


def test_every_fault_of_the_plan_is_applied_in_its_run():
    for explored in explore(runner(reference, engines=2), engines=["e1"], kinds=KINDS):
        met = {c.fault for c in explored.history.calls(origin="sut") if c.fault}
        assert met == {str(f) for f in explored.faults}


def test_an_end_that_is_sent_twice_is_found(monkeypatch):
    end = control.Control.end

    def twice(self, fleet, timeout_s):
        try:
            end(self, fleet, timeout_s)
        except errors.CallFailed:
            end(self, fleet, timeout_s)

    monkeypatch.setattr(control.Control, "end", twice)
    assert "one_session" in broken("drop_before")


def test_an_end_that_nothing_opened_is_found(monkeypatch):
    monkeypatch.setattr(refit.RefitClient, "_wants_end", lambda self, e: True)
    assert "one_session" in broken("status400")


def test_a_failed_update_that_counts_as_done_is_found(monkeypatch):
    post = tensor.TensorTransfer._post

    def lenient(self, engine, parcel, payloads):
        try:
            post(self, engine, parcel, payloads)
        except errors.CallFailed:
            engine.complete = parcel.last

    monkeypatch.setattr(tensor.TensorTransfer, "_post", lenient)
    assert {"complete_when_ok", "failure_is_told", "tokens_are_honest"} <= broken("status500")


def test_engines_that_stay_paused_are_found(monkeypatch):
    monkeypatch.setattr(control.Control, "resume_generation", lambda self, fleet, deadline: None)
    assert "resumed" in broken("delay")


def test_a_partial_pause_that_nobody_undoes_is_found(monkeypatch):
    pause = control.Control.pause

    def forgetful(self, fleet, deadline):
        try:
            pause(self, fleet, deadline)
        except errors.CallFailed:
            for e in fleet:
                e.paused = False
            raise

    monkeypatch.setattr(control.Control, "pause", forgetful)
    assert broken("status400") == {"resumed"}


def test_traffic_before_the_memory_is_back_is_found(monkeypatch):
    monkeypatch.setattr(refit.RefitClient, "_onload_kv", lambda self, guards, deadline: None)
    monkeypatch.setattr(engines.Engine, "may_serve", property(lambda e: not e.lost))
    assert "memory_back" in broken("delay", offload=True)


def test_traffic_on_torn_weights_is_found(monkeypatch):
    monkeypatch.setattr(engines.Engine, "may_serve", property(lambda e: not e.lost))
    assert "tokens_are_honest" in broken("drop_before")


def test_a_label_that_travels_with_the_first_update_is_found(monkeypatch):
    post = tensor.TensorTransfer._post

    def early(self, engine, parcel, payloads):
        post(self, engine, tensor.Parcel(parcel.named, last=True), payloads)

    monkeypatch.setattr(tensor.TensorTransfer, "_post", early)
    monkeypatch.setattr(engines.Engine, "may_serve", property(lambda e: not e.lost))
    assert "tokens_are_honest" in broken("drop_before")


def test_an_error_that_hides_what_the_engine_said_is_found(monkeypatch):
    monkeypatch.setattr(errors.CallFailed, "__str__", lambda self: "unknown error")
    assert broken("status400") == {"failure_is_told"}


def test_a_session_that_blocks_the_next_refit_is_found(monkeypatch):
    monkeypatch.setattr(control, "SESSION_OPEN", "something else")
    assert "next_refit_succeeds" in broken("drop_before")


def test_a_deadline_that_starts_anew_with_every_call_is_found(monkeypatch):
    monkeypatch.setattr(deadline.Deadline, "work", lambda self, step: 80.0)
    monkeypatch.setattr(deadline.Deadline, "giving_back", lambda self, step: 80.0)
    assert "in_time" in broken("hang")


def test_calls_to_an_engine_that_was_given_up_are_found(monkeypatch):
    def all_of_them(self, phase, guards):
        lost = callable_(self, phase, guards)
        return self._engines if guards.error is not None else lost

    callable_ = refit.RefitClient._callable
    monkeypatch.setattr(refit.RefitClient, "_callable", all_of_them)
    assert "given_up_is_given_up" in broken("drop_before", policy="quarantine")


@pytest.mark.parametrize("policy", ["quarantine", "terminal"])
def test_a_client_that_gives_engines_up_without_saying_so_is_believed(monkeypatch, policy):
    monkeypatch.setattr(markers.Markers, "engine", lambda self, *rest: None)
    monkeypatch.setattr(markers.Markers, "terminal", lambda self, reason: None)
    assert broken("drop_before", "die", policy=policy) == set()


def test_silence_is_not_believed_of_a_client_that_resumes(monkeypatch):
    muster = refit.RefitClient._muster

    def forgetful(self):
        muster(self)
        self._engines = [e for e in self._engines if not e.paused]

    monkeypatch.setattr(refit.RefitClient, "_muster", forgetful)
    assert "resumed" in broken("status500")


def test_a_begin_inside_an_open_session_is_found(monkeypatch):
    begin = control.Control.begin

    def twice(self, fleet, deadline):
        begin(self, fleet, deadline)
        self._begin(fleet, deadline)
        for e in fleet:
            e.session = engines.Session.OPEN

    monkeypatch.setattr(control.Control, "begin", twice)
    assert "one_session" in broken("delay")


def test_a_continue_before_the_memory_is_found(monkeypatch):
    onload = refit.RefitClient._onload_kv

    def hasty(self, guards, deadline):
        self.control.resume_generation(self._engines, deadline)
        onload(self, guards, deadline)

    monkeypatch.setattr(refit.RefitClient, "_onload_kv", hasty)
    assert "memory_back" in broken("delay", offload=True)


def test_an_update_that_is_sent_again_is_found(monkeypatch):
    post = tensor.TensorTransfer._post

    def stubborn(self, engine, parcel, payloads):
        try:
            post(self, engine, parcel, payloads)
        except errors.CallFailed:
            post(self, engine, parcel, payloads)

    monkeypatch.setattr(tensor.TensorTransfer, "_post", stubborn)
    assert broken("status500") == {"failure_is_told"}


def test_an_invariant_and_its_rule_say_the_same():
    for check in CHECKS:
        assert BY_NAME[check.__name__].text == " ".join(check.__doc__.split())
