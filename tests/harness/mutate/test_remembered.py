"""Remembered forward steps are those that would be computed; none is remembered while a step is not as it was."""

from __future__ import annotations

import gc
import sys
from types import FunctionType

import numpy as np
import pytest

from fakes.engine import model as engine_model
from fakes.engine import weights as engine_weights
from harness.mutate import operators
from harness.mutate.program import Program
from harness.mutate.remembered import Remembered

CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32,
    "rope_theta": 10000.0,
}


@pytest.fixture
def remembered(monkeypatch):
    monkeypatch.setattr(engine_model.Model, "forward", engine_model.Model.forward)  # put back afterwards
    made = Remembered()
    made.install()
    return made


@pytest.fixture
def computed(monkeypatch, remembered):
    """How many forward steps were computed: all of them go through the head."""
    count = []
    real = engine_model.Model.forward.__wrapped__
    counting = lambda *a, **k: count.append(1) or real(*a, **k)  # noqa: E731 - a lambda is what is meant
    monkeypatch.setattr(remembered, "_real", counting)
    return count


def _model(seed=0):
    ranks = [engine_weights.RankWeights(CONFIG, 0, 1, "float32")]
    rng = np.random.default_rng(seed)
    for name, value in ranks[0].params.items():
        ranks[0].fill(name, rng.normal(size=value.shape))
    return engine_model.Model(CONFIG, ranks)


def _same(one, two):
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, two, strict=True))


def test_the_same_step_of_another_engine_is_not_computed_and_is_the_same(computed):
    first = _model().forward([1, 2, 3], last_only=True)
    again = _model().forward([1, 2, 3], last_only=True)
    assert _same(first, again)
    assert len(computed) == 1


def test_what_is_given_may_be_written_to(computed):
    logits, kv = _model().forward([1, 2])
    logits[:], kv[:] = 0, 0
    logits, kv = _model().forward([1, 2])
    logits[:], kv[:] = 0, 0
    assert _model().forward([1, 2])[0].any()
    assert len(computed) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda m: m.forward([1, 2, 4]),
        lambda m: m.forward([1, 2, 3], last_only=True),
        lambda m: m.forward([3], m.forward([1, 2])[1]),
        lambda m: m.forward([3], m.forward([1, 2])[1] + 1),
        lambda m: (m.ranks[0].fill("model.norm.weight", 2.0), m.forward([1, 2, 3]))[1],
        lambda m: _model(1).forward([1, 2, 3]),
    ],
)
def test_another_token_kv_weight_or_form_is_another_step(remembered, other):
    _model().forward([1, 2, 3])
    _model().forward([3], _model().forward([1, 2])[1])
    got = other(_model())
    remembered.hold()
    assert _same(got, other(_model()))


def test_a_step_with_an_adapter_is_computed_each_time(remembered, monkeypatch):
    given = []

    def real(*args, **more):
        given.append(more.get("adapter"))
        return np.zeros(1), np.zeros(1)

    monkeypatch.setattr(remembered, "_real", real)
    for adapter in (None, None, ["a"], ["a"]):
        _model().forward([1], adapter=adapter)
    assert given == [None, ["a"], ["a"]]


def test_a_step_that_cannot_be_is_refused_each_time(computed):
    for _ in range(2):
        with pytest.raises(IndexError):
            _model().forward([99])
    assert len(computed) == 2


def test_a_patched_model_is_not_remembered(computed, monkeypatch):
    before = _model().forward([1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(engine_model.Model, "_head", lambda self, normed: normed[0] * 0)
        assert not _model().forward([1, 2, 3])[0].any()
        patch.undo()
        model = _model()
        patch.setattr(model, "_rope", lambda x, cos, sin: x * 2, raising=False)
        assert not _same(model.forward([1, 2, 3]), before)
    assert _same(_model().forward([1, 2, 3]), before)
    assert len(computed) == 3


@pytest.fixture
def program(monkeypatch):
    monkeypatch.setattr(engine_model.Model, "forward", engine_model.Model.forward)
    made = Program(["fakes.engine.model", "fakes.engine.cache"], remember=True)
    files = {str(source.path) for source in made.sources.values()}
    functions = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename in files]
    codes = [(f, f.__code__) for f in functions]
    made.prepare()
    yield made
    for function, code in codes:
        function.__code__ = code
    made.budget.stop()


def test_a_mutant_that_a_step_runs_through_is_computed_and_others_are_not(program):
    before = _model().forward([1, 2, 3])
    sites = {name: list(operators.sites(source)) for name, source in program.sources.items()}
    undo = next(s for s in sites["fakes.engine.model"] if s.qualname == "Model._unit").apply("", program)
    assert not _same(_model().forward([1, 2, 3]), before)
    undo()
    assert _same(_model().forward([1, 2, 3]), before)
    steps = len(program.remembered._steps)
    undo = next(s for s in sites["fakes.engine.cache"] if s.op == "arithmetic").apply("", program)
    assert _same(_model().forward([1, 2, 3]), before)
    assert len(program.remembered._steps) == steps
    undo()


def test_without_an_engine_there_is_nothing_to_remember(monkeypatch):
    monkeypatch.delitem(sys.modules, "fakes.engine.model")
    made = Remembered()
    made.install()
    assert made.reads == frozenset()


def test_all_that_a_step_reads_is_known(remembered):
    """What the model grows is in the key, or the model is not remembered at all."""
    model = _model()
    assert remembered._key(model, [1], None, False) is not None
    model.ranks[0].more = []
    assert remembered._key(model, [1], None, False) is None
    model = _model()
    model.more = 1.5
    assert remembered._key(model, [1], None, False) not in (None, remembered._key(_model(), [1], None, False))
