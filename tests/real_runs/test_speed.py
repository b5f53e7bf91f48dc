"""What a measurement sends, and how it is said; the measurement itself needs a GPU."""

import json
from types import SimpleNamespace

import pytest

from fakes.tiny import hf_shapes
from harness.errors import HarnessError
from real_runs.speed import WARM, Speed, _post, _refit, _timed, config, grouped, write_config


def tensors(*sizes):
    return [(f"t{at}", SimpleNamespace(nbytes=size)) for at, size in enumerate(sizes)]


def names(groups):
    return [[name for name, _ in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ((4, 4, 4), 8, [["t0", "t1"], ["t2"]]),
        ((4, 4, 4), 12, [["t0", "t1", "t2"]]),
        ((9, 1, 1), 8, [["t0"], ["t1", "t2"]]),
        ((1, 9, 1), 8, [["t0"], ["t1"], ["t2"]]),
        ((), 8, []),
    ],
)
def test_buckets_hold_whole_tensors(sizes, limit, expected):
    assert names(grouped(tensors(*sizes), limit)) == expected


def test_a_line_says_bytes_time_and_rate():
    assert Speed("buckets of 64 MiB", 2_000_000_000, 0.01, 30).line.split() == (
        ["buckets", "of", "64", "MiB", "2.00", "GB", "10.00", "ms", "200.0", "GB/s", "30", "posts"]
    )


def test_a_layer_has_the_bytes_that_are_said(tmp_path):
    def size(layers):
        shapes = hf_shapes(json.loads((write_config(tmp_path, layers) / "config.json").read_text()))
        total = 0
        for shape in shapes.values():
            count = 1
            for dim in shape:
                count *= dim
            total += 2 * count
        return total

    assert round((size(2) - size(1)) / 1e9, 2) == 0.44
    assert round((2 * size(1) - size(2)) / 1e9, 2) == 0.52
    assert config(3)["num_hidden_layers"] == 3


class Engine:
    """Answers, and notes what it was asked."""

    log_path = "log"

    def __init__(self, version="0.5.23", ok=True):
        self.spec, self.ok, self.asked = SimpleNamespace(version=version), ok, []
        self.client = self

    def request(self, method, op, body, timeout_s):
        self.asked.append(op)
        return SimpleNamespace(ok=self.ok, text="no", ending="reply")


@pytest.mark.parametrize(("version", "sessions"), [("0.5.23", True), ("0.5.20", False)])
def test_a_refit_posts_every_group_in_one_session_and_frees_it_then(version, sessions):
    engine, freed = Engine(version), []

    def pack(group):
        return "payload", [SimpleNamespace(close=lambda: freed.append(list(engine.asked)))]

    _refit(engine, [tensors(1), tensors(2)], pack, None)
    posts = ["update_weights_from_tensor"] * 2

    assert engine.asked == (["begin_weight_update", *posts, "end_weight_update"] if sessions else posts)
    assert [asked.count("update_weights_from_tensor") for asked in freed] == [1, 2]


def test_an_engine_that_refuses_ends_the_measurement():
    with pytest.raises(HarnessError, match="/x: no"):
        _post(Engine(ok=False), "x", {})


def test_warm_refits_are_not_counted(monkeypatch):
    times = iter([0, 100] * WARM + [0, 1, 0, 2, 0, 3, 0, 4, 0, 5])
    monkeypatch.setattr("real_runs.speed.time.perf_counter", lambda: next(times))

    assert _timed("x", tensors(10), 1, lambda: None) == Speed("x", 10, 3, 1)
