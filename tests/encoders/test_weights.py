"""Where weights come from: the hub (a small server that answers as it does), its cache, and hashes."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whenabouts.encoders import _weights

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMIT = "a" * 40
OPEN = """
from whenabouts.encoders import EncoderUnavailable, open_image_encoder
try: print(open_image_encoder({name!r}).fingerprint)
except EncoderUnavailable as error: print("REFUSED", error)
"""


class _Hub(http.server.BaseHTTPRequestHandler):
    """The part of the hub's protocol that downloads of a public model need."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def log_message(self, format: str, *args: object) -> None:
        self.asked.append(self.path)

    def _answer(self, whole: bool) -> None:
        files = sorted(self.folder.iterdir())
        path = self.path.partition("?")[0]
        wanted = self.folder / Path(path).name
        if path.startswith(f"/api/models/own/clip/tree/{COMMIT}"):
            tree = [
                {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40} for f in files
            ]
            self._send(json.dumps(tree).encode(), "application/json")
        elif path.startswith("/api/models/own/clip/revision/main"):
            info = {"id": "own/clip", "sha": COMMIT, "siblings": [{"rfilename": f.name} for f in files]}
            self._send(json.dumps(info).encode(), "application/json")
        elif path.startswith(f"/own/clip/resolve/{COMMIT}/") and wanted.is_file():
            self._send(wanted.read_bytes(), "application/octet-stream", whole)
        else:
            self._send(b"{}", "application/json", whole, code=404)

    def _send(self, body: bytes, kind: str, whole: bool = True, code: int = 200) -> None:
        self.send_response(code)
        for name, value in {
            "Content-Length": str(len(body)), "Content-Type": kind, "X-Repo-Commit": COMMIT,
            "ETag": f'"{hashlib.sha256(body).hexdigest()}"',
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if whole:
            self.wfile.write(body)


@pytest.fixture
def hub(clip_folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for."""
    asked: list[str] = []
    handler = type("Hub", (_Hub,), {"folder": clip_folder, "asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_a_hub_name_is_downloaded_once_and_then_opens_offline(
    hub: tuple[str, list[str]], fresh_python: Run, tmp_path: Path
) -> None:
    address, asked = hub
    where = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1"}
    first = fresh_python(OPEN.format(name="own/clip"), **where)
    assert first.stdout.startswith("clip model=CLIPModel"), first.stdout + first.stderr
    assert first.stderr == ""
    asked.clear()
    for mode in ("0", "1"):
        again = fresh_python(OPEN.format(name="own/clip@main"), **where, HF_HUB_OFFLINE=mode)
        assert again.stdout == first.stdout
    assert not [path for path in asked if "own" in path]


@pytest.mark.parametrize(("name", "reason"), [("own/none", "404"), ("own/clip@v9", "404")])
def test_what_the_hub_has_not_is_refused_with_its_answer(
    hub: tuple[str, list[str]], fresh_python: Run, tmp_path: Path, name: str, reason: str
) -> None:
    done = fresh_python(OPEN.format(name=name), HF_ENDPOINT=hub[0], HF_HOME=str(tmp_path))
    assert done.stdout.startswith(f"REFUSED {name}: "), done.stderr
    assert reason in done.stdout
    assert "give its path instead" in done.stdout


@pytest.mark.parametrize("offline", ["0", "1"])
def test_no_network_is_said_plainly(fresh_python: Run, tmp_path: Path, offline: str) -> None:
    where = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": offline}
    done = fresh_python(OPEN.format(name="openai/clip-vit-base-patch32"), **where)
    assert done.stdout.startswith("REFUSED openai/clip-vit-base-patch32: its weights are not on this machine")


def test_a_hash_is_computed_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHENABOUTS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    assert _weights.weights_hash([file]) == hashlib.sha256(b"one").hexdigest()
    (note,) = (tmp_path / "cache" / "weights").iterdir()
    note.write_text("f" * 64)
    assert _weights.weights_hash([file]) == "f" * 64, "the note is used"
    note.write_text("half a no")
    assert _weights.weights_hash([file]) == hashlib.sha256(b"one").hexdigest(), "a damaged note is not"
    file.write_bytes(b"other")
    assert _weights.weights_hash([file]) == hashlib.sha256(b"other").hexdigest()


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WHENABOUTS_CACHE", str(tmp_path / "file"))
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    assert _weights.weights_hash([file]) == hashlib.sha256(b"one").hexdigest()


def test_several_files_have_one_hash_that_depends_on_each(tmp_path: Path) -> None:
    files = [tmp_path / f"model-{part}.safetensors" for part in (1, 2)]
    for file in files:
        file.write_bytes(file.name.encode())
    before = _weights.weights_hash(files)
    files[1].write_bytes(b"changed in the second")
    assert _weights.weights_hash(files) != before
