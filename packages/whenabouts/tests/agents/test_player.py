"""The tools of the player (MCP App), called by the client of the official SDK."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytest.importorskip("fastapi", reason="the extra server is not installed")

from mcp.client import Client
from mcp.client.extension import advertise
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from tests.uncalibrated import uncalibrated

from whenabouts.agents.player import LONGEST_FILM, PICTURES, URI, window
from whenabouts.agents.tools import agent_server
from whenabouts.corpus import Corpus
from whenabouts.index.records import VideoRecord
from whenabouts.server.decoding import Decoders
from whenabouts.types import Moment

SHOWS = advertise(EXTENSION_ID, {"mimeTypes": [APP_MIME_TYPE]})
SHOWS_OTHER = advertise(EXTENSION_ID, {"mimeTypes": ["text/plain"]})
HOSTILE = '<img src=x onerror="hacked()"> lighthouse <script>hacked()</script>'


@pytest.fixture(scope="module")
def place(samples_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("player")
    shutil.copytree(samples_corpus, folder / "c.corpus")
    cue = HOSTILE.replace("<", "&lt;").replace(">", "&gt;")
    (folder / "hostile.vtt").write_text(f"WEBVTT\n\n00:00.000 --> 00:09.000\n{cue}\n", encoding="utf-8")
    with uncalibrated():
        Corpus(folder / "c.corpus").add(folder / "hostile.vtt", processes=1)
    return folder / "c.corpus"


@pytest.fixture(scope="module", autouse=True)
def decoders() -> Iterator[None]:
    """One decoder process for all servers of this file, ended after the last test."""
    kept = Decoders(1)
    with patch("whenabouts.agents.tools.Decoders", return_value=kept):
        yield
    kept.close()


def asked(
    place: Path, work: Callable[[Client], Awaitable[Any]], *, extension: Any = SHOWS, **how: Any
) -> Any:
    async def run() -> Any:
        server = agent_server(lambda: Corpus(place), **how)
        async with Client(server, extensions=[extension] if extension else []) as client:
            return await work(client)

    return asyncio.run(run())


def called(place: Path, name: str, arguments: dict[str, Any], **how: Any) -> dict[str, Any]:
    """The result that the host passes to the player, as sent over the wire."""

    async def work(client: Client) -> dict[str, Any]:
        result = await client.call_tool(name, arguments)
        return json.loads(result.model_dump_json(by_alias=True, exclude_none=True))  # type: ignore[no-any-return]

    return asked(place, work, **how)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_the_player_is_offered_to_clients_that_show_it_and_to_no_other(place: Path) -> None:
    async def names(client: Client) -> dict[str, Any]:
        return {tool.name: tool.meta for tool in (await client.list_tools()).tools}

    offered = asked(place, names)
    assert offered["play"] == {"ui": {"resourceUri": URI}}
    assert offered["film"] == {"ui": {"resourceUri": URI, "visibility": ["app"]}}
    for other in (None, SHOWS_OTHER):
        assert asked(place, names, extension=other).keys() == offered.keys() - {"play", "film"}


@pytest.mark.slow
def test_over_pipes_too(place: Path) -> None:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "whenabouts", "mcp", "--corpus", str(place)], env={**os.environ}
    )

    async def names() -> set[str]:
        async with Client(stdio_client(command), extensions=[SHOWS]) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert {"play", "film"} <= asyncio.run(names())


def test_the_document_is_whole_in_itself(place: Path) -> None:
    async def work(client: Client) -> Any:
        return (await client.read_resource(URI)).contents[0]

    document = asked(place, work)
    assert document.mime_type == APP_MIME_TYPE
    assert not re.search(r"https?:|//[a-z]|@import|<link|innerHTML|insertAdjacent|eval\(", document.text)
    assert "src=" not in re.sub(r"<script>.*?</script>", "", document.text, flags=re.S)


def test_play_gives_words_to_the_model_and_pictures_to_the_player(place: Path) -> None:
    result = called(place, "play", {"moment": "friday@4.3-6"})
    facts = json.loads(result["content"][0]["text"])
    assert "crown jewels" in facts["said"] and "window" not in facts
    shown = result["structuredContent"]
    assert (shown["start"], shown["end"], shown["film"], shown["collect"]) == (4.3, 6.0, True, True)
    assert shown["window"][0] == 2.3 and 6.0 <= shown["window"][1] < 6.3  # the video ends there
    pictures = result["_meta"]["whenabouts/pictures"]
    assert len(pictures) == PICTURES
    assert all(base64.b64decode(each["jpeg"]).startswith(b"\xff\xd8") for each in pictures)
    assert shown["window"][0] < pictures[0]["at"] < pictures[-1]["at"] < shown["window"][1]
    assert len(json.dumps(result["structuredContent"])) < 2000
    assert (
        called(place, "play", {"moment": "friday@1-2"}, scopes=("read",))["structuredContent"]["collect"]
        is False
    )


def test_a_video_that_is_gone_has_words_alone(place: Path) -> None:
    with patch.object(VideoRecord, "is_gone", True):
        result = called(place, "play", {"moment": "friday@4.3-6"})
    shown = result["structuredContent"]
    assert (shown["gone"], shown["film"], result["_meta"]["whenabouts/pictures"]) == (True, False, [])
    assert "crown jewels" in shown["said"]


@pytest.mark.slow
def test_film_gives_the_piece_and_refuses_long_and_unknown_ones(place: Path, tmp_path: Path) -> None:
    import av

    piece = called(place, "film", {"moment": "friday@2-4"})["content"][0]["resource"]
    (tmp_path / "film.mp4").write_bytes(base64.b64decode(piece["blob"]))
    with av.open(str(tmp_path / "film.mp4")) as container:
        assert piece["mimeType"] == "video/mp4" and len(list(container.decode(video=0))) == 60
    assert called(place, "film", {"moment": "nasa_audio_only@1-2"})["content"][0]["resource"]["mimeType"] == (
        "audio/mp4"
    )
    for moment, reason in (
        ("friday@0-61", "at most 60 s"),
        ("nobody@1-2", "nobody"),
        ("hostile@1-2", "transcript"),
    ):
        result = called(place, "film", {"moment": moment})
        assert result["isError"] and reason in result["content"][0]["text"]
        assert str(place) not in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("span", "duration", "shown"),
    [
        ((4.0, 6.0), None, (2.0, 8.0)),
        ((10.0, 30.0), 100.0, (0.0, 40.0)),
        ((0.5, 1.0), 1.2, (0.0, 1.2)),
        ((100.0, 159.0), 1000.0, (99.5, 159.5)),
        ((100.0, 200.0), 1000.0, (100.0, 200.0)),
        ((1.0, 5.0), 4.9, (0.0, 5.0)),
    ],
)
def test_a_window_leaves_room_at_both_borders(
    span: tuple[float, float], duration: float | None, shown: tuple[float, float]
) -> None:
    assert window(Moment("v", *span), duration) == shown
    assert shown[1] - shown[0] <= max(LONGEST_FILM, span[1] - span[0])
