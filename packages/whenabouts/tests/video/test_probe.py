from __future__ import annotations

import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from tests.streams.written_film import slide, write_film

from whenabouts.video.headers import missing_bytes
from whenabouts.video.probe import MediaError, base_language, chosen_sound, probe


def test_the_samples_are_what_their_table_says(samples: Path) -> None:
    found = {path.name: probe(path) for path in samples.iterdir() if path.suffix in (".mp4", ".webm", ".mp3")}
    sizes = {
        "bottle-detection.mp4": (640, 360),
        "car-detection.mp4": (768, 432),
        "man_green_wall.mp4": (320, 192),
        "nasa_13013.mp4": (320, 180),
        "friday.mp4": (640, 480),
        "flower.webm": (960, 540),
        "frog.webm": (720, 480),
    }
    for name, size in sizes.items():
        picture = found[name].picture
        assert picture is not None and (picture.width, picture.height) == size, name
    durations = {
        "bottle-detection.mp4": 39.85,
        "friday.mp4": 6.17,
        "flower.webm": 5.06,
        "nasa_audio_only.mp3": 13.06,
    }
    for name, seconds in durations.items():
        assert found[name].duration == pytest.approx(seconds, abs=0.01)
    assert not found["bottle-detection.mp4"].has_audio and found["friday.mp4"].has_audio
    assert all(one.missing_bytes == 0 for one in found.values())


def test_of_six_streams_the_first_video_and_both_subtitle_tracks_are_seen(samples: Path) -> None:
    found = probe(samples / "nasa_13013.mp4")
    assert found.picture is not None and found.picture.index == 0 and found.picture.codec == "h264"
    assert [(track.index, track.language, track.is_text) for track in found.subtitle_tracks] == [
        (2, "eng", True),
        (5, "eng", True),
    ]


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("swe", "sv"),
        ("ces", "cs"),
        ("cze", "cs"),
        ("ukr", "uk"),
        ("EL-gr", "el"),
        ("ell", "el"),
        ("haw", "haw"),
    ],
)
def test_codes_of_three_letters_are_known_by_two(tag: str, code: str) -> None:
    assert base_language(tag) == code
    assert chosen_sound(["eng", tag], code) == chosen_sound(["eng", code], tag) == 1


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_chapters_are_read(tmp_path: Path, suffix: str) -> None:
    named = [(0.0, 2.0, "Welcome"), (2.0, 4.0, "Tides  and\ncurrents"), (4.0, 6.0, "")]
    film = write_film(tmp_path / f"course{suffix}", lambda _: slide("A"), 6, chapters=named)
    found = [(chapter.start, chapter.end, chapter.title) for chapter in probe(film).chapters]
    assert found == [(0.0, 2.0, "Welcome"), (2.0, 4.0, "Tides and currents"), (4.0, 6.0, "")]


@pytest.mark.parametrize("shift", [0, 100])
def test_chapters_count_from_the_beginning_of_a_film_whose_clock_does_not(tmp_path: Path, shift: int) -> None:
    """By the film's own clock, as Matroska has them, or from 0, as FFmpeg also writes them."""
    named = [(shift + 0.0, shift + 2.0, "Welcome"), (shift + 2.0, shift + 6.0, "Tides")]
    film = write_film(tmp_path / "course.mkv", lambda _: slide("A"), 6, chapters=named, begins=100)
    found = probe(film)
    assert found.duration == pytest.approx(6, abs=0.6)
    times = [(chapter.start, chapter.end) for chapter in found.chapters]
    assert times == [pytest.approx((0, 2), abs=0.01), pytest.approx((2, 6), abs=0.01)]


def test_a_title_that_is_no_utf8_is_no_reason_to_refuse_a_film(tmp_path: Path) -> None:
    film = write_film(tmp_path / "course.mp4", lambda _: slide("A"), 4, chapters=[(0.0, 4.0, "Tides")])
    film.write_bytes(film.read_bytes().replace(b"Tides", b"T\xfcdes"))
    assert [chapter.title for chapter in probe(film).chapters] == ["T\ufffddes"]


def test_audio_only_has_no_picture(samples: Path) -> None:
    found = probe(samples / "nasa_audio_only.mp3")
    assert found.picture is None and found.has_audio


@pytest.mark.parametrize(
    ("name", "size"), [("rot90_three_frames.mov", (320, 568)), ("dog_rot180_vfr.mp4", (1280, 720))]
)
def test_the_size_is_that_of_the_upright_picture(real_video: Path, name: str, size: tuple[int, int]) -> None:
    picture = probe(real_video / name).picture
    assert picture is not None and (picture.width, picture.height) == size


def test_a_duration_that_nobody_states_is_read_off_the_packets(real_video: Path) -> None:
    assert probe(real_video / "no_duration.webm").duration == pytest.approx(4.94, abs=0.01)


def test_frames_without_times_are_counted(tmp_path: Path, studio: Any) -> None:
    raw = studio.video(tmp_path / "a.h264", range(50), time_base=Fraction(1, 25))
    assert probe(raw).duration == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("name", "missing"), [("truncated_car.mp4", 1_611_553), ("truncated_flower.webm", 354_058)]
)
def test_a_broken_off_file_says_how_much_is_missing(real_video: Path, name: str, missing: int) -> None:
    assert probe(real_video / name).missing_bytes == missing


def test_a_wave_file_cut_in_two_says_so(tmp_path: Path, studio: Any) -> None:
    whole = studio.sound(tmp_path / "a.wav", 2.0)
    assert missing_bytes(whole) == 0
    cut = tmp_path / "cut.wav"
    cut.write_bytes(whole.read_bytes()[:20_000])
    assert missing_bytes(cut) == whole.stat().st_size - 20_000


def message(path: Path) -> str:
    with pytest.raises(MediaError) as caught:
        probe(path)
    text = str(caught.value)
    assert "\n" not in text and text.encode("utf-8")
    return text


def test_an_empty_file_is_named_with_cause_and_remedy(real_video: Path) -> None:
    assert "zero_byte.mp4" in message(real_video / "zero_byte.mp4")
    assert "0 bytes" in message(real_video / "zero_byte.mp4")


def test_text_in_disguise_is_told_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("This is a letter, not a film.\n" * 40)
    assert "holds text" in message(tmp_path / "a.mp4")


def test_subtitles_in_disguise_are_told_for_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("1\n00:00:01,000 --> 00:00:02,000\nHello\n\n" * 5)
    assert ".srt" in message(tmp_path / "a.mp4")


def test_noise_is_no_media(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(bytes([0, 1, 2, 255]) + os.urandom(5000))
    assert "not a media file" in message(tmp_path / "a.mp4")


def test_a_recording_cut_off_before_its_index_says_so(tmp_path: Path, studio: Any) -> None:
    whole = studio.video(tmp_path / "whole.mp4", range(0, 2000, 40))
    (tmp_path / "half.mp4").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    text = message(tmp_path / "half.mp4")
    assert "index" in text and "moov" in text


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in message(tmp_path / "gone.mp4")
    assert "folder" in message(tmp_path)


def test_a_name_of_4000_characters_is_too_long(tmp_path: Path) -> None:
    assert "too long" in message(tmp_path / ("n" * 4000))


def test_a_playlist_in_disguise_opens_no_other_file(tmp_path: Path, samples: Path) -> None:
    shutil.copy(samples / "friday.mp4", tmp_path / "friday.mp4")
    (tmp_path / "list.mp4").write_text("ffconcat version 1.0\nfile friday.mp4\n")
    assert "list of other files" in message(tmp_path / "list.mp4")
    (tmp_path / "stream.mp4").write_text("#EXTM3U\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n")
    assert "stream.mp4" in message(tmp_path / "stream.mp4")


def test_a_photograph_is_no_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.jpg"), "w", format="image2") as container:
        stream: Any = container.add_stream("mjpeg", rate=1)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        container.mux(stream.encode(frame.reformat(format="yuvj420p")))
        container.mux(stream.encode(None))
    (tmp_path / "a.jpg").rename(tmp_path / "a.mp4")
    assert "picture" in message(tmp_path / "a.mp4")


@pytest.mark.parametrize(
    "name",
    [b"caf\xe9 \xff.mp4", b"12:30 talk.mp4", b"http:x.mp4", b"two\nlines 'q' \"q\".mp4", b"-i %03d.mp4"],
)
def test_files_of_any_name_are_opened(tmp_path: Path, samples: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    shutil.copy(samples / "friday.mp4", path)
    assert probe(path).duration == pytest.approx(6.17, abs=0.01)


def test_cover_art_is_no_video(tmp_path: Path, studio: Any) -> None:
    from av.stream import Disposition

    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as container:
        cover: Any = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        film: Any = container.add_stream("libx264", rate=25)
        film.width, film.height, film.pix_fmt = 160, 96, "yuv420p"
        art = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        container.mux(cover.encode(art.reformat(format="yuvj420p")))
        container.mux(cover.encode(None))
        for number in range(10):
            container.mux(film.encode(av.VideoFrame.from_ndarray(studio.picture(number), format="rgb24")))
        container.mux(film.encode(None))
    picture = probe(path).picture
    assert picture is not None and picture.codec == "h264" and (picture.width, picture.height) == (160, 96)


def test_a_song_with_cover_art_has_no_pictures(tmp_path: Path) -> None:
    from av.stream import Disposition

    path = tmp_path / "song.m4a"
    with av.open(str(path), "w", format="mp4") as container:
        sound: Any = container.add_stream("aac", rate=16000)
        cover: Any = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.int16), format="s16", layout="mono")
        frame.sample_rate = 16000
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
        art = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        container.mux(cover.encode(art.reformat(format="yuvj420p")))
        container.mux(cover.encode(None))
    found = probe(path)
    assert found.picture is None and found.has_audio
