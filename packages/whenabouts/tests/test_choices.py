"""Choices that an index run makes by itself are reported by the run, `stats` and the lists."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import av
import numpy as np
import pytest

from whenabouts import Corpus, choices
from whenabouts.choices import choices_of
from whenabouts.indexing import plan_index
from whenabouts.same_material import Double
from whenabouts.types import UsageError
from whenabouts.video.sound import sound_pieces
from whenabouts.video.speech_models import PACKAGED, why_unavailable

pytestmark = pytest.mark.usefixtures("unmeasured")

CUES = "1\n00:00:00,000 --> 00:00:02,000\n{}\n"


@pytest.fixture
def folder(tmp_path: Path, samples: Path) -> Path:
    """A film with subtitles in two languages beside it."""
    (tmp_path / "films").mkdir()
    shutil.copy(samples / "bottle-detection.mp4", tmp_path / "films" / "film.mp4")
    (tmp_path / "films" / "film.en.srt").write_text(CUES.format("a bottle stands here"))
    (tmp_path / "films" / "film.de.srt").write_text(CUES.format("hier steht eine Flasche"))
    return tmp_path / "films"


@pytest.mark.slow
def test_of_subtitles_in_two_languages_the_one_that_is_searched_is_said(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    told = corpus.add(folder, processes=1).choices["subtitles"]
    assert "searched: en; not searched: de" in told and "--language" in told
    # A run that reads nothing reports it again, and the other language once that is chosen.
    assert corpus.add(folder, processes=1).choices["subtitles"] == told
    told = corpus.add(folder, processes=1, language="de").choices["subtitles"]
    assert "searched: de; not searched: en" in told
    assert corpus.stats().to_json()["choices"]["subtitles"] == told
    assert any(told in line for line in corpus.stats().lines())


def two_sounds(path: Path) -> None:
    """A recording with two sound tracks: the first, in English, is silent; the second, in German, is loud."""
    with av.open(str(path), "w") as container:
        tracks = [container.add_stream("pcm_s16le", rate=16000, layout="mono") for _ in range(2)]
        tracks[0].metadata["language"], tracks[1].metadata["language"] = "eng", "ger"
        for number, stream in enumerate(tracks):
            samples = np.full((1, 16000), number * 10_000, np.int16)
            frame = av.AudioFrame.from_ndarray(samples, "s16", "mono")
            frame.sample_rate, frame.pts = 16000, 0
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


@pytest.mark.slow
def test_a_second_sound_track_is_said_not_to_be_heard(tmp_path: Path) -> None:
    two_sounds(tmp_path / "talk.mka")
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    told = corpus.add(tmp_path / "talk.mka", processes=1).choices["sound_tracks"]
    assert "1 video has several sound tracks; heard: eng; not heard: ger" in told
    assert "--sound-track" in told
    for track in ("de", "2"):
        told = corpus.add(tmp_path / "talk.mka", processes=1, sound_track=track).choices["sound_tracks"]
        assert "heard: ger; not heard: eng" in told
    # The choice is stored until the user resets it.
    assert corpus.add(tmp_path / "talk.mka", processes=1).unchanged == 1
    assert corpus.add(tmp_path / "talk.mka", processes=1).choices["sound_tracks"] == told
    told = corpus.add(tmp_path / "talk.mka", processes=1, sound_track="").choices["sound_tracks"]
    assert "heard: eng" in told
    with pytest.raises(UsageError, match=r"--sound-track '0'.*number from 1"):
        plan_index(corpus, [tmp_path / "talk.mka"], sound_track="0")


def test_the_sound_track_that_is_chosen_is_decoded(tmp_path: Path) -> None:
    two_sounds(tmp_path / "talk.mka")
    loudness = {
        track: float(np.abs(np.concatenate([own.samples for own in pieces])).max())
        for track in ("", "1", "2", "en", "de", "fr")
        if (pieces := list(sound_pieces(tmp_path / "talk.mka", track=track)))
    }
    assert loudness["2"] == loudness["de"] > 0.2
    assert loudness[""] == loudness["1"] == loudness["en"] == loudness["fr"] < 0.01


def spoken(path: Path, *sentences: str) -> None:
    """A film with a sound track for each sentence, spoken by an English voice synthesizer."""
    with av.open(str(path), "w") as container:
        film = container.add_stream("mpeg4", rate=1)
        assert isinstance(film, av.VideoStream)
        film.width, film.height, film.pix_fmt = 64, 64, "yuv420p"
        tracks = [container.add_stream("pcm_s16le", rate=16_000, layout="mono") for _ in sentences]
        for _ in range(8):
            container.mux(film.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")))
        container.mux(film.encode(None))
        for track, sentence in zip(tracks, sentences, strict=True):
            voice = path.with_suffix(f".{track.index}.wav")
            subprocess.run(["espeak-ng", "-v", "en-us", "-s", "140", "-w", str(voice), sentence], check=True)
            with av.open(str(voice)) as said:
                resampler = av.AudioResampler("s16", "mono", 16_000)
                for frame in said.decode(audio=0):
                    for part in resampler.resample(frame):
                        container.mux(track.encode(part))
            container.mux(track.encode(None))


@pytest.mark.slow
@pytest.mark.skipif(why_unavailable(PACKAGED) is not None, reason="the speech model is not installed")
@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng, which speaks, is not installed")
def test_of_two_spoken_sound_tracks_the_one_that_is_chosen_is_recognised(tmp_path: Path) -> None:
    film = tmp_path / "film.mkv"
    spoken(
        film,
        "The train to the airport leaves at seven o'clock in the morning.",
        "My sister planted a yellow tree in the garden behind the house.",
    )
    corpus = Corpus(tmp_path / "my.corpus", create=True)

    def heard() -> str:
        return " ".join(line.text for line in corpus.words(corpus.resolve("film"))).lower()

    told = corpus.add(film, transcribe=True, processes=1).choices["sound_tracks"]
    assert "number 1" in told and "--sound-track" in told
    assert "airport" in heard() and "garden" not in heard()
    told = corpus.add(film, transcribe=True, sound_track="2", processes=1).choices["sound_tracks"]
    assert "number 2" in told
    assert "garden" in heard() and "airport" not in heard()
    assert corpus.search("a tree in the garden", k=1)[0].text and corpus.resolve("film").has_picture
    corpus.add(film, transcribe=True, sound_track="1", processes=1)
    assert "airport" in heard()


def test_a_film_with_one_of_each_leaves_nothing_to_say(folder: Path, tmp_path: Path) -> None:
    (folder / "film.de.srt").unlink()
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    assert corpus.add(folder, processes=1).choices == {}


@pytest.mark.slow
def test_a_file_that_is_gone_is_said_before_and_after_the_next_run(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(folder, processes=1)
    (folder / "film.mp4").unlink()
    assert "1 file is gone" in choices_of(corpus)["gone"] and "--prune" in choices_of(corpus)["gone"]
    assert any("gone" in line for line in corpus.show("film").lines())
    assert any("missing files" in note for note in corpus.search("bottle").notes)
    assert corpus.add(folder, processes=1).gone == [folder / "film.mp4"]
    assert any("1 file is gone" in line for line in corpus.stats().lines())


@pytest.mark.skipif(why_unavailable(PACKAGED) is not None, reason="the speech model is not installed")
def test_a_language_that_the_speech_model_does_not_know_is_refused(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    with pytest.raises(UsageError, match=rf"--language de: the speech model {PACKAGED} .*--transcribe small"):
        plan_index(corpus, [folder], transcribe=True, language="de")
    assert not corpus.store.videos()
    plan_index(corpus, [folder], transcribe=True, language="en-US")


def test_videos_are_named_in_any_unicode_form_and_letter_case(tmp_path: Path) -> None:
    (tmp_path / "U\u0308ber.srt").write_text(CUES.format("about this"))
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    corpus.add(tmp_path / "U\u0308ber.srt", processes=1)
    for name in ("\u00dcber", "\u00fcber.SRT", "u\u0308ber"):
        assert corpus.search("about this", within=[name]).moments


def test_many_doubles_are_not_compared_with_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(double: Double, other: object) -> bool:
        raise AssertionError("the cost would grow with the square of the doubles")

    monkeypatch.setattr(Double, "__eq__", compared)
    film, talk, copy = (
        cast(Any, SimpleNamespace(kind=kind, file_name=name))
        for kind, name in (("media", "film.mp4"), ("transcript", "talk.srt"), ("media", "copy.mp4"))
    )
    lines = choices._twice([Double(talk, film, "says"), Double(copy, film, "shows")])
    assert "1 transcript says the same" in lines["transcripts_twice"]
    assert "copy.mp4, which shows almost the same as film.mp4" in lines["copies"]


@pytest.mark.parametrize("given", ["de", 7, None])
def test_metadata_of_the_user_in_place_of_the_sound_track_do_no_harm(given: object) -> None:
    metadata = {"sound_tracks": ["en", "de"], "sound_track": given}
    film: Any = SimpleNamespace(metadata=metadata, file_name="film.mkv")
    assert "heard: en; not heard: de (such as film.mkv: number 1)" in choices._sound([film])
