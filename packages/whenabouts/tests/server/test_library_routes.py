"""The library over HTTP: sorted and filtered lists, facets, and moved files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import TOKEN, Client, Open, error_of, id_of

from whenabouts.corpus import Corpus
from whenabouts.index.records import natural_key
from whenabouts.streams import stream


@pytest.fixture(scope="module")
def as_indexed(tmp_path_factory: pytest.TempPathFactory, samples: Path, samples_corpus: Path) -> Path:
    """A folder of videos with their corpus, and a copy of it from which `own` restores it."""
    folder = tmp_path_factory.mktemp("library") / "own"
    shutil.copytree(samples_corpus, folder / "own.corpus")
    (folder / "films").mkdir()
    for name in ("friday.mp4", "friday.vtt", "flower.webm"):
        shutil.copy(samples / name, folder / "films")
    corpus = Corpus(folder / "own.corpus")
    corpus.remove(*(video.id for video in corpus.videos()))
    corpus.add(folder / "films", processes=1, again=True, metadata={"camera": "left"})
    shutil.copytree(folder, folder.with_name("copy"))
    return folder


@pytest.fixture
def own(as_indexed: Path) -> Path:
    """A corpus that a test may change, of videos that it may move."""
    shutil.rmtree(as_indexed)
    shutil.copytree(as_indexed.with_name("copy"), as_indexed)
    return as_indexed / "own.corpus"


def names_of(client: Client, **parameters: Any) -> list[str]:
    return [video["name"] for video in client.json("/api/videos", **parameters)["data"]]


def test_the_list_is_sorted_both_ways(client: Client) -> None:
    titles = [video["title"] for video in client.json("/api/videos", sort="name")["data"]]
    assert titles == sorted(titles, key=lambda title: natural_key(title.casefold()))
    longest = client.json("/api/videos", sort="length", descending=True)["data"]
    lengths = [video["duration"] for video in longest if video["duration"] is not None]
    assert lengths == sorted(lengths, reverse=True) and len(lengths) > 3
    assert client.error("/api/videos", sort="beauty") == (400, "invalid_parameter", "sort")


def test_a_page_is_found_by_its_token_or_by_what_is_skipped(client: Client) -> None:
    whole = names_of(client, sort="name")
    first = client.json("/api/videos", sort="name", page_limit=3)
    token = first["page_info"]["next_page_token"]
    assert names_of(client, sort="name", page_limit=3, page_token=token) == whole[3:6]
    assert names_of(client, sort="name", page_limit=3, skip=3) == whole[3:6]
    assert names_of(client, skip=1000) == []
    assert client.error("/api/videos", sort="name", page_token=token, skip=3) == (400, "invalid", "skip")
    # A page token is valid for one order and one filter only.
    for other in ({"sort": "length"}, {"sort": "name", "where": "name=f*"}):
        assert client.error("/api/videos", page_token=token, **other)[1] == "invalid_page_token"


def test_a_page_token_holds_until_the_corpus_changes(opened: Open, own: Path) -> None:
    client = opened(own)
    pages = [("/api/videos", {}), ("/api/search", {"query": "the", "all": True})]
    tokens = [client.json(at, **q, page_limit=1)["page_info"]["next_page_token"] for at, q in pages]
    for (at, asked), token in zip(pages, tokens, strict=True):
        assert client.json(at, **asked, page_limit=1, page_token=token)["data"]
    Corpus(own).remove(id_of(client, "flower.webm"))
    for (at, asked), token in zip(pages, tokens, strict=True):
        assert client.error(at, **asked, page_token=token)[1] == "invalid_page_token"


def test_only_streams_that_a_sentence_searches_are_said_to_be_searched(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.json("/api/videos")["by_words"] == ["subtitle"]
    monkeypatch.setattr(type(stream("subtitle")), "meets", frozenset({"moment"}))
    assert client.json("/api/videos")["by_words"] == []


def test_conditions_narrow_the_list_and_say_of_how_many(client: Client) -> None:
    found = client.json("/api/videos", where="name=friday*")
    assert [video["name"] for video in found["data"]] == ["friday.mp4"]
    assert (found["page_info"]["total_results"], found["total"]) == (1, len(names_of(client)))
    assert client.error("/api/videos", where="nonsense") == (400, "invalid_parameter", "where")


def test_a_video_says_what_is_indexed_since_when_and_where_it_lies(client: Client, samples: Path) -> None:
    friday = next(v for v in client.json("/api/videos")["data"] if v["name"] == "friday.mp4")
    assert (friday["state"], friday["remedy"], friday["folder"]) == ("fine", "", str(samples))
    assert friday["indexed"].startswith("20") and friday["language"] == "en"
    sound = next(v for v in client.json("/api/videos")["data"] if v["name"] == "nasa_audio_only.mp3")
    assert sound["words"].startswith("NAR: This is the optical") and friday["words"] == ""
    result = client.json("/api/search", query="crown jewels", k=1)["data"][0]
    assert (result["folder"], result["name"]) == (str(samples), "friday.mp4")


def test_facets_count_and_their_conditions_lead_to_as_many_videos(client: Client) -> None:
    body = client.json("/api/facets")
    assert body["videos"] == len(names_of(client))
    facets = {facet["key"]: facet for facet in body["data"]}
    assert {"video.folder", "video.stream", "language"} <= set(facets)
    for facet in facets.values():
        for value in facet["values"]:
            assert len(names_of(client, where=value["where"])) == value["count"], value


def test_a_search_is_narrowed_by_the_same_conditions(client: Client, samples: Path) -> None:
    def searched(*where: str) -> set[str]:
        return {r["name"] for r in client.json("/api/search", query="the telescope", where=where)["data"]}

    inside = f"video.folder={samples}"
    assert searched(inside) and searched(inside) < searched()
    assert not searched("video.folder=/nowhere") and not searched("video.state=unreadable")
    assert searched("video.stream=subtitle") == searched()


def test_where_paths_are_hidden_no_folder_is_told_or_tried(
    opened: Open, indexed: Path, samples: Path
) -> None:
    client = opened(indexed, token=TOKEN)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    body = client.json("/api/facets")
    assert body["root"] is None and "video.folder" not in {facet["key"] for facet in body["data"]}
    assert str(samples) not in client.get("/api/videos").text
    for path in ("/api/videos", "/api/facets"):
        assert client.error(path, where=f"video.folder={samples}") == (403, "paths_hidden", "where")
    video = id_of(client, "friday.mp4")
    answer = client("POST", f"/api/videos/{video}/relocate", json={"path": "/etc/passwd"})
    assert error_of(answer) == (403, "paths_hidden", "path")


def test_the_routes_need_the_token(opened: Open, indexed: Path) -> None:
    client = opened(indexed, token=TOKEN)
    assert client.error("/api/facets")[:2] == (401, "unauthorized")
    assert client("POST", "/api/videos/x/relocate", json={"path": "x"}).status_code == 401


def test_a_moved_file_is_found_by_its_content(opened: Open, own: Path) -> None:
    films = own.parent / "films"
    (films / "better").mkdir()
    (films / "friday.mp4").rename(films / "better" / "hildy.mp4")
    client = opened(own)
    [gone] = client.json("/api/videos", where="video.state=missing")["data"]
    assert gone["gone"] and str(own) in gone["remedy"]
    url = f"/api/videos/{gone['video_id']}/relocate"
    answer = client("POST", url, json={"path": str(films / "better" / "hildy.mp4")})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["name"], answer.json()["state"]) == ("hildy.mp4", "fine")
    assert client.get(f"/api/videos/{gone['video_id']}/file").status_code == 200
    assert Corpus(own).search("crown jewels", k=1)[0].path == str(films / "better" / "hildy.mp4")
    # The file has its new place, so there is nothing to relocate.
    assert error_of(client("POST", url, json={"path": str(films / "better" / "hildy.mp4")}))[0] == 400


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("films/nothing.mp4", (400, "invalid")),
        ("films/flower.webm", (400, "invalid")),
        ("films/friday.vtt", (400, "invalid")),
        ("films", (400, "invalid")),
        ("films/out.mp4", (403, "not_served")),
        ("elsewhere.mp4", (403, "not_served")),
        ("films/../elsewhere.mp4", (403, "not_served")),
    ],
)
def test_no_other_file_takes_the_place_of_a_missing_one(
    opened: Open, own: Path, samples: Path, path: str, told: tuple[int, str]
) -> None:
    films = own.parent / "films"
    shutil.copy(samples / "friday.mp4", own.parent / "elsewhere.mp4")
    client = opened(own)
    (films / "friday.mp4").unlink()
    (films / "out.mp4").symlink_to(own.parent / "elsewhere.mp4")
    video = id_of(client, "friday.mp4")
    answer = client("POST", f"/api/videos/{video}/relocate", json={"path": str(own.parent / path)})
    assert error_of(answer)[:2] == told
    assert client.json("/api/videos", where="video.state=missing")["data"][0]["name"] == "friday.mp4"


def test_a_file_that_is_in_its_place_is_not_replaced(opened: Open, own: Path) -> None:
    client = opened(own)
    video, films = id_of(client, "friday.mp4"), own.parent / "films"
    shutil.copy(films / "friday.mp4", films / "copy.mp4")
    answer = client("POST", f"/api/videos/{video}/relocate", json={"path": str(films / "copy.mp4")})
    assert error_of(answer)[:2] == (400, "invalid") and "still" in answer.text
    missing = client("POST", "/api/videos/nobody/relocate", json={"path": str(films / "copy.mp4")})
    assert error_of(missing)[:2] == (404, "no_such_video")


@pytest.mark.slow
def test_of_corpora_side_by_side_one_is_chosen_and_mended(
    opened: Open, own: Path, tmp_path: Path, samples: Path
) -> None:
    (tmp_path / "more").mkdir()
    shutil.copy(samples / "nasa_audio_only.srt", tmp_path / "more" / "nasa.srt")
    Corpus(tmp_path / "more.corpus", create=True).add(tmp_path / "more", processes=1)
    client = opened([own, tmp_path / "more.corpus"])
    assert names_of(client, where="video.corpus=more.corpus") == ["nasa.srt"]
    found = client.json("/api/search", query="telescope", where="video.corpus=own.corpus")["data"]
    assert "nasa.srt" not in {result["name"] for result in found}
    (tmp_path / "more" / "nasa.srt").rename(tmp_path / "more" / "webb.srt")
    video = id_of(client, "nasa.srt")
    answer = client(
        "POST", f"/api/videos/{video}/relocate", json={"path": str(tmp_path / "more" / "webb.srt")}
    )
    assert answer.status_code == 200, answer.text
    assert names_of(client, where="video.corpus=more.corpus") == ["webb.srt"]
