"""A small chat server that answers as chat endpoints do, or wrongly on request."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """The answer to a request: status, body and headers; `drip` is the seconds between two bytes."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drip: float = 0.0
    hangs: bool = False
    breaks: bool = False


def says(text: str | None, **choice: Any) -> Reply:
    """An answer with a text, in OpenAI's format."""
    message = {"role": "assistant", "content": text}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}]}
    return Reply(json.dumps(body).encode())


Answer = Callable[[dict[str, Any]], Reply]


@dataclass
class ChatServer:
    """Records requests, and answers them with `answer`, which may be replaced at any time."""

    answer: Answer
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    port: int = 0
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        """The address with the model, for `Endpoint.parse`."""
        return f"http://127.0.0.1:{self.port}/v1#tiny"


class _Handler(http.server.BaseHTTPRequestHandler):
    own: ChatServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.own.paths.append(self.path)
        self.own.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.own.requests.append(json.loads(body))
        reply = self.own.answer(self.own.requests[-1])
        if reply.hangs:
            self.own.gone.wait(30)
            return
        try:
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if reply.breaks:
                self.wfile.write(reply.body[: len(reply.body) // 2])
                self.close_connection = True
                return
            if not reply.drip:
                self.wfile.write(reply.body)
            for at in range(len(reply.body) if reply.drip else 0):
                self.wfile.write(reply.body[at : at + 1])
                self.wfile.flush()
                if self.own.gone.wait(reply.drip):
                    return
        except OSError:
            return  # the client has left

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def chat_server(answer: Answer | Reply) -> Iterator[ChatServer]:
    """A server on a free port of this machine, until the block ends."""
    own = ChatServer(answer if callable(answer) else lambda _: answer)
    handler = type("Handler", (_Handler,), {"own": own})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    own.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield own
    finally:
        own.gone.set()
        server.shutdown()
        thread.join()
        server.server_close()
