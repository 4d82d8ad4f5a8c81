"""One pass over a file: which frame stands for a clip, and what is no fault of the file."""

from __future__ import annotations

import errno
import os
import re
import shutil
import wave
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from tests.known_films import UNITS, Plan, write
from tests.streams.written_film import slide, write_film

from whenabouts.index.reading import FileRead, FrameBatch, ReadTask, read_file
from whenabouts.index.sampling import FrameSettings
from whenabouts.intake.faults import DataFault
from whenabouts.types import WhenaboutsError
from whenabouts.video import cues, opened
from whenabouts.video.frames import sample_frames
from whenabouts.video.headers import joined_bytes
from whenabouts.video.shots import BUILT_IN


@pytest.mark.slow
@pytest.mark.parametrize("at", [0.0, 0.5], ids=["beginning", "middle"])
def test_a_clip_has_the_frame_nearest_to_where_it_is_wanted_also_where_it_is_cut_off(
    samples: Path, at: float
) -> None:
    """Also of clips behind a full batch, and of the last, which the file's end cuts off."""
    path, seconds = samples / "friday.mp4", 0.28
    settings = FrameSettings(seconds, 16, at)
    task = ReadTask(0, path, "media", frames=(settings,), cues=False)
    batches = [batch for batch in read_file(task) if isinstance(batch, FrameBatch)]
    clips = [clip for batch in batches for clip in batch.clips]
    images = [image for batch in batches for image in batch.images]
    assert len(batches) > 1 and clips == list(range(len(clips)))
    with sample_frames(path, 2 / seconds, size=16) as every:
        frames = list(every)
    for clip, image in zip(clips, images, strict=True):
        own = [frame for frame in frames if int(frame.seconds / seconds + 1e-6) == clip]
        wanted = (clip + at) * seconds
        assert np.array_equal(image, min(own, key=lambda frame: abs(frame.seconds - wanted)).image), clip


def test_a_disk_that_fails_in_the_middle_of_a_film_is_no_damage_of_the_film(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reads = samples / "friday.mp4", []

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def read(self, descriptor: int, size: int) -> bytes:
            reads.append(size)
            if sum(reads) > path.stat().st_size // 2:
                raise OSError(errno.EIO, "Input/output error")
            return os.read(descriptor, size)

    monkeypatch.setattr(opened, "os", Failing())
    with pytest.raises(WhenaboutsError, match="Input/output error") as failed:
        list(read_file(ReadTask(0, path, "media", frames=(FrameSettings(1.0, 16, 0.0),), cues=False)))
    assert not isinstance(failed.value, DataFault)


@pytest.mark.parametrize("name", ["film.mp4", "film.avi", "film.wav"])
@pytest.mark.parametrize("shots", ["", BUILT_IN])
def test_a_recording_joined_to_the_end_of_a_file_is_named(tmp_path: Path, name: str, shots: str) -> None:
    whole, film = tmp_path / f"whole_{name}", tmp_path / name
    if name == "film.wav":
        with wave.open(str(whole), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(bytes(32_000))
    else:
        write_film(whole, lambda number: slide(f"page {number}"), 3)
    film.write_bytes(2 * whole.read_bytes())
    damage = {}
    for path in (whole, film):
        *_, read = read_file(ReadTask(0, path, "media", shots=shots))
        assert isinstance(read, FileRead)
        damage[path] = read.damage
    assert damage[whole] is None
    assert f"players skip its {whole.stat().st_size:,} bytes" in (damage[film] or "")


def end_of(path: Path) -> float:
    """The end of a recording whose frames are decoded."""
    *_, read = read_file(ReadTask(0, path, "media", shots=BUILT_IN))
    assert isinstance(read, FileRead)
    return read.end


@pytest.mark.slow
@pytest.mark.parametrize("name", ["film.mkv", "film.mp4", "film.ts", "film.avi"])
def test_a_recording_goes_on_as_long_as_its_sound(tmp_path: Path, name: str) -> None:
    plan = Plan([unit / UNITS for unit in range(5 * UNITS)], options={"g": "20", "bf": "0"})
    if name == "film.avi":
        plan = replace(plan, audio="mp2", video="mpeg4", base=Fraction(1, UNITS))
    path = write(tmp_path / name, plan)
    assert end_of(path) == pytest.approx(12, abs=0.2)
    assert end_of(write(path, replace(plan, sound=(0, 3)))) == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize(
    ("name", "options"), [("film.mkv", {}), ("film.mp4", {"movflags": "faststart"}), ("film.ts", {})]
)
def test_a_recording_that_was_cut_off_ends_where_its_bytes_do(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    path = write(tmp_path / name, Plan(container=options, options={"g": "20", "bf": "0"}))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert 4 < end_of(path) < 8


def test_a_recording_in_fragments_may_repeat_its_header_but_not_begin_again(tmp_path: Path) -> None:
    whole, film = tmp_path / "whole.mp4", tmp_path / "film.mp4"
    write_film(tmp_path / "plain.mp4", lambda number: slide(f"page {number}"), 3)
    with (
        av.open(str(tmp_path / "plain.mp4")) as source,
        av.open(str(whole), "w", options={"movflags": "frag_keyframe+empty_moov"}) as out,
    ):
        stream = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux():
            if packet.size:
                packet.stream = stream
                out.mux(packet)
    again = whole.read_bytes()
    film.write_bytes(2 * again)
    assert joined_bytes(film) == len(again)
    later = bytearray(again)
    for fragment in re.finditer(rb"tfdt\x01", again):  # the clock goes on: a decoding time of 64 bits
        later[fragment.end() + 3 : fragment.end() + 11] = (1 << 32).to_bytes(8, "big")
    film.write_bytes(again + later)
    assert joined_bytes(film) == 0


def test_subtitles_that_cannot_be_opened_now_are_not_left_out_for_good(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("friday.mp4", "friday.vtt"):
        shutil.copy(samples / name, tmp_path / name)

    def refuse(path: Path) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(cues, "open_source", refuse)
    with pytest.raises(WhenaboutsError, match="Too many open files") as failed:
        list(read_file(ReadTask(0, tmp_path / "friday.mp4", "media", sidecars=(tmp_path / "friday.vtt",))))
    assert not isinstance(failed.value, DataFault)


@pytest.mark.parametrize("content", [b"", b"no film\n" * 100, bytes(range(256)) * 50])
def test_what_is_no_film_is_a_fault_of_its_data(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "film.mp4").write_bytes(content)
    with pytest.raises(DataFault):
        list(read_file(ReadTask(0, tmp_path / "film.mp4", "media")))
