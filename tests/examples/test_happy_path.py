"""What README says of the example trainers: no rule accuses them where no call fails."""

from __future__ import annotations

import socket

import httpx
import pytest

from harness.cli import invoke
from tests.examples.http_trainer import HttpTrainer

HAPPY = ("refit/envelope/two-refits", "refit/cache/a-warm-prompt", "refit/state/dtypes-and-orders")


@pytest.mark.parametrize(("lane", "adapter"), [("http", "http_adapter"), ("fake", "minimal_adapter")])
def test_the_examples_violate_nothing_where_no_call_fails(capsys, lane, adapter):
    options = [word for name in HAPPY for word in ("--scenario", name)]
    more = ["--tp", "2", "--exploration", "off", "--side", "refit", "-n", "1"]
    if lane == "http":
        more += ["--lane-option", "time_scale=0.5"]  # a busy machine's seconds are short
    code = invoke(["run", "--lane", lane, "--sut", f"tests.examples.{adapter}:Adapter", *options, *more])
    out = capsys.readouterr().out
    assert code in (0, 2), out
    assert "violated 0" in out
    assert ("RANK-2" in out.partition("records no trainer:export:")[2]) == (lane == "http"), out


def test_the_trainer_of_urls_spends_its_deadline_and_not_its_patience():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and answers nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        trainer = HttpTrainer({url: 1}, call_s=1e6)
        with pytest.raises(httpx.ReadTimeout):  # else the test's own time limit ends it
            trainer.push({}, "one", within_s=0.3)
        trainer.client.close()
