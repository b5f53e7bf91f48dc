"""/openapi.json against the documents of real servers: routes, methods, parameters, fields, types, defaults, required.

`openapi.json.xz` holds what eight real servers answered, by version, without descriptions. What the fake does not have
is listed with reasons in `fakes/fronts/unmodelled.toml`; everything else is equal.
"""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path

import pytest

from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.routes import routes
from fakes.fronts.openapi import schema_of
from fakes.fronts.unmodelled import unmodelled

REAL = Path(__file__).with_name("openapi.json.xz")
VERSIONS = [version for version in ORDER if version != "miles"]  # no document of miles: nobody could start it


@functools.cache
def real():
    return json.loads(lzma.decompress(REAL.read_bytes()))


@functools.cache
def document(version):
    from fakes.fronts.app import application

    profile = PROFILES[version]
    return json.loads(json.dumps(application(profile, routes(profile), None, None).openapi()))


def bare(operations):
    """An operation id names one of a route's methods, whichever comes first in a set: no two servers agree."""
    return {method: {**operation, "operationId": None} for method, operation in operations.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_route_of_the_real_server_is_there_or_listed_with_its_reason(version):
    missing = unmodelled(version)
    assert set(real()[version]["paths"]) == set(document(version)["paths"]) | set(missing)
    assert not set(document(version)["paths"]) & set(missing)
    assert all(missing.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_methods_parameters_and_bodies_are_those_of_the_real_server(version):
    for path, operations in document(version)["paths"].items():
        theirs = real()[version]["paths"][path]
        assert bare(operations) == bare(theirs), path
        if len(operations) == 1:
            assert operations == theirs, path


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_types_defaults_and_required_are_those_of_the_real_server(version):
    theirs = real()[version]["components"]["schemas"]
    ours = document(version)["components"]["schemas"]
    assert "GenerateReqInput" in ours
    for name, schema in ours.items():
        assert schema == theirs[name], name


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_come_in_the_real_servers_order(version):
    """The order in which pydantic lists errors; of /generate, only in the latest version."""
    for name, schema in document(version)["components"]["schemas"].items():
        if name != "GenerateReqInput" or version == VERSIONS[-1]:
            theirs = real()[version]["components"]["schemas"][name]
            assert list(schema.get("properties", ())) == list(theirs.get("properties", ())), name


def test_every_reference_of_the_document_has_its_schema():
    for version in ORDER:
        text = json.dumps(document(version))
        for name in set(text.split("#/components/schemas/")[1:]):
            assert name.split('"')[0] in document(version)["components"]["schemas"]


def test_types_are_read_from_their_notation():
    assert schema_of("list[dict[str, int] | None]") == {
        "items": {"anyOf": [{"additionalProperties": {"type": "integer"}, "type": "object"}, {"type": "null"}]},
        "type": "array",
    }
    assert schema_of("bool | 'a'") == {"anyOf": [{"type": "boolean"}, {"type": "string", "const": "a"}]}
    assert schema_of("'a' | None | 'b'") == {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]}
    assert schema_of("dict[K, Any]")["propertyNames"] == {"$ref": "#/components/schemas/K"}
