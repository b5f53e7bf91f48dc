"""What README says of the example trainers: no rule accuses them where no call fails."""

from __future__ import annotations

import pytest

from harness.cli import invoke

HAPPY = ("refit/envelope/two-refits", "refit/cache/a-warm-prompt", "refit/state/dtypes-and-orders")


@pytest.mark.parametrize(("lane", "adapter"), [("http", "http_adapter"), ("fake", "minimal_adapter")])
def test_the_examples_violate_nothing_where_no_call_fails(capsys, lane, adapter):
    options = [word for name in HAPPY for word in ("--scenario", name)]
    more = ["--tp", "2", "--exploration", "off", "--side", "refit", "-n", "1"]
    code = invoke(["run", "--lane", lane, "--sut", f"tests.examples.{adapter}:Adapter", *options, *more])
    out = capsys.readouterr().out
    assert code in (0, 2), out
    assert "violated 0" in out
    assert ("RANK-2" in out.partition("records no trainer:export:")[2]) == (lane == "http"), out
