"""The template: what it writes runs, says what the guide says, and overwrites nothing."""

import errno
import importlib.util
import json
import re
import shlex
import sys
from types import SimpleNamespace

import pytest

from harness import cli
from harness.adopt import FILES, PLACEHOLDER, installed_from, write_template
from harness.errors import UsageError
from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit
from harness.whole_files import write_whole

SCENARIO = "refit/envelope/two-refits"


@pytest.fixture
def template(tmp_path, monkeypatch):
    write_template(tmp_path / "new")
    spec = importlib.util.spec_from_file_location("adopted_trainer", tmp_path / "new" / "my_trainer.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "adopted_trainer", module)
    spec.loader.exec_module(module)
    return tmp_path / "new"


def judged(name, version="0.5.23"):
    runner = Runner(Settings(versions=(version,), suts=(f"adopted_trainer:{name}",), tp=2, hang_timeout=60.0))
    try:
        report = runner.execute(Unit(SCENARIO, version, 2, f"adopted_trainer:{name}"))
    finally:
        runner.close()
    assert report.error == ""
    return report, {rule: finding.verdict for rule, finding in report.findings.items()}


def test_the_template_works_where_nothing_fails(template):
    report, verdicts = judged("Adapter")
    assert report.raised == ""
    assert [rule for rule, verdict in verdicts.items() if verdict.status == "violated"] == []
    assert verdicts["VERIF-1"].status == verdicts["SESS-1"].status == "held"


def test_the_broken_one_gets_what_the_guide_says(template):
    report, verdicts = judged("ForgetsBegin")
    guide = (template / "README.md").read_text()
    assert verdicts["SESS-1"].status == "violated"
    assert f"actual   {verdicts['SESS-1'].actual}" in guide
    assert "no weight-update session is open" in report.raised


def test_the_adapter_is_ten_lines_and_every_command_of_the_guide_names_it(template):
    lines = (template / "my_trainer.py").read_text().split("class Adapter:")[1].split("class ForgetsBegin")[0]
    code = [line for line in lines.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 11
    guide = (template / "README.md").read_text()
    assert guide.count("--sut my_trainer:") == 3
    assert "my_trainer:Adapter --engine fake:0.5.20,0.5.23" in (template / "refitcheck.yml").read_text()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UsageError, match=r"README\.md is there already"):
        write_template(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"Not a directory|exists"):
        write_template(tmp_path / "file" / "new")


def test_every_file_of_the_template_is_written(tmp_path):
    written = write_template(tmp_path / "a" / "b")
    assert sorted(path.name for path in written) == sorted(FILES.values())


@pytest.mark.parametrize(("name", "text"), [("a" * 300, "name too long"), ("", "needs the name of a folder")])
def test_a_name_that_cannot_be_one_is_one_line(tmp_path, monkeypatch, capsys, name, text):
    monkeypatch.chdir(tmp_path)
    assert cli.invoke(("adopt", name)) == 4
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_next_command_is_quoted(tmp_path, capsys):
    folder = f"{tmp_path}/my trainer; $(id)"
    assert cli.invoke(("adopt", folder)) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(last)[:4] == ["now:", "cd", folder, "&&"]


@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_is_full_leaves_nothing_and_the_next_try_works(tmp_path, monkeypatch, there):
    written = []

    def full(path, data):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write_whole(path, data)

    folder = tmp_path / "new"
    if there:
        folder.mkdir()
        (folder / "mine.py").touch()
    monkeypatch.setattr("harness.adopt.write_whole", full)
    with pytest.raises(UsageError, match=r"new: No space left on device$"):
        write_template(folder)
    monkeypatch.setattr("harness.adopt.write_whole", write_whole)
    assert written
    assert [path.name for path in tmp_path.rglob("*.*")] == (["mine.py"] if there else [])
    assert folder.exists() == there
    assert len(write_template(folder)) == 3


def one_scenario(settings, units, *, workers, folder):
    """The units of one scenario without exploration, here: enough to see that a command is one."""
    runner = Runner(settings)
    try:
        yield from [runner.execute(u) for u in units if u.scenario == SCENARIO and u.shard == (0, 0)]
    finally:
        runner.close()


def commands(folder):
    told = "\n".join((folder / name).read_text() for name in ("README.md", "refitcheck.yml"))
    whole = re.findall(r"^(?:    |      - run: )(refitcheck .*)$", told, re.MULTILINE)
    inline = [" ".join(found.split()) for found in re.findall(r"`(refitcheck [^`]* [^`]*)`", told)]
    return whole + inline


def test_every_command_of_the_guide_and_of_the_workflow_runs(template, monkeypatch, capsys):
    monkeypatch.chdir(template)
    monkeypatch.syspath_prepend(str(template))
    monkeypatch.delitem(sys.modules, "my_trainer", raising=False)
    monkeypatch.setattr("harness.run.execute", one_scenario)
    codes = []
    for command in commands(template):
        words = shlex.split(command)[1:]
        quick = ("--lane", "fake") if words[0] == "upgrade" else ()  # its own starts servers
        codes.append((" ".join(words[:3]), cli.invoke((*words, *quick))))
    monkeypatch.delitem(sys.modules, "my_trainer")
    said = capsys.readouterr()
    assert codes == [
        ("run --side refit", 2),  # what only other scenarios exercise is inconclusive
        ("run --rule SESS-1", 1),
        ("run --side refit", 1),  # the workflow's: 0.5.20 has no sessions
        ("upgrade --sut my_trainer:Adapter", 0),
    ], said.err
    shown = (template / "README.md").read_text().split("ForgetsBegin\n\n")[1].split("\n\nThen")[0]
    for line in shown.splitlines():
        assert line.strip() in said.out
    assert (template / "results.json").stat().st_size > 0


def written_down(monkeypatch, direct_url):
    told = SimpleNamespace(read_text=lambda name: direct_url)
    monkeypatch.setattr("harness.adopt.distribution", lambda name: told)
    return installed_from()


def test_the_workflow_gets_this_tool_where_this_installation_came_from(monkeypatch, tmp_path):
    vcs = {"url": "https://host.example/me/refitcheck", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    assert written_down(monkeypatch, json.dumps(vcs)) == "git+https://host.example/me/refitcheck@c0ffee"
    (workflow,) = (path for path in write_template(tmp_path / "a") if path.suffix == ".yml")
    told = workflow.read_text()
    assert "REFITCHECK: git+https://host.example/me/refitcheck@c0ffee\n" in told
    assert 'pip install "$REFITCHECK"\n' in told
    assert "Yours came from there." in told
    assert "pip install refitcheck" not in told


@pytest.mark.parametrize("direct_url", ['{"url": "file:///a/b", "dir_info": {"editable": true}}', None, "", "[]", "{"])
def test_a_folder_of_this_machine_is_a_place_to_fill_in(monkeypatch, tmp_path, direct_url):
    assert written_down(monkeypatch, direct_url) == ""
    (workflow,) = (path for path in write_template(tmp_path / "a") if path.suffix == ".yml")
    told = workflow.read_text()
    assert f"REFITCHECK: {PLACEHOLDER}\n" in told
    assert "Put yours in place of the capitals." in told
    assert "__" not in told
