"""A server that hides paths names no folder in any answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.server.conftest import TOKEN, Client, Open, error_of, id_of

from whenabouts import export
from whenabouts.index.records import StoreError
from whenabouts.index.store import Store
from whenabouts.server.errors import of_whenabouts
from whenabouts.server.paths import Paths, without_location
from whenabouts.server.settings import Settings


@pytest.fixture
def stranger(opened: Open, indexed: Path) -> Client:
    """A client of a server that shows no paths."""
    return opened(indexed, show_paths=False)


def test_who_may_see_paths() -> None:
    assert Settings().shows_paths
    assert not Settings(token=TOKEN).shows_paths
    assert not Settings(host="0.0.0.0", token=TOKEN).shows_paths
    assert Settings(host="0.0.0.0", token=TOKEN, show_paths=True).shows_paths
    assert not Settings(show_paths=False).shows_paths


@pytest.mark.parametrize("condition", ["path=/*", "path!=/x", " path = *a*", "path>=/a", "path<z"])
def test_conditions_on_paths_are_no_oracle(stranger: Client, condition: str) -> None:
    answer = stranger.get("/api/search", params={"query": "a", "where": ["duration>0", condition]})
    assert error_of(answer) == (403, "paths_hidden", "where")
    answer = stranger.get("/api/export", params={"query": "a", "where": condition})
    assert error_of(answer) == (403, "paths_hidden", "where")


def test_paths_are_no_names(stranger: Client, client: Client, samples: Path, indexed: Path) -> None:
    path = next(r.path for r in Store.open(indexed).videos() if r.path.endswith("friday.mp4"))
    assert client.get("/api/search", params={"query": "a", "within": path}).status_code == 200
    answers = [stranger.get("/api/search", params={"query": "a", "within": p}) for p in (path, path + "x")]
    assert [error_of(answer) for answer in answers] == [(404, "no_such_video", "within")] * 2
    assert stranger.get("/api/search", params={"query": "a", "within": "friday.mp4"}).status_code == 200


def test_a_message_names_files_of_known_folders_without_any_folder() -> None:
    paths = Paths(are_shown=False, places=["/srv/my.corpus"], folders=["/home/al: ice/films: all", "/"])
    for text, shown in (
        ("/home/al: ice/films: all/a.mp4: it is empty", "a.mp4: it is empty"),
        ("/home/al: ice/films: all/2024/b.mp4 is cut off", "b.mp4 is cut off"),
        ("/home/al: ice/films: all cannot be read", "films: all cannot be read"),
        ("/srv/my.corpus/jobs: the disk is full", "my.corpus/jobs: the disk is full"),
        ("1/2 of it", "1/2 of it"),
    ):
        assert paths.without_folders(text) == shown


@pytest.mark.parametrize("place", [".", "./", "/"])
def test_a_corpus_without_a_name_takes_no_letter_from_a_message(place: str) -> None:
    text = "friday.mp4 has changed. 1/2 of it is read"
    assert Paths(are_shown=False, places=[place]).without_folders(text) == text


@pytest.mark.parametrize(
    ("location", "text", "shown"),
    [
        (".", ". has no video 'x.mp4'. Or?", "it has no video 'x.mp4'. Or?"),
        (".", "'x.mp4' matches 2 videos of .: a, b", "'x.mp4' matches 2 videos of it: a, b"),
        ("films", "films has no video 'films.mp4' of my-films", "it has no video 'films.mp4' of my-films"),
        ("/c/my.corpus/", "/c/my.corpus/videos.lance is cut off", "it/videos.lance is cut off"),
        ("/c/my.corpus", "/c/my.corpus2: no; /c/my.corpus: no.", "/c/my.corpus2: no; it: no."),
    ],
)
def test_only_the_corpus_itself_is_renamed_in_a_message(location: str, text: str, shown: str) -> None:
    assert without_location(text, location, "it") == shown


@pytest.mark.slow
def test_no_answer_names_a_folder(stranger: Client, indexed: Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = {str(Path(record.path).parent) for record in Store.open(indexed).videos()} | {str(indexed)}
    video = id_of(stranger, "friday.mp4")
    targets = ["/api/stats", "/api/videos", f"/api/videos/{video}", "/api/search?query=crown+jewels"]
    targets += [f"/api/export?moments={video}@1-2&format={name}" for name in export.format_names()]
    targets += ["/api/export?query=crown+jewels&format=json", f"/api/why?query=crown&moment={video}@1-2"]
    for target in targets:
        text = stranger.get(target).text.replace("%2F", "/")
        assert "error" not in text[:10], text
        assert not [folder for folder in folders if folder in text], target


def test_lists_name_files_so_that_an_editor_finds_them(stranger: Client) -> None:
    video = id_of(stranger, "friday.mp4")
    listed = json.loads(stranger.get(f"/api/export?moments={video}@1-2&format=json").text)
    assert f"{video}/friday.mp4" in json.dumps(listed)
    assert "file://" not in json.dumps(listed)


def test_stats_name_no_folder_of_encoders_and_files() -> None:
    numbers = {
        "corpus": "/data/ann/my.corpus",
        "failed": [{"path": "/data/ann/a.mp4", "error": "/data/ann/a.mp4: damaged"}],
        "gone": ["/data/ann/b.mp4"],
        "streams": {"subtitle": {"encoder": "/data/ann/models/clip"}, "vision": {"encoder": "a/clip"}},
    }
    assert Paths(are_shown=False).of_stats(numbers) == {
        "failed": 1,
        "gone": ["b.mp4"],
        "streams": {"subtitle": {"encoder": "clip"}, "vision": {"encoder": "a/clip"}},
    }
    assert Paths(are_shown=True).of_stats(numbers)["gone"] == ["/data/ann/b.mp4"]


def test_an_error_of_the_corpus_names_no_folder(caplog: pytest.LogCaptureFixture) -> None:
    paths = Paths(are_shown=False, places=["/data/ann/my.corpus"])
    error = StoreError("my corpus: cannot read: data/ann/my.corpus/videos.lance/1.manifest not found")
    assert "/" not in of_whenabouts(error, paths).message
    assert "data/ann" in caplog.text
    shown = of_whenabouts(error, Paths(are_shown=True, places=["/data/ann/my.corpus"])).message
    assert shown == "my corpus: cannot read: my.corpus/videos.lance/1.manifest not found"
