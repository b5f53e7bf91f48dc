"""SGLang's own test kits against the fake: in an environment of SGLang, and what stands around."""

import json
import os
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.errors import UsageError
from real_runs.upstream import kits, kits_child
from real_runs.upstream.texts import door, letters, tokens

VERSION = os.environ.get("REFITCHECK_REAL", "")
needs_sglang = pytest.mark.skipif(
    not VERSION, reason="runs in an environment of SGLang: name its version in REFITCHECK_REAL"
)


@needs_sglang
def test_every_kit_that_applies_passes():
    ran = kits.run(VERSION)
    assert [one for one in ran if not one.passed] == []
    assert len(ran) >= 6


@needs_sglang
def test_every_kit_of_the_wheel_is_run_or_left_out_with_a_reason():
    _, folder = kits.folder_of(VERSION)
    names = {path.stem for path in folder.iterdir() if not path.name.startswith("__")}
    assert names - set(kits.RUN) - set(kits.LEFT_OUT) == set()


def test_a_version_without_an_environment_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"refitcheck env make 0\.5\.23"):
        kits.run("0.5.23")


def test_the_table_has_what_ran_and_why_the_rest_did_not():
    text = kits.table([kits.Ran("a_kit", "test_a", "passed"), kits.Ran("a_kit", "test_b", "AssertionError: 1 != 2")])
    assert "a_kit                    test_a                           passed" in text
    assert "AssertionError: 1 != 2" in text
    assert all(why in text for why in kits.LEFT_OUT.values())


@pytest.fixture
def echo():
    """Says what it was asked, as a generation's answer; 400 for a text that nobody turned into tokens."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            spoken = isinstance(body.get("text"), str)
            self._say(400 if spoken else 200, {"output_ids": body.get("input_ids"), "asked": body})

        def do_GET(self):
            self._say(200, {"path": self.path})

        def _say(self, status, body):
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as reply:
        return json.load(reply)


def test_the_door_turns_text_into_tokens_and_back_and_leaves_the_rest_alone(echo):
    with door(echo) as url:
        spoken = ask(f"{url}/generate", {"text": "ab", "sampling_params": {}})
        plain = ask(f"{url}/generate", {"input_ids": [1, 2]})
        assert ask(f"{url}/ping?x=1") == {"path": "/ping?x=1"}
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(f"{url}/other", {"text": "ab"})
    assert spoken["asked"] == {"text": None, "input_ids": tokens("ab"), "sampling_params": {}}
    assert spoken["text"] == letters(tokens("ab"))
    assert len(spoken["text"]) == 2
    assert plain["asked"] == {"input_ids": [1, 2]}


def test_the_child_tells_every_test_and_takes_what_a_kit_lets_us_choose(tmp_path, monkeypatch, capsys):
    (tmp_path / "a_kit.py").write_text(
        "class Mixin:\n    many = 1\n"
        "    def test_good(self):\n        self.assertEqual(self.many, 5)\n"
        "    def test_bad(self):\n        self.assertEqual(self.base_url, 'else')\n"
        "    def test_left(self):\n        raise SystemExit\n"
    )
    wanted = json.dumps({"a_kit": {"Mixin": {"many": 5}}})
    monkeypatch.setattr("sys.argv", ["kits_child", str(tmp_path), "http://u", wanted, '["test_left"]'])
    kits_child.main()
    bad, good = map(json.loads, capsys.readouterr().out.splitlines())
    assert good == ["a_kit", "Mixin", "test_good", "passed"]
    assert bad[:3] == ["a_kit", "Mixin", "test_bad"]
    assert bad[3] != "passed"


def test_a_process_is_alive_as_long_as_it_answers(echo):
    assert kits_child.Process(echo).poll() is None
    assert kits_child.Process("http://127.0.0.1:1").poll() == 1
