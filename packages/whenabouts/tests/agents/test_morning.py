"""The task of `server/page/test_morning.py`, done by an agent: from a folder to a list, a film and a link."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytest.importorskip("fastapi", reason="the extra server is not installed")

from mcp.client import Client
from tests.agents.test_mcp import INJECTION, asked, configured, text

PAGE = "http://127.0.0.1:8765/"
CALLS_TO_A_FILM = 6
CALLS = 18


class Agent:
    """Counts the calls of an agent, without repeated questions about a running job."""

    def __init__(self, client: Client) -> None:
        self.client, self.calls = client, 0

    async def call(self, tool: str, **arguments: Any) -> Any:
        self.calls += 1
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return text(result) if result.structured_content is None else result.structured_content

    async def job(self, job: str, do: str) -> Any:
        state = await self.call("job", job=job, do=do, wait=50)
        while state["state"] in ("waiting", "running"):
            state = (await self.client.call_tool("job", {"job": job, "wait": 50})).structured_content
        return state


@pytest.fixture
def folder(samples: Path, tmp_path: Path) -> Path:
    """The samples, and a transcript with instructions to the agent in its words and its name."""
    folder = tmp_path / "videos"
    shutil.copytree(samples, folder)
    hostile = folder / f"{INJECTION}.vtt"
    hostile.write_text(f"WEBVTT\n\n00:00.000 --> 00:09.000\n{INJECTION}. Lighthouse lamp.\n", "utf-8")
    return folder


@pytest.mark.slow
def test_a_morning_of_an_agent(folder: Path, tmp_path: Path) -> None:
    """6 calls from a folder to a cut film, 18 in all."""
    place, out = tmp_path / "c.corpus", tmp_path / "clips"
    start = configured(place, "--allow", str(folder), "--out", str(out), "--page", PAGE)

    async def work(client: Client) -> str:
        agent = Agent(client)
        listed = await agent.call("list_folder")
        planned = await agent.call("add_videos", places=[listed["entries"][0]["place"]])
        assert (planned["state"], planned["plan"]["new"]) == ("planned", 9)
        done = await agent.job(planned["job"], "start")
        assert done["state"] == "done", done
        assert done["outcome"]["added"] == 9
        found = await agent.call("search", query="space telescope", k=8)
        assert found["answer"] == "match"
        seen = [each for each in found["moments"] if not each["video_id"].startswith("nasa_audio_only")][:2]
        await agent.call("show", what=seen[0]["moment"])
        film = await agent.call("cut_moments", moments=[seen[0]["moment"]])
        assert Path(film["files"][0]).stat().st_size > 10_000
        assert agent.calls == CALLS_TO_A_FILM

        # Read the words; put four moments into a collection, in a chosen order.
        jewels = (await agent.call("places", phrase="crown jewels"))["moments"][0]
        hildy = (await agent.call("search", query="Hildy", k=1))["moments"][0]
        order = (await agent.call("places", phrase="earlier instructions"))["moments"][0]
        assert INJECTION in order["said"]
        words = await agent.call("show", what=order["moment"], pictures=0)
        assert INJECTION in json.loads(words)["said"]
        moments = [each["moment"] for each in (*seen, jewels, hildy)]
        assert len(moments) == 4
        await agent.call("collect", collection="morning", moments=moments)
        kept = await agent.call("reorder", collection="morning", order=[4, 1, 2, 3])
        assert [each["moment"] for each in kept["moments"]] == [moments[3], *moments[:3]]
        edl = await agent.call("export_list", collection="morning", format="edl")
        assert edl.startswith("TITLE: morning")
        films = await agent.call("cut_moments", collection="morning", joined=True)
        assert [Path(file).name for file in films["files"]] == ["morning.mp4"]
        assert {file.name for file in out.iterdir()} == {Path(film["files"][0]).name, "morning.mp4"}
        assert kept["link"].startswith(f"{PAGE}?c=")
        assert str(tmp_path) not in json.dumps([listed, planned, done, found, kept])
        assert agent.calls == CALLS - 4
        return str(kept["link"])

    async def again(client: Client) -> None:
        agent = Agent(client)
        assert (await agent.call("list_collections"))["collections"][0]["name"] == "morning"
        kept = await agent.call("list_collections", name="morning")
        assert (len(kept["moments"]), kept["link"]) == (4, link)
        assert (await agent.call("job"))["state"] == "done"
        assert (await agent.call("search", query="crown jewels"))["answer"] == "match"
        assert agent.calls == 4

    link = asked(start, work)
    asked(start, again)
