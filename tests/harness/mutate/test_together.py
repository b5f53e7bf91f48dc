"""Likely survivors share a program: what is noticed is noticed of one of them, and run again by itself."""

from __future__ import annotations

import pytest

from harness.mutate import operators, together
from harness.mutate.jobs import Job, Step
from harness.mutate.pool import Pool
from tests.harness.mutate.samples import Says, live

CODE = """
def one(n):
    n += 0
    unused = n + 5
    return n + 1

def two(n):
    unused = "two"
    if n > 40:
        n += 1
        n += 1
    return n

def three(n):
    unused = 7
    return [n, 2]
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    module, program = live(tmp_path, CODE, monkeypatch)
    [source] = program.sources.values()
    return module, program, {site.id: site for site in operators.sites(source)}


def _checks(module):
    """Forty that notice little, and a last one that looks closely."""
    plain = [Says(f"plain {n}", lambda n=n: _wrong(module.one(n) != n + 1)) for n in range(20)]
    more = [Says(f"more {n}", lambda n=n: _wrong(module.two(n) != n or module.three(n)[0] != n)) for n in range(20)]
    return [*plain, *more, Says("close", lambda: _wrong(module.two(41) != 43 or module.three(1) != [1, 2]))]


def _wrong(yes):
    return [("", "wrong")] if yes else []


def _run(made, names, checks):
    _, program, sites = made
    steps = tuple(Step(n, 1000, 0.001 * (n + 1), 0.01) for n in range(len(checks)))
    jobs = [Job(n, lambda n=n: sites[n].apply("", program), steps, group="g", site=sites[n]) for n in names]
    jobs.append(Job("by itself", lambda: lambda: None, steps, group="g"))
    found = together.run(lambda: Pool(checks, program.budget, 2), jobs, program, lambda ids: None, None)
    return {job.id: report for job, report in found}


def test_verdicts_are_those_of_each_alone(made):
    module, program, sites = made
    checks = _checks(module)
    reports = _run(made, list(sites), checks)
    assert reports.pop("by itself").ending == "survived"
    assert set(reports) == set(sites)
    for name, report in reports.items():
        undo = sites[name].apply("", program)
        noticed = [n for n, check in enumerate(checks) if _noticed(check)]
        undo()
        assert (report.ending == "survived") == (not noticed), name
        assert report.ending == "survived" or report.check in noticed, name
    assert {r.check for r in reports.values()} > {-1, len(checks) - 1}  # some only the last one sees


def _noticed(check):
    try:
        return bool(check.run())
    except Exception:
        return True


def test_survivors_meet_every_check_and_share_most(made):
    _, _, sites = made
    ran: list[int] = []
    checks = [Says(str(n), lambda: ran.append(1)) for n in range(60)]
    names = [name for name in sites if ":constant:" in name][:4]
    reports = _run(made, names, checks)
    assert {(r.ending, r.ran) for r in reports.values()} == {("survived", 60)}


def test_mutants_of_one_place_do_not_meet(made):
    _, _, sites = made
    groups = together.crowded([(site, ()) for site in sites.values()])
    assert sorted(name for group in groups for name in group) == sorted(sites)
    for group in groups:
        lines = [line for name in group for line in sites[name].lines]
        assert len(lines) == len(set(lines)), group
        edits = [(id(e.holder), e.name) for name in group for e in sites[name].change.edits]
        assert len(edits) == len(set(edits)), group
    assert max(len(group) for group in groups) >= 6


def test_all_of_a_crowd_are_in_the_program_and_then_none(made):
    module, program, sites = made
    chosen = {n: s for n, s in sites.items() if n.rpartition(":")[0].endswith((":constant:3:10", ":constant:5:16"))}
    [group] = [g for g in together.crowded([(site, ()) for site in chosen.values()]) if len(g) == 2]
    undo = together.Crowd(program, {n: chosen[n] for n in group}).apply()
    assert module.one(1) == 4  # n += 1, n + 2
    undo()
    assert module.one(1) == 2


def test_a_crowd_that_ends_its_process_is_run_one_by_one(made):
    module, _, sites = made
    import os

    checks = [Says(str(n), lambda: None) for n in range(20)]
    checks.append(Says("ends", lambda: os._exit(1) if module.one(1) == 3 and module.three(1)[1] == 3 else None))
    names = [n for n in sites if "one:constant:5:" in n or "three:constant:16:" in n]
    assert len(names) == 2
    reports = _run(made, names, checks)
    assert {reports[n].ending for n in names} == {"survived"}


def test_of_many_a_check_finds_those_that_it_notices_by_halves_and_the_rest_stay(made):
    module, program, sites = made
    chosen = {n: s for n, s in sites.items() if "constant" in n}
    [names] = [g for g in together.crowded([(s, ()) for s in chosen.values()]) if len(g) > 3]
    ran = []
    check = Says("sees two", lambda: ran.append(1) or _wrong(module.one(1) != 2 or module.two(41) != 43))
    crowd = together.Crowd(program, {n: chosen[n] for n in names})
    undo = crowd.apply()
    seen = crowd.meet(Step(0, 1000, 0.0, 0.0), [check], program.budget, lambda step: None, names)
    alone = []
    for name in names:
        crowd.put([name])
        alone += [name] * _noticed(check)
    assert sorted(seen) == sorted(alone)
    assert alone
    assert len(alone) < len(names)
    crowd.put(n for n in names if n not in seen)
    before = len(ran)
    assert crowd.meet(Step(0, 1000, 0.0, 0.0), [check], program.budget, lambda step: None, names[:1]) == []
    assert len(ran) == before + 1
    undo()
    assert (module.one(1), module.two(41)) == (2, 43)


def test_a_check_is_run_and_halved_for_those_alone_that_it_can_meet(made):
    _, program, sites = made
    chosen = {n: s for n, s in sites.items() if "constant" in n}
    [names] = [g for g in together.crowded([(s, ()) for s in chosen.values()]) if len(g) > 3]
    ran = []
    check = Says("notices each", lambda: ran.append(1) or _wrong(True))
    runs = {name: frozenset({0, 1} if name == names[1] else {1}) for name in names}
    crowd = together.Crowd(program, {n: chosen[n] for n in names}, runs)
    undo = crowd.apply()
    steps = [Step(n, 1000, 0.0, 0.0) for n in (0, 2)]
    found = [crowd.meet(step, [check] * 3, program.budget, lambda step: None, names) for step in steps]
    assert (found, len(ran)) == ([[names[1]], []], 1)
    assert crowd.names == set(names) - {names[1]}
    undo()


def test_a_mutant_joins_those_whose_checks_it_shares(made):
    _, _, sites = made
    same = [s for n, s in sites.items() if ":one:" in n and s.line == 5][:2]  # these two cannot be together
    three = [s for n, s in sites.items() if ":three:constant" in n]
    few, many = (Step(0, 1, 0.1, 0.1),), tuple(Step(n, 1, 0.1, 0.1) for n in range(1, 9))
    assert len(same) == 2
    groups = together.crowded([(same[0], few), (same[1], many), (three[0], few), (three[1], many)])
    assert sorted(map(sorted, groups)) == sorted([sorted([same[0].id, three[0].id]), sorted([same[1].id, three[1].id])])
