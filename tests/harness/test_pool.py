"""How the pool waits for the ends of its workers."""

from harness.pool import _join


class Reaped:
    """A process that another thread waits for too: its exit code is known a little after its end."""

    def __init__(self, looks):
        self._looks = looks

    def join(self, timeout):
        assert timeout >= 0

    @property
    def exitcode(self):
        self._looks -= 1
        return None if self._looks > 0 else 7


def test_an_end_that_another_thread_saw_first_has_an_exit_code_all_the_same():
    process = Reaped(looks=3)
    _join({process}, 60.0)
    assert process.exitcode == 7
    assert process._looks < 0


def test_a_process_that_does_not_end_is_not_waited_for_beyond_the_time():
    process = Reaped(looks=10**9)
    _join({process}, 0.02)
    assert process.exitcode is None
