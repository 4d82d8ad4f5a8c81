"""Moments cut out of real files: first and last frame, times, sound, and what goes wrong."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.intake.remote_faults import StoreAway
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video import copying, encoding, objects, opened
from whenabouts.video import cut as cutting
from whenabouts.video.aside import WriteError
from whenabouts.video.cut import cut, cut_name, join, suffix_for
from whenabouts.video.frame_times import read_timing
from whenabouts.video.frames import sample_frames
from whenabouts.video.probe import MediaError, probe
from whenabouts.video.sound import sound_pieces
from whenabouts.video.spans import PictureSpan
from whenabouts.video.timecode import FrameTimes

Studio = Any
RATES = {
    "23.976": Fraction(24000, 1001),
    "25": Fraction(25),
    "29.97": Fraction(30000, 1001),
}
UNEVEN = [0, 40, 80, 200, 240, 300, 340, 420, 460, 500, 660, 700, 740, 780, 820, 900, 980, 1020, 1100, 1140]
SOUND = 48_000


def frames_in(path: Path) -> list[tuple[float, NDArray[np.uint8]]]:
    """(time, picture) of every frame, upright."""
    with sample_frames(path, 1000) as reader:
        return [(frame.seconds, frame.image) for frame in reader]


def times_of(path: Path) -> FrameTimes:
    timing = read_timing(path)
    assert timing is not None
    return timing.times


def samples_in(path: Path) -> NDArray[np.float32]:
    """The sound as mono samples, as a player hears it: what is skipped at the start is skipped here."""
    with av.open(str(path)) as container:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=SOUND)
        parts = []
        for frame in container.decode(audio=0):
            parts += [made.to_ndarray().reshape(-1) for made in resampler.resample(frame)]
        parts += [made.to_ndarray().reshape(-1) for made in resampler.resample(None)]
    return np.concatenate(parts).astype(np.float32)


def sound_film(studio: Studio, path: Path, ticks: Sequence[int], base: Fraction, **more: Any) -> Path:
    """A numbered film with a sweep in its sound, so that each instant sounds unlike any other."""
    seconds = float(ticks[-1] * base) + 0.2
    time = np.arange(int(seconds * SOUND)) / SOUND
    wave = (0.4 * np.sin(2 * np.pi * (150 * time + 120 * time**2))).astype(np.float32)
    with av.open(str(path), "w") as container:
        pictures: Any = container.add_stream("libx264", rate=round(1 / base))
        pictures.width, pictures.height, pictures.pix_fmt = studio.width, studio.height, "yuv420p"
        pictures.codec_context.time_base = base
        pictures.options = {"g": "20"} | more
        sound: Any = container.add_stream("aac", rate=SOUND, layout="mono")
        for number, tick in enumerate(ticks):
            frame = av.VideoFrame.from_ndarray(studio.picture(number % 256), format="rgb24")
            frame.pts, frame.time_base = tick, base
            container.mux(pictures.encode(frame))
        for start in range(0, len(wave), 1024):
            block = av.AudioFrame.from_ndarray(
                wave[None, start : start + 1024].copy(), format="fltp", layout="mono"
            )
            block.sample_rate, block.pts, block.time_base = SOUND, start, Fraction(1, SOUND)
            container.mux(sound.encode(block))
        container.mux(pictures.encode(None))
        container.mux(sound.encode(None))
    return path


def lag(piece: NDArray[np.float32], whole: NDArray[np.float32], at: float) -> int:
    """By how many samples a piece is off from where it should be; more than 20 ms is not found."""
    room = SOUND // 50
    first = int(at * SOUND) + SOUND // 5
    part = piece[SOUND // 5 : SOUND // 5 + SOUND // 2]
    window = whole[first - room : first + len(part) + room]
    scores = np.correlate(window, part, "valid")
    return int(np.argmax(scores)) - room


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (1.0, 2.5), (2.35, 2.36), (1.001, 3.999)])
def test_a_cut_holds_exactly_the_frames_shown_in_the_span(
    studio: Studio, tmp_path: Path, name: str, start: float, end: float
) -> None:
    rate = RATES[name]
    source = studio.video(
        tmp_path / "a.mp4", range(110), time_base=1 / rate, rate=round(rate), options={"g": "30"}
    )
    wanted = [n for n in range(110) if start - 0.0005 <= n / rate < end - 0.0005]
    done = cut(source, start, end, tmp_path / "out.mp4")
    if not wanted:  # the moment lies between two frames: the one on the screen is cut
        assert [studio.number(image) for _, image in frames_in(done.path)] == [int(start * rate)]
        return
    found = frames_in(done.path)
    assert [studio.number(image) for _, image in found] == wanted
    assert done.frames == len(wanted) and done.start == pytest.approx(wanted[0] / rate)
    offsets = [time for time, _ in found]
    assert offsets == pytest.approx([float((n - wanted[0]) / rate) for n in wanted], abs=1e-6)
    assert done.duration == pytest.approx(len(wanted) / rate)
    assert probe(done.path).duration == pytest.approx(float(len(wanted) / rate), abs=0.001)
    assert times_of(done.path).rate(None)[1] or len(wanted) < 3


def test_irregular_frame_times_are_kept_and_the_last_frame_stays_as_long_as_it_did(
    studio: Studio, tmp_path: Path
) -> None:
    source = studio.video(tmp_path / "a.mkv", UNEVEN, options={"g": "5"})
    done = cut(source, 0.2, 0.9, tmp_path / "out.mp4")
    wanted = [n for n, tick in enumerate(UNEVEN) if 200 <= tick < 900]
    found = frames_in(done.path)
    assert [studio.number(image) for _, image in found] == wanted
    assert [time for time, _ in found] == pytest.approx([(UNEVEN[n] - 200) / 1000 for n in wanted])
    assert (done.start, done.end) == (0.2, 0.9)
    assert float(times_of(done.path).end) == pytest.approx(0.7)


def test_a_picture_that_stands_long_is_shown_from_the_start_on(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "slides.mkv", [0, 3000, 6000, 9000], options={"g": "1"})
    done = cut(source, 4.0, 8.0, tmp_path / "out.mp4")
    assert [(time, studio.number(image)) for time, image in frames_in(done.path)] == [(0.0, 1), (2.0, 2)]
    assert done.duration == 4.0
    still = cut(source, 3.5, 5.0, tmp_path / "still.mp4")
    assert [studio.number(image) for _, image in frames_in(still.path)] == [1]
    assert float(times_of(still.path).end) == pytest.approx(1.5)


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.5), (1.02, 3.3), (2.5, 4.0)])
def test_sound_is_trimmed_to_the_sample_and_in_step(
    studio: Studio, tmp_path: Path, start: float, end: float
) -> None:
    source = sound_film(studio, tmp_path / "a.mp4", range(110), Fraction(1001, 30000))
    done = cut(source, start, end, tmp_path / "out.mp4")
    piece, whole = samples_in(done.path), samples_in(source)
    assert abs(lag(piece, whole, done.start)) <= SOUND // 1000  # a millisecond
    assert abs(len(piece) / SOUND - done.duration) <= 1024 / SOUND
    with av.open(str(done.path)) as container:
        sound = container.streams.audio[0]
        assert sound.duration is not None and sound.time_base is not None
        assert sound.duration * sound.time_base == pytest.approx(done.duration, abs=1 / SOUND)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("friday.mp4", 2.0, 3.0),
        ("flower.webm", 1.0, 2.5),
        ("frog.webm", 4.0, 5.0),
        ("man_green_wall.mp4", 11.0, 12.0),
        ("bottle-detection.mp4", 20.0, 21.5),
        ("car-detection.mp4", 28.0, 30.16),
    ],
)
def test_first_and_last_frame_of_a_cut_are_those_of_the_recording(
    samples: Path, tmp_path: Path, name: str, start: float, end: float
) -> None:
    done = cut(samples / name, start, end, tmp_path / "out.mp4")
    with sample_frames(samples / name, 1000, start=max(0, done.start - 1), end=end) as reader:
        source = [(f.seconds, f.image) for f in reader if start - 0.0005 <= f.seconds < end - 0.0005]
    found = frames_in(done.path)
    assert len(found) == len(source) == done.frames
    for place in (0, -1):
        here, there = found[place][1].astype(int), source[place][1].astype(int)
        assert here.shape == there.shape
        own = np.abs(here - there).mean()
        assert own < 4
        if place == 0:  # and no neighbour fits better
            assert all(own <= np.abs(here - other.astype(int)).mean() for _, other in source[1:4])
    with av.open(str(samples / name)) as whole, av.open(str(done.path)) as made:
        assert bool(whole.streams.audio) == bool(made.streams.audio)


def test_a_turned_picture_is_turned_upright_and_keeps_the_shape_of_its_pixels(
    studio: Studio, tmp_path: Path
) -> None:
    wide = studio.video(tmp_path / "wide.mp4", range(0, 1000, 40), aspect=Fraction(4, 3))
    done = cut(wide, 0.2, 0.6, tmp_path / "kept.mp4")
    with av.open(str(done.path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.width, stream.codec_context.height) == (160, 96)
        assert stream.sample_aspect_ratio == Fraction(4, 3)
    turned = studio.turn(studio.video(tmp_path / "turned.mp4", range(0, 1000, 40)), 0, 1, -1, 0)
    done = cut(turned, 0.2, 0.6, tmp_path / "upright.mp4")
    for (_, here), (_, there) in zip(frames_in(done.path), frames_in(turned)[5:], strict=False):
        assert here.shape == there.shape == (160, 96, 3)
        assert np.abs(here.astype(int) - there.astype(int)).mean() < 4


def test_an_odd_side_loses_a_line_and_says_so(studio: Studio, tmp_path: Path) -> None:
    def odd(number: int) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = studio.picture(number)
        return picture[:95, :159].copy()

    source = studio.video(tmp_path / "odd.mkv", range(0, 1000, 40), codec="ffv1", picture=odd)
    done = cut(source, 0, 0.4, tmp_path / "out.mp4")
    assert any("odd side" in note for note in done.notes)
    found = probe(done.path).picture
    assert found is not None and (found.width, found.height) == (158, 94)


def test_the_very_last_frame_can_be_cut(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 2000, 40))
    done = cut(source, 1.96, 2.0, tmp_path / "out.mp4")
    assert [studio.number(image) for _, image in frames_in(done.path)] == [49]
    inside = cut(source, 1.97, 2.0, tmp_path / "inside.mp4")  # behind the last frame's beginning
    assert [studio.number(image) for _, image in frames_in(inside.path)] == [49]


def test_a_cut_longer_than_the_video_ends_with_it_and_says_so(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 2000, 40))
    done = cut(source, 1.0, 100.0, tmp_path / "out.mp4")
    assert (done.frames, done.end) == (25, 2.0)
    assert any("behind the end of the file; cut up to 2.000 s" in note for note in done.notes)
    assert cut(source, 0, 2.0, tmp_path / "whole.mp4").notes == ()


def test_a_cut_of_a_file_that_broke_off_says_where(studio: Studio, tmp_path: Path) -> None:
    source = tmp_path / "a.mkv"
    studio.video(source, range(0, 4000, 40))
    source.write_bytes(source.read_bytes()[: source.stat().st_size * 6 // 10])
    done = cut(source, 1.0, 4.0, tmp_path / "out.mp4")
    assert any("the file breaks off at" in note for note in done.notes) and done.end < 3.5


def test_a_moment_behind_the_end_is_refused(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 2000, 40))
    for copy in (False, True):
        with pytest.raises(UsageError, match=r"starts at 2\.000 s, behind the end of the file \(2\.000 s\)"):
            cut(source, 2.0, 3.0, tmp_path / "out.mp4", copy=copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4"]


@pytest.mark.parametrize(
    ("start", "end"), [(1.0, 1.0), (0.2, 0.2000001), (2.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0)]
)
def test_what_is_no_span_is_refused(studio: Studio, tmp_path: Path, start: float, end: float) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    with pytest.raises(UsageError, match="not a span of time"):
        cut(source, start, end, tmp_path / "out.mp4")


def test_what_is_there_already_is_left_unless_forced(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    out = tmp_path / "out.mp4"
    out.write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already"):
        cut(source, 0, 0.2, out)
    assert out.read_bytes() == b"mine"
    cut(source, 0, 0.2, out, force=True)
    assert probe(out).picture is not None


@pytest.mark.parametrize("force", [False, True])
def test_a_pipe_is_never_replaced(studio: Studio, tmp_path: Path, force: bool) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    os.mkfifo(tmp_path / "out.mp4")
    with pytest.raises(UsageError, match="a pipe or a device; give the name of a file"):
        cut(source, 0, 0.2, tmp_path / "out.mp4", force=force)
    assert (tmp_path / "out.mp4").is_fifo()


@pytest.mark.parametrize("copy", [False, True])
def test_a_source_is_never_replaced_by_its_cut(studio: Studio, tmp_path: Path, copy: bool) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    before = source.read_bytes()
    with pytest.raises(UsageError, match="is a source of this"):
        cut(source, 0.2, 0.4, source, copy=copy, force=True)
    assert source.read_bytes() == before


@pytest.mark.parametrize("copy", [False, True])
def test_ctrl_c_leaves_nothing(studio: Studio, tmp_path: Path, copy: bool) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 2000, 40))

    def stop(share: float) -> None:
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut(source, 0.0, 2.0, tmp_path / "out.mp4", copy=copy, progress=stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4"]


@pytest.mark.slow
@pytest.mark.parametrize("copy", [False, True])
def test_a_full_disk_is_told_and_nothing_half_written_is_left(
    studio: Studio, samples: Path, tmp_path: Path, copy: bool
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if (
        os.getuid()
        or not shutil.which("mount")
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("a small file system can be mounted by root only, and not in every container")
    try:
        with pytest.raises(WriteError, match="no room left"):
            cut(samples / "man_green_wall.mp4", 0, 20, folder / "out.mp4", copy=copy)
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_write_that_fails_at_the_end_is_told_and_nothing_is_left(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(encoding.MovieWriter, "_finish", full)
    with pytest.raises(WriteError, match="no room left"):
        cut(source, 0, 0.4, tmp_path / "out.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4"]


@pytest.mark.slow
@pytest.mark.parametrize("copy", [False, True])
def test_a_source_that_its_disk_stops_reading_is_named_and_nothing_is_left(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    rng = np.random.default_rng(0)
    noise = {"picture": lambda _: rng.integers(0, 256, (96, 160, 3), np.uint8)}
    source = studio.video(tmp_path / "a.mkv", range(0, 4000, 40), options={"g": "25"}, **noise)
    read, size = opened._Bytes.read, source.stat().st_size

    def failing(data: Any, count: int) -> bytes:
        if size // 2 < data.tell() < size - size // 10:
            objects.refusals.note("Input/output error")
            raise av.error.FFmpegError(errno.EIO, "Input/output error")
        return read(data, count)

    monkeypatch.setattr(opened._Bytes, "read", failing)
    with pytest.raises(StoreAway, match=r"a\.mkv: Input/output error"):
        cut(source, 0, 4, tmp_path / "out.mp4", copy=copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mkv"]


def test_packets_that_cannot_be_copied_are_the_fault_of_the_source(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = studio.video(tmp_path / "a.mkv", range(0, 400, 40))
    monkeypatch.setattr(copying, "_with_decoding_times", lambda packets: reversed(list(packets)))
    with pytest.raises(MediaError, match=r"a\.mkv: its packets cannot be copied .*leave out --copy"):
        cut(source, 0, 0.4, tmp_path / "out.mkv", copy=True)


def test_sound_that_holds_no_numbers_is_silent_there(tmp_path: Path) -> None:
    wave = (0.3 * np.sin(np.arange(48_000) / 9)).astype("<f4")
    wave[20_000:20_010], wave[30_000] = np.nan, np.inf
    form = struct.pack("<IHHIIHH", 16, 3, 1, 16_000, 64_000, 4, 32)
    body = b"WAVEfmt " + form + b"data" + struct.pack("<I", wave.nbytes) + wave.tobytes()
    (tmp_path / "a.wav").write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    (piece,) = sound_pieces(tmp_path / "a.wav")
    assert np.isfinite(piece.samples).all() and np.abs(piece.samples).max() < 1
    assert cut(tmp_path / "a.wav", 1, 2, tmp_path / "out.m4a").duration == pytest.approx(1)


def test_a_file_that_lacks_its_end_is_not_kept(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    monkeypatch.setattr(cutting, "missing_bytes", lambda path: 1)
    with pytest.raises(WriteError, match="no room left"):
        cut(source, 0, 0.4, tmp_path / "out.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4"]


def test_the_folder_of_a_cut_is_made(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    cut(source, 0, 0.4, tmp_path / "new" / "folder" / "out.mp4")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["out.mp4"]


@pytest.mark.parametrize("copy", [False, True])
def test_a_name_that_is_too_long_is_told(studio: Studio, tmp_path: Path, copy: bool) -> None:
    source, long = studio.video(tmp_path / "a.mp4", range(0, 400, 40)), "a" * 300 + ".mp4"
    with pytest.raises(WriteError, match="the name is too long; give a shorter one"):
        cut(source, 0, 0.4, tmp_path / long, copy=copy)
    with pytest.raises(MediaError, match=r"the name is too long \(\d+ bytes\); rename the file"):
        cut(tmp_path / long, 0, 0.4, tmp_path / "out.mp4", copy=copy)


def test_a_folder_that_may_not_be_written_to_is_told(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    with pytest.raises(WriteError, match="there is no folder"):
        cut(source, 0, 0.4, source / "out.mp4")
    with pytest.raises(UsageError, match="a folder stands there"):
        (tmp_path / "folder.mp4").mkdir()
        cut(source, 0, 0.4, tmp_path / "folder.mp4")

    def forbidden(path: Path, flags: int, *others: Any) -> int:
        if flags & os.O_WRONLY:
            raise PermissionError(errno.EACCES, "Permission denied")
        return os_open(path, flags, *others)

    os_open = os.open
    monkeypatch.setattr("whenabouts.video.aside.os.open", forbidden)
    with pytest.raises(WriteError, match="may not be written to"):
        cut(source, 0, 0.4, tmp_path / "out.mp4")


def test_a_source_that_is_gone_or_no_recording_is_told(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="no such file"):
        cut(tmp_path / "gone.mp4", 0, 1, tmp_path / "out.mp4")
    (tmp_path / "text.mp4").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(MediaError, match="holds text"):
        cut(tmp_path / "text.mp4", 0, 1, tmp_path / "out.mp4")
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n")
    with pytest.raises(MediaError, match="a transcript"):
        cut(tmp_path / "talk.vtt", 0, 1, tmp_path / "out.mp4")
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(MediaError, match="not a regular file"):
        cut(tmp_path / "pipe.mp4", 0, 1, tmp_path / "out.mp4")
    assert not (tmp_path / "out.mp4").exists()


def test_a_copy_begins_at_the_key_frame_and_says_how_far_off(studio: Studio, tmp_path: Path) -> None:
    source = sound_film(studio, tmp_path / "a.mp4", range(100), Fraction(1, 25), sc_threshold="0")
    done = cut(source, 1.0, 2.0, tmp_path / "out.mp4", copy=True)
    assert done.start == 0.8  # a key frame every 20 frames
    assert any("begins at a key frame: at 0.800 s, 0.200 s before 1.000 s" in note for note in done.notes)
    found = frames_in(done.path)
    numbers = [studio.number(image) for _, image in found]
    assert numbers[0] == 20 and numbers[:30] == list(range(20, 50))
    assert found[0][0] == 0.0
    assert abs(lag(samples_in(done.path), samples_in(source), done.start)) <= SOUND * 3 // 100
    at_key = cut(source, 1.6, 2.0, tmp_path / "key.mp4", copy=True)
    assert at_key.start == 1.6 and at_key.notes == ()


def test_a_copy_that_a_container_cannot_hold_is_refused(
    samples: Path, studio: Studio, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"cannot be copied into mp4.*--copy"):
        cut(samples / "flower.webm", 1, 2, tmp_path / "out.mp4", copy=True)
    film = studio.video(tmp_path / "a.avi", range(0, 1000, 40), codec="mpeg4", time_base=Fraction(1, 25))
    with pytest.raises(UsageError, match="cannot be copied in part"):
        cut(film, 0, 0.4, tmp_path / "out.avi", copy=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.avi"]


def test_a_name_that_tells_no_container_is_refused(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    with pytest.raises(UsageError, match=r"a cut is written as \.mp4"):
        cut(source, 0, 0.2, tmp_path / "out.exe")
    assert frames_in(cut(source, 0, 0.2, tmp_path / "out.mkv").path)


def test_sound_alone_gives_a_file_of_sound(samples: Path, tmp_path: Path) -> None:
    source = samples / "nasa_audio_only.mp3"
    assert suffix_for(source) == ".m4a"
    done = cut(source, 3.0, 5.5, tmp_path / "out.m4a")
    assert (done.frames, done.duration) == (0, 2.5)
    found = probe(done.path)
    assert found.picture is None and found.has_audio
    assert abs(lag(samples_in(done.path), samples_in(source), 3.0)) <= SOUND // 1000
    beyond = cut(source, 12.0, 60.0, tmp_path / "beyond.m4a")
    assert beyond.end == pytest.approx(13.056, abs=0.1) and beyond.notes


def test_joined_moments_follow_one_another_in_one_size(studio: Studio, tmp_path: Path) -> None:
    large = sound_film(studio, tmp_path / "large.mp4", range(60), Fraction(1, 25))

    def small_picture(number: int) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = studio.picture(number)
        return picture[:64, ::2].copy()

    small = studio.video(tmp_path / "small.mp4", range(0, 2000, 40), picture=small_picture)
    done = join([(large, 1.0, 1.4), (small, 0.4, 0.8), (large, 0.0, 0.4)], tmp_path / "out.mp4")
    assert [part.frames for part in done] == [10, 10, 10]
    assert any("80x64 scaled to 160x96" in note for note in done[1].notes)
    assert any("no sound; silent" in note for note in done[1].notes)
    found = frames_in(tmp_path / "out.mp4")
    assert [time for time, _ in found] == pytest.approx([n / 25 for n in range(30)])
    assert [studio.number(image) for _, image in found[:10]] == list(range(25, 35))
    assert [studio.number(image) for _, image in found[20:]] == list(range(10))
    assert {image.shape for _, image in found} == {(96, 160, 3)}
    sound = samples_in(tmp_path / "out.mp4")
    assert len(sound) / SOUND == pytest.approx(1.2, abs=0.04)
    assert np.abs(sound[int(0.5 * SOUND) : int(0.7 * SOUND)]).max() < 0.02 < np.abs(sound[: SOUND // 4]).max()


def test_a_moment_of_sound_alone_is_black_in_a_film(studio: Studio, samples: Path, tmp_path: Path) -> None:
    film, sound = studio.video(tmp_path / "a.mp4", range(0, 400, 40)), samples / "nasa_audio_only.mp3"
    parts = [(sound, 5.0, 6.5), (film, 0, 0.2), (sound, 3.0, 4.2), (film, 0.2, 0.4)]
    done = join(parts, tmp_path / "out.mp4")
    assert [part.duration for part in done] == pytest.approx([1.5, 0.2, 1.2, 0.2], abs=0.001)
    assert [part.notes for part in done[1:3]] == [
        ("has no sound; silent here",),
        ("has no pictures; black here",),
    ]
    found = frames_in(tmp_path / "out.mp4")
    black = [time for time, image in found if image.max() < 8]
    assert black == pytest.approx([0, 1, 1.7, 2.7], abs=0.001)
    assert [time for time, _ in found][2:7] == pytest.approx([1.5, 1.54, 1.58, 1.62, 1.66], abs=0.001)
    assert [studio.number(image) for _, image in found[-5:]] == list(range(5, 10))
    out = samples_in(tmp_path / "out.mp4")
    heard = samples_in(sound)
    assert abs(lag(out[: int(1.5 * SOUND)], heard, 5.0)) <= SOUND // 1000
    assert abs(lag(out[int(1.7 * SOUND) : int(2.9 * SOUND)], heard, 3.0)) <= SOUND // 1000
    assert probe(tmp_path / "out.mp4").duration == pytest.approx(3.1, abs=0.02)
    assert (suffix_for(sound), suffix_for(sound, film)) == (".m4a", ".mp4")


def test_nothing_is_not_joined(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no moment"):
        join([], tmp_path / "out.mp4")


def test_only_what_the_cut_needs_is_decoded(samples: Path) -> None:
    pictures = PictureSpan(samples / "man_green_wall.mp4", Fraction(20), Fraction(21))
    assert len(list(pictures)) == 60
    assert pictures.frames_decoded < 60 + 502  # a key frame every 250 frames or so, of 1465
    assert pictures.follows


def test_progress_is_told_and_ends_at_one(studio: Studio, tmp_path: Path) -> None:
    source = studio.video(tmp_path / "a.mp4", range(0, 2000, 40))
    for copy in (False, True):
        told: list[float] = []
        cut(source, 0.5, 1.5, tmp_path / f"{copy}.mp4", copy=copy, progress=told.append)
        assert told == sorted(told) and told[-1] == 1.0 and len(told) > 10


@pytest.mark.parametrize(
    "name",
    [
        "with space.mp4",
        "ünïcode 映画.mp4",
        "two\nlines \x1b[31m.mp4",
        "12:30.mp4",
        "-rf.mp4",
        "%d.mp4",
        "<script>.mp4",
    ],
)
def test_names_of_any_kind_are_read_and_written(studio: Studio, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = studio.video(tmp_path / "plain.mp4", range(0, 400, 40)).rename(tmp_path / "in" / name)
    assert cut(source, 0, 0.2, tmp_path / "out" / name).frames == 5
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


def test_a_name_that_is_no_unicode_is_read(studio: Studio, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.mp4")
    try:
        source = studio.video(tmp_path / "plain.mp4", range(0, 400, 40)).rename(tmp_path / name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    done = cut(source, 0, 0.2, tmp_path / cut_name(name, 0, 0.2, ".mp4"))
    assert done.frames == 5
    done.path.name.encode("utf-8")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("My film.mp4", "My_film_0.000-1.000.mp4"),
        ("../../etc/passwd", "etc_passwd_0.000-1.000.mp4"),
        ("\x00\n", "video_0.000-1.000.mp4"),
        ("-rf.mp4", "rf_0.000-1.000.mp4"),
        ("映画.mkv", "映画_0.000-1.000.mp4"),
    ],
)
def test_names_of_cuts_are_safe(name: str, wanted: str) -> None:
    assert cut_name(name, 0, 1, ".mp4") == wanted
    assert len(cut_name("映" * 300, 0, 1, ".mp4").encode()) < 200


@pytest.mark.slow
def test_damage_inside_is_told_and_the_rest_is_cut(shared_data: Path, tmp_path: Path) -> None:
    done = cut(shared_data / "real_video" / "corrupt_frames.mp4", 0, 5, tmp_path / "out.mp4")
    assert done.frames == 48 and any("damaged at" in note for note in done.notes)


@pytest.mark.slow
def test_a_cut_out_of_a_damaged_part_says_what_is_missing(samples: Path, tmp_path: Path) -> None:
    damaged = bytearray((samples / "friday.mp4").read_bytes())
    with av.open(str(samples / "friday.mp4")) as container:
        for packet in container.demux(video=0):
            if packet.pts is not None and packet.pos and 2 <= packet.pts * packet.time_base < 2.59:
                damaged[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    (tmp_path / "damaged.mp4").write_bytes(damaged)
    (note,) = cut(tmp_path / "damaged.mp4", 1.5, 3.5, tmp_path / "out.mp4").notes
    assert "0.60 s of pictures are missing from 2.00 s on" in note
    (note,) = cut(tmp_path / "damaged.mp4", 2.1, 2.5, tmp_path / "within.mp4").notes
    assert "s of pictures are missing from 2.1" in note
    assert cut(tmp_path / "damaged.mp4", 0.5, 1.5, tmp_path / "well.mp4").notes == ()


@pytest.mark.slow
def test_a_recording_that_broke_off_is_cut_as_far_as_it_goes(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "real_video" / "truncated_car.mp4"
    with pytest.raises(WhenaboutsError, match="nothing to cut"):
        cut(source, 25, 29, tmp_path / "out.mp4")
    assert not (tmp_path / "out.mp4").exists()
    assert "the file breaks off at 12.160 s" in cut(source, 11, 25, tmp_path / "part.mp4").notes[-1]
