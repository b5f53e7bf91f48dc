"""A stub server, and a recorder in front of it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from harness.history_files import read_history
from real_runs.recording.keeping import Keeping
from real_runs.recording.serving import Plan, Recorder


class Stub:
    """Answers with what `answer(handler, body)` does; by default 200 {"success": true}. Keeps what it was asked."""

    def __init__(self, port=0):
        self.seen = []
        self.answer = lambda handler, body: reply(handler, 200, b'{"success": true}')
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                body = self.whole()
                outer.seen.append((self.command, self.path, {n.lower(): v for n, v in self.headers.items()}, body))
                outer.answer(self, body)

            def whole(self):
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length", 0)))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            do_GET = do_POST = do_PUT = do_HEAD = handle_one  # noqa: N815 - names of http.server

            def log_message(self, *args):
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def reply(handler, status, body, media="application/json", **headers):
    handler.send_response(status)
    for name, value in {"Content-Type": media, "Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


class Stage:
    """`call(op, ...)` goes through the recorder; `history()` ends it."""

    def __init__(self, out, stubs=1, **plan):
        self.stubs = [Stub() for _ in range(stubs)]
        self.said = []
        keeping = Keeping(tokens=plan.pop("tokens", False), keys=plan.pop("keys", False))
        urls = tuple(stub.url for stub in self.stubs)
        self.plan = Plan(urls, "0.5.23", 2, out, keeping=keeping, **plan)
        self.recorder = Recorder(self.plan, self.said.append)
        self.client = httpx.Client(timeout=60, trust_env=False)

    @property
    def url(self):
        return self.recorder.urls[0]

    def call(self, op, body=None, engine=0, **options):
        return self.client.post(f"{self.recorder.urls[engine]}/{op}", json=body or {}, **options)

    def history(self):
        self.close()
        return read_history(self.plan.out)

    def close(self):
        self.client.close()
        self.recorder.close()
        for stub in self.stubs:
            stub.stop()
        self.stubs = []
