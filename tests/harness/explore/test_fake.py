"""The reference client against the fake engine in virtual time: whole refits and a sample of the exploration."""

from __future__ import annotations

import pytest

from harness.explore import check, explore, plan
from harness.explore.reading import Reading
from harness.lanes.fake import FakeLane
from harness.reference import engines
from harness.reference.adapter import ReferenceSut
from harness.reference.control import Control
from tests.harness.explore.scripted_lane import runner

VERSIONS = ["0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "miles", "0.5.21", "0.5.22", "0.5.23"]
SAVER = {"enable_memory_saver": True, "strict_memory": True}


def run_on_fake(**options):
    return runner(lambda: ReferenceSut(bucket_bytes=200_000), lane=FakeLane(), **options)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refit_of_every_version_at_tp_2_with_memory_given_away_and_requests_under_way(version):
    history = run_on_fake(version=version, engines=2, tp=2, offload=True, inflight=True, **SAVER)(())
    assert [(r.ok, r.error) for r in history.refits()] == [(True, ""), (True, "")]
    assert check(history, history) == []
    assert len(history.facts("serve", source="core")) > 10
    assert history.trainer("OFFLOADED", live_exports=0)
    assert history.trainer("GROUP_READY", world_size=4, engines=2)
    assert {n.get("value") for n in history.facts("version", owner="tokenizer")} >= {"v1", "v2"}


@pytest.mark.parametrize(
    ("version", "policy"), [("0.5.20", "quarantine"), ("miles", "resume"), ("0.5.23", "terminal"), ("0.5.21", "resume")]
)
def test_a_sample_of_the_exploration_breaks_nothing(version, policy):
    run = run_on_fake(version=version, engines=2, policy=policy, inflight=True, offload=True)
    found = {x.reproduce: [str(b) for b in x.broken] for x in explore(run, full=False, seed=11)}
    assert len(found) > 8
    assert not any(found.values()), found


def test_tokens_from_torn_weights_are_seen_on_the_fake(monkeypatch):
    monkeypatch.setattr(engines.Engine, "may_serve", property(lambda e: not e.lost))
    run = run_on_fake(engines=1)
    recorded = run(())
    torn = [p for p in plan(recorded, kinds=("drop_before",)) if p[0].op == "update_weights_from_tensor"][1]
    assert "tokens_are_honest" in {b.invariant for b in check(run(torn), recorded)}


def test_a_cache_that_is_not_flushed_is_seen_on_the_fake(monkeypatch):
    monkeypatch.setattr(Control, "flush", lambda self, fleet, deadline: None)
    history = run_on_fake(engines=1, inflight=True)(())
    assert any(token.stale for token in Reading(history).tokens)
