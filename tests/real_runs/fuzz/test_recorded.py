"""What SGLang's own weight-updater manager answered, replayed on the fake: no SGLang is needed."""

import re
from pathlib import Path

import pytest

from fakes.engine.profiles import profile
from real_runs.fuzz import corpus
from real_runs.fuzz.cells import reached
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.known import Explainer
from real_runs.fuzz.search import first_difference
from real_runs.fuzz.server_run import explainer, subject
from real_runs.fuzz.server_search import Limits, hunt
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import FakeSide, tiny
from real_runs.fuzz.tape import Tape, read

FOLDER = Path(__file__).with_name("recorded")
SERVERS = sorted(FOLDER.glob("server-*.jsonl.xz"))
FILES = sorted(FOLDER.glob("oracle-*.jsonl.xz"))


def version_of(path):
    return path.name.removeprefix("oracle-").removesuffix(".jsonl.xz")


@pytest.mark.parametrize("path", FILES, ids=version_of)
def test_the_fake_answers_as_the_manager_did(path):
    version = version_of(path)
    explain = Explainer("oracle", version)
    for kept in corpus.read(path):
        fake = FakeUpdater(version).play(kept.steps)
        at = first_difference(kept.answers, fake)
        if at is not None and at < min(len(fake), len(kept.answers)):
            known = explain(kept.steps[: at + 1], kept.answers[at], fake[at])
            assert known is not None, (kept.steps[: at + 1], kept.answers[at], fake[at])
        else:
            assert at is None, (kept.steps, kept.answers, fake)


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_the_fake_answers_as_the_server_did(path):
    kind, version = re.fullmatch(r"(server-tp\d[a-z0-9-]*?)-(\d[\w.]*)\.jsonl\.xz", path.name).groups()
    tp, model = subject(kind)
    entries = read(path)
    tape = Tape()
    tape.entries.extend(entries)
    explain = explainer(version)
    fake = FakeSide(version, tiny(tp, model))
    found = hunt(ServerVocabulary(profile(version), tp=tp), fake, fake, Limits(0), 0, explain=explain, tape=tape)
    assert found.found == {}
    assert found.sequences == len(entries)


def test_a_corpus_keeps_what_shows_something_new_and_nothing_else(tmp_path):
    kept = corpus.Corpus()
    begin, end = {"op": "begin_weight_update", "body": {}}, {"op": "end_weight_update", "body": {}}
    for steps in ([begin], [begin], [begin, end], [end], [begin]):
        kept.offer(steps, FakeUpdater("0.5.23").play(steps))
    assert [entry.steps for entry in kept.kept] == [[begin], [begin, end], [end]]
    path = tmp_path / "deep" / "oracle-0.5.23.jsonl.xz"
    corpus.write(path, kept.kept)
    assert corpus.read(path) == kept.kept
    assert len(reached(kept.kept[1].steps, kept.kept[1].answers)) == 2
