from __future__ import annotations

import contextlib
import os
import re
import sys
import time

import pytest

from harness.mutate import operators, screening
from harness.mutate.cache import Cache
from harness.mutate.edits import Drop, Edits, Replace
from harness.mutate.equivalent import Equivalents
from harness.mutate.jobs import Report
from harness.mutate.mutant import Mutant
from harness.mutate.plan import Plan
from harness.mutate.screen import Quiet
from harness.mutate.session import Session
from harness.mutate.source import TargetError
from tests.harness.mutate.samples import Host, Says, live

CLIENT = """
    def refit(engine):
        engine.append("pause")
        engine.append("flush")
        engine.append("send")
        engine.append("continue")
        return engine

    def never():
        return 1

    def low(n):
        if n < 7:
            return n
        return n + 0
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "cache"))
    module, program = live(tmp_path, CLIENT, monkeypatch)
    host = Host(
        Says("paused", lambda: _judge(module, "PAUSE-1", lambda c: c[0] == "pause" and c[-1] == "continue"), "PAUSE-1"),
        Says("flushed", lambda: _judge(module, "CACHE-1", lambda c: "flush" in c), "CACHE-1"),
        Says("whole", lambda: _judge(module, "SESS-1", lambda c: len(c) == 4), "SESS-1"),
    )
    yield module.__name__, program, host
    program.budget.stop()


def _judge(module, rule, holds):
    calls = module.refit([])
    return [] if holds(calls) else [(rule, f"calls {calls}")]


def mutant(name, module, edit, *breaks):
    return Mutant(name, f"{module}:refit", Edits((edit,)), frozenset(breaks), "somewhere#1")


def run(made, mutants, told=None, **plan):
    _, program, host = made
    plan.setdefault("use_cache", False)
    return Session(program, host, Plan(mutants, **plan), told or Quiet()).run()


def test_verdicts_tell_declared_from_other_rules(made):
    module = made[0]
    mutants = [
        mutant("no-pause", module, Drop('engine.append("pause")'), "PAUSE-1"),
        mutant("no-flush-wrong-rule", module, Drop('engine.append("flush")'), "PAUSE-1"),
        mutant("same", module, Replace('engine.append("send")', 'engine.append("se" "nd")'), "SESS-1"),
        mutant("gone", module, Drop('engine.append("begin")'), "SESS-1"),
        mutant("crash", module, Replace("return engine", "import os; os._exit(3)"), "SESS-1"),
    ]
    outcome = run(made, mutants)
    assert [(r.id, r.verdict, r.rule) for r in outcome.results] == [
        ("no-pause", "killed", "PAUSE-1"),
        ("no-flush-wrong-rule", "misattributed", "CACHE-1"),
        ("same", "survived", ""),
        ("gone", "error", ""),
        ("crash", "crash", ""),
    ]
    assert "no code matches" in outcome.results[3].detail
    assert all(not c.wrong for c in outcome.controls)
    assert {c.expect for c in outcome.controls} == {"survived", "noticed"}


def test_declared_rules_are_tried_first_even_when_others_are_faster(made):
    module = made[0]
    outcome = run(made, [mutant("no-pause", module, Drop('engine.append("pause")'), "PAUSE-1")])
    assert outcome.results[0].checks[0] == "paused"
    assert (outcome.results[0].by, outcome.results[0].ran) == ("paused", 1)


def test_generic_mutants_are_killed_by_anything_and_what_nothing_runs_is_not_covered(made):
    name, program, _ = made
    outcome = run(made, [s.mutant() for s in operators.sites(program.sources[name])])
    verdicts = {r.id.split(":", 1)[1]: r.verdict for r in outcome.results}
    assert verdicts["refit:drop-call:3:5:0"] == "killed"
    assert verdicts["never:constant:10:12:0"] == "not covered"
    assert all(r.place is not None for r in outcome.results)


def test_survivors_are_run_again_before_they_are_called_that(made):
    module = made[0]
    asked = []

    def rerun(todo):
        asked.extend((m.id, checks) for m, checks in todo)
        yield "unseen", Report("survived", -1, "", "\n", 3)
        yield "seen", Report("killed", -1, "", "whole\nseen with more examples", 3)

    same = Replace('engine.append("send")', 'engine.append("se" "nd")')
    mutants = [mutant("seen", module, same, "SESS-1"), mutant("unseen", module, same, "SESS-1")]
    outcome = run(made, mutants, rerun=rerun)
    assert [m for m, _ in asked] == ["seen", "unseen"]
    assert [(r.verdict, r.by, r.rerun) for r in outcome.results] == [
        ("killed", "whole", True),
        ("survived", "", True),
    ]


def test_equivalents_are_not_run_and_say_why(made):
    name, program, _ = made
    sites = [s.mutant() for s in operators.sites(program.sources[name], frozenset({"swap-calls"}))]
    known = {
        "target": f"{name}:refit",
        "op": "swap-calls",
        "original": "engine.append('flush') engine.append('send')",
        "replacement": "engine.append('send') engine.append('flush')",
        "reason": "tried on purpose",
    }
    effects = [s.mutant() for s in operators.sites(program.sources[name], frozenset({"reorder-effects"}))]
    outcome = run(made, sites + effects, equivalents=Equivalents([{**known, "op": "reorder-effects"}]))
    assert [(r.verdict, r.detail) for r in outcome.results if r.verdict == "equivalent"] == [
        ("equivalent", "tried on purpose")
    ]


def test_a_second_run_takes_results_from_the_cache_and_a_corrupt_one_is_rebuilt(made, tmp_path):
    module = made[0]
    mutants = [mutant("no-pause", module, Drop('engine.append("pause")'), "PAUSE-1")]
    assert not run(made, mutants, use_cache=True).results[0].cached
    again = run(made, mutants, use_cache=True).results[0]
    assert (again.cached, again.verdict, again.rule) == (True, "killed", "PAUSE-1")
    [file] = (tmp_path / "cache" / "mutate").iterdir()
    file.write_bytes(file.read_bytes()[:-20] + b"\n")
    screen = Quiet()
    rebuilt = run(made, mutants, screen, use_cache=True)
    assert not rebuilt.results[0].cached
    assert [line for line in screen.lines if "is corrupt: rebuilt" in line]
    assert run(made, mutants, use_cache=True).results[0].cached


def test_changed_code_is_another_cache(made, tmp_path, monkeypatch):
    name, program, _ = made
    mutants = [mutant("no-pause", name, Drop('engine.append("pause")'), "PAUSE-1")]
    run(made, mutants, use_cache=True)
    path = program.sources[name].path
    path.write_text(path.read_text() + "\n# changed\n")
    assert not run(made, mutants, use_cache=True).results[0].cached


def test_an_interrupt_keeps_what_was_finished(made):
    module = made[0]
    mutants = [mutant(f"no-pause-{i}", module, Drop('engine.append("pause")'), "PAUSE-1") for i in range(6)]

    class Impatient(Quiet):
        def done(self, result=None):
            if result is not None and result.id == "no-pause-2":
                raise KeyboardInterrupt

    outcome = run(made, mutants, Impatient(), use_cache=True)
    assert outcome.interrupted
    kept = [r.id for r in outcome.results]
    assert kept[:3] == ["no-pause-0", "no-pause-1", "no-pause-2"]
    assert len(kept) + outcome.left == 6
    later = run(made, mutants, use_cache=True)
    assert [r.cached for r in later.results][:3] == [True, True, True]
    assert all(r.verdict == "killed" for r in later.results)


def test_a_time_budget_leaves_the_rest_and_says_so(made):
    module = made[0]
    mutants = [mutant(f"m{i}", module, Drop('engine.append("pause")'), "PAUSE-1") for i in range(5)]
    told = Quiet()
    outcome = run(made, mutants, told, budget_s=60.0, began=time.monotonic() - 1e6)
    assert (outcome.results, outcome.left) == ([], 5)
    [line] = told.lines
    assert re.fullmatch(r"what comes before the first mutant took 100\d\d\d\d s of 60: none was run", line)
    assert not any(c.wrong for c in outcome.controls)


def test_survivors_that_no_time_is_left_for_are_told(made, monkeypatch):
    module = made[0]
    same = Replace('engine.append("send")', 'engine.append("se" "nd")')
    mutants = [mutant(f"m{i}", module, same, "SESS-1") for i in range(3)]
    told = Quiet()
    now = time.monotonic

    def rerun(todo):
        for m, _ in todo:
            monkeypatch.setattr(time, "monotonic", lambda: now() + 1e6)
            yield m.id, Report("survived", -1, "", "\n", 3)

    outcome = run(made, mutants, told, rerun=rerun, budget_s=1e5)
    assert [r.rerun for r in outcome.results] == [True, False, False]
    assert told.lines == ["2 survivors were not run again: the time is over"]


def test_a_check_that_fails_unmutated_is_not_used_and_named(made):
    module, program, host = made
    host.checks.append(Says("broken", lambda: [("X-1", "always")], "X-1"))
    screen = Quiet()
    outcome = Session(
        program, host, Plan([mutant("x", module, Drop('engine.append("pause")'), "X-1")], use_cache=False), screen
    ).run()
    assert outcome.results[0].verdict == "misattributed"
    assert screen.lines == ["not used, it fails unmutated: broken: always"]


def test_a_target_that_no_check_runs_is_refused(tmp_path, monkeypatch):
    _, program = live(tmp_path, CLIENT, monkeypatch)
    with pytest.raises(TargetError, match=r"^target without tests: no check runs a line of mutate_sample"):
        Session(program, Host(Says("a", list)), Plan([], use_cache=False), Quiet()).run()
    program.budget.stop()


def test_controls_that_go_wrong_stop_the_session(made, monkeypatch):
    module, _, host = made
    client = sys.modules[module]

    def works_only_the_first_time():
        client.refit([])
        return [("F-1", "again")] if os.environ.get("MEASURED") else []

    class Measured(Quiet):
        def phase(self, name, total):
            if name == "controls":
                monkeypatch.setenv("MEASURED", "1")

    host.checks = [Says("flaky", works_only_the_first_time, "F-1")]
    outcome = run(made, [mutant("m", module, Drop('engine.append("pause")'), "F-1")], Measured())
    assert any("unchanged code did not survive (killed: again)" in c.wrong for c in outcome.controls)
    assert outcome.results == []


def test_a_forced_failure_that_nobody_notices_stops_the_session(made):
    module, _, host = made
    client = sys.modules[module]

    def looks_away():
        with contextlib.suppress(RuntimeError):
            client.refit([])

    host.checks = [Says("blind", looks_away, "F-1")]
    outcome = run(made, [mutant("m", module, Drop('engine.append("pause")'), "F-1")])
    assert any("a function that only raises was not noticed" in c.wrong for c in outcome.controls)
    assert outcome.results == []


def test_an_interrupt_before_the_first_mutant_leaves_all_of_them(made):
    class Impatient(Quiet):
        def phase(self, name, total):
            if name == "controls":
                raise KeyboardInterrupt

    outcome = run(
        made, [mutant(f"m{n}", made[0], Drop('engine.append("pause")'), "PAUSE-1") for n in "ab"], Impatient()
    )
    assert (outcome.interrupted, outcome.results, outcome.left) == (True, [], 2)


FORGERIES = {
    "a field is gone": lambda value: (value.pop("verdict", 0) and value) or (value.pop("lines", 0) and value),
    "another type": lambda value: dict.fromkeys(value),
    "no dict": lambda value: 3,
    "no verdict": lambda value: {**value, "verdict": "fine"} if "verdict" in value else value,
    "a baseline of fewer checks": lambda value: {**value, "lines": value["lines"][:1]} if "lines" in value else value,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_cache_is_rebuilt(made, monkeypatch, name):
    mutants = [mutant("no-pause", made[0], Drop('engine.append("pause")'), "PAUSE-1")]
    put = Cache.put
    monkeypatch.setattr(Cache, "put", lambda self, key, value: put(self, key, FORGERIES[name](value)))
    run(made, mutants, use_cache=True)
    monkeypatch.setattr(Cache, "put", put)
    screen = Quiet()
    outcome = run(made, mutants, screen, use_cache=True)
    assert [line.rpartition(" ")[0].rpartition(" ")[2] for line in screen.lines] == ["corrupt:"]
    assert [(r.verdict, r.cached) for r in outcome.results] == [("killed", False)]
    assert run(made, mutants, use_cache=True).results[0].cached


def test_where_screening_pays_a_check_in_which_a_mutant_changes_no_value_is_not_run(made, monkeypatch):
    monkeypatch.setattr(screening, "WORTH", 0.0)
    name, program, _ = made
    module = sys.modules[name]
    host = Host(
        Says("low", lambda: [("", "wrong")] if module.low(1) != 1 else []),
        Says("high", lambda: [("", "wrong")] if module.low(9) != 9 else []),
    )
    sites = [s.mutant() for s in operators.sites(program.sources[name]) if s.qualname == "low"]
    found = []
    for screen in (True, False):
        outcome = run((name, program, host), sites, screen=screen)
        assert all(not c.wrong for c in outcome.controls)
        found.append({r.id.split(":", 2)[2]: (r.verdict, r.detail == screening.SAID) for r in outcome.results})
    assert {n: v for n, (v, _) in found[0].items()} == {n: v for n, (v, _) in found[1].items()}
    spared = [n.rpartition(":")[0] for n, (_, spared) in found[0].items() if spared]
    assert spared == ["compare:13:8", "constant:13:12", "arithmetic:15:12"]  # n <= 7, n < 8, n - 0
    assert not any(spared for _, spared in found[1].values())


def test_what_is_listed_as_shown_elsewhere_is_not_run(made):
    module = made[0]
    mutants = [mutant(name, module, Drop('engine.append("pause")'), "PAUSE-1") for name in ("here", "there")]
    outcome = run(made, mutants, elsewhere={"there": "http: a process of its own"})
    assert [(r.verdict, r.ran) for r in outcome.results] == [("killed", 1), ("elsewhere", 0)]
    assert outcome.results[1].detail == "http: a process of its own"
