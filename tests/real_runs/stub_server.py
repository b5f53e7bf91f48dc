"""Stands for `python -m sglang.launch_server` in tests of the supervisor: its arguments, its log line, a server."""

# ruff: noqa: N815 - names of http.server

import http.server
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing import shared_memory


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        length = int(self.headers.get("content-length") or 0)
        sent = self.rfile.read(length)
        if self.path == "/text":
            self.answer(400, b"Flush cache failed.\n", "text/plain; charset=utf-8")
        elif self.path == "/empty":
            self.answer(200, b"")
        elif self.path == "/stream":
            self.answer(200, b'data: {"a": 1}\n\ndata: [DONE]\n\n', "text/event-stream; charset=utf-8")
        elif self.path == "/die":
            print("Scheduler hit an exception: Traceback", flush=True)
            print("IndexError: list index out of range", flush=True)
            os.killpg(os.getpid(), signal.SIGKILL)
        elif self.path == "/hang":
            time.sleep(60)
        else:
            headers = {key.lower(): value for key, value in self.headers.items()}
            self.answer(200, {"path": self.path, "sent": sent.decode(), "auth": headers.get("authorization")})

    do_POST = do_PUT = do_GET


def child():
    block = shared_memory.SharedMemory(create=True, size=64)
    semaphore = multiprocessing.get_context("spawn").Semaphore()
    print("BLOCK", block.name, semaphore._semlock.name.lstrip("/"), flush=True)
    signal.pause()


def main():
    mode = os.environ.get("STUB_MODE", "")
    if mode == "fail":
        print("ValueError: no such model", flush=True)
        sys.exit(3)
    marker = os.environ.get("STUB_TAKEN_ONCE")
    if marker and not os.path.exists(marker):
        open(marker, "w").close()
        print("OSError: [Errno 98] error while attempting to bind: address already in use", flush=True)
        sys.exit(1)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler)
    if mode != "silent":
        threading.Timer(0.05, lambda: print("The server is fired up and ready to roll!", flush=True)).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
