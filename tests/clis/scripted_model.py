#!/usr/bin/env python3
"""A model that follows a script, behind a loopback HTTP server.

    scripted_model.py --script S.json [--port N] [--log FILE] [--set NAME=VALUE ...]

Speaks `/v1/messages` (Claude Code), `/v1/responses` (Codex) and `/v1/chat/completions`
(opencode). The script's form is told in playbook.py. `GET /verdict` gives the account so
far; on SIGTERM or SIGINT the server ends, prints it and exits 0 or 1. `run` uses this
module in its own process instead.
"""

import argparse
import json
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

sys.dont_write_bytecode = True

import dialects  # noqa: E402
from playbook import Playbook, ScriptError, Use  # noqa: E402


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _reply(self, kind, payload, status=200):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _json(self, value, status=200):
        self._reply(dialects.JSON, json.dumps(value).encode(), status)

    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/verdict":
            return self._json(self.server.playbook.verdict())
        return self._json({"object": "list", "data": [], "models": []})

    do_HEAD = do_GET

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        if path.endswith("/count_tokens"):
            return self._json({"input_tokens": 1})
        dialect = dialects.for_path(path)
        if dialect is None:
            return self._json({"error": {"type": "not_found_error", "message": path}}, 404)
        try:
            ask = dialect.read(json.loads(raw))
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            return self._json({"error": {"type": "invalid_request_error", "message": repr(e)}}, 400)
        where, moves = self.server.playbook.answer(ask)
        self.server.note(path, where, ask, moves)
        return self._reply(*dialect.write(ask, moves))


class ScriptedModel(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, playbook, port=0, log=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.playbook = playbook
        self._log = open(log, "w", encoding="utf-8") if log else None
        self._writing = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A CLI that hangs up in the middle of an answer is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def note(self, path, where, ask, moves):
        """One line a request: what was offered, what came back, what was answered."""
        if self._log is None:
            return
        answer = [{"call": m.tool.plain, "args": m.args} if isinstance(m, Use) else {"text": m.text} for m in moves]
        line = {"time": round(time.time(), 3), "path": path, "where": where,
                "offered": [t.plain for t in ask.tools],
                "results": [{"id": o.call_id, "text": o.text} for o in ask.outcomes], "answer": answer}
        with self._writing:
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    def start(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def stop(self):
        self.shutdown()
        self.server_close()
        if self._log:
            self._log.close()
            self._log = None


def variables(pairs):
    """NAME=VALUE arguments as a dict."""
    for pair in pairs:
        if "=" not in pair:
            raise ScriptError(f"--set {pair}: NAME=VALUE is wanted")
    return dict(pair.split("=", 1) for pair in pairs)


def main():
    p = argparse.ArgumentParser(description="A model that follows a script.")
    p.add_argument("--script", required=True)
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--log")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    opt = p.parse_args()
    done = threading.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: done.set())
    try:
        model = ScriptedModel(Playbook.read(opt.script, variables(opt.set)), opt.port, opt.log).start()
    except ScriptError as e:
        p.error(str(e))
    print(model.url, flush=True)
    done.wait()
    model.stop()
    verdict = model.playbook.verdict()
    print(json.dumps(verdict))
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
