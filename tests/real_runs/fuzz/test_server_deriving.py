"""A profile derived from what a server answers; another fake stands in its place."""

import msgspec
import pytest

from fakes.engine.profiles import PROFILES, profile
from harness.errors import HarnessError
from real_runs import sequence as s
from real_runs.fuzz import deriving, server_run
from real_runs.fuzz.draft import Draft
from real_runs.fuzz.server_deriving import SHOWN, UNSEEN, asked, candidates, derive, standing_for
from real_runs.fuzz.sides import FakeSide, tiny
from real_runs.fuzz.tape import Tape, Taped

MODEL = tiny()


def entry(version, *steps):
    sequence = s.Sequence(name="drawn", about="", steps=list(steps))
    done = FakeSide(version, MODEL, bypass=False).perform(sequence)
    return Taped(seed=0, sequence=sequence, answers=list(done.answers), died=done.died)


def refused_flush():
    draft = Draft(profile("0.5.22"))
    draft.to("in_place", "running", True, False)
    draft.add(s.update(s.whole(1), weight_version="v1"))
    return draft.whole("drawn").steps


MALFORMED = s.call("update_weights_from_tensor", {})


def test_what_changed_is_found_and_what_no_answer_tells_apart_is_named():
    entries = [entry("0.5.22", *refused_flush()), entry("0.5.22", s.BEGIN, s.FLUSH)]
    found = derive(profile("0.5.21"), MODEL, entries)
    assert found.changed == {"flush_failure": ("die", "refuse")}
    assert (found.unlike, found.total) == (0, 2)
    assert found.undecided["checker_get"] == [False]
    assert "flush_failure" not in found.undecided
    text = deriving.told(found, "0.5.21", "0.5.22", UNSEEN)
    assert "_next(PROFILES['0.5.21'], '0.5.22', {" in text
    assert "        flush_failure='refuse'," in text
    assert "the repository's profile of 0.5.22 has besides:" in text
    assert "    version_before_flush = True   (as likely)" in text
    assert "    dp_guard = 'new'   (read)" in text


def test_a_profile_of_the_repository_that_was_not_seen_is_told():
    found = derive(profile("0.5.21"), MODEL, [entry("0.5.21", *refused_flush())])
    assert found.changed == {}
    assert "flush_failure = 'refuse'   (AGAINST what was seen)" in deriving.told(found, "0.5.21", "0.5.22", UNSEEN)
    assert "says the same" in deriving.told(found, "0.5.21", "0.5.21", UNSEEN)
    assert "repository" not in deriving.told(found, "0.5.21", "0.6.0", UNSEEN)


def test_what_no_field_explains_is_said():
    said = []
    kept = entry("0.5.21", s.MODEL_INFO, s.BEGIN)
    answers = [kept.answers[0], kept.answers[1]]
    answers[1] = type(answers[1])(**{**vars(answers[1]), "status": 418})
    found = derive(profile("0.5.21"), MODEL, [msgspec.structs.replace(kept, answers=answers)], said.append)
    assert found.unlike == 1
    assert "still unlike, 1 times: begin_weight_update status" in said[-1]
    assert "418" in said[-1]


def test_the_numbers_of_source_lines_are_no_difference():
    assert derive(profile("0.5.21"), MODEL, [entry("0.5.22", MALFORMED)]).unlike == 0


class Mortal(FakeSide):
    """Is gone after some sequences, as a server that somebody else runs."""

    lives = 2

    def perform(self, sequence):
        if not self.lives:
            raise HarnessError("gone")
        self.lives -= 1
        return super().perform(sequence)


def test_a_server_that_is_gone_has_said_what_it_has_said():
    side = Mortal("0.5.22", MODEL, bypass=False)
    assert len(asked(profile("0.5.21"), side, MODEL, 500, 0, Tape())) == 2
    with pytest.raises(HarnessError, match="gone"):
        asked(profile("0.5.21"), side, MODEL, 500, 0, Tape())


def test_it_is_asked_as_if_there_were_sessions_and_as_if_there_were_none():
    entries = asked(profile("0.5.20"), FakeSide("0.5.20", MODEL, bypass=False), MODEL, 80, 0, Tape())
    assert sum(len(one.answers) for one in entries) >= 80
    with_sessions = ["begin_weight_update" in {step.op for step in one.sequence.steps} for one in entries]
    assert {True, False} <= set(with_sessions)


def test_a_profile_stands_for_its_version_inside_only():
    other = msgspec.structs.replace(profile("0.5.21"), flush_failure="refuse")
    before = PROFILES["0.5.21"]
    with standing_for(other):
        assert PROFILES["0.5.21"] is other
    assert PROFILES["0.5.21"] is before


def test_every_field_that_may_show_has_values_to_choose_from():
    assert all(len(values) > 1 for values in candidates().values())
    assert not set(SHOWN) & set(UNSEEN)


def test_the_command_derives_from_what_it_is_told(monkeypatch):
    side = Mortal("0.5.22", MODEL, bypass=False)
    side.close = lambda: None
    monkeypatch.setattr(server_run, "real_side", lambda settings, say: side)
    said = []
    text = server_run.derived(server_run.ServerSettings("http://127.0.0.1:1", "0.5.21", 100, 0), said.append)
    assert "calls in 2 sequences" in said[0]
    assert text.startswith("http://127.0.0.1:1 from 0.5.21: ")
