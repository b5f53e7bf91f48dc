"""A trainer process on a faster clock: in a child, since a process stays as it was paced."""

import subprocess
import sys

PROGRAM = """
import asyncio, queue, socket, sys, threading, time
begun = time.clock_gettime(time.CLOCK_MONOTONIC)
from harness.sut.adapters.pacing import pace
pace(0.01)
def real():
    return time.clock_gettime(time.CLOCK_MONOTONIC) - begun
shown = time.monotonic()
time.sleep(30.0)
assert time.monotonic() - shown >= 30.0
async def wait():
    try:
        await asyncio.wait_for(asyncio.sleep(600.0), 30.0)
    except asyncio.TimeoutError:
        return True
assert asyncio.run(wait())
assert not threading.Event().wait(30.0)
try:
    queue.Queue().get(timeout=30.0)
except queue.Empty:
    pass
here, there = socket.socketpair()
here.settimeout(30.0)
try:
    here.recv(1)
except TimeoutError:
    pass
assert real() >= 1.4, real()
print("paced")
"""


def test_sleeps_event_loops_locks_and_sockets_keep_the_lane_s_time():
    child = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(child, capture_output=True, text=True, timeout=140, check=False)
    assert (done.stdout, done.stderr) == ("paced\n", "")
