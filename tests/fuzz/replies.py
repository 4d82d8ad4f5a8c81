"""Answers of chat endpoints and hubs by chance: the client names what is wrong, and writes in its cache."""

from __future__ import annotations

import hashlib
import http.server
import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.bytes import damaged
from tests.fuzz.texts import text
from tests.fuzz.trials import Did, many

from whenabouts.intake import hub
from whenabouts.intake.chat import Bounds, Chat, Endpoint, text_part
from whenabouts.types import WhenaboutsError

_COMMIT = "a" * 40
_WEIGHTS = b"\x02\0\0\0\0\0\0\0{}" + bytes(300)
Sent = tuple[int, dict[str, str], bytes]


class _Handler(http.server.BaseHTTPRequestHandler):
    answer: Callable[[str], Sent]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, headers, body = type(self).answer(self.path)
        try:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except (OSError, ValueError, UnicodeError):
            pass
        self.close_connection = True

    do_POST = do_GET  # noqa: N815 (the name that the base class looks for)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Attack:
    """One question to a chat endpoint, or one download from a hub, a trial."""

    def __init__(self, folder: Path) -> None:
        from huggingface_hub import constants

        self._folder, self._cache = folder, folder / "cache"
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._address = f"http://127.0.0.1:{server.server_port}"
        constants.ENDPOINT, constants.HF_HUB_CACHE, constants.HF_HUB_OFFLINE = (
            self._address,
            str(self._cache),
            False,
        )
        constants.HUGGINGFACE_CO_URL_TEMPLATE = (
            f"{self._address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        hub._TRIES, hub._PAUSE_SECONDS = 2, 0.01

    def try_once(self, rng: random.Random) -> Did:
        """Try many."""
        return many(self._one, rng)

    def _one(self, rng: random.Random) -> Did:
        """Ask, and look at what came of it."""
        shutil.rmtree(self._cache, ignore_errors=True)
        is_chat = rng.random() < 0.5
        _Handler.answer = staticmethod(lambda path: _sent(rng, _chat(rng) if is_chat else _hub(rng, path)))
        try:
            if is_chat:
                endpoint = Endpoint(f"{self._address}/v1", "tiny", "a-key")
                schema = rng.choice((None, {"type": "object"}))
                Chat(endpoint, Bounds(2.0, 2), lambda _: None).complete("s", [text_part("x")], schema=schema)
            else:
                hub.fetch(hub.look_up("own/clip"))
            came, findings = "read", []
        except WhenaboutsError as error:
            came, said = "refused", str(error)
            findings = [] if said.isprintable() and "a-key" not in said else [f"says {said!r:.300}"]
        except Exception as error:
            came, findings = "found", [f"{type(error).__name__}: {error}"]
        others = [path for path in self._folder.rglob("*") if self._cache not in (path, *path.parents)]
        findings += [f"wrote {path}" for path in others]
        return Counter({f"{'chat' if is_chat else 'hub'} {came}": 1}), findings


def _sent(rng: random.Random, body: bytes) -> Sent:
    status = rng.choice((200,) * 60 + (206, 204, 301, 302, 304, 400, 401, 404, 416, 429, 500, 503, 999))
    if rng.random() < 0.2:
        body, _ = damaged(body, rng)
    headers = {"Content-Length": str(rng.choice((len(body),) * 8 + (0, 1, len(body) + 9, -1, 10**30)))}
    if rng.random() < 0.3:
        name = rng.choice(
            ("Content-Encoding", "Content-Range", "Retry-After", "Location", "Content-Type", "ETag")
        )
        value = rng.choice(
            ("gzip", "bytes 5-9/3", "1e999", "-5", "http://[", "//x", "Wed, 99 Foo", text(rng, 2))
        )
        headers[name] = value.replace("\n", " ").replace("\r", " ")
    return status, headers, body


def _chat(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        choice: Any = {"message": {"content": text(rng) or "yes"}, "finish_reason": "stop"}
        return _json(rng, {"choices": [choice]})
    message: Any = {"role": "assistant", "content": rng.choice((text(rng), None, 7, [], '{"match": 1}'))}
    reason = rng.choice(("stop", "length", None))
    choice = rng.choice(({"message": message, "finish_reason": reason}, message, [], 7))
    whole: Any = ({"choices": [choice]}, {"choices": choice}, {"error": {"message": text(rng)}}, [])
    return _json(rng, rng.choice(whole))


def _hub(rng: random.Random, path: str) -> bytes:
    if "/resolve/" in path:
        return _WEIGHTS if path.endswith("safetensors") else b"{}"
    digest = hashlib.sha256(_WEIGHTS).hexdigest()
    names = (
        "model.safetensors",
        "config.json",
        rng.choice(("../../x.json", "/x.json", "a/../x.json", text(rng))),
    )
    siblings = [
        {"rfilename": name, "size": rng.choice((len(_WEIGHTS), 2, -1, 1 << 62, "7", None, True, 1.5)),
         "lfs": rng.choice((None, {"sha256": digest}, {"sha256": "../../x"}, {"sha256": 7}, 7)),
         "blobId": rng.choice((None, "../x", "b" * 40, 7))}
        for name in names
    ]  # fmt: skip
    siblings[0].update(rfilename="model.safetensors", size=len(_WEIGHTS), lfs={"sha256": digest}, blobId=None)
    siblings[1].update(size=2, lfs=None, blobId=None)
    described: dict[str, Any] = {
        "id": "own/clip",
        "sha": _COMMIT,
        "siblings": siblings,
        "tags": [],
        "cardData": {"license": text(rng)},
    }
    if rng.random() < 0.5:
        described[rng.choice(sorted(described))] = rng.choice(
            (None, 7, [], {}, text(rng), "../../x", [None], [7])
        )
    return _json(rng, described)


def _json(rng: random.Random, value: Any) -> bytes:
    written = json.dumps(value)
    if rng.random() < 0.1:
        written = rng.choice(("[" * 5000, "9" * 5000, '"\\ud800"', "NaN", "", "\ufeff{}"))
    return written.encode("utf-8", "surrogatepass")
