"""What the memo of steps keeps within its bytes, and which of two computations of one step."""

from __future__ import annotations

import numpy as np

from fakes.engine.memo import StepMemo, model_key


def key(token: int) -> tuple[str, str, tuple[int, ...]]:
    return "m", "s", (token,)


def row(size: int, value: float = 0.0) -> np.ndarray:
    return np.full(size, value, np.uint8)


def test_a_step_costs_its_logits_and_its_kv() -> None:
    memo = StepMemo(max_bytes=30)
    memo.put(key(0), row(7), row(3))
    memo.put(key(1), row(7), row(3))
    memo.put(key(2), row(7), row(3))
    assert all(memo.get(key(n), 3) is not None for n in range(3)), "30 bytes of 30"
    memo.put(key(3), row(1), row(0))
    assert memo.get(key(0), 0) is None
    assert all(memo.get(key(n), 0) is not None for n in (1, 2, 3))
    memo.put(key(4), row(5), row(4))
    assert all(memo.get(key(n), 0) is not None for n in (1, 2, 3, 4)), "10 + 10 + 1 + 9 bytes"


def test_a_step_that_is_kept_again_is_paid_for_once() -> None:
    memo = StepMemo(max_bytes=30)
    for _ in range(9):
        memo.put(key(0), row(7), row(3))
    memo.put(key(1), row(7), row(3))
    memo.put(key(2), row(7), row(3))
    assert memo.get(key(0), 3) is not None
    memo.put(key(3), row(1), row(0))
    assert memo.get(key(0), 3) is not None, "it was looked at, the second was not"
    assert memo.get(key(1), 0) is None


def test_the_longer_kv_wins_and_of_equals_the_newer() -> None:
    memo = StepMemo()
    for size, value, kept in ((3, 1.0, (3, 1.0)), (2, 2.0, (3, 1.0)), (4, 3.0, (4, 3.0)), (4, 4.0, (4, 4.0))):
        memo.put(key(0), row(1, value), row(size, value))
        found = memo.get(key(0), kept[0])
        assert found is not None
        assert (found[0][0], len(found[1]), found[1][0]) == (value, *kept)
    cut = memo.get(key(0), 1)
    assert cut is not None
    assert len(cut[1]) == 1
    assert memo.get(key(0), 5) is None


def test_what_is_larger_than_all_is_not_kept() -> None:
    memo = StepMemo(max_bytes=10)
    memo.put(key(0), row(9), row(9))
    assert memo.get(key(0), 0) is None
    memo.put(key(1), row(5), row(5))
    assert memo.get(key(1), 5) is not None


def test_clearing_gives_all_bytes_back() -> None:
    memo = StepMemo(max_bytes=30)
    for _ in range(3):
        for n in range(3):
            memo.put(key(n), row(7), row(3))
        assert all(memo.get(key(n), 3) is not None for n in range(3))
        memo.clear()
        assert memo.get(key(0), 0) is None


def test_models_are_told_apart_by_all_that_computes() -> None:
    base = {"hidden_size": 64, "model_type": "llama"}
    keys = {
        model_key(base, 1, "bfloat16"),
        model_key(base, 2, "bfloat16"),
        model_key(base, 1, "float32"),
        model_key({**base, "hidden_size": 32}, 1, "bfloat16"),
    }
    assert len(keys) == 4
    turned = dict(reversed(base.items()))
    assert model_key(turned, 1, "bfloat16") in keys, "whatever the order of config.json"
