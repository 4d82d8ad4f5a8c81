"""Collections and saved searches over HTTP."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import pytest
from tests.server.conftest import Client, Open, error_of, id_of

from whenabouts.corpus import Corpus
from whenabouts.index.handle import Handle
from whenabouts.server.decoding import Decoders
from whenabouts.server.errors import ServerError, safe_errors
from whenabouts.video.files import printable
from whenabouts.video.objects import Refusals
from whenabouts.video.probe import MediaError
from whenabouts.workplace.database import FILE


@pytest.fixture
def desk(opened: Open, samples_corpus: Path, tmp_path: Path) -> Client:
    """A client of a corpus that this file alone uses."""
    shutil.copytree(samples_corpus, tmp_path / "c.corpus")
    return opened(tmp_path / "c.corpus")


def post(client: Client, path: str, body: Any, method: str = "POST") -> Any:
    answer = client(method, path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
def test_a_collection_is_made_filled_ordered_and_taken_away(desk: Client) -> None:
    assert desk.json("/api/collections") == {"data": []}
    friday, flower = id_of(desk, "friday.mp4"), id_of(desk, "flower.webm")
    made = post(desk, "/api/collections", {"name": "film", "note": "for Monday"})
    place = f"/api/collections/{made['id']}"
    moments = [f"{friday}@1.0-3.5", f"{flower}@1.0-2.0"]
    filled = post(desk, f"{place}/items", {"moments": moments, "query": "how are you"})
    first, second = filled["items"]
    assert (first["title"], first["gone"], first["query"]) == ("friday", False, "how are you")
    assert "How are you?" in first["text"]
    assert desk.get(first["thumbnail_url"]).headers["content-type"] == "image/jpeg"
    moved = post(desk, f"{place}/items/{second['id']}/move", {"before": first["id"]})
    assert [item["video_id"] for item in moved["items"]] == [flower, friday]
    other = post(desk, "/api/collections", {"name": "other"})
    for body, left in (({"to": other["id"], "keep": True}, 2), ({"to": other["id"]}, 1)):
        assert len(post(desk, f"{place}/items/{second['id']}/move", body)["items"]) == left
    back = f"/api/collections/{other['id']}/items/{second['id']}/move"
    assert len(post(desk, back, {"to": made["id"], "before": first["id"]})["items"]) == 1
    desk("DELETE", f"/api/collections/{other['id']}")
    change = {"start": 1.5, "note": "asks", "tags": ["x"]}
    changed = post(desk, f"{place}/items/{first['id']}", change, "PATCH")["items"][1]
    assert {name: changed[name] for name in change} == change
    assert post(desk, place, {"name": "opening"}, "PATCH")["name"] == "opening"
    assert desk.json("/api/collections/opening")["seconds"] == pytest.approx(3.0)
    listed = desk.get(f"{place}/export", params={"format": "json"})
    assert [moment["start"] for moment in json.loads(listed.content)["moments"]] == [1.0, 1.5]
    assert "opening.json" in listed.headers["content-disposition"]
    film = desk.get(f"{place}/film")
    assert film.headers["content-type"] == "video/mp4"
    with av.open(io.BytesIO(film.content), "r") as container:
        assert float(container.duration or 0) / av.time_base == pytest.approx(3.0, abs=0.2)
    late = desk("PATCH", f"{place}/items/{first['id']}", json={"start": 5000.0, "end": 6000.0})
    assert (late.status_code, "after the end of" in late.text) == (400, True)
    late = desk("POST", f"{place}/items", json={"moments": [f"{friday}@5000-6000"]})
    assert (late.status_code, "after the end of" in late.text) == (400, True)
    true = desk("PATCH", f"{place}/items/{first['id']}", json={"end": True})
    assert (true.status_code, "neither true nor false" in true.text) == (400, True)
    assert len(desk("DELETE", f"{place}/items/{first['id']}").json()["items"]) == 1
    assert desk("DELETE", place).json() == {"data": []}
    assert desk.error(place) == (404, "no_such_collection", None)


def test_only_words_that_a_list_has_are_shown(desk: Client) -> None:
    post(desk, "/api/collections", {"name": "film"})
    moments = {"moments": [f"{id_of(desk, 'friday.mp4')}@1.5-3.1"]}
    (item,) = post(desk, "/api/collections/film/items", moments)["items"]
    listed = desk.get("/api/collections/film/export", params={"format": "json"}).json()["moments"]
    assert item["text"] == listed[0]["text"] == "Tell me, is the lord of the universe in?"


@pytest.mark.slow
def test_what_cannot_be_done_is_refused(desk: Client) -> None:
    post(desk, "/api/collections", {"name": "film"})
    friday = id_of(desk, "friday.mp4")
    item = post(desk, "/api/collections/film/items", {"moments": [f"{friday}@1-2"]})["items"][0]["id"]
    place = "/api/collections/film"
    refusals = [
        ("POST", "/api/collections", {"name": "film"}, (409, "name_taken")),
        ("POST", "/api/collections", {"name": " "}, (400, "invalid")),
        ("POST", "/api/collections", {"name": "x", "extra": 1}, (400, "unknown_parameter")),
        ("POST", f"{place}/items", {"moments": []}, (400, "invalid_parameter")),
        ("POST", f"{place}/items", {"moments": ["nobody@1-2"]}, (404, "no_such_video")),
        ("POST", "/api/collections/other/items", {"moments": [f"{friday}@1-2"]}, (404, "no_such_collection")),
        ("PATCH", f"{place}/items/{item}", {"start": 9.0}, (400, "invalid")),
        ("PATCH", f"{place}/items/{item}", {"tags": ["x"] * 21}, (400, "invalid_parameter")),
        ("PATCH", f"{place}/items/{item}", {"tags": ["Leeds, Barnbow"]}, (400, "invalid")),
        ("POST", f"{place}/items/{item}/move", {"before": "nobody"}, (404, "no_such_collection")),
        ("DELETE", f"{place}/items/nobody", None, (404, "no_such_collection")),
        ("GET", f"{place}/export?format=docx", None, (400, "unknown_format")),
        ("DELETE", "/api/saved-searches/none", None, (404, "no_such_search")),
    ]
    for method, path, body, expected in refusals:
        answer = desk(method, path, **({} if body is None else {"json": body}))
        assert error_of(answer)[:2] == expected, (method, path, answer.text)
    blank = desk("POST", "/api/collections", json={"name": "  "})
    assert (blank.status_code, "printable characters" in blank.text) == (400, True)
    assert len(desk.json(place)["items"]) == 1
    assert desk.json("/api/collections")["data"][0]["count"] == 1


def test_a_change_of_what_someone_else_changed_is_refused(desk: Client) -> None:
    made = post(desk, "/api/collections", {"name": "film"})["id"]
    place = f"/api/collections/{made}"
    moments = [f"{id_of(desk, 'friday.mp4')}@1-2"]
    item = post(desk, f"{place}/items", {"moments": moments})["items"][0]
    at = f"{place}/items/{item['id']}"
    seen = {name: item[name] for name in ("start", "end", "note", "tags")}
    changed = post(desk, at, {"note": "mine", "seen": seen}, "PATCH")["items"][0]
    assert changed["note"] == "mine"
    refused = desk("PATCH", at, json={"note": "yours", "seen": {"note": ""}})
    assert error_of(refused) == (409, "changed_meanwhile", "seen")
    assert "'mine'" in refused.text
    assert post(desk, at, {"end": 1.5, "seen": {"end": 2.0}}, "PATCH")["items"][0]["note"] == "mine"
    assert post(desk, at, {"note": "yours"}, "PATCH")["items"][0]["note"] == "yours"
    assert post(desk, place, {"name": "opening", "seen": {"name": "film"}}, "PATCH")["name"] == "opening"
    refused = desk("PATCH", place, json={"name": "end", "seen": {"name": "film"}})
    assert error_of(refused)[:2] == (409, "changed_meanwhile")
    assert desk.json(place)["name"] == "opening"


def test_a_film_that_fails_at_its_second_video_names_no_folder(
    desk: Client, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Decoders, parts: Sequence[tuple[Path, float, float]], out: Path) -> None:
        raise MediaError(f"{printable(parts[1][0])}: is damaged")

    monkeypatch.setattr(Decoders, "join", fail)
    post(desk, "/api/collections", {"name": "film"})
    moments = [f"{id_of(desk, name)}@1-2" for name in ("friday.mp4", "flower.webm")]
    post(desk, "/api/collections/film/items", {"moments": moments})
    answer = desk.get("/api/collections/film/film")
    assert error_of(answer)[:2] == (409, "unreadable_video")
    assert answer.json()["error"]["message"] == "flower.webm: is damaged"


@pytest.mark.parametrize("name", ["a" * 120 + "/" + "b" * 120, os.fsdecode(b"caf\xe9")])
def test_a_folder_is_hidden_however_a_message_writes_it(name: str) -> None:
    path = Path("/secret", name, "a.mp4")
    with pytest.raises(ServerError, match=r"^a\.mp4: is damaged$"), safe_errors(path, Path("out.mp4")):
        raise MediaError(f"{printable(path)}: is damaged")
    with pytest.raises(ServerError, match=r"^a\.mp4: went away$"), safe_errors(path, Path("out.mp4")):
        Refusals(1, "went away").check(0, printable(path))


def test_a_film_leaves_out_transcripts(opened: Open, tmp_path: Path, samples: Path, unmeasured: None) -> None:
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:04.000\nA frog by the pond.\n")
    corpus.add(samples / "friday.mp4", tmp_path / "talk.vtt", processes=1)
    desk = opened(tmp_path / "c.corpus")
    for name, names in (("both", ("talk.vtt", "friday.mp4")), ("words", ("talk.vtt",))):
        post(desk, "/api/collections", {"name": name})
        moments = [f"{id_of(desk, each)}@1-2" for each in names]
        post(desk, f"/api/collections/{name}/items", {"moments": moments})
    film = desk.get("/api/collections/both/film")
    assert film.status_code == 200, film.text
    with av.open(io.BytesIO(film.content), "r") as container:
        assert float(container.duration or 0) / av.time_base == pytest.approx(1.0, abs=0.1)
    assert desk.error("/api/collections/words/film")[:2] == (404, "empty_collection")
    assert desk.get("/api/collections/words/export", params={"format": "csv"}).status_code == 200


def test_an_empty_collection_makes_no_film_and_no_list(desk: Client) -> None:
    post(desk, "/api/collections", {"name": "film"})
    for part in ("film", "export"):
        assert desk.error(f"/api/collections/film/{part}")[:2] == (404, "empty_collection")


def test_saved_searches_are_kept(desk: Client) -> None:
    question = {"q": "how are you", "within": "friday"}
    kept = post(
        desk, "/api/saved-searches", {"name": "greetings", "question": question, "moments": ["a@0-1"]}
    )
    assert [(each["name"], each["question"], each["moments"]) for each in kept["data"]] == [
        ("greetings", question, ["a@0-1"])
    ]
    assert desk.json("/api/saved-searches")["data"][0]["saved"] > 1e9
    post(desk, "/api/saved-searches", {"name": "and/or", "question": {}})
    assert len(desk("DELETE", "/api/saved-searches/and%2For").json()["data"]) == 1
    assert desk("DELETE", "/api/saved-searches/greetings").json() == {"data": []}


def test_half_of_a_character_is_refused_because_no_list_could_be_sent_with_it(desk: Client) -> None:
    headers = {"Content-Type": "application/json"}
    for search in ({"question": {"q": "\ud83d"}}, {"question": {"\ud83d": "q"}}, {"moments": ["\ud83d"]}):
        body = json.dumps({"name": "frogs", "question": {}} | search)
        refused = desk("POST", "/api/saved-searches", content=body, headers=headers)
        assert error_of(refused)[:2] == (400, "invalid_parameter")
    assert desk.json("/api/saved-searches") == {"data": []}


@pytest.mark.slow
def test_a_long_collection_takes_no_more_queries_than_a_short_one(
    desk: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []
    read = Handle._read

    def counted(self: Any, what: str, *arguments: Any) -> Any:
        queries.append(what)
        return read(self, what, *arguments)

    friday, flower = id_of(desk, "friday.mp4"), id_of(desk, "flower.webm")
    moments = [f"{friday}@1.0-3.5", f"{flower}@1.0-2.0"]
    for name, times in (("short", 1), ("long", 20)):
        post(desk, "/api/collections", {"name": name})
        post(desk, f"/api/collections/{name}/items", {"moments": moments * times})
    monkeypatch.setattr(Handle, "_read", counted)
    short = desk.json("/api/collections/short")["items"]
    few, queries = len(queries), []
    long = desk.json("/api/collections/long")["items"]
    assert len(queries) <= few
    assert [item["text"] for item in long] == [item["text"] for item in short] * 20


@pytest.mark.slow
def test_a_film_and_a_list_have_a_bound_on_their_moments(desk: Client) -> None:
    post(desk, "/api/collections", {"name": "film"})
    friday = id_of(desk, "friday.mp4")
    for _ in range(2):
        post(desk, "/api/collections/film/items", {"moments": [f"{friday}@1-1.2"] * 101})
    for part in ("film", "export"):
        assert desk.error(f"/api/collections/film/{part}")[:2] == (400, "too_many_moments")


def test_an_invalid_collection_or_search_hides_no_other(desk: Client, tmp_path: Path) -> None:
    friday = id_of(desk, "friday.mp4")
    for name in ("film", "other"):
        post(desk, "/api/collections", {"name": name})
        post(desk, f"/api/collections/{name}/items", {"moments": [f"{friday}@1-2"]})
        post(desk, "/api/saved-searches", {"name": name, "question": {"q": "frogs"}})
    with contextlib.closing(sqlite3.connect(tmp_path / "c.corpus" / FILE)) as connection, connection:
        connection.execute(
            "UPDATE items SET tags = '{' WHERE collection = (SELECT id FROM collections WHERE name = 'film')"
        )
        connection.execute("UPDATE searches SET moments = '{' WHERE name = 'film'")
    other, film = desk.json("/api/collections")["data"]
    assert (other["name"], other["problem"], film["name"]) == ("other", "", "film")
    assert film["problem"].startswith("the collection 'film' contains an invalid moment (")
    assert [each["problem"] for each in desk.json("/api/saved-searches")["data"]] == [
        "the saved search 'film' is invalid; delete it",
        "",
    ]
    assert desk.error("/api/collections/film")[:2] == (503, "corpus_unavailable")
    assert [each["name"] for each in desk("DELETE", "/api/collections/film").json()["data"]] == ["other"]
    assert [each["name"] for each in desk("DELETE", "/api/saved-searches/film").json()["data"]] == ["other"]
