"""`whenabouts models`: the list, and downloads from a small hub; no other command downloads."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.cli.commands import Whenabouts
from tests.hub_server import COMMIT, Hub, hub_server

from whenabouts import plugins
from whenabouts.cli.main import main


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    with hub_server(folder) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        whole = f"{running.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", whole)
        yield running


@pytest.mark.slow
def test_the_list_says_what_each_model_is_for_and_whether_it_is_here(bare: Whenabouts) -> None:
    models = {model["name"]: model for model in bare("models", "list").json}
    minilm = models["minilm"]
    assert (minilm["from"], minilm["installed"], minilm["licence"]) == ("package", True, "MIT")
    assert minilm["megabytes"] == pytest.approx(91.6, abs=2)
    assert models["Systran/faster-whisper-small"]["alias"] == "small"
    assert all(model["purpose"] for model in models.values())
    assert "Systran/faster-whisper-small (small)" in bare("models", "list", "--table").out


def test_of_what_is_not_here_nothing_is_claimed(bare: Whenabouts) -> None:
    absent = [model for model in bare("models", "list").json if not model["installed"]]
    assert {"Systran/faster-whisper-small", "openai/clip-vit-base-patch32"} <= {m["name"] for m in absent}
    assert {(model["megabytes"], model["licence"], model["revision"]) for model in absent} == {(None,) * 3}
    lines = bare("models", "list", "--table").out.splitlines()
    assert not [line for line in lines if line.startswith("-") and "MB" in line]
    assert "`whenabouts models get NAME` shows both" in lines[-1]


def test_what_a_model_is_is_shown_before_anything_is_downloaded(bare: Whenabouts, server: Hub) -> None:
    done = bare("models", "get", "own/clip")
    assert done.code == 2
    for fact in ("0.0 MB in 2 files", "licence   apache-2.0", f"revision  {COMMIT}", "sha256 ", "give --yes"):
        assert fact in done.err
    assert not [path for path in server.asked if "resolve" in path]


def test_with_a_yes_it_is_fetched_once(bare: Whenabouts, server: Hub) -> None:
    done = bare("models", "get", "own/clip", "--yes")
    assert done.code == 0, done.err
    assert (Path(done.json["folder"]) / "model.safetensors").read_bytes() == b"weights"
    assert done.json["revision"] == COMMIT
    (listed,) = [model for model in bare("models", "list").json if model["name"] == "own/clip"]
    assert (listed["installed"], listed["revision"], listed["licence"]) == (True, COMMIT, "apache-2.0")
    assert listed["megabytes"] == 0.0  # of nine bytes
    server.asked.clear()
    again = bare("models", "get", "own/clip")
    assert (again.code, again.err) == (0, "")
    assert not [path for path in server.asked if "resolve" in path]


def test_on_a_terminal_a_bar_is_shown_for_each_file(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["models", "get", "own/clip", "--yes"]) == 0
    shown = screen.getvalue()
    assert "model.safetensors" in shown
    assert "7/7 bytes" in shown


def test_only_the_files_that_are_named_are_fetched(bare: Whenabouts, server: Hub) -> None:
    done = bare("models", "get", "own/clip", "--yes", "--file", "config.json")
    assert done.code == 0, done.err
    assert [path.name for path in Path(done.json["folder"]).iterdir()] == ["config.json"]


def test_a_licence_that_is_not_stated_is_said_loudly(bare: Whenabouts, server: Hub) -> None:
    server.licence = None
    assert "NOT STATED" in bare("models", "get", "own/clip").err


def test_offline_says_in_one_line_whether_it_is_here(bare: Whenabouts, server: Hub) -> None:
    done = bare("models", "get", "own/clip", "--offline")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "not on this machine" in done.err
    assert server.asked == []
    bare("models", "get", "own/clip", "--yes")
    server.asked.clear()
    assert bare("models", "get", "own/clip", "--offline").code == 0
    assert server.asked == []


def test_a_model_that_the_hub_renamed_is_named_as_it_is_now(bare: Whenabouts, server: Hub) -> None:
    server.old_name = "old/clip"
    done = bare("models", "get", "old/clip", "--yes")
    assert (done.code, done.json["name"]) == (0, "own/clip")
    assert "the hub calls old/clip own/clip now; use that name" in done.err
    assert bare("models", "get", "own/clip", "--offline").code == 0


def test_a_packaged_model_and_a_name_that_is_none(bare: Whenabouts) -> None:
    assert bare("models", "get", "minilm").code == 0
    for name in ("../etc", ""):
        done = bare("models", "get", name)
        assert (done.code, "not a model's name" in done.err) == (2, True)


def test_doctor_and_the_list_open_no_connection(
    whenabouts: Whenabouts, bare: Whenabouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert whenabouts("doctor").code == 0
    assert bare("models", "list").code == 0
    if plugins.entries("moment_finders"):
        done = whenabouts("search", "a beetle", "--model", "owner/model")
        assert (done.code, "whenabouts models get owner/model" in done.err) == (2, True)
    done = whenabouts("index", "nowhere.mp4", "--vision", "owner/model")
    assert done.code == 2
