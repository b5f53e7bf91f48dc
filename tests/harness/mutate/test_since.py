from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

from harness.errors import UsageError
from harness.mutate import operators, since
from harness.mutate.source import parse
from tests.harness.mutate.samples import Says

CODE = "def first():\n    return 1\n\n\ndef second():\n    return 2\n"


@pytest.fixture
def repository(tmp_path):
    def git(*args):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=tmp_path, check=True, capture_output=True
        )

    git("init", "-q")
    (tmp_path / "client.py").write_text(CODE)
    (tmp_path / "test_client.py").write_text("def test_it(): pass\n")
    git("add", ".")
    git("commit", "-qm", "one")
    return tmp_path


def chosen(repository, revision="HEAD", test="other.py", client="client.py", folder="."):
    changes = since.changed_lines(revision, repository / folder)
    source = parse("client", repository / client)
    hit = since.touched(changes, SimpleNamespace(sources={"client": source}))
    checks = [Says("t", list, path=str(repository / test))]
    return [s.function.qualname for s in operators.sites(source) if hit(s.mutant(), checks)]


def test_nothing_changed_nothing_runs(repository):
    assert chosen(repository) == []


def test_a_changed_function_is_run_and_its_neighbour_is_not(repository):
    (repository / "client.py").write_text(CODE.replace("return 2", "return 3"))
    assert chosen(repository) == ["second"]


def test_a_removed_line_counts_where_it_was(repository):
    (repository / "client.py").write_text(
        CODE.replace("def first():\n    return 1\n", "def first():\n    x = 1\n    return 1\n")
    )
    assert chosen(repository) == ["first", "first"]


def test_a_changed_test_runs_all_that_it_sees(repository):
    (repository / "test_client.py").write_text("def test_it(): assert True\n")
    assert chosen(repository, test="test_client.py") == ["first", "second"]


def test_a_new_file_counts_whole(repository):
    (repository / "test_new.py").write_text("def test_new(): pass\n")
    assert chosen(repository, test="test_new.py") == ["first", "second"]


@pytest.mark.parametrize(
    "setting",
    [
        "diff.mnemonicPrefix=true",
        "diff.noprefix=true",
        "diff.srcPrefix=x/",
        "diff.dstPrefix=y/",
        "diff.relative=true",
        "diff.interHunkContext=99",
        "diff.external=true",
        "diff.renames=copies",
        "color.ui=always",
        "core.quotePath=true",
    ],
)
def test_no_setting_of_the_users_hides_a_change_or_makes_it_larger(repository, monkeypatch, setting):
    name, _, value = setting.partition("=")
    (repository / "below").mkdir()
    subprocess.run(["git", "config", name, value], cwd=repository, check=True)
    (repository / "client.py").write_text(CODE.replace("return 2", "return 3"))
    assert chosen(repository, folder="below") == ["second"]


@pytest.mark.parametrize(
    "name", ["\u00fc.py", 'a"b.py', "a\tb.py", "a\nb.py", "a b.py", "*.py", os.fsdecode(b"\xff.py")]
)
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "untracked"])
def test_a_file_may_have_any_name(repository, name, tracked):
    (repository / name).write_text(CODE)
    assert chosen(repository, client=name) == ["first", "second"]
    if tracked:
        subprocess.run(["git", "add", "."], cwd=repository, check=True)
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "two"], cwd=repository, check=True
        )
        assert chosen(repository, client=name) == []
        (repository / name).write_text(CODE.replace("return 2", "return 3"))
        assert chosen(repository, client=name) == ["second"]


def test_a_file_that_git_calls_binary_has_lines_too(repository):
    (repository / ".gitattributes").write_text("*.py binary\n")
    (repository / "client.py").write_text(CODE.replace("return 2", "return 3"))
    assert chosen(repository) == ["second"]


def test_what_git_does_not_know_is_run(repository):
    (repository / ".gitignore").write_text("made.py\n")
    (repository / "made.py").write_text(CODE)
    assert chosen(repository, client="made.py") == ["first", "second"]


def test_a_link_to_nothing_is_no_change_of_anything(repository):
    (repository / "dangling.py").symlink_to(repository / "nowhere.py")
    assert chosen(repository) == []


@pytest.mark.parametrize(("revision", "said"), [("nonsense", "nonsense"), ("--output=x", "not a git revision")])
def test_a_revision_that_is_none_is_one_clear_line(repository, revision, said):
    with pytest.raises(UsageError, match=said):
        since.changed_lines(revision, repository)


def test_no_repository_is_one_clear_line(tmp_path):
    with pytest.raises(UsageError, match=r"--since: .*not a git repository"):
        since.changed_lines("HEAD", tmp_path)
