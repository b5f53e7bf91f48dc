"""What recording costs: control calls through `refitcheck record` beside a bare pass-through of the same stack.

Both proxies stand before the same stub server; calls of the two alternate, so that a busy machine slows both.
Nothing here asserts a time.
"""

from __future__ import annotations

import http.client
import statistics
import time
from itertools import cycle

import pytest

from real_runs.recording.keeper import Unrecorded
from real_runs.recording.serving import Doors, Plan, Recorder
from tests.real_runs.recording.stage import Stub

CALLS = 400
BODY = b'{"mode": "retract"}'
PAYLOAD = b'{"serialized_named_tensors": ["' + b"x" * 20_000 + b'"], "load_format": "flattened_bucket"}'


@pytest.fixture
def three(tmp_path):
    stub = Stub()
    bare = Doors([Unrecorded(stub.url)])
    recorder = Recorder(Plan((stub.url,), "0.5.23", 1, tmp_path / "h.jsonl"), print)
    yield {"the server itself": stub.url, "bare": bare.urls[0], "recorded": recorder.urls[0]}
    recorder.close()
    bare.close()
    stub.stop()


@pytest.mark.benchmark(group="a control call through a proxy")
@pytest.mark.parametrize(("op", "body"), [("pause_generation", BODY), ("update_weights_from_tensor", PAYLOAD)])
def bench_recorded_beside_bare(benchmark, three, op, body):
    seconds: dict[str, list[float]] = {name: [] for name in three}
    ways = cycle(three.items())

    def one():
        name, url = next(ways)
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        began = time.perf_counter()
        connection.request("POST", f"/{op}", body, {"Content-Type": "application/json"})
        assert connection.getresponse().read() == b'{"success": true}'
        seconds[name].append(time.perf_counter() - began)
        connection.close()

    benchmark.pedantic(one, rounds=3 * CALLS, warmup_rounds=30)
    medians = {name: statistics.median(found) * 1000 for name, found in seconds.items()}
    benchmark.extra_info.update({name: f"{median:.2f} ms" for name, median in medians.items()})
    ratio = medians["recorded"] / medians["bare"]
    print(f"\n{op}: " + ", ".join(f"{name} {median:.2f} ms" for name, median in medians.items()), f"ratio {ratio:.2f}")
