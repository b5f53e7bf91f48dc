"""The lists name for name: counts and digests of what the wheels hold (read from 0.5.12.post1, 0.5.17, 0.5.21 and
0.5.23)."""

from __future__ import annotations

import hashlib

import pytest

from fakes.engine.allowlist import ALLOW_LISTS, EXACT200, EXACT202, PREFIX30, PREFIX33


def digest(items):
    return hashlib.sha256("\n".join(sorted(items)).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("allow", "count", "expected"),
    [
        (EXACT200, 200, "343ca84e8b721bd2"),
        (EXACT202, 202, "c13955108e759723"),
        (PREFIX30, 30, "f6c41cbecccf11ce"),
        (PREFIX33, 33, "3ebd12b13054bc5f"),
    ],
    ids=lambda value: getattr(value, "key", ""),
)
def test_the_lists_are_the_wheels_lists(allow, count, expected):
    items = [f"{module}.{name}" for module, name in allow.exact] or list(allow.prefixes)
    assert (len(items), digest(items)) == (count, expected)


def test_only_the_newest_admits_what_it_added():
    for module, name in (("torch", "bcomplex32"), ("sglang.srt.multimodal.modality", "Modality")):
        assert EXACT202.admits(module, name)
        assert not EXACT200.admits(module, name)


def test_prefixes_match_whole_module_names():
    assert PREFIX30.admits("torch", "anything")
    assert PREFIX30.admits("torch.nn.functional", "anything")
    assert not PREFIX30.admits("torchvision", "anything")
    assert not PREFIX30.admits("sglang.srt.managers.io_struct", "GenerateReqInput")
    assert PREFIX33.admits("sglang.srt.managers.io_struct", "GenerateReqInput")


def test_numpy_arrays_travel_in_no_version():
    for allow in ALLOW_LISTS.values():
        assert not allow.admits("numpy.core.multiarray", "_reconstruct")


def test_names_that_old_trainers_pickle_are_refused_from_0_5_21():
    for module, name in (("builtins", "getattr"), ("torch.distributed.tensor", "DTensor"), ("peft", "LoraConfig")):
        assert PREFIX33.admits(module, name)
        assert not EXACT200.admits(module, name)
