"""Real speech by the packaged model, offline: words, how sure it is, what is left out, what is refused."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

from whenabouts.video import speech, speech_models
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack
from whenabouts.video.sound import sound_pieces
from whenabouts.video.speech import PartialTranscript, SpeechFailedError, mean_confidence, transcribe
from whenabouts.video.speech_guard import UNGUARDED, Guard
from whenabouts.video.speech_models import (
    PACKAGED,
    SpeechUnavailableError,
    load_recogniser,
    speech_seconds,
    why_unavailable,
)

pytest.importorskip("faster_whisper")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        why_unavailable(PACKAGED) is not None, reason="the package with the speech model is not installed"
    ),
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture()
def another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the packaged model, to be spoiled, in the place of the installed one."""
    folder = speech_models._packaged_folder()
    assert folder is not None
    shutil.copytree(folder, tmp_path / "model")
    monkeypatch.setattr(speech_models, "_packaged_folder", lambda: tmp_path / "model")
    load_recogniser.cache_clear()
    yield tmp_path / "model"
    load_recogniser.cache_clear()


def test_real_words_are_recognised_with_their_times_and_how_sure_without_a_network(samples: Path) -> None:
    seconds: list[float] = []
    track = transcribe(samples / "nasa_audio_only.mp3", PACKAGED, progress=seconds.append)
    text = " ".join(cue.text for cue in track.cues)
    assert "one of the largest clean rooms in the world" in text and "Goddard Space Flight Center" in text
    assert (track.source, track.language, track.notes) == (f"speech:{PACKAGED}", "en", ())
    (word,) = [word for cue in track.cues for word in cue.words if word.text == "Greenbelt,"]
    assert 9.0 < word.start < word.end < 12.5
    assert 0.7 < (mean_confidence(track.cues) or 0.0) <= 1.0
    assert seconds == sorted(seconds) and seconds[-1] == pytest.approx(13.0, abs=0.2)


def sound(path: Path, samples: Any) -> Path:
    import wave

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((np.clip(samples, -1, 1) * 32_000).astype("<i2").tobytes())
    return path


def test_recognition_that_was_stopped_goes_on_behind_what_was_kept(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "sound_pieces", partial(sound_pieces, piece_seconds=5.0))
    kept: list[PartialTranscript] = []
    whole = transcribe(samples / "nasa_audio_only.mp3", PACKAGED, keep=kept.append)
    assert len(kept) >= 2 and 0 < len(kept[-1].cues) < len(whole.cues)
    seconds: list[float] = []
    rest = transcribe(samples / "nasa_audio_only.mp3", PACKAGED, earlier=kept[-1], progress=seconds.append)
    assert rest == whole and min(seconds) > kept[-1].seconds


def test_silence_has_no_words_though_the_model_alone_invents_some(tmp_path: Path) -> None:
    path = sound(tmp_path / "silence.wav", np.zeros(40 * 16_000))
    assert transcribe(path, PACKAGED, guard=UNGUARDED).cues
    guarded = transcribe(path, PACKAGED)
    assert guarded.cues == () and guarded.notes == ("no speech was recognised in its sound",)
    without_voice = transcribe(path, PACKAGED, guard=Guard(voice=False))
    assert without_voice.cues == () and "left out: likely invented" in " ".join(without_voice.notes)


def segment(
    text: str,
    silence: float = 0.1,
    likely: float = -0.3,
    ratio: float = 1.2,
    sure: float = 0.9,
    seek: int = 0,
) -> SimpleNamespace:
    words = [SimpleNamespace(word=word, probability=sure) for word in text.split()]
    return SimpleNamespace(
        text=text, no_speech_prob=silence, avg_logprob=likely, compression_ratio=ratio, words=words, seek=seek
    )


def test_segments_are_left_out_for_silence_unlikely_words_and_repetition() -> None:
    dropped: list[str] = []
    silent = segment("b", 0.9, sure=0.7, seek=3000)
    segments = [segment("a"), segment("c", likely=-1.4), segment("d", ratio=8.0), silent]
    assert [kept.text for kept in Guard().segments(segments, dropped)] == ["a"]
    assert dropped == ["c", "d", "b"]


def test_clear_words_behind_music_stay_though_the_model_hears_silence_too() -> None:
    dropped: list[str] = []
    assert [kept.text for kept in Guard().segments([segment("So we met.", 0.8, sure=0.85)], dropped)] == [
        "So we met."
    ]
    assert dropped == []


def test_a_window_of_guesses_goes_and_its_stock_phrases_before_it() -> None:
    dropped: list[str] = []
    guesses = [segment("It looks so.", sure=0.4), segment("Thank you.", sure=0.6)]
    doubtful = [segment("Thank you.", sure=0.85, seek=3000), segment("It is my trip.", sure=0.6, seek=3000)]
    spoken = [segment("So much for that.", sure=0.8, seek=6000), segment("Thank you.", sure=0.8, seek=6000)]
    kept = [each.text for each in Guard().segments([*guesses, *doubtful, *spoken], dropped)]
    assert kept == ["It is my trip.", "So much for that.", "Thank you."]
    assert dropped == ["It looks so.", "Thank you.", "Thank you."]


def test_a_sentence_that_repeats_stays_once_and_a_guess_goes() -> None:
    dropped: list[str] = []
    cues = [Cue(at, at + 1, text, (), sure) for at, (text, sure) in enumerate([
        ("Thank you.", 0.9), ("thank you", 0.9), ("Thank you!", 0.9),
        ("No.", 0.9), ("No.", 0.9), ("Mm.", 0.1),
    ])]  # fmt: skip
    assert [cue.text for cue in Guard().cues(cues, dropped)] == ["Thank you.", "No.", "No."]
    assert dropped == ["thank you", "Thank you!", "Mm."]


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json", "config.json", "vocabulary.txt"])
def test_a_changed_file_of_the_model_is_refused_by_name(
    another_package: Path, samples: Path, name: str
) -> None:
    path = another_package / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        SpeechUnavailableError, match=f"{name}: not the file that .* 0.1.0 carries.*reinstall"
    ):
        transcribe(samples / "nasa_audio_only.mp3", PACKAGED)


def test_a_missing_file_of_the_model_is_told_by_name(another_package: Path, samples: Path) -> None:
    (another_package / "model.bin").unlink()
    with pytest.raises(SpeechUnavailableError, match=r"model\.bin: cannot be read .*reinstall"):
        transcribe(samples / "nasa_audio_only.mp3", PACKAGED)


def test_without_the_package_the_remedy_is_named_and_nothing_is_downloaded(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_models, "_packaged_folder", lambda: None)
    load_recogniser.cache_clear()
    with pytest.raises(SpeechUnavailableError, match=r"pip install 'whenabouts\[speech-offline\]'"):
        transcribe(samples / "nasa_audio_only.mp3", PACKAGED)


def test_a_model_of_another_kind_is_told_so(tmp_path: Path, samples: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x80\x02}q\x00." * 100)
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(SpeechUnavailableError, match="is it a Whisper model for faster-whisper"):
        transcribe(samples / "nasa_audio_only.mp3", str(tmp_path))


def test_sound_marked_as_another_language_is_not_made_english(samples: Path) -> None:
    track = transcribe(samples / "nasa_audio_only.mp3", PACKAGED, marked_as="ger")
    assert track.cues == ()
    assert "marked as ger and packaged-tiny.en knows en only" in track.notes[0]
    assert transcribe(samples / "friday.mp4", PACKAGED, marked_as="eng").cues


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (MemoryError("std::bad_alloc"), "out of memory: name a smaller model"),
        (RuntimeError("CUDA failed with error out of memory"), "out of memory: name a smaller model"),
        (RuntimeError("cuBLAS failed"), "try another model"),
    ],
)
def test_a_model_that_gives_up_names_the_file_and_the_remedy(
    samples: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str
) -> None:
    class GivesUp:
        supported_languages = ("en", "de")

        def transcribe(self, *_: object, **__: object) -> NoReturn:
            raise error

    monkeypatch.setattr("whenabouts.video.speech.load_recogniser", lambda model: GivesUp())
    with pytest.raises(SpeechFailedError, match=rf"nasa_audio_only\.mp3: .*with large .*{remedy}.*--retry"):
        transcribe(samples / "nasa_audio_only.mp3", "large")


def test_a_damaged_track_is_recognised_as_far_as_it_goes_and_said_to_be_damaged(
    tmp_path: Path, samples: Path
) -> None:
    data = bytearray((samples / "nasa_13013.mp4").read_bytes())
    rng = np.random.default_rng(1)
    for at in rng.integers(len(data) // 3, len(data) - 60_000, 4_000):
        data[at] ^= 0xFF
    (tmp_path / "damaged.mp4").write_bytes(data)
    track = transcribe(tmp_path / "damaged.mp4", PACKAGED)
    assert "its sound is damaged: " in " ".join(track.notes)
    assert all(0 <= cue.start < cue.end < 14 for cue in track.cues)


def test_doubtful_tracks_are_told_of(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [SimpleNamespace(start=0.0, end=1.0, word=" Und", probability=0.58)]
    about = SimpleNamespace(duration_after_vad=13.0, language_probability=0.3, language="cy")
    guess = SimpleNamespace(**vars(segment("Und")) | {"words": words, "start": 0.0, "end": 1.0})
    recogniser = SimpleNamespace(
        supported_languages=("en", "de"), transcribe=lambda *_, **__: (iter([guess]), about)
    )
    monkeypatch.setattr("whenabouts.video.speech.load_recogniser", lambda model: recogniser)
    notes = " ".join(transcribe(samples / "nasa_audio_only.mp3", "small").notes)
    assert "language was not recognised for sure (cy at 30%)" in notes and "58% sure of its words" in notes


def test_how_sure_weighs_by_words_and_is_unknown_of_written_ones() -> None:
    assert mean_confidence([Cue(0, 1, "written")]) is None
    assert mean_confidence(CueTrack((), "speech:m").cues) is None
    assert mean_confidence([Cue(0, 1, "a", (), 0.5), Cue(1, 2, "b", (), 1.0)]) == pytest.approx(0.75)


def test_estimates_grow_with_the_model() -> None:
    assert 0 < speech_seconds(PACKAGED) < speech_seconds("small") < speech_seconds("large-v3")
