"""Both pages in a real browser: click through to a mutant and to a rule, and read what is there."""

from __future__ import annotations

import pytest

from tests.harness.mutate import chromium
from tests.harness.mutate.conftest import mutate

pytestmark = [
    pytest.mark.skipif(chromium.executable() is None, reason=f"no Chromium here: {chromium.INSTALL}"),
    pytest.mark.timeout(400),
]

RULES = """
from harness.rules import Rule, held, violated
from harness.scenario import ScenarioList
from harness.suites import Suite
from harness.mutate import Mutant
from harness.mutate.edits import Drop, edits

import mine


def judge(history):
    calls = [c.op for c in history.calls()]
    if "begin_weight_update" in calls:
        return held(1)
    return violated(allowed=["a begin"], actual=f"only {calls}", where="the whole scenario")


scenarios = ScenarioList("mine")


@scenarios.add("MINE-1", relation="fake only: a test")
def begins(bench):
    mine.begins(bench)


rule = Rule("MINE-1", "MUST", "engine", "It <begins> & says so.", "", ("here",), judge)
suite = Suite("mine", (rule,), tuple(scenarios))
mutants = [
    Mutant(
        "no-begin",
        "mine:begins",
        edits(Drop("handle.call(...)")),
        frozenset({"MINE-1"}),
        "mine#7",
        "begin is <not> called",
    ),
]
"""
MINE = """
def begins(bench):
    handle = bench.engine()
    handle.call("begin_weight_update", {})
    return handle
"""

DEEP = """(function () {
  const all = [];
  const walk = (root) => root.querySelectorAll("*").forEach((e) => {
    all.push(e);
    if (e.shadowRoot) walk(e.shadowRoot);
  });
  walk(document);
  return all;
})()"""


def link(page, text):
    """Wait for a link of that text, wherever its shadow root is, and click it."""
    page.wait(f"{DEEP}.some(e => e.tagName === 'A' && e.textContent.trim() === '{text}')")
    page.run(f"{DEEP}.find(e => e.tagName === 'A' && e.textContent.trim() === '{text}').click()")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium.Page(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def own_catalogue(tmp_path_factory):
    """Rules, scenarios and mutants of a user's own, from files, judged and reported like ours."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE)
    (folder / "own.py").write_text(RULES)
    files = ("--rules", "own.py", "--catalogue", "own.py")
    return mutate(folder, "no-begin", *files, "--no-rerun", "--no-cache", "--report", "report")


def test_the_mutant_page_shows_a_mutant_its_change_and_who_killed_it(page, whole_run):
    page.open(whole_run.folder / "report" / "mutation.html")
    link(page, "bucketing.py")
    page.wait(f"{DEEP}.some(e => e.id === 'filter-Killed')")
    page.run(f"{DEEP}.filter(e => e.id.startsWith('filter-') && !e.checked).forEach(e => e.click())")
    begin = next(name for name in whole_run.mutants() if name.startswith("bucketing:send:drop-call:"))
    dot = f"{DEEP}.find(e => e.matches('svg[data-mutant-id=\"{begin}\"]'))"
    page.wait(f"!!{dot}")
    page.run(f"{dot}.dispatchEvent(new MouseEvent('click', {{bubbles: true, composed: true}}))")
    drawer = f"({DEEP}.find(e => e.tagName === 'MTE-DRAWER-MUTANT') || {{}}).shadowRoot"
    page.wait(f"!!{drawer} && {drawer}.textContent.includes('Killed')")
    drawn = page.run(f"{DEEP}.filter(e => e.getRootNode() === {drawer}).map(e => e.textContent).join(' ')")
    assert "drop-call" in drawn
    assert "test_brackets" in drawn
    assert page.errors == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_the_mutant_page_shows_the_rule_in_a_tests_name(page, whole_run):
    page.open(whole_run.folder / "report" / "mutation.html")
    page.run("location.hash = '#test'")
    link(page, "test_bucketing.py")
    name = "NAME-3: test_nothing_is_lost[5]"
    assert page.wait(f"{DEEP}.some(e => e.children.length === 0 && e.textContent.includes('{name}'))")
    assert page.errors == []


def test_the_matrix_leads_to_a_mutant_and_to_its_rule(page, own_catalogue):
    assert own_catalogue.code == 0, own_catalogue.out + own_catalogue.err
    page.open(own_catalogue.folder / "report" / "matrix.html")
    assert page.run("document.querySelector('#matrix td.killed').title") == "MINE-1 / no-begin"
    page.run("document.querySelector('#matrix td.killed a').click()")
    page.wait("location.hash === '#mutant-no-begin'")
    mutant = page.run("document.querySelector(':target').innerText")
    assert "no-begin killed mine#7" in mutant
    assert "begin is <not> called" in mutant
    assert "killed by MINE-1: only [] (the whole scenario)" in mutant
    page.run("[...document.querySelectorAll(':target a')].find(a => a.textContent === 'MINE-1').click()")
    page.wait("location.hash === '#rule-MINE-1'")
    rule = page.run("document.querySelector(':target').innerText")
    assert "It <begins> & says so." in rule
    assert "noticed no-begin" in rule
    assert page.errors == []
