"""Pickles that want to run something, to patch something or to eat the machine."""

from __future__ import annotations

import base64
import collections
import os
import pickle
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.engine import standins, tensors
from fakes.engine.allowlist import ALLOW_LISTS, EXACT200, EXACT202, PREFIX30, PREFIX33
from fakes.engine.payload import PayloadError, open_payload, unpickle
from fakes.engine.pickle_limits import check_limits
from fakes.trainer.pickling import Global, Object, Reduce, dumps
from fakes.trainer.registry import ExportRegistry
from fakes.trainer.wire import export_bucket, export_list

LISTS = pytest.mark.parametrize("allow", ALLOW_LISTS.values(), ids=lambda allow: allow.key)


class Calls:
    """Pickles as a call."""

    def __init__(self, function, *args):
        self.reduced = (function, args)

    def __reduce__(self):
        return self.reduced


def load(data, allow=EXACT202):
    return unpickle(data, profile_allow=allow, rank=0, resolver=None)


def refused(data, allow=EXACT202):
    with pytest.raises(PayloadError) as error:
        load(data, allow)
    return error.value.type, error.value.message


@pytest.mark.parametrize("allow", [EXACT200, EXACT202], ids=lambda allow: allow.key)
def test_an_exact_list_blocks_a_global_with_its_words(allow):
    data = pickle.dumps(Calls(os.system, "true"))
    assert refused(data, allow) == (
        "RuntimeError",
        "Blocked unsafe global (posix.system) during pickle deserialization",
    )


@pytest.mark.parametrize("allow", [PREFIX30, PREFIX33], ids=lambda allow: allow.key)
def test_a_prefix_list_blocks_a_global_with_its_words(allow):
    data = pickle.dumps(Calls(os.system, "true"))
    text = "Blocked unsafe class loading (posix.system), to prevent exploitation of CVE-2025-10164"
    assert refused(data, allow) == ("RuntimeError", text)


@LISTS
def test_nothing_runs_whatever_a_list_admits(tmp_path, allow):
    proof = tmp_path / "ran"
    for function, args in (
        (os.system, (f"touch {proof}",)),
        (subprocess.Popen, (["touch", str(proof)],)),
        (eval, (f"open({str(proof)!r}, 'w')",)),
        (exec, (f"open({str(proof)!r}, 'w')",)),
        (open, (str(proof), "w")),
        (getattr, (os, "system")),
        (__import__, ("os",)),
    ):
        try:
            made = load(pickle.dumps(Calls(function, *args)), allow)
        except (PayloadError, TypeError):
            continue
        assert type(made).__mro__[1] is standins.Inert
    gadgets = [
        Reduce(Global("builtins", "open"), (str(proof), "w")),
        Reduce(Global("sglang.srt.utils.common", "dynamic_import"), ("os.system",)),
        Reduce(Reduce(Global("operator", "methodcaller"), ("system", "true")), ("os",)),  # type: ignore[arg-type]  # calls what a call made
        Reduce(Global("functools", "partial"), (Global("builtins", "list"), [1])),
        Reduce(Global("torch.hub", "load"), ("x", "y")),
    ]
    for gadget in gadgets:
        try:
            load(dumps(gadget), allow)
        except PayloadError:
            continue
    assert not proof.exists()


def test_old_lists_admit_getattr_and_it_does_nothing():
    made = load(dumps(Reduce(Global("builtins", "getattr"), ("abc", "upper"))), PREFIX33)
    assert isinstance(made, standins.Inert)
    assert refused(dumps(Reduce(Global("builtins", "getattr"), ("abc", "upper"))))[0] == "RuntimeError"


def test_old_lists_deny_what_they_deny():
    for module, name in (("builtins", "eval"), ("types", "FunctionType"), ("codecs", "decode")):
        assert f"({module}.{name})" in refused(dumps(Global(module, name)), PREFIX30)[1]


def state_on(target, name, value):
    """Opcodes: target, (None, {name: value}), BUILD."""
    return dumps(target)[:-1] + dumps((None, {name: value}))[2:-1] + pickle.BUILD + pickle.STOP


@pytest.mark.parametrize(
    "target",
    [
        Global("torch", "Tensor"),
        Global("torch", "Size"),
        Global("torch", "bfloat16"),
        Global("torch", "UntypedStorage"),
        Global("collections", "Counter"),
        Global("collections", "OrderedDict"),
        Global("types", "SimpleNamespace"),
        Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"),
        Global("torch.multiprocessing.reductions", "rebuild_tensor"),
        Global("sglang.srt.managers.io_struct", "GenerateReqInput"),
    ],
    ids=lambda target: target.name,
)
def test_a_pickle_cannot_patch_what_it_can_name(target):
    for name in ("__init__", "__call__", "_call", "array", "patched", "__doc__", "numpy", "name"):
        with pytest.raises(PayloadError):
            load(state_on(target, name, 1))
    for changed in (tensors.Tensor, tensors.Size, collections.Counter, collections.OrderedDict):
        assert not hasattr(changed, "patched")
    assert tensors.dtype_named("bfloat16").name == "bfloat16"


SHARED = [0] * 100_000


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Calls(bytes, 10**12)),
        pickle.dumps(Calls(bytearray, 10**12)),
        pickle.dumps(Calls(list, range(10**12))),
        pickle.dumps([Calls(list, SHARED) for _ in range(50)]),
        b"\x80\x04r\xff\xff\xff\x7f.",
        b"I1\np999999999\n.",
        b"\x80\x04})" + b"\x85" * 100_000 + b"Ns.",
        b"\x80\x04)" + b"\x85\x94" * 100_000 + b"}h\x00Nsj\xff\xff\x00\x00Ns.",
    ],
    ids=["bytes", "bytearray", "range", "copies", "memo", "old memo", "nested", "nested with memo"],
)
def test_bombs_are_refused_before_they_go_off(data):
    assert refused(data)[0] == "MemoryError"


def test_endless_iterators_are_inert():
    endless = Reduce(Global("itertools", "repeat"), (0,))
    assert refused(dumps(Reduce(Global("builtins", "list"), (endless,))))[0] == "TypeError"


def test_a_payload_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("fakes.engine.payload.MAX_PAYLOAD_BYTES", 10)
    assert refused(dumps("x" * 100))[0] == "MemoryError"


def test_the_limits_let_ordinary_pickles_pass():
    check_limits(pickle.dumps([(f"name{i}", list(range(50)), {"a": (1, 2)}) for i in range(500)]))
    check_limits(pickle.dumps({"x": b"\x85" * 5000}))
    check_limits(b"not a pickle")
    check_limits(b"I12")


@pytest.mark.parametrize("size", [-1, 2**62])
def test_tensors_cannot_leave_their_storage(size):
    tensor = Reduce(
        Global("torch._utils", "_rebuild_tensor_v2"),
        (
            Reduce(
                Global("torch.multiprocessing.reductions", "rebuild_typed_storage"),
                (
                    Reduce(Global("torch.multiprocessing.reductions", "rebuild_storage_empty"), ()),
                    Global("torch", "uint8"),
                ),
            ),
            0,
            (size,),
            (1,),
            False,
            None,
        ),
    )
    with pytest.raises(PayloadError) as error:
        open_payload(dumps([("x", tensor)]), profile_allow=EXACT202, rank=0, load_format=None, resolver=None)
    assert error.value.type == "RuntimeError"


def test_encode_knows_no_exotic_codec():
    assert load(dumps(Reduce(Global("_codecs", "encode"), ("a", "latin1")))) == b"a"
    assert refused(dumps(Reduce(Global("_codecs", "encode"), ("a", "idna"))))[0] == "LookupError"


def test_file_descriptor_payloads_die_of_authentication_as_they_do_for_real():
    data = dumps(Reduce(Global("torch.multiprocessing.reductions", "rebuild_storage_fd"), (1, 2, 3)))
    assert refused(data) == ("multiprocessing.context.AuthenticationError", "digest received was wrong")


def test_persistent_ids_are_refused():
    assert refused(b"\x80\x04\x8c\x01aQ.")[0] == "_pickle.UnpicklingError"


def test_an_object_of_an_admitted_class_takes_its_attributes():
    made = load(dumps(Object(Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"), {"name": "a"})))
    assert made.name == "a"


def _whole_payloads():
    registry = ExportRegistry()
    named = [("a", np.arange(6, dtype=np.float32).reshape(2, 3)), ("b", np.ones(4, dtype=np.float32))]
    made = ((export_bucket, "flattened_bucket"), (export_list, None))
    return registry, [(base64.b64decode(make(registry, 0, named).payload), how) for make, how in made]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_payload_is_opened_or_refused_and_nothing_else(data):
    registry, payloads = _whole_payloads()
    raw, load_format = data.draw(st.sampled_from(payloads))
    damaged = bytearray(raw)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(len(raw) // 2, len(raw)))
    for allow in (EXACT202, PREFIX30):
        try:
            named = open_payload(
                bytes(damaged[:cut]), profile_allow=allow, rank=0, load_format=load_format, resolver=registry
            )
        except PayloadError:
            continue
        assert all(isinstance(array, np.ndarray) for _, array in named)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(raw):
    try:
        load(b"\x80\x04" + raw)
    except PayloadError:
        return


def test_an_instance_of_two_lines_is_made():
    assert isinstance(load(b"\x80\x02(itorch\ndevice\n."), standins.Inert)
    assert load(b"\x80\x02ctorch\nfloat32\n.") is tensors.dtype_named("float32")


@pytest.mark.parametrize("function", sorted({"str", "int", "float", "bool", "slice", "range", "complex"}))
@pytest.mark.parametrize("value", [(1, 2), {}])
def test_nothing_is_formatted_but_text_and_numbers(function, value):
    assert refused(dumps(Reduce(Global("builtins", function), (value,))))[0] == "TypeError"


@pytest.mark.parametrize(
    ("function", "args", "made"),
    [
        ("str", (12,), "12"),
        ("str", (b"ab", "utf-8"), "ab"),
        ("bytes", ("ab", "latin1"), b"ab"),
        ("bytes", ([1, 2],), b"\x01\x02"),
        ("bytearray", (3,), bytearray(3)),
        ("int", ("12",), 12),
        ("float", ("1.5",), 1.5),
        ("complex", (1, 2), 1 + 2j),
        ("bool", (0,), False),
        ("range", (1, 5), range(1, 5)),
        ("slice", (1, None), slice(1, None)),
        ("list", ((1, 2),), [1, 2]),
        ("tuple", ([1, 2],), (1, 2)),
        ("set", ([1, "a"],), {1, "a"}),
        ("frozenset", ([(1, "a")],), frozenset({(1, "a")})),
        ("dict", ([("a", 1), ["b", 2]],), {"a": 1, "b": 2}),
        ("dict", ({"a": 1},), {"a": 1}),
    ],
)
def test_the_builtins_of_the_list_do_what_they_do(function, args, made):
    assert load(dumps(Reduce(Global("builtins", function), args))) == made


@pytest.mark.parametrize(
    ("name", "args", "made"),
    [
        ("OrderedDict", (), {}),
        ("OrderedDict", ([("a", 1)],), {"a": 1}),
        ("Counter", ("aab",), {"a": 2, "b": 1}),
        ("defaultdict", (None, [("a", 1)]), {"a": 1}),
        ("deque", ([1, 2],), collections.deque([1, 2])),
    ],
)
def test_the_collections_of_the_list_do_what_they_do(name, args, made):
    assert load(dumps(Reduce(Global("collections", name), args))) == made


@pytest.mark.parametrize("codec", ["idna", "punycode", "rot13", (1,), 5])
@pytest.mark.parametrize(("function", "text"), [("str", b"a"), ("bytes", "a"), ("bytearray", "a")])
def test_codecs_are_those_of_pickles(function, text, codec):
    kind = refused(dumps(Reduce(Global("builtins", function), (text, codec))))[0]
    assert kind == ("TypeError" if isinstance(codec, tuple) else "LookupError")


def test_a_size_has_few_dimensions_of_64_bits():
    def size(*items):
        return dumps(Reduce(Global("torch", "Size"), (list(items),)))

    assert load(size(2, 3)) == (2, 3)
    assert len(load(size(*[1] * 64))) == 64
    assert refused(size(*[1] * 65))[0] == "MemoryError"
    assert refused(size(2**63)) == ("ValueError", "Overflow when unpacking long long")
    assert refused(size(1, "a")) == ("TypeError", "torch.Size() takes an iterable of 'int' (item 1 is 'str')")


def test_a_handle_is_bytes_and_a_size_a_number():
    def storage(manager, handle, size):
        function = Global("torch.multiprocessing.reductions", "rebuild_storage_filename")
        return dumps(Reduce(function, (Global("torch", "UntypedStorage"), manager, handle, size)))

    for wrong in (
        storage(10**12, b"h", 1),
        storage(b"m", 10**12, 1),
        storage(b"m", b"h" * 5000, 1),
        storage(b"m", b"h", -1),
        storage(b"m", b"h", "1"),
        storage(b"m", b"h", 2**63),
    ):
        assert refused(wrong)[0] == "TypeError"
    assert refused(storage(b"m", b"h", 1))[0] == "RuntimeError"


def test_a_tensor_class_cannot_be_called():
    for name in ("Tensor", "UntypedStorage"):
        assert refused(dumps(Reduce(Global("torch", name), ())))[0] == "TypeError"


def test_an_object_takes_no_attributes_but_its_own():
    made = load(
        dumps(Object(Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"), {"name": "a", "x": 1}))
    )
    assert made.name == "a"
    assert not hasattr(made, "x")
    bad = dumps(Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"))[:-1] + b")\x81](K\x01eb."
    assert refused(bad)[0] == "TypeError"
