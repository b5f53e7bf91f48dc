"""The table of frameworks, and what every entry of it must have."""

import importlib.util

import pytest

from harness.sut.adapters import suts
from harness.sut.adapters.table import FRAMEWORKS
from harness.sut.protocol import Caps


@pytest.mark.parametrize("name", list(FRAMEWORKS))
def test_every_framework_has_a_driver_an_install_line_and_caps(name):
    framework = FRAMEWORKS[name]
    assert importlib.util.find_spec(f"harness.sut.adapters.drivers.{framework.driver}") is not None
    assert framework.install.startswith(("pip install", "git clone"))
    assert framework.marker.startswith(framework.package.replace(".", "/"))
    assert isinstance(framework.caps, Caps)
    made = getattr(suts, name.replace("-", "_"))()
    assert made.capabilities() == framework.caps
    for method in framework.caps.optional - {"buckets", "setup"}:
        assert callable(getattr(made, method))


def test_no_other_name_is_a_framework():
    with pytest.raises(AttributeError):
        suts.no_such_framework  # noqa: B018  # the access is the test
