"""What the trainer's side of a real group records, and when; the other end of its socket is scripted here."""

import json
import socket
import subprocess
import threading

import numpy as np

from fakes.transport.gloo_groups import GlooGroups


class ScriptedPeers:
    """In place of the process that groups are forked from: answers every order, and notes what was recorded by then."""

    def __init__(self, recorded):
        self.recorded, self.seen, self.posted = recorded, [], 0

    def group(self):
        ours, theirs = socket.socketpair()
        threading.Thread(target=self.serve, args=(theirs,), daemon=True).start()
        self.process = subprocess.Popen(["sleep", "600"])
        return self.process.pid, ours

    def serve(self, orders):
        with orders, orders.makefile("rb") as file:
            while line := file.readline():
                order = json.loads(line)
                self.seen.append((order["op"], list(self.recorded)))
                answer = {"port": 7, "ranks": [], "under_way": [], "failed": ""}
                if order["op"] == "broadcast":
                    file.read(order["size"])
                    answer = {"number": self.posted}
                    self.posted += 1
                orders.sendall(json.dumps(answer).encode() + b"\n")

    def close(self):
        pass


def test_a_broadcast_is_recorded_before_anybody_can_have_taken_it():
    recorded = []
    peers = ScriptedPeers(recorded)
    groups = GlooGroups(lambda name, rank, data: recorded.append((name, data.get("number"))), peers=peers)
    group = groups.open("weights", 2)
    try:
        group.join(5.0)
        numbers = [group.broadcast(np.zeros(2, dtype=np.float32)) for _ in range(2)]
        group.wait(numbers, 5.0)
    finally:
        groups.close()
        peers.process.wait()

    assert numbers == [0, 1]
    assert [past[-1] for op, past in peers.seen if op == "broadcast"] == [("broadcast", 0), ("broadcast", 1)]
    assert [name for name, _ in recorded[-4:]] == ["broadcast", "broadcast", "broadcasts_waited", "group_closed"]
