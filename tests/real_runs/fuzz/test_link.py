"""The way to an oracle: its process, over a small weight updater of our own in SGLang's place."""

import sys
from pathlib import Path

import pytest

from harness.errors import HarnessError
from real_runs.fuzz.link import OracleProcess

pytest.importorskip("torch", reason="the oracle's process needs torch")
CHECKOUT = Path(__file__).with_name("checkout")
BEGIN = {"op": "begin_weight_update", "body": {"selector": "all"}}


@pytest.fixture(scope="module")
def oracle():
    with OracleProcess(Path(sys.executable), CHECKOUT) as process:
        yield process


def update(kind, load_format=None):
    return {
        "op": "update_weights_from_tensor",
        "body": {"serialized_named_tensors": [kind], "load_format": load_format},
    }


def test_it_says_who_it_is(oracle):
    assert oracle.version == "checkout"
    assert tuple(oracle.parts) == ("manager", "is_fully_idle", "flush_cache")
    assert len(oracle.digest) == 64


def test_every_sequence_begins_on_a_fresh_manager_and_ends_with_the_first_exception(oracle):
    two = oracle.play([BEGIN, BEGIN])
    assert [answer["message"] for answer in two] == ["all 1", "all 2"]
    four = oracle.play([BEGIN, BEGIN, BEGIN, BEGIN])
    assert len(four) == 3
    assert four[-1] == {"raised": ["RuntimeError", "three is too many"]}


def test_traffic_and_pauses_make_it_busy(oracle):
    def granted(*before):
        return oracle.play([*before, {"op": "flush_cache"}])[-1]["success"]

    generate, go_on, abort = {"op": "generate"}, {"op": "continue"}, {"op": "abort"}
    retract, frozen = ({"op": "pause", "mode": mode} for mode in ("retract", "in_place"))
    assert granted()
    assert not granted(generate)
    assert granted(generate, abort)
    assert not granted(generate, retract)
    assert granted(generate, retract, abort)
    assert not granted(generate, frozen, abort)
    assert granted(generate, frozen, abort, go_on)
    assert granted(generate, frozen, abort, retract, go_on)
    assert not granted(retract, generate, go_on)


def test_payloads_are_known_by_name_and_loads_and_flushes_are_counted(oracle):
    good = oracle.play([update("good")])[0]
    assert (good["success"], good["loads"], good["flushes"]) == (True, 1, [True])
    assert oracle.play([update("misfit")])[0]["raised"][0] == "AssertionError"
    assert oracle.play([update("good", "auto")])[0]["raised"] == ["NotImplementedError", "Unknown load_format=auto"]
    assert oracle.play([update("unknown")])[0]["loads"] == 1


def test_released_tags_are_told(oracle):
    steps = [{"op": "release_memory_occupation", "body": {"tags": tags}} for tags in (["weights"], None)]
    assert [answer["tags"] for answer in oracle.play(steps)] == [["weights"], ["cuda_graph", "kv_cache", "weights"]]


def test_a_process_that_goes_away_is_told_in_one_line():
    with OracleProcess(Path(sys.executable), CHECKOUT) as process:
        with pytest.raises(HarnessError, match=r"the oracle's process ended \(7\)"):
            process.play([{"op": "end_weight_update", "body": {}}])


def test_a_checkout_without_the_manager_is_told_in_one_line(tmp_path):
    with pytest.raises(HarnessError, match="no managers/scheduler_components"):
        OracleProcess(Path(sys.executable), tmp_path)
