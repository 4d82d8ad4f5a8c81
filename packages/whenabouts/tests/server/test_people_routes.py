"""People over REST: rename, merge and forget, if the owner allows it, by one writer at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.server.conftest import TOKEN, Client, Open, error_of
from tests.uncalibrated import uncalibrated

from whenabouts.corpus import Corpus
from whenabouts.server.settings import Settings

TALK = "\n".join(
    f"00:{at:02d}.000 --> 00:{at + 4:02d}.000\n<v {name}>We light the engine, part {at}.\n"
    for at, name in enumerate(["Ada", "Ben", "A. Lovelace", "Ada", "Ben", "A. Lovelace"] * 2)
)


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus in which three people speak; tests copy it."""
    folder = tmp_path_factory.mktemp("talk")
    (folder / "talk.vtt").write_text("WEBVTT\n\n" + TALK, encoding="utf-8")
    with uncalibrated():
        Corpus(folder / "corpus", create=True).add(folder / "talk.vtt", speakers=True, processes=1)
    return folder / "corpus"


@pytest.fixture
def place(talk: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(talk, tmp_path / "corpus"))


def names(client: Client) -> set[str]:
    return {person["name"] for person in client.json("/api/people")["data"]}


def post(client: Client, action: str, **body: str) -> tuple[int, str, str | None] | str:
    """The answer to a POST: what was done, or the error."""
    answer = client("POST", f"/api/people/{action}", json=body)
    return str(answer.json()["done"]) if answer.status_code == 200 else error_of(answer)


@pytest.mark.slow
def test_people_are_named_merged_and_that_is_undone(opened: Open, place: Path) -> None:
    client = opened(place)
    assert names(client) == {"Ada", "Ben", "A. Lovelace"}
    assert client.json("/api/people")["may_change"] is True
    assert post(client, "name", person="Ada", name="Ada Lovelace") == "Ada is Ada Lovelace"
    assert post(client, "merge", person="Ada Lovelace", other="A. Lovelace")
    assert names(client) == {"Ada Lovelace", "Ben"}
    moments = client.json("/api/search", query="engine", where="speaker=Ada Lovelace")["data"]
    assert moments
    video = client.json("/api/videos")["data"][0]["video_id"]
    turns = client.json(f"/api/videos/{video}/people")["data"][0]["turns"]
    assert {turn["name"] for turn in turns} == {"Ada Lovelace", "Ben"}
    assert post(client, "undo") == "undone: merge 'Ada Lovelace' 'A. Lovelace'"
    assert post(client, "undo") == "undone: name 'Ada' 'Ada Lovelace'"
    assert names(client) == {"Ada", "Ben", "A. Lovelace"}
    assert post(client, "undo") == (409, "nothing_to_undo", None)


def test_who_is_forgotten_leaves_the_disk(opened: Open, place: Path) -> None:
    client = opened(place)
    answer = client("POST", "/api/people/forget", json={"person": "Ben"}).json()
    assert answer == {"done": "forgot Ben", "erased": 4}
    assert names(client) == {"Ada", "A. Lovelace"}
    held = b"".join(file.read_bytes() for file in place.glob("clips_speaker.lance/data/*"))
    assert held and b"Lovelace" in held and b"Ben" not in held


def test_what_cannot_be_is_refused_with_its_reason(opened: Open, place: Path) -> None:
    client = opened(place)
    assert post(client, "name", person="Ada", name="Ben") == (409, "name_taken", "name")
    assert post(client, "name", person="Nobody", name="Zoe") == (404, "no_such_person", "person")
    assert post(client, "forget", person="Nobody") == (404, "no_such_person", "person")
    assert post(client, "merge", person="Ada", other="Ada") == (400, "invalid", None)
    assert post(client, "name", person="Ada", name=" ") == (400, "invalid_parameter", "name")
    assert post(client, "name", person="Ada", name="Zoe", stream="x") == (400, "unknown_parameter", "stream")
    assert post(client, "name", person="Ada", name="Z" * 300) == (400, "invalid", None)
    assert names(client) == {"Ada", "Ben", "A. Lovelace"}


@pytest.mark.slow
def test_while_another_writes_nothing_is_changed_and_the_answer_says_so(
    opened: Open, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whenabouts.server.people_routes._WAIT_SECONDS", 0.05)
    client = opened(place)
    with Corpus(place).writing():
        answer = client("POST", "/api/people/name", json={"person": "Ada", "name": "Zoe"})
        assert error_of(answer) == (409, "corpus_busy", None)
        assert "is being written by process" in answer.json()["error"]["message"]
        hidden = opened(place, show_paths=False)
        message = hidden("POST", "/api/people/undo", json={}).json()["error"]["message"]
        assert message.startswith("this corpus is being indexed or changed") and str(place) not in message
    assert names(client) == {"Ada", "Ben", "A. Lovelace"}
    assert post(client, "name", person="Ada", name="Zoe") == "Ada is Zoe"


@pytest.mark.slow
def test_behind_a_token_people_are_changed_only_if_the_owner_lets(opened: Open, place: Path) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    reading = opened(place, token=TOKEN)
    assert post(reading, "undo") == (401, "unauthorized", None)
    reading.headers.update(bearer)
    assert reading.json("/api/people")["may_change"] is False
    for action, body in (("name", {"person": "Ada", "name": "Zoe"}), ("forget", {"person": "Ada"})):
        assert post(reading, action, **body) == (403, "read_only", None)
    writing = opened(place, token=TOKEN, change_people=True)
    writing.headers.update(bearer)
    assert post(writing, "name", person="Ada", name="Zoe") == "Ada is Zoe"
    foreign = {"Origin": "http://evil.example"}
    answer = writing("POST", "/api/people/undo", json={}, headers={**bearer, **foreign})
    assert error_of(answer)[:2] == (403, "cross_site")
    assert "Zoe" in names(writing)


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({}, True),
        ({"token": TOKEN}, False),
        ({"host": "0.0.0.0", "token": TOKEN}, False),
        ({"token": TOKEN, "change_people": True}, True),
        ({"change_people": False}, False),
    ],
)
def test_who_may_change_people(settings: dict[str, object], may: bool) -> None:
    assert Settings(**settings).changes_people is may  # type: ignore[arg-type]
