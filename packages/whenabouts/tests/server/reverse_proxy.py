"""A small reverse proxy that keeps or strips a path prefix, as nginx and Caddy can."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_OWN = {"connection", "keep-alive", "transfer-encoding", "host"}


@contextmanager
def proxied(port: int, prefix: str, *, strip: bool, forwarded: Mapping[str, str] = {}) -> Iterator[str]:
    """The address under which the server at `port` can be reached; all other paths answer 404.

    It says in X-Forwarded-Host by which name it was asked; `forwarded` are headers that it sets besides.
    """

    class Handler(BaseHTTPRequestHandler):
        """Passes each request on to the server."""

        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            beneath = self.path == prefix or self.path.startswith((f"{prefix}/", f"{prefix}?"))
            if not beneath:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path = (self.path[len(prefix) :] or "/") if strip and self.path != prefix else self.path
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
            asked_by = {"Host": f"127.0.0.1:{port}", "X-Forwarded-Host": self.headers["Host"]}
            headers = {**headers, **asked_by, **forwarded}
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request(self.command, path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
            except (OSError, HTTPException):
                self.send_error(502)
                return
            finally:
                connection.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _OWN | {"content-length", "date"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PATCH = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{prefix}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
