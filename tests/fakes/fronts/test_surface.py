"""FastAPI's part: what is answered is the core's word for word, and around it is what SGLang's own server has."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from fakes.engine.core import EngineCore
from fakes.engine.profiles import ORDER, PROFILES
from fakes.engine.protocol import EngineConfig
from fakes.engine.routes import routes
from fakes.fronts.http import HttpFront
from fakes.fronts.inprocess import Server
from fakes.tiny import tiny_config, tiny_weights
from fakes.world import World

CONFIG = tiny_config("llama", False, "bfloat16")
WEIGHTS = tiny_weights(CONFIG, 0)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
KEYS = {"api_key": "user", "admin_api_key": "admin"}


def over_http(config, ask, scale=0.001):
    """What `ask(client)` gives, with the application of one fresh engine on a fast clock."""

    async def main():
        front = HttpFront(EngineCore(config, WEIGHTS, CONFIG), config, scale=scale)
        front.start()
        transport = httpx.ASGITransport(front.application())
        async with httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=60) as client:
            return await ask(client)

    return asyncio.run(main())


def headers(bearer, **more):
    return {**({} if bearer is None else {"Authorization": f"Bearer {bearer}"}), **more}


@pytest.mark.parametrize("bearer", [None, "wrong", "user", "admin"])
@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.20", "miles", "0.5.23"])
def test_in_process_and_over_http_are_answered_alike(version, bearer):
    """Every path with and without a slash too many, every method; bodies that are no JSON, so that nothing acts."""
    config = EngineConfig(profile=version, health_generation=False, **KEYS)
    paths = [*routes(PROFILES[version]), "/no/such/route", "/healthy", "/generate/", "/model_info/"]
    asked = [(method, path) for path in paths for method in METHODS]
    asked.remove(("GET", "/health_generate"))  # its verdict is a matter of seconds, which are too short here

    async def ask(client):
        found = {}
        for method, path in asked:
            reply = await client.request(method, path, content=b"{", headers=headers(bearer) | JSON)
            media = reply.headers.get("content-type", "")
            body = reply.json() if media == "application/json" and reply.content else reply.text or None
            found[method, path] = (reply.status_code, body)
        return found

    over = over_http(config, ask)
    with World() as world:
        server = Server(world, world.add_engine("e0", config, WEIGHTS, CONFIG))
        for method, path in asked:
            here = server.request(method, path, content=b"{", bearer=bearer)
            said = here.body if method != "HEAD" else None  # HTTP leaves it out
            there = over[method, path]
            if path == "/get_load" and here.status == 200:  # its time is that of another clock
                there, said = (there[0], [load | {"ts_tic": 0} for load in there[1]]), [said[0] | {"ts_tic": 0}]
            assert there == (here.status, said), (method, path)
    assert {status for status, _ in over.values()} >= {200, 401, 405} if bearer != "user" else True


JSON = {"Content-Type": "application/json"}


def test_a_wrong_method_is_told_the_right_ones():
    async def ask(client):
        return await client.delete("/generate"), await client.head("/model_info"), await client.get("/flush_cache/x")

    generate, head, unknown = over_http(EngineConfig(), ask)
    assert (generate.status_code, set(generate.headers["allow"].split(", "))) == (405, {"POST", "PUT"})
    assert (head.status_code, head.headers["allow"]) == (405, "GET")
    assert (unknown.status_code, unknown.json()) == (404, {"detail": "Not Found"})


def test_a_slash_too_many_is_redirected_to_the_same_host():
    async def ask(client):
        return await client.post("/begin_weight_update/", json={}), await client.get("/no/such/")

    begin, unknown = over_http(EngineConfig(), ask)
    assert (begin.status_code, begin.headers["location"]) == (307, "http://engine/begin_weight_update")
    assert unknown.status_code == 404


def test_any_origin_may_ask_as_sglang_lets_it():
    origin = {"Origin": "http://page"}

    async def ask(client):
        wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-y"}
        preflight = await client.options("/generate", headers=origin | wanted)
        return preflight, await client.get("/model_info", headers=origin), await client.get("/model_info")

    preflight, asked, plain = over_http(EngineConfig(), ask)
    assert (preflight.status_code, preflight.text) == (200, "OK")
    assert preflight.headers["access-control-allow-origin"] == "http://page"
    assert preflight.headers["access-control-allow-headers"] == "x-y"
    assert asked.headers["access-control-allow-origin"] in ("*", "http://page")  # by Starlette's version
    assert asked.headers["access-control-allow-credentials"] == "true"
    assert "access-control-allow-origin" not in plain.headers


def test_keys_are_asked_for_before_anything_else():
    async def ask(client):
        cross = {"Origin": "http://page", "Access-Control-Request-Method": "POST"}
        refused = await client.get("/openapi.json", headers={"Origin": "http://page"})
        granted = await client.get("/openapi.json", headers=headers("user"))
        return refused, granted, await client.options("/generate", headers=cross)

    refused, granted, preflight = over_http(EngineConfig(**KEYS), ask)
    assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})
    assert "access-control-allow-origin" not in refused.headers
    assert (granted.status_code, preflight.status_code) == (200, 200)


@pytest.mark.parametrize("version", ORDER)
def test_the_documents_are_where_sglang_has_them(version):
    async def ask(client):
        pages = [await client.get(path) for path in ("/openapi.json", "/docs", "/redoc", "/docs/oauth2-redirect")]
        return [*pages, await client.head("/docs")]

    document, *pages = over_http(EngineConfig(profile=version), ask)
    paths = {
        path: sorted(method.upper() for method in operations) for path, operations in document.json()["paths"].items()
    }
    assert paths == {path: sorted(route.methods) for path, route in routes(PROFILES[version]).items()}
    assert [page.status_code for page in pages] == [200, 200, 200, 200]
    assert "/openapi.json" in pages[0].text


@pytest.mark.parametrize(
    ("media", "taken"),
    [("application/json; charset=utf-8", True), ("application/x+json", True), ("text/plain", False), ("", False)],
)
def test_a_body_is_json_only_if_its_content_type_says_so(media, taken):
    async def ask(client):
        body = json.dumps({"mode": "retract"}).encode()
        return await client.post("/pause_generation", content=body, headers={"Content-Type": media} if media else {})

    reply = over_http(EngineConfig(), ask)
    assert reply.status_code == (200 if taken else 400)
    if not taken:
        assert "Input should be" in reply.json()["message"]


def test_a_route_that_only_sglang_has_is_told_in_the_log(capsys):
    async def ask(client):
        return await client.post("/v1/chat/completions", json={}), await client.get("/nothing")

    replies = over_http(EngineConfig(), ask)
    assert [reply.status_code for reply in replies] == [404, 404]
    said = capsys.readouterr().err
    assert said.startswith("refitcheck: POST /v1/chat/completions: SGLang 0.5.23 answers this, the fake does not: ")
    assert said.count("\n") == 1


def test_text_that_json_cannot_carry_is_an_error_of_the_server_not_a_broken_one():
    """Half a surrogate pair, which json.loads takes and no encoder gives back (0.5.12.post1 still used json.loads)."""

    async def ask(client):
        body = b'{"new_version": "\\ud800", "abort_all_requests": false}'
        update = await client.post("/update_weight_version", content=body, headers=JSON)
        return update, await client.get("/model_info")

    update, info = over_http(EngineConfig(profile="0.5.12.post1"), ask)
    assert (update.status_code, update.text) == (500, "Internal Server Error")
    assert info.status_code == 500
