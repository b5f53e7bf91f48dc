"""Answers are read as they come: whole ones, in order, and nothing else, without waiting."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import pytest

from harness import frames
from harness.frames import Answers, Garbled, send_answer


@pytest.fixture
def pipe():
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_an_answer_is_there_once_its_last_byte_is(pipe):
    ours, theirs = pipe
    answers = Answers(ours)
    body = pickle.dumps("held")
    whole = frames.MARK + len(body).to_bytes(8, "big") + body
    for number in range(len(whole)):
        assert answers.next() is None
        os.write(theirs.fileno(), whole[number : number + 1])
    assert pickle.loads(answers.next()) == "held"
    assert answers.next() is None


def test_two_answers_at_once_and_one_that_no_pipe_holds_at_once(pipe):
    ours, theirs = pipe
    answers = Answers(ours)
    long = "x" * 10_000_000
    writer = threading.Thread(target=lambda: [send_answer(theirs, said) for said in ("a", "b", long)])
    writer.start()
    got = []
    while len(got) < 3:
        ours.poll(1.0)
        body = answers.next()
        if body is not None:
            got.append(pickle.loads(body))
    writer.join()
    assert got == ["a", "b", long]


@pytest.mark.parametrize("said", [b"\0", b"\x93refut", frames.MARK + b"\0\0\0\1" + b"\0" * 4])
def test_what_is_no_answer_is_known_by_its_beginning(pipe, said):
    ours, theirs = pipe
    os.write(theirs.fileno(), said)
    with pytest.raises(Garbled):
        Answers(ours).next()


def test_the_end_of_the_pipe_is_told_after_what_came_whole(pipe):
    ours, theirs = pipe
    answers = Answers(ours)
    send_answer(theirs, 7)
    os.write(theirs.fileno(), frames.MARK)
    theirs.close()
    assert pickle.loads(answers.next()) == 7
    with pytest.raises(EOFError):
        answers.next()
