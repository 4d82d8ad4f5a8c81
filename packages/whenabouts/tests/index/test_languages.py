"""Subtitles in several languages: all are kept, one is searched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from whenabouts import Corpus, UsageError

pytestmark = pytest.mark.usefixtures("unmeasured")

SAID = {
    ".de.vtt": "Die Kronjuwelen wurden gestohlen.",
    ".en.vtt": "The crown jewels were stolen.",
    ".french.srt": "Les joyaux ont disparu.",
}


@pytest.fixture()
def video(tmp_path: Path, samples: Path) -> Path:
    path = tmp_path / "videos" / "friday.mp4"
    path.parent.mkdir()
    shutil.copy2(samples / "friday.mp4", path)
    for ending, words in SAID.items():
        times = "00:00:01,000 --> 00:00:03,000" if ending.endswith("srt") else "00:01.000 --> 00:03.000"
        head = "1\n" if ending.endswith("srt") else "WEBVTT\n\n"
        path.with_name(f"friday{ending}").write_text(f"{head}{times}\n{words}\n")
    return path


def words(corpus: Corpus, language: str | None = None) -> str:
    return " ".join(line.text for line in corpus.show("friday", language).words)


def test_all_languages_are_kept_and_english_is_searched_not_the_first_of_the_alphabet(
    corpus_dir: Path, video: Path
) -> None:
    corpus = Corpus(corpus_dir, create=True)
    summary = corpus.add(video.parent, processes=1)
    assert summary.added == 1
    assert words(corpus) == SAID[".en.vtt"]
    assert (words(corpus, "de"), words(corpus, "fr-CA")) == (SAID[".de.vtt"], SAID[".french.srt"])
    shown = corpus.show("friday")
    assert {(track.language, track.is_searched) for track in shown.tracks} == {
        ("de", False),
        ("en", True),
        ("fr", False),
    }
    assert sum("track" in line for line in shown.lines()) == 3
    assert len(shown.to_json()["tracks"]) == 3
    with pytest.raises(UsageError, match="no subtitles in 'ru'; it has de, en, fr"):
        corpus.show("friday", "ru")
    assert corpus.show("friday@0:00-0:01", "de").words == ()
    german = corpus.show("friday", "de")
    assert "  words     sidecar:friday.de.vtt" in german.lines()
    assert german.to_json()["words_from"] == "sidecar:friday.de.vtt"
    assert [track.language for track in german.tracks if track.is_searched] == ["en"]


@pytest.mark.slow
def test_the_language_that_is_named_is_searched_from_then_on(corpus_dir: Path, video: Path) -> None:
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(video.parent, processes=1)
    assert corpus.add(video.parent, language="de", processes=1).updated == 1
    assert words(corpus) == corpus.search("Kronjuwelen", k=1)[0].text == SAID[".de.vtt"]
    assert len(corpus.show("friday").tracks) == 3
    assert corpus.add(video.parent, processes=1).unchanged == 1  # remembered
    assert corpus.add(video.parent, language="", processes=1).updated == 1
    assert words(corpus) == SAID[".en.vtt"]
    with pytest.raises(UsageError, match="'klingon language' is not a language"):
        corpus.add(video.parent, language="klingon language")


@pytest.mark.slow
def test_a_file_without_a_language_comes_first_and_one_track_alone_is_not_listed(
    corpus_dir: Path, video: Path
) -> None:
    video.with_name("friday.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nPlain words.\n")
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(video.parent, processes=1)
    assert words(corpus) == "Plain words."
    for ending in SAID:
        video.with_name(f"friday{ending}").unlink()
    assert corpus.add(video.parent, processes=1).updated == 1
    assert corpus.show("friday").tracks == ()
    with pytest.raises(UsageError, match="has one subtitle track at most"):
        corpus.show("friday", "de")


@pytest.mark.slow
def test_kept_subtitles_are_not_taken_for_recognised_speech(corpus_dir: Path, video: Path) -> None:
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(video.parent, processes=1)
    content = corpus.resolve("friday").content_hash
    assert corpus.transcripts.find(content) is None
    corpus.remove("friday")
    assert corpus.transcripts.tracks(content) == []


@pytest.mark.slow
def test_of_corpora_side_by_side_each_video_has_the_subtitles_of_its_own(
    corpus_dir: Path, video: Path, tmp_path: Path
) -> None:
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:04.000\nGood morning.\n")
    Corpus(tmp_path / "talks", create=True).add(tmp_path / "talk.vtt", processes=1)
    Corpus(corpus_dir, create=True).add(video.parent, processes=1)
    both = Corpus([tmp_path / "talks", corpus_dir])
    assert words(both, "de") == SAID[".de.vtt"]
    assert len(both.show("friday").tracks) == 3
