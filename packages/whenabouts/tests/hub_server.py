"""A small server with the part of the hub's protocol that downloads of public models need."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

COMMIT = "a" * 40


@dataclass
class Hub:
    """A hub whose only repository has the files of a folder, with faults that tests switch on.

    It records requested paths (`asked`), ranges of files (`ranges`) and access keys (`keys`). Faults: the
    connection breaks `breaks_after` bytes of a weights file, except for range requests; `lies` sends wrong
    bytes; `gated` refuses; `drip` waits seconds after each byte; `busy` first requests get 503;
    `knows_no_ranges` always sends whole files; `elsewhere` is another hub to which it redirects for files.
    `old_name` is the repository's name before it was renamed.
    """

    folder: Path
    repository: str = "own/clip"
    old_name: str = ""
    licence: str | None = "apache-2.0"
    commit: str = COMMIT
    breaks_after: int | None = None
    lies: bool = False
    gated: bool = False
    told_size: int | None = None
    drip: float = 0.0
    busy: int = 0
    knows_no_ranges: bool = False
    elsewhere: str = ""
    keys: list[str | None] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    address: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which the hub's client uses this hub."""
        return {"HF_ENDPOINT": self.address, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0"}

    def described(self) -> dict[str, Any]:
        """The hub's description of the repository."""
        card = {} if self.licence is None else {"cardData": {"license": self.licence}}
        siblings = [self._sibling(file) for file in sorted(self.folder.rglob("*")) if file.is_file()]
        return {
            "id": self.repository,
            "modelId": self.repository,
            "sha": self.commit,
            "siblings": siblings,
        } | card

    def _sibling(self, file: Path) -> dict[str, Any]:
        content = file.read_bytes()
        size = self.told_size if self.told_size and file.suffix == ".safetensors" else len(content)
        blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
        told: dict[str, Any] = {"rfilename": str(file.relative_to(self.folder)), "size": size, "blobId": blob}
        if file.suffix in (".safetensors", ".bin"):
            told["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 130}
        return told


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, format: str, *args: object) -> None:
        self.hub.asked.append(self.path)

    def _answer(self, is_get: bool) -> None:
        hub = self.hub
        path = self.path.partition("?")[0]
        path = path.replace(f"/api/models/{hub.old_name or '-'}", f"/api/models/{hub.repository}")
        hub.keys.append(self.headers.get("Authorization"))
        api, files = f"/api/models/{hub.repository}", f"/{hub.repository}/resolve/{hub.commit}/"
        if path in (
            api,
            *(f"{api}/revision/{name}" for name in ("main", "v1.0", "refs%2Fpr%2F1", hub.commit)),
        ):
            self._send(json.dumps(hub.described()).encode(), "application/json")
        elif path.startswith(f"{api}/tree/{hub.commit}"):
            tree = [
                {"type": "file", "path": told["rfilename"], "size": told["size"], "oid": told["blobId"]}
                for told in hub.described()["siblings"]
            ]
            self._send(json.dumps(tree).encode(), "application/json")
        elif path.startswith(files) and hub.elsewhere:
            self._send(b"", "text/plain", is_get, 302, {"Location": f"{hub.elsewhere}{path}"})
        elif path.startswith(files) and hub.busy:
            hub.busy -= 1
            self._send(b"", "text/plain", is_get, 503)
        elif path.startswith(files) and hub.gated:
            self._send(b"{}", "application/json", is_get, 403, {"X-Error-Code": "GatedRepo"})
        elif path.startswith(files) and (hub.folder / path.removeprefix(files)).is_file():
            self._send_file(hub.folder / path.removeprefix(files), is_get)
        else:
            code = (
                "RevisionNotFound"
                if path.startswith((api, files.rpartition(hub.commit)[0]))
                else "RepoNotFound"
            )
            self._send(b"{}", "application/json", is_get, 404, {"X-Error-Code": code})

    def _send_file(self, file: Path, is_get: bool) -> None:
        hub, content = self.hub, file.read_bytes()
        tag = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        if hub.lies and file.suffix == ".safetensors":
            content = bytes(len(content))
        asked = self.headers.get("Range", "")
        if is_get and asked.startswith("bytes=") and not hub.knows_no_ranges:
            hub.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                self._send(b"", "text/plain", True, 416)
                return
            tag["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._send(content[start:], "application/octet-stream", True, 206, tag)
        elif is_get and hub.breaks_after is not None and file.suffix == ".safetensors":
            self._send(content, "application/octet-stream", False, 200, tag)
            self.wfile.write(content[: hub.breaks_after])
            self.wfile.flush()
            self.close_connection = True
        elif is_get and hub.drip and file.suffix == ".safetensors":
            self._send(content, "application/octet-stream", False, 200, tag)
            with contextlib.suppress(OSError):  # the client has left
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    time.sleep(hub.drip)
        else:
            self._send(content, "application/octet-stream", is_get, 200, tag)

    def _send(
        self,
        body: bytes,
        kind: str,
        whole: bool = True,
        code: int = 200,
        more: dict[str, str] | None = None,
    ) -> None:
        self.send_response(code)
        head = {"Content-Length": str(len(body)), "Content-Type": kind, "X-Repo-Commit": self.hub.commit}
        for name, value in (head | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if whole:
            with contextlib.suppress(OSError):  # the client has left
                self.wfile.write(body)


@contextmanager
def hub_server(folder: Path, **changes: Any) -> Iterator[Hub]:
    """A hub on a free port of this machine, until the block ends."""
    hub = Hub(folder, **changes)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch_from_server(folder: Path, repository: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Download a folder's files from a hub, as a repository, into a cache of the test."""
    from huggingface_hub import constants

    from whenabouts.intake import hub

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub_server(folder, repository=repository) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        whole = f"{running.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", whole)
        hub.fetch(hub.look_up(repository))
