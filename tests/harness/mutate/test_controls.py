from __future__ import annotations

from harness.mutate import controls
from harness.mutate.baseline import Baseline, Measured


def test_identities_meet_as_many_checks_as_the_time_allows_and_all_where_it_allows_all():
    baseline = Baseline([Measured(cpu=0.5) for _ in range(40)], [{} for _ in range(40)], [])
    some = controls._some(range(40), baseline)
    assert len(some) == 6
    assert some == sorted(some)
    assert some != list(range(6)), "they are of all kinds"
    assert controls._some(range(6), baseline) == list(range(6))
    assert len(controls._some([3], Baseline([Measured(cpu=9.0)] * 4, [{}] * 4, []))) == 1
