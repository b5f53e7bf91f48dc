from __future__ import annotations

import collections
import pickle
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.trainer.pickling import Global, Object, Reduce, dumps

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back(value):
    assert pickle.loads(dumps(value)) == value


def test_globals_calls_and_objects_come_back():
    assert pickle.loads(dumps(Global("collections", "OrderedDict"))) is collections.OrderedDict
    assert pickle.loads(dumps(Reduce(Global("builtins", "complex"), (1, 2)))) == 1 + 2j
    made = pickle.loads(dumps(Object(Global("types", "SimpleNamespace"), {"a": 1})))
    assert made == types.SimpleNamespace(a=1)


def test_what_repeats_is_written_once():
    once = len(dumps([Global("collections", "OrderedDict"), "x" * 100]))
    many = [Global("collections", "OrderedDict"), "x" * 100] * 50
    assert pickle.loads(dumps(many)) == [collections.OrderedDict, "x" * 100] * 50
    assert len(dumps(many)) < once + 50 * 12


def test_other_values_cannot_travel():
    with pytest.raises(TypeError, match="set cannot travel in a payload"):
        dumps({1})
