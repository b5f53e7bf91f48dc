"""The weight version: told by updates, by publication, in spans, and by routes that are gone."""

from __future__ import annotations

from conformance.engine.pause import pause, resume
from conformance.engine.steps import VALIDATED, ask, begin, bucket, end, load, running
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/ver")


@scenarios.add("VER-51", "VER-52", "VER-56", relation=VALIDATED)
def labels(bench: Bench) -> None:
    """A named update, looked at inside its session and after; then one without a name."""
    e = bench.e0
    begin(bench, e)
    bucket(bench, e, 1, weight_version="v1")
    e.call("model_info", method="GET")
    end(bench, e)
    ask(bench, e, "labelled")
    e.call("model_info", method="GET")
    load(bench, e, 0)
    e.call("model_info", method="GET")
    ask(bench, e, "unlabelled")


@scenarios.add("VER-53", relation=VALIDATED)
def publication(bench: Bench) -> None:
    """While one request runs: with the default, and with abort_all_requests false."""
    e = bench.e0
    first = running(bench, e, "published")
    e.call("update_weight_version", {"new_version": "p1"})
    first.result(60.0)
    second = running(bench, e, "kept", n=100)
    e.call("update_weight_version", {"new_version": "p2", "abort_all_requests": False})
    second.result(60.0)


@scenarios.add("VER-54", "VER-55", relation=VALIDATED)
def a_generation_across_an_update(bench: Bench) -> None:
    """Frozen in place, updated without flush under another version, continued."""
    e = bench.e0
    load(bench, e, 0, weight_version="v1")
    request = running(bench, e)
    pause(e, "in_place")
    begin(bench, e)
    bucket(bench, e, 1, flush_cache=False, weight_version="v2")
    end(bench, e)
    resume(e)
    request.result(60.0)


@scenarios.add("VER-59", relation=VALIDATED, versions=">=0.5.22")
def a_refused_flush(bench: Bench) -> None:
    """Frozen in place, updated under another version with a flush, which is refused; then looked at, and continued."""
    e = bench.e0
    load(bench, e, 0, weight_version="v1")
    request = running(bench, e)
    pause(e, "in_place")
    begin(bench, e)
    bucket(bench, e, 1, flush_cache=True, weight_version="v2")
    end(bench, e)
    e.call("model_info", method="GET")
    resume(e)
    request.result(60.0)


@scenarios.add("VER-57", "VER-58", relation=VALIDATED)
def old_routes(bench: Bench) -> None:
    """Where trainers used to look."""
    bench.e0.call("get_weight_version", method="GET")
    bench.e0.call("weight_version", method="GET")
