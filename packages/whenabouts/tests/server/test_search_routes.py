"""Search, why and curves over HTTP give the answers of Python and the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.server.conftest import Client, Open, error_of, id_of

from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.curves import curves_of
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.search.options import SearchOptions
from whenabouts.types import Moment

QUERIES = ("crown jewels", "the space telescope in a clean room", "negotiating fishing quotas", "?!")


@pytest.mark.parametrize("query", QUERIES)
def test_command_line_python_and_rest_give_equal_answers(
    client: Client, indexed: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    code = main(["search", query, "--corpus", str(indexed), "-k", "7", "--json"])
    by_command = json.loads(capsys.readouterr().out)
    by_python = Corpus(indexed, create=False).search(query, k=7)
    by_rest = client.json("/api/search", query=query, k=7)
    by_body = client("POST", "/api/search", json={"query": query, "k": 7}).json()
    assert by_command == by_python.to_json()
    assert by_body == by_rest
    assert code == (by_rest["answer"] == "no_match")
    assert by_rest["query"] == by_command["query"] == query
    assert by_rest["answer"] == by_command["answer"]
    assert [*by_rest["notes"], *filter(None, [by_rest["doubt"]])] == by_command["notes"]
    same = (
        "rank",
        "video_id",
        "start",
        "end",
        "score",
        "confidence",
        "chance_percentile",
        "text",
        "evidence",
    )
    assert [{key: one[key] for key in same} for one in by_rest["data"]] == [
        {key: one[key] for key in same} for one in by_command["moments"]
    ]
    assert by_rest["page_info"]["total_results"] == len(by_command["moments"])


def test_every_place_is_listed_a_page_at_a_time_and_exported(client: Client, indexed: Path) -> None:
    by_python = Corpus(indexed, create=False).search("the", all=True)
    first = client.json("/api/search", query="the", all=True, page_limit=3)
    token = first["page_info"]["next_page_token"]
    second = client.json("/api/search", query="the", all=True, page_limit=3, page_token=token)
    spans = [(one["rank"], one["video_id"], one["start"]) for one in (*first["data"], *second["data"])]
    expected = [
        (rank, one.video_id, round(one.start, 3)) for rank, one in enumerate(by_python.moments[:6], 1)
    ]
    assert spans == expected
    total = len(by_python)
    assert first["places"] == {"total": total, "skipped": 0}
    assert first["page_info"]["total_results"] == total > 6
    export = client.get("/api/export", params={"query": "the", "all": True, "format": "csv"})
    assert len(export.text.splitlines()) == 1 + total
    quoted = client.json("/api/search", query='"crown jewels"')
    assert (quoted["answer"], quoted["places"]) == ("match", None)
    problem = client.error("/api/search", query="the", all=True, min_confidence=0.5)
    assert problem[0] == 400


def test_why_over_http_is_what_doctor_why_says(
    client: Client, indexed: Path, friday: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    main(["doctor", "why", "crown jewels", f"{friday}@0:04-6", "--corpus", str(indexed), "--json"])
    by_command = json.loads(capsys.readouterr().out)
    assert client.json("/api/why", query="crown jewels", moment=f"{friday}@0:04-6") == by_command


def test_curves_over_http_are_those_of_the_searcher(client: Client, indexed: Path, friday: str) -> None:
    corpus = Corpus(indexed, create=False)
    found = client.json(f"/api/videos/{friday}/curves", query="crown jewels")
    assert found.pop("stream_titles") == {"subtitle": "words"}
    assert found == curves_of(corpus, "crown jewels", friday).to_json()
    curve = found["curves"]["subtitle"]
    assert (
        len(curve["start"])
        == len(curve["end"])
        == len(curve["score"])
        == len(curve["chance_percentile"])
        == 5
    )
    best = curve["score"].index(max(curve["score"]))
    assert (curve["start"][best], curve["end"][best]) == (4.3, 6.0)
    assert found["moments"][0]["start"] == 4.3


def test_every_address_in_an_answer_leads_somewhere(client: Client) -> None:
    found = client.json("/api/search", query="crown jewels", k=1)["data"][0]
    assert client.get(found["thumbnail_url"]).headers["content-type"] == "image/jpeg"
    assert client.get(found["video_url"], headers={"Range": "bytes=0-9"}).status_code == 206
    assert client.get(found["clip_url"]).headers["content-type"] == "video/mp4"
    assert urlsplit(found["link"]).fragment == "t=4.300,6.000"
    assert client("HEAD", urlsplit(found["link"]).path).status_code == 200


def test_the_pool_says_how_much_was_searched(client: Client) -> None:
    pool = client.json("/api/search", query="telescope")["search_pool"]
    videos = client.json("/api/videos")["data"]
    assert pool["total_count"] == len(videos) == 9
    assert pool["total_duration"] == pytest.approx(sum(video["duration"] or 0 for video in videos))


def test_narrowing_reaches_the_corpus(client: Client, friday: str) -> None:
    inside = client.json("/api/search", query="telescope", within=[friday], k=50)["data"]
    assert {one["video_id"] for one in inside} == {friday}
    by_name = client.json("/api/search", query="telescope", within=["friday.mp4"], k=50)["data"]
    assert by_name == inside
    assert client.json("/api/search", query="crown jewels", where=["name!=friday*"], k=50)["data"]
    none = client.json("/api/search", query="crown jewels", min_confidence=1.0)
    assert none["data"] == []
    assert none["page_info"] == {"limit_per_page": 50, "total_results": 0, "next_page_token": None}
    long_ago = client.json("/api/search", query="crown jewels", before="1950-01-01")
    assert long_ago["answer"] == "no_match"
    assert long_ago["notes"]


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({}, (400, "missing_parameter", "query")),
        ({"query": ""}, (400, "invalid_parameter", "query")),
        ({"query": " \t "}, (400, "invalid_parameter", "query")),
        ({"query": "x" * 2001}, (400, "invalid_parameter", "query")),
        ({"query": "a", "k": 0}, (400, "invalid_parameter", "k")),
        ({"query": "a", "k": 1001}, (400, "invalid_parameter", "k")),
        ({"query": "a", "k": "1e3"}, (400, "invalid_parameter", "k")),
        ({"query": "a", "page_limit": 51}, (400, "invalid_parameter", "page_limit")),
        ({"query": "a", "page_limit": 0}, (400, "invalid_parameter", "page_limit")),
        ({"query": "a", "min_confidence": "nan"}, (400, "invalid_parameter", "min_confidence")),
        ({"query": "a", "min_confidence": 1.1}, (400, "invalid_parameter", "min_confidence")),
        ({"query": "a", "after": "yesterday"}, (400, "invalid_parameter", "after")),
        ({"query": "a", "where": "year"}, (400, "invalid_parameter", "where")),
        ({"query": "a", "within": "nowhere.mp4"}, (404, "no_such_video", "within")),
        ({"query": "a", "within": "/etc/passwd"}, (404, "no_such_video", "within")),
        ({"query": "a", "within": ["x"] * 51}, (400, "invalid_parameter", "within")),
        ({"query": "a", "stream": "smell"}, (404, "no_such_stream", "stream")),
        ({"query": "a", "page": 2}, (400, "unknown_parameter", "page")),
        ({"query": "a", "page_token": "AAAA"}, (400, "invalid_page_token", "page_token")),
        ({"query": "a", "page_token": "ä" * 24}, (400, "invalid_page_token", "page_token")),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    client: Client, parameters: dict[str, Any], error: tuple[int, str, str]
) -> None:
    assert client.error("/api/search", **parameters) == error


def test_a_date_that_is_none_is_told_as_the_command_tells_it(client: Client) -> None:
    answer = client("GET", "/api/search", params={"query": "a", "after": "2020-99-99"})
    assert answer.json()["error"]["message"].startswith("after: '2020-99-99' is not a date; write 2024, ")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", (400, "invalid_json", None)),
        (b"[]", (400, "invalid_parameter", None)),
        (b'{"query": 5}', (400, "invalid_parameter", "query")),
        (b'{"query": "a", "K": 5}', (400, "unknown_parameter", "K")),
        (b'{"query": "\\ud800"}', (400, "invalid_parameter", "query")),
        (b'{"query": "a", "min_confidence": NaN}', (400, "invalid_parameter", "min_confidence")),
        (b'{"query": "' + b"a" * (10 << 20) + b'"}', (413, "too_large", None)),
        (b"[" * 60_000, (400, "bad_request", None)),
    ],
)
def test_bodies_that_are_none_are_refused(
    client: Client, body: bytes, error: tuple[int, str, str | None]
) -> None:
    answer = client("POST", "/api/search", content=body, headers={"Content-Type": "application/json"})
    assert error_of(answer) == error


def test_a_body_that_hides_its_length_is_cut_off_too(client: Client) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b" " * (1 << 20)

    answer = client("POST", "/api/search", content=endless(), headers={"Content-Type": "application/json"})
    assert error_of(answer) == (413, "too_large", None)


def pages_of(client: Client, path: str, **parameters: Any) -> list[dict[str, Any]]:
    """All results, page by page; checks that each page states the same total."""
    found: list[dict[str, Any]] = []
    totals = set()
    while True:
        page = client.json(path, **parameters)
        found += page["data"]
        assert len(page["data"]) <= parameters["page_limit"]
        totals.add(page["page_info"]["total_results"])
        if page["page_info"]["next_page_token"] is None:
            assert totals == {len(found)}
            return found
        parameters["page_token"] = page["page_info"]["next_page_token"]


def test_pages_are_the_whole_list_without_gap_or_double(client: Client, indexed: Path) -> None:
    whole = Corpus(indexed, create=False).search("telescope", k=1000).moments
    assert len(whole) > 8
    found = pages_of(client, "/api/search", query="telescope", k=1000, page_limit=3)
    assert [one["rank"] for one in found] == list(range(1, len(whole) + 1))
    assert [(one["video_id"], one["start"]) for one in found] == [
        (one.moment.video_id, round(one.moment.start, 3)) for one in whole
    ]


def test_the_longest_list_there_can_be_comes_in_pages_from_one_search(
    client: Client, indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Corpus(indexed, create=False).search("telescope", k=1)
    moments = tuple(
        replace(real.moments[0], moment=Moment(real.moments[0].moment.video_id, at, at + 1.0))
        for at in range(1000)
    )
    searches = []

    def search(corpus: Corpus, query: str, *, options: SearchOptions, **_: Any) -> Any:
        searches.append(query)
        return replace(real, moments=moments[: options.k])

    monkeypatch.setattr(Corpus, "search", search)
    found = pages_of(client, "/api/search", query="telescope", k=1000, page_limit=50)
    assert [one["start"] for one in found] == list(range(1000))
    assert len(searches) == 1


@pytest.mark.slow
def test_many_videos_come_in_pages_without_gap_or_double(opened: Open, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "wide.corpus", create=True)
    store.put_records(VideoRecord(f"v{number:05}", f"/none/{number}.mp4") for number in range(2_000))
    client = opened(tmp_path / "wide.corpus")
    seen = pages_of(client, "/api/videos", page_limit=50)
    assert [video["video_id"] for video in seen] == [f"v{number:05}" for number in range(2_000)]


def test_a_page_token_of_another_question_or_corpus_is_refused(
    client: Client, opened: Open, copied: tuple[Path, Path], tmp_path: Path
) -> None:
    token = client.json("/api/search", query="telescope", k=20, page_limit=1)["page_info"]["next_page_token"]
    assert client.json("/api/search", query="telescope", k=20, page_limit=3, page_token=token)["data"]
    refused = (400, "invalid_page_token", "page_token")
    assert client.error("/api/search", query="jewels", k=20, page_token=token) == refused
    assert client.error("/api/search", query="telescope", k=21, page_token=token) == refused
    assert client.error("/api/videos", page_token=token) == refused
    other = opened(copied[0], cache=tmp_path / "other-cache")
    assert other.error("/api/search", query="telescope", k=20, page_token=token) == refused
    forged = ("B" if token[0] != "B" else "C") + token[1:]
    assert client.error("/api/search", query="telescope", k=20, page_token=forged) == refused


@pytest.mark.parametrize(
    ("moment", "error"),
    [
        ("friday.mp4@4-6", (404, "no_such_video", None)),
        ("FRIDAY@6-4", (400, "invalid_moment", "moment")),
        ("FRIDAY@4", (400, "invalid_parameter", "moment")),
        ("FRIDAY@0:70-0:80", (400, "invalid_moment", "moment")),
    ],
)
def test_moments_are_named_by_id_and_must_be_some(
    client: Client, friday: str, moment: str, error: tuple[int, str, str | None]
) -> None:
    named = moment.replace("FRIDAY", friday)
    assert client.error("/api/why", query="crown jewels", moment=named) == error


def test_script_in_names_and_subtitles_stays_text(client: Client) -> None:
    answer = client.get("/api/search", params={"query": "lighthouse keeper's lamp", "k": 1})
    found = answer.json()["data"][0]
    assert answer.headers["content-type"] == "application/json"
    assert "<img src=x onerror=alert(1)>" in found["text"]
    assert found["thumbnail_url"] is found["video_url"] is found["clip_url"] is None
    assert set(found["video_id"]) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    details = client.get(f"/api/videos/{found['video_id']}")
    assert details.headers["content-type"] == "application/json"
    assert "<script>" in details.json()["name"]


def test_an_empty_corpus_says_so(opened: Open, tmp_path: Path) -> None:
    Store.open(tmp_path / "empty.corpus", create=True)
    client = opened(tmp_path / "empty.corpus")
    assert client.error("/api/search", query="anything") == (409, "corpus_empty", None)
    assert client.json("/api/videos")["data"] == []


@pytest.mark.slow
def test_what_a_growing_corpus_gains_is_found_at_once(
    opened: Open, copied: tuple[Path, Path], tmp_path: Path
) -> None:
    client = opened(copied[0])
    assert client.json("/api/search", query="volcano erupted")["search_pool"]["total_count"] == 1
    line = "The volcano erupted on a quiet Sunday."
    (tmp_path / "new.vtt").write_text(f"WEBVTT\n\n00:00.500 --> 00:04.000\n{line}\n", encoding="utf-8")
    Corpus(copied[0]).add(tmp_path / "new.vtt", processes=1)
    found = client.json("/api/search", query="volcano erupted")
    assert found["data"][0]["text"] == line
    assert found["search_pool"]["total_count"] == 2
    new = id_of(client, "new.vtt")
    Corpus(copied[0]).remove(new)
    assert client.error(f"/api/videos/{new}") == (404, "no_such_video", None)
