"""Mistakes in the use of the real export, each found by the rule that is about it."""

import pytest

from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit
from real_runs.megatron_bridge import environment

pytestmark = [
    pytest.mark.skipif(environment.find() is None, reason=f"needs {environment.COMMAND}"),
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("nothing_stays"),
]
SCENARIO = "refit/envelope/two-refits"
GOOD = "real_runs.megatron_bridge.sut:MegatronBridgeSut"
PLANT = "tests.real_runs.megatron_bridge.plants:{}"
CUTS = ({"megatron_tp": "2"}, {"megatron_pp": "2"})


def judged(sut, options):
    """The rules that two refits without any fault break, what the first refit raised, and what it did, by phrase."""
    settings = Settings(tp=2, side="refit", exploration="off", suts=(sut,), scenarios=(SCENARIO,), sut_options=options)
    runner = Runner(settings)
    try:
        report = runner.execute(Unit(SCENARIO, "0.5.23", 2, sut))
    finally:
        runner.close()
    assert report.error == ""
    broken = {rule: found for rule, found in report.findings.items() if found.verdict.status == "violated"}
    return set(broken), report.raised, " ".join(found.verdict.actual for found in broken.values())


@pytest.mark.parametrize("options", CUTS, ids=("tp2", "pp2"))
def test_used_as_it_is_meant_it_breaks_nothing(options):
    assert judged(GOOD, options) == (set(), "", "")


@pytest.mark.parametrize("plant", ["Renames", "LeavesOut"])
@pytest.mark.parametrize("options", CUTS, ids=("tp2", "pp2"))
def test_a_tensor_under_another_name_or_left_out(plant, options):
    broken, raised, actual = judged(PLANT.format(plant), options)
    assert broken == {"NAME-71", "VERIF-1", "VER-4"}
    assert raised == ""
    assert "never sent: model.layers.1.self_attn.q_proj.weight" in actual


@pytest.mark.parametrize("options", CUTS, ids=("tp2", "pp2"))
def test_a_rank_that_does_not_drain_is_a_verdict_at_the_deadline_and_named(options):
    broken, raised, actual = judged(PLANT.format("StopsAlone"), options)
    assert broken == {"SESS-3"}
    assert "as rank 0 of 2: ranks [1] did not come within" in raised
    assert "ranks [1] did not come within" in actual
