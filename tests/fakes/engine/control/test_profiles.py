"""Profiles, messages, routes: data that must be whole, and say where it comes from."""

import msgspec
import pytest

from fakes.engine.engine_profile import EngineProfile
from fakes.engine.messages import catalogue
from fakes.engine.profiles import ORDER, PROFILES, UnknownVersion, profile
from fakes.engine.requests import structs
from fakes.engine.routes import routes
from tests.fakes.engine.control.driver import Driver

VERSIONS = ("0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "miles", "0.5.21", "0.5.22", "0.5.23")


def test_the_versions() -> None:
    assert ORDER == VERSIONS
    assert profile("v0.5.23") is PROFILES["0.5.23"]
    with pytest.raises(UnknownVersion, match=r"^unknown engine version '0\.6'; known: 0\.5\.12\.post1, 0\.5\.17"):
        profile("0.6")


@pytest.mark.parametrize("version", ORDER)
def test_every_entry_has_its_source(version: str) -> None:
    found = PROFILES[version]
    fields = {field.name for field in msgspec.structs.fields(EngineProfile)} - {"sources"}
    assert set(found.sources) == fields
    for name, source in found.sources.items():
        assert "@" in source or source.startswith(("observed:", "inferred:", "PyPI", "sgl-project")), (name, source)


def test_every_message_has_versions_a_channel_and_a_source() -> None:
    for name, message in catalogue().items():
        assert message.text, name
        assert set(message.versions) <= set(ORDER), name
        assert message.versions, name
        assert message.source, name
        assert bool(message.type) == (message.channel == "raise"), name


@pytest.mark.parametrize("version", ORDER)
def test_routes_name_structs_and_handlers_that_exist(version: str) -> None:
    engine = Driver(version)
    bodies = structs(PROFILES[version])
    for route in routes(PROFILES[version]).values():
        assert route.line > 0
        assert route.body is None or route.body == "GenerateReqInput" or route.body in bodies
        assert route.handler == "generate" or route.handler in engine.core._controls.handlers


def test_routes_by_version() -> None:
    paths = {version: set(routes(PROFILES[version])) for version in ORDER}
    assert paths["0.5.23"] - paths["0.5.20"] == {"/begin_weight_update", "/end_weight_update"}
    assert paths["0.5.20"] - paths["0.5.23"] == {"/get_weight_version", "/weight_version", "/get_load"}
    assert paths["0.5.20"] - paths["0.5.19"] == {"/ready"}
    assert paths["miles"] - paths["0.5.19"] == {"/begin_weight_update", "/end_weight_update"}
