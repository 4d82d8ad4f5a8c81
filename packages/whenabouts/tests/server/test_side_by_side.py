"""A server over two corpora with a common video: it is listed once, and all routes work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.server.conftest import Client, Open

from whenabouts import Corpus

pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture
def both(opened: Open, tmp_path: Path, samples: Path) -> Client:
    """Two corpora that both have a film with subtitles; the second has another film too."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("friday.mp4", "friday.vtt", "bottle-detection.mp4"):
        if (samples / name).exists():
            shutil.copy(samples / name, folder)
    Corpus(tmp_path / "a.corpus", create=True).add(folder / "friday.mp4", processes=1)
    Corpus(tmp_path / "b.corpus", create=True).add(folder, processes=1)
    return opened([tmp_path / "a.corpus", tmp_path / "b.corpus"])


def test_the_list_has_the_video_once_and_the_numbers_say_from_where(both: Client) -> None:
    names = [video["name"] for video in both.json("/api/videos")["data"]]
    assert sorted(names) == ["bottle-detection.mp4", "friday.mp4"]
    stats = both.json("/api/stats")
    assert stats["videos"] == 2
    assert stats["choices"]["doubles"].startswith("1 video of b.corpus")


@pytest.mark.slow
def test_search_words_thumbnails_and_cuts_are_those_of_one(both: Client) -> None:
    found = both.json("/api/search", query="somebody has stolen the crown jewels")["data"]
    spans = [(moment["video_id"], moment["start"], moment["end"]) for moment in found]
    assert spans and len(spans) == len(set(spans))
    video = found[0]["video_id"]
    assert both.json(f"/api/videos/{video}")["available"]
    assert both.json(f"/api/videos/{video}/cues")["data"]
    picture = both.get(f"/api/videos/{video}/thumbnail", params={"at": 1.0})
    assert (picture.status_code, picture.headers["content-type"]) == (200, "image/jpeg")
    clip = both.get(f"/api/videos/{video}/clip", params={"start": 1.0, "end": 2.0})
    assert clip.status_code == 200 and clip.content
