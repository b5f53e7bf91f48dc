"""A run's tape: it goes on where it stopped, and judges a mended fake without a server."""

import contextlib
from pathlib import Path

import msgspec
import pytest

from fakes.engine.profiles import profile
from harness.errors import UsageError
from real_runs.comparing import differences
from real_runs.fuzz.server_cells import HANGS, KILLS, LIVES, reason
from real_runs.fuzz.server_search import Limits, comparable, hunt, ran_out
from real_runs.fuzz.server_steps import ServerVocabulary
from real_runs.fuzz.sides import FakeSide
from real_runs.fuzz.smallest import smallest
from real_runs.fuzz.tape import BEGINS, Tape, Taped, pack, read, telling
from tests.real_runs.fuzz.test_found import queued_abort
from tests.real_runs.fuzz.test_server_search import MODEL, VERSION, plant

WORDS = ServerVocabulary(profile(VERSION))
LINE = msgspec.json.encode(Taped(seed=0, sequence=WORDS.sequence([0]), answers=[])) + b"\n"


class Counting(FakeSide):
    asked = 0

    def perform(self, sequence):
        self.asked += 1
        return super().perform(sequence)


def run(tape, steps, under=contextlib.nullcontext, fatal=0):
    real = Counting(VERSION, MODEL, under)
    found = hunt(WORDS, real, FakeSide(VERSION, MODEL), Limits(steps, fatal, 20), 0, tape=tape)
    return found, real.asked


def met(tape):
    """A search for this defect, as long as it needs."""
    for steps in range(220, 6000, 220):
        found, _ = run(tape, steps, plant("begin-again"))
        if found.found:
            return found
    raise AssertionError(f"not met in {found.steps} calls")


def test_a_run_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "new" / "tape.jsonl"
    first, _ = run(Tape(path), 80)
    again, asked = run(Tape(path), 80)
    assert (again.steps, again.cells, asked) == (first.steps, first.cells, 0)
    more, asked = run(Tape(path), 160, fatal=1)
    assert more.steps >= 160
    assert more.fatal == 1
    assert asked == more.sequences - first.sequences
    assert len({entry.seed for entry in read(path)}) > 1
    assert run(Tape(path), 160, fatal=1)[1] == 0


def test_what_a_killed_run_left_half_written_is_dropped(tmp_path):
    path = tmp_path / "tape.jsonl"
    run(Tape(path), 40)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[0][:50])
    tape = Tape(path)
    assert path.read_bytes() == whole
    run(tape, 150)
    assert len(read(path)) == len(tape.entries) > len(whole.splitlines())


NO_TAPES = {
    "noise": (bytes(range(256)), "line 1 is no sequence of a tape"),
    "zeros": (bytes(10**6), "line 1 is no sequence of a tape"),
    "deep": (b"[" * 200_000, "line 1 is no sequence of a tape"),
    "another file of mine": (b'{"a": 1}\n', "line 1 is no sequence of a tape"),
    "words behind it": (LINE + b"x\n", "line 2 is no sequence of a tape"),
    "words in it": (LINE + b'{"seed":1\n' + LINE, "line 2 is no sequence of a tape"),
    "another version": (LINE[:-2] + b',"of":"0.5.20 server-tp1"}\n', "one of 0.5.20 server-tp1, this is 0.5.23 "),
}


@pytest.mark.parametrize("name", NO_TAPES)
def test_what_is_no_tape_of_this_server_is_refused_and_stays_as_it_is(tmp_path, name):
    data, said = NO_TAPES[name]
    path = tmp_path / "tape"
    path.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        Tape(path, "0.5.23 server-tp1")
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"--tape {path}")
    assert path.read_bytes() == data


@pytest.mark.parametrize("data", [LINE, b"", BEGINS[:3], LINE + BEGINS, LINE[:-2] + b',"of":"mine"}\n'])
def test_what_a_run_leaves_is_a_tape(tmp_path, data):
    path = tmp_path / "tape"
    path.write_bytes(data)
    assert len(Tape(path, "mine").entries) == data.count(b"\n")
    assert path.read_bytes() == data[: data.rfind(b"\n") + 1]


def test_a_place_where_no_tape_can_be_is_one_line(tmp_path):
    (tmp_path / "f").touch()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path, tmp_path / "f" / "tape", loop, tmp_path / "tape.jsonl.xz", Path("/dev/zero")):
        with pytest.raises(UsageError, match=r"^--tape "):
            Tape(path)


def test_a_tape_says_whose_answers_it_keeps_and_a_packed_one_does_not(tmp_path):
    path = tmp_path / "tape"
    run(Tape(path, "mine"), 40)
    assert {entry.of for entry in read(path)} == {"mine"}
    pack(tmp_path / "packed.xz", read(path))
    assert {entry.of for entry in read(tmp_path / "packed.xz")} == {""}


def test_a_mended_fake_is_judged_by_the_tape_alone(tmp_path):
    path = tmp_path / "tape.jsonl"
    found = met(Tape(path))
    again, asked = run(Tape(path), 1, plant("begin-again"))
    assert (set(again.found), asked) == (set(found.found), 0)
    with plant("begin-again")():  # now the fake, too, answers as that one did
        mended, asked = run(Tape(path), 1)
    assert (mended.found, asked) == ({}, 0)


def test_the_shortest_sequence_is_found_again_step_by_step():
    found = met(Tape())
    (only,) = found.found.values()
    small = smallest(only, FakeSide(VERSION, MODEL, plant("begin-again")), FakeSide(VERSION, MODEL))
    assert small.kind == only.kind
    assert [step.op for step in small.sequence.steps if step.op.endswith("update")] == ["begin_weight_update"] * 2
    assert len(small.sequence.steps) <= 7
    assert len(small.sequence.steps) < len(only.sequence.steps)


def test_what_is_not_seen_again_stays_as_it_was():
    found = met(Tape())
    (only,) = found.found.values()
    assert smallest(only, FakeSide(VERSION, MODEL), FakeSide(VERSION, MODEL)) is only
    late = smallest(only, FakeSide(VERSION, MODEL, plant("begin-again")), FakeSide(VERSION, MODEL), seconds=-1)
    assert late is only


def test_sequences_that_show_nothing_new_are_not_kept(tmp_path):
    tape = Tape()
    run(tape, 100)
    kept = telling([*tape.entries, *tape.entries], FakeSide(VERSION, MODEL))
    assert 0 < len(kept) <= len(tape.entries)
    assert telling([*tape.entries, *tape.entries], FakeSide(VERSION, MODEL), 1) == kept[:1]
    pack(tmp_path / "deep" / "x.jsonl.xz", kept)
    assert read(tmp_path / "deep" / "x.jsonl.xz") == kept


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (("begin_weight_update", "in_place queued, open, released"), LIVES),
        (("resume_memory_occupation", "free idle, closed"), KILLS),
        (("release_memory_occupation", "free running, open"), KILLS),
        (("pause abort", "in_place running, closed"), HANGS),
    ],
)
def test_a_cell_that_was_not_reached_has_a_reason(cell, why):
    assert reason(WORDS, FakeSide(VERSION, MODEL), cell) == why


def test_a_generation_that_ran_out_on_one_side_makes_the_rest_incomparable():
    from real_runs import sequence as s

    long = s.start("a", "generate", s.generate(n=60, stream=True))
    home = [s.call("abort_request", {"abort_all": True}), s.join("a")]
    side = FakeSide(VERSION, MODEL)
    ended = side.perform(s.Sequence(name="x", about="", steps=[long, s.sleep(2.0), *home]))
    aborted = side.perform(s.Sequence(name="x", about="", steps=[long, s.sleep(0.05), *home]))
    assert ran_out(ended, aborted)
    assert not ran_out(ended, ended)
    assert not ran_out(aborted, aborted)


def test_the_last_token_of_a_stream_that_was_aborted_in_the_queue_is_no_difference():
    early, late = queued_abort("0.5.17", 0.05), queued_abort("0.5.17", 0.1)
    assert differences(early, late)
    assert differences(*comparable(early, late)) == []
    early, late = queued_abort("0.5.20", 0.05), queued_abort("0.5.20", 0.1)
    assert comparable(early, late) == (early, late)
