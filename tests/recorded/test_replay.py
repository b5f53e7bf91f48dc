"""What the real SGLang answered, replayed against the fake: the same status, body and death, or the fake is wrong."""

from pathlib import Path

import pytest

from real_runs.comparing import exchanges
from real_runs.env import SUPPORTED
from real_runs.replaying import compare, read
from real_runs.sequences import catalogue

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.jsonl.xz"))
RECORDED = [(path.name.removesuffix(".jsonl.xz"), *read(path)) for path in HISTORIES]
CASES = [
    pytest.param(head, exchange, id=f"{name}:{exchange.name}")
    for name, head, recorded in RECORDED
    for exchange in recorded
]


@pytest.mark.parametrize(("head", "exchange"), CASES)
def test_the_fake_answers_what_the_real_engine_answered(head, exchange):
    found = compare(head, exchange)

    assert not found, "\n".join(map(str, found))


def test_every_version_at_both_tensor_parallel_sizes_and_every_shape_are_recorded():
    recorded = {(head.engine_version, head.tp) for _, head, _ in RECORDED}
    shapes = {(head.meta["shape"], head.meta["tied"], head.meta["dtype"]) for _, head, _ in RECORDED}

    assert {(version, tp) for version in SUPPORTED for tp in (1, 2)} == recorded
    assert {("llama", True, "float32"), ("qwen2", False, "float32"), ("qwen2", True, "float32")} <= shapes
    assert {("qwen3", False, "float32"), ("llama", False, "bfloat16")} <= shapes


def test_every_sequence_of_the_catalogue_is_recorded():
    recorded = {exchange.name for _, _, found in RECORDED for exchange in found}
    for_a_recorded_version = {
        entry.name
        for entry in catalogue()
        if any(entry.applies(head.engine_version, head.tp, head.meta["flavour"]) for _, head, _ in RECORDED)
    }

    assert sorted(for_a_recorded_version - recorded) == []


def test_no_recording_names_the_machine_it_was_made_on():
    import lzma

    for path in HISTORIES:
        text = lzma.decompress(path.read_bytes()).decode()
        assert "/site-packages" not in text, path.name
        assert "/tmp/" not in text, path.name
        assert "/root" not in text, path.name


def test_the_recordings_are_small():
    assert sum(path.stat().st_size for path in HISTORIES) < 2_000_000
    assert exchanges([]) == []
