"""A rule of a house, the scenario that exercises it, and the mutants that it must kill: treated like refitcheck's own.

    refitcheck mutate --rules tests/examples/house_rules.py --catalogue tests/examples/house_rules.py --rule HOUSE

`suite` is what `--rules` looks for, `mutants` what `--catalogue` does; installed packages name the same objects as
entry points of the groups `refitcheck.suites` and `refitcheck.catalogues`.
"""

from __future__ import annotations

from conformance.refit.steps import prepare
from harness.bench import Bench
from harness.history import History
from harness.mutate import Mutant
from harness.mutate.edits import Replace, edits
from harness.rules import Rule, Verdict, held, violated
from harness.scenario import ScenarioList
from harness.suites import Suite


def _pauses_by_retracting(history: History) -> Verdict:
    pauses = history.calls("pause_generation", origin="sut")
    for call in pauses:
        if call.arg("mode") != "retract":
            return violated(allowed=["mode retract"], actual=f"mode {call.arg('mode')}", where=str(call))
    return held(len(pauses))


scenarios = ScenarioList("house", side="refit")


@scenarios.add("HOUSE-1", relation="not yet: a rule of this house, nobody ran it on the real engine")
def a_refit(bench: Bench) -> None:
    """One engine, one refit."""
    prepare(bench, 1)
    bench.refit(1)


suite = Suite(
    "house",
    rules=(
        Rule(
            id="HOUSE-1",
            level="MUST",
            side="refit",
            text="Engines are paused by retracting: what runs gives its KV back.",
            versions="",
            citations=("our runbook, section 4",),
            judge=_pauses_by_retracting,
        ),
    ),
    scenarios=tuple(scenarios),
)

PAUSE = 'raise_failed("pause", ask(engines, "pause_generation", {"mode": self.pause_mode}, timeout_s))'

mutants = [
    Mutant(
        "house-abort",
        "harness.reference.control:Control.pause",
        edits(Replace(PAUSE, PAUSE.replace("self.pause_mode", '"abort"'))),
        breaks=frozenset({"HOUSE-1"}),
        origin="an incident of ours",
    ),
]
