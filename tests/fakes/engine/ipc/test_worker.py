"""Every request that a worker can get in every state, in both versions of the package: its reply, and how it ends."""

from __future__ import annotations

import itertools

import pytest

from fakes.engine.ipc_wire import Message
from fakes.engine.ipc_worker import Worker
from fakes.engine.protocol import Done, IpcTurn, Raised

WRONG, READ = Raised("ValueError", "wrong"), Raised("KeyError", "")
BUFFER, NONE, WEIGHTS = Message("buffer"), Message("none"), Message("weights")
STOP, OTHER = Message("stop", text="no more"), Message("other", text="int")
ASSERTED = Raised("AssertionError", "")
RELEASED = Raised("AssertionError", "Should not receive any payload after released")


def told(error: Raised) -> bytes:
    last = f"{error.type}: {error.message}" if error.message else error.type
    return f"Traceback (most recent call last):\n{last}\n".encode()


class Run:
    """A worker of rank 1, fed with messages; `replies` are those of its turns, `closed` the last one."""

    def __init__(self, package: str, *messages: Message | Raised, loads: Raised | None = None) -> None:
        self.loaded = self.finished = 0
        self.loads = loads
        self.worker = Worker(1, "ipc://x", package, itertools.count().__next__, self._load, self._finish)
        turn: IpcTurn | None = self.worker.start()
        self.replies: list[bytes | None] = []
        for message in messages:
            assert turn is not None, "it has ended"
            assert (turn.rank, turn.address, turn.id) == (1, "ipc://x", len(self.replies))
            self.replies.append(turn.reply)
            error = message if isinstance(message, Raised) else None
            turn = self.worker.go(Done(turn.id, message, error=error))
        if turn is not None:
            self.replies.append(turn.reply)
        self.open = turn is not None
        self.closed = self.worker.close().reply

    def _finish(self) -> None:
        self.finished += 1

    def _load(self, message: Message) -> Raised | None:
        assert message.kind == "weights"
        self.loaded += 1
        return self.loads


def test_a_whole_set() -> None:
    new = Run("0.4.2", BUFFER, WEIGHTS, WEIGHTS, NONE, NONE)
    assert (new.replies, new.closed, new.open, new.loaded) == ([None, b"", b"", b"", b""], b"", False, 2)
    old = Run("0.1.2", BUFFER, WEIGHTS, WEIGHTS, NONE)
    assert (old.replies, old.closed, old.open, old.loaded) == ([None, b"", b"", b""], b"", False, 2)
    assert new.worker.error is old.worker.error is None
    assert (new.finished, old.finished) == (1, 1), "the post hook"


@pytest.mark.parametrize("package", ["0.1.2", "0.4.2"])
def test_a_socket_that_fails_ends_it(package: str) -> None:
    run = Run(package, BUFFER, WRONG)
    assert (run.open, run.worker.error, run.closed) == (False, WRONG, None)


@pytest.mark.parametrize(
    ("first", "error"),
    [(WEIGHTS, ASSERTED), (NONE, ASSERTED), (STOP, ASSERTED), (Message("buffer", error=READ), READ)],
)
def test_what_is_no_buffer_is_told_at_first_and_ends_it_with_the_next_request(first: Message, error: Raised) -> None:
    """checkpoint_engine/worker.py:61@0.4.2."""
    run = Run("0.4.2", first)
    assert (run.open, run.replies, run.loaded) == (True, [None, told(error)], 0)
    for last in (NONE, WEIGHTS, BUFFER):
        run = Run("0.4.2", first, last)
        assert (run.open, run.worker.error, run.closed, run.loaded) == (False, error, None, 0)


@pytest.mark.parametrize("loads", [WRONG, READ])
def test_a_load_that_fails_is_told_and_it_goes_on(loads: Raised) -> None:
    run = Run("0.4.2", BUFFER, WEIGHTS, WEIGHTS, NONE, NONE, loads=loads)
    assert (run.replies, run.worker.error) == ([None, b"", told(loads), told(loads), b""], None)


def test_words_that_no_encoding_holds_are_told_all_the_same() -> None:
    run = Run("0.4.2", BUFFER, WEIGHTS, loads=Raised("ValueError", "a\ud800b"))
    assert run.replies[-1].endswith(b"ValueError: a\\ud800b\n")


def test_what_cannot_be_read_is_not_loaded() -> None:
    run = Run("0.4.2", BUFFER, Message("weights", error=READ))
    assert (run.open, run.replies, run.loaded) == (True, [None, b"", told(READ)], 0)
    old = Run("0.1.2", BUFFER, Message("weights", error=READ))
    assert (old.open, old.worker.error, old.closed, old.loaded) == (False, READ, None, 0)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (STOP, Raised("RuntimeError", "no more")),
        (OTHER, Raised("TypeError", "Unexpected payload type: <class 'int'>")),
        (BUFFER, Raised("TypeError", "Unexpected payload type: <class ''>")),
        (Message("other", error=READ), READ),
    ],
)
def test_what_ends_it_among_the_buckets(last: Message, error: Raised) -> None:
    run = Run("0.4.2", BUFFER, last)
    assert (run.open, run.worker.error, run.closed) == (False, error, None)


@pytest.mark.parametrize(
    ("last", "error"), [(WEIGHTS, RELEASED), (STOP, RELEASED), (Message("other", error=READ), READ)]
)
def test_after_the_first_none_nothing_may_come_but_another(last: Message, error: Raised) -> None:
    run = Run("0.4.2", BUFFER, NONE, last)
    assert (run.open, run.worker.error, run.closed, run.loaded, run.finished) == (False, error, None, 0, 0)


@pytest.mark.parametrize("last", [STOP, OTHER])
def test_an_old_worker_asserts_that_it_got_weights(last: Message) -> None:
    """checkpoint_engine/worker.py:53@0.1.2."""
    run = Run("0.1.2", BUFFER, last)
    assert (run.open, run.worker.error, run.closed) == (False, ASSERTED, None)


def test_an_old_worker_ends_with_a_load_that_fails() -> None:
    run = Run("0.1.2", BUFFER, WEIGHTS, loads=WRONG)
    assert (run.open, run.worker.error, run.closed, run.loaded) == (False, WRONG, None, 1)
