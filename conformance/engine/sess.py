"""The session, from outside, twice, empty, and without a body."""

from __future__ import annotations

from conformance.engine.steps import VALIDATED, VALIDATED_ON_20, ask, bucket, know, load
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/sess")
SESSIONS = ">=0.5.21 || miles"


@scenarios.add("SESS-51", "VER-52", relation=VALIDATED, versions=">=0.5.21")
def update_outside_a_session(bench: Bench) -> None:
    """Refused, and the answers stay what they were."""
    e = bench.e0
    ask(bench, e, "outside")
    e.call("model_info", method="GET")
    bucket(bench, e, 1, weight_version="v1")
    e.call("model_info", method="GET")
    ask(bench, e, "outside")


@scenarios.add("SESS-52", "SESS-53", relation=VALIDATED, versions=">=0.5.21")
def begin_twice_and_end_twice(bench: Bench) -> None:
    """The second of each is refused; the session of the first goes on."""
    e = bench.e0
    e.call("begin_weight_update", {})
    e.call("begin_weight_update", {})
    bucket(bench, e, 1)
    e.call("end_weight_update", {})
    e.call("end_weight_update", {})


@scenarios.add("SESS-54", relation=VALIDATED_ON_20, versions="<0.5.21,!=miles")
def no_session_routes(bench: Bench) -> None:
    """Begin and end are unknown, and an update is taken without them."""
    e = bench.e0
    e.call("begin_weight_update", {})
    bucket(bench, e, 1)
    e.call("end_weight_update", {})


@scenarios.add("SESS-55", "ERR-51", relation="fake only: no wheel of this build exists", versions="miles", fatal=True)
def the_asserting_build(bench: Bench) -> None:
    """Three ways to die: a bucket outside, an end without begin, a second begin."""
    e = bench.e0
    bucket(bench, e, 1)
    e.call("model_info", method="GET")
    e.restart()
    e.call("end_weight_update", {})
    e.call("model_info", method="GET")
    e.restart()
    e.call("begin_weight_update", {})
    e.call("begin_weight_update", {})
    e.call("model_info", method="GET")


@scenarios.add("SESS-56", relation=VALIDATED, versions=SESSIONS)
def a_bucket_is_visible_before_the_end(bench: Bench) -> None:
    """Asked before the bucket and after it, inside the session."""
    e = bench.e0
    ask(bench, e, "visible")
    e.call("begin_weight_update", {})
    bucket(bench, e, 1)
    ask(bench, e, "visible")
    e.call("end_weight_update", {})


@scenarios.add("SESS-57", relation=VALIDATED, versions=SESSIONS)
def an_empty_session(bench: Bench) -> None:
    """Begun and ended, with nothing in between."""
    e = bench.e0
    ask(bench, e, "empty")
    e.call("begin_weight_update", {})
    e.call("end_weight_update", {})
    ask(bench, e, "empty")


@scenarios.add("SESS-58", relation=VALIDATED, versions=SESSIONS)
def no_body(bench: Bench) -> None:
    """Begin and end without a body, then a whole session."""
    e = bench.e0
    e.call("begin_weight_update")
    e.call("end_weight_update")
    know(bench, e, "after")
    load(bench, e, 1)
