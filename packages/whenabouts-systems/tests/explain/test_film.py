"""Frames and words of the video along which an answer is told, as far as they can be had."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.small_systems import Chooser, Letters, inputs, small_xml, write_talk
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.types import Moment
from whenabouts.video.thumbnails import thumbnail
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.explain.explained import Explanation, Ranked
from whenabouts_systems.explain.film import MOST_FRAMES, frames_of, instants, with_film
from whenabouts_systems.explain.film_strip import lay_out
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained

QUERY = "one of the largest cleanrooms in the world"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A video with subtitles, a sound with subtitles, and a transcript."""
    folder = tmp_path_factory.mktemp("film")
    samples = Path(__file__).parents[4] / "samples" / "videos"
    for name in ("nasa_13013.mp4", "nasa_13013.srt", "nasa_audio_only.mp3", "nasa_audio_only.srt"):
        shutil.copy(samples / name, folder / name)
    write_talk(folder, 0)
    made = Corpus(folder / "my.corpus", encoders=[Letters()], create=True)
    with uncalibrated():
        made.add(folder, text=Letters(), processes=1)
    return made


def told(corpus: Corpus, video: str, systems: int = 1) -> Explanation:
    other = small_xml(1) if systems == 2 else None
    return explain(corpus, QUERY, small_xml(), other=other, video=video)


@pytest.mark.slow
def test_words_are_those_of_the_index_and_frames_those_of_the_file(corpus: Corpus) -> None:
    film = with_film(corpus, told(corpus, "nasa_13013.mp4")).film
    assert film is not None
    record = corpus.resolve("nasa_13013.mp4")
    assert film.words == corpus.words(record)
    assert any("largest cleanrooms" in one.text for one in film.words)
    assert len(film.frames) == MOST_FRAMES
    last = film.frames[-1]
    assert last.jpeg == thumbnail(Path(record.path), last.seconds, 320)
    assert last.jpeg != film.frames[0].jpeg
    assert film.notes == ()


@pytest.mark.slow
def test_a_candidate_moment_has_the_frame_of_its_middle_if_its_video_has_a_picture(corpus: Corpus) -> None:
    told_of = told(corpus, "nasa_13013.mp4")
    seen, heard = (corpus.resolve(name) for name in ("nasa_13013.mp4", "nasa_audio_only.mp3"))
    moments = [Ranked(1, Moment(heard.video_id, 0, 2), 2.0), Ranked(2, Moment(seen.video_id, 4, 7), 1.0)]
    systems = (replace(told_of.systems[0], moments=tuple(moments)),)
    (system,) = with_film(corpus, replace(told_of, systems=systems)).systems
    sound, picture = system.moments
    assert sound.frame is None
    assert picture.frame is not None and picture.frame.seconds == 5.5
    assert picture.frame.jpeg == thumbnail(Path(seen.path), 5.5, 320)


@pytest.mark.slow
def test_the_clips_most_similar_to_the_query_have_the_frame_of_their_middle(corpus: Corpus) -> None:
    bare = told(corpus, "nasa_13013.mp4", systems=2)
    path = Path(corpus.resolve("nasa_13013.mp4").path)
    for before, system in zip(bare.systems, with_film(corpus, bare).systems, strict=True):
        assert system.similar_clips
        for clip in system.similar_clips:
            assert clip.frame is not None and clip.frame.seconds == clip.moment.middle
            assert clip.frame.jpeg == thumbnail(path, clip.moment.middle, 320)
        assert tuple(replace(clip, frame=None) for clip in system.similar_clips) == before.similar_clips


@pytest.mark.slow
def test_words_of_the_query_that_are_written_in_a_frame_have_their_place(
    corpus: Corpus, tmp_path: Path
) -> None:
    own = Corpus(shutil.copytree(corpus.location, tmp_path / "own"), encoders=[Letters()])
    record = own.resolve("nasa_13013.mp4")
    end = record.duration or 0.0
    box = (0.25, 0.5, 0.75, 0.6)
    written = ClipColumns(
        np.array([0.0, end / 2]),
        np.array([end / 2, end]),
        ["The LARGEST cleanroom", "one of the others"],
        box=np.array([box, (0, 0, 0.1, 0.1)]),
    )
    own.store.add_stream(StreamInfo("screen_text", "letters", "letters", 0))
    streams = {**record.streams, "screen_text": "letters"}
    kept = own.store.clips_of("subtitle", [record.video_id])
    spoken = ClipColumns(kept.start, kept.end, kept.text, kept.vectors)
    own.store.put_videos([(replace(record, streams=streams), {"screen_text": written, "subtitle": spoken})])
    explanation = with_film(own, told(corpus, "nasa_13013.mp4"))
    assert explanation.film is not None
    boxes = [frame.boxes for frame in explanation.film.frames]
    assert boxes == [(pytest.approx(box, abs=1e-3),)] * (MOST_FRAMES // 2) + [()] * (MOST_FRAMES // 2)
    drawn = [hung.boxes for hung in lay_out(explanation.film, (), None, end, 8.0).frames]
    assert drawn == boxes


@pytest.mark.slow
def test_two_systems_side_by_side_have_half_the_frames_each(corpus: Corpus) -> None:
    film = with_film(corpus, told(corpus, "nasa_13013.mp4", systems=2)).film
    assert film is not None
    assert len(film.frames) == MOST_FRAMES // 2


def test_without_a_picture_no_video_is_opened(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts_systems.explain import film as module

    monkeypatch.setattr(module, "frames_of", lambda *_: pytest.fail("a video was opened"))
    film = with_film(corpus, told(corpus, "nasa_13013.mp4"), frames=False).film
    assert film is not None
    assert film.words
    assert (film.frames, film.notes) == ((), ())


@pytest.mark.parametrize(
    ("video", "note"),
    [
        ("nasa_audio_only.mp3", "has no picture"),
        ("talk_000.vtt", "is a transcript without a recording"),
    ],
)
def test_what_has_no_picture_has_words_and_a_note(corpus: Corpus, video: str, note: str) -> None:
    explained = with_film(corpus, told(corpus, video))
    assert explained.film is not None
    assert explained.film.words
    assert explained.film.frames == ()
    assert [note in one for one in explained.film.notes] == [True]
    assert explained.lines()[-1] == f"note: {explained.film.notes[0]}"


def test_a_file_that_is_gone_or_another_one_has_no_frames_and_a_note(corpus: Corpus) -> None:
    record = corpus.resolve("nasa_13013.mp4")
    for changed, note in (
        (replace(record, path="/none/at/all.mp4"), "is gone or cannot be read"),
        (replace(record, size=record.size + 1), "has changed since it was indexed"),
        (replace(record, modified_ns=1), "has changed since it was indexed"),
    ):
        frames, notes = frames_of(changed, [1.0])
        assert frames == ()
        assert [note in one and record.video_id in one for one in notes] == [True]


def test_a_file_that_cannot_be_decoded_is_one_note_and_no_error(corpus: Corpus, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 100)
    found = broken.stat()
    record = replace(
        corpus.resolve("nasa_13013.mp4"),
        path=str(broken),
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
    )
    frames, notes = frames_of(record, [1.0, 2.0])
    assert frames == ()
    assert [one.startswith("no frame at 1.0 s: ") for one in notes] == [True]


def test_a_system_that_tells_nothing_along_a_video_has_frames_of_its_moments_alone(corpus: Corpus) -> None:
    bare = explain(corpus, QUERY, Trained("chooser", Chooser(), inputs(), Decoding()), k=50)
    assert with_film(corpus, bare, frames=False) is bare
    told = with_film(corpus, bare)
    assert told.film is None
    seen = corpus.resolve("nasa_13013.mp4").video_id
    moments = told.systems[0].moments
    assert any(ranked.frame for ranked in moments)
    assert all((ranked.frame is not None) == (ranked.moment.video_id == seen) for ranked in moments)


@pytest.mark.slow
def test_programs_get_seconds_and_words_and_a_data_set_none(corpus: Corpus) -> None:
    bare = told(corpus, "nasa_13013.mp4")
    assert not {"frames", "words", "notes"} & set(bare.to_json())
    json = with_film(corpus, bare).to_json()
    assert json["frames"] == sorted(json["frames"])
    assert set(json["words"][0]) == {"start", "end", "text"}
    assert json["notes"] == []


def test_instants_are_spread_evenly() -> None:
    assert instants(40.0, 4, []) == [5.0, 15.0, 25.0, 35.0]


def test_a_short_moment_of_a_long_video_is_seen() -> None:
    assert instants(3600.0, 4, [Moment("v", 1000.0, 1010.0)]) == [450.0, 1005.0, 2250.0, 3150.0]


def test_a_moment_that_an_instant_is_in_moves_none() -> None:
    assert instants(40.0, 4, [Moment("v", 12.0, 16.0)]) == [5.0, 15.0, 25.0, 35.0]


def test_of_two_moments_in_one_part_the_first_is_seen() -> None:
    truth, answered = Moment("v", 11.0, 12.0), Moment("v", 18.0, 19.0)
    assert instants(40.0, 4, [truth, answered]) == [5.0, 11.5, 25.0, 35.0]


def test_a_moment_behind_the_end_moves_none() -> None:
    assert instants(40.0, 4, [Moment("v", 40.0, 50.0)]) == [5.0, 15.0, 25.0, 35.0]
