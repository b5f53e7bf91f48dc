"""The HTTP client, against the stub."""

import pytest

from harness.passage import Request
from real_runs.client import decode
from real_runs.link import HttpLink


@pytest.fixture
def client(server):
    server.start()
    return server.client


def test_json_text_empty_and_stream(client):
    assert client.request("GET", "anything").body["path"] == "/anything"
    assert client.request("GET", "text").body == "Flush cache failed.\n"
    assert client.request("GET", "text").status == 400
    assert client.request("GET", "empty").body is None
    assert client.request("GET", "stream").body == {"stream": [{"a": 1}, "[DONE]"]}


def test_body_raw_query_and_bearer(client):
    assert client.request("POST", "x", {"a": 1}).body["sent"] == '{"a": 1}'
    assert client.request("POST", "x", raw=b"[1, 2").body["sent"] == "[1, 2"
    assert client.request("POST", "x", query={"timeout": "-1"}).body["path"] == "/x?timeout=-1"
    assert client.request("POST", "x", bearer="key").body["auth"] == "Bearer key"
    assert client.request("GET", "x").body["auth"] is None


def test_a_timeout_is_an_outcome(client):
    outcome = client.request("GET", "hang", timeout_s=0.2)

    assert outcome.ending == "timeout"
    assert outcome.status is None


def test_a_background_call_can_be_looked_at_and_joined(client):
    hanging = client.start("GET", "hang", timeout_s=60)

    assert hanging.result(0.05).ending == "timeout"
    assert not hanging.done
    assert client.start("GET", "x").result(300).status == 200


def test_json_that_is_none_is_text():
    assert decode("application/json", b"nonsense") == "nonsense"


def test_a_link_submits_waits_cancels_and_kills(server):
    server.start()
    link = HttpLink(server, lambda: 1.5)
    told = []

    reply = link.submit(Request("x", {"a": 1}), told.append)
    assert reply.wait(300).body["sent"] == '{"a": 1}'
    assert reply.done
    hanging = link.submit(Request("hang", method="GET"))
    assert hanging.wait(0.05).ending == "timeout"
    hanging.cancel()
    assert hanging.wait(300).ending == "dropped"
    assert link.now() == 1.5
    link.kill()
    assert link.submit(Request("x")).wait(300).ending == "refused"
    link.spawn(lambda: None)()
    assert [outcome.status for outcome in told] == [200]


def test_what_a_spawned_thread_raises_is_raised_by_its_join(server):
    join = HttpLink(server, lambda: 0.0).spawn(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        join()
