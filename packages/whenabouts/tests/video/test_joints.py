"""Joined recordings of known content: each part counts its own time, and the file has one clock."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from tests.known_films import RATE, UNITS, Plan, picture, second_of, sound, unit_of, wave, write

from whenabouts.types import UsageError
from whenabouts.video import joints
from whenabouts.video.cues import words_of
from whenabouts.video.cut import cut
from whenabouts.video.frame_times import read_timing
from whenabouts.video.frames import sample_frames
from whenabouts.video.headers import counts_frames, is_chained, joined_bytes
from whenabouts.video.opened import open_container
from whenabouts.video.picture import decode_picture
from whenabouts.video.probe import probe
from whenabouts.video.sound import sound_pieces
from whenabouts.video.thumbnails import thumbnail

SECONDS = 6
"""The length of each part."""
# Encoders of AAC and MP2 put silence before the sound and end late: so much in each part.
SLACK = 0.1
PLAIN = Plan(options={"g": "20", "bf": "2"})
MPEG2 = Plan(video="mpeg2video", audio="mp2", base=Fraction(1, UNITS), options={"g": "20"})
TEXT = replace(PLAIN, audio="flac", text="subrip")
WEBM = Plan(video="libvpx", audio="libopus", text="webvtt", options={"g": "20"})
# Name: the plan, and the first time stamp of each part in seconds.
FILMS = {
    "restarted.ts": (PLAIN, (0, 0)),
    "three.ts": (PLAIN, (100, 20, 7)),
    "back_a_little.ts": (PLAIN, (0, 4)),
    "restarted.mpg": (MPEG2, (0, 0)),
    "restarted.mkv": (TEXT, (0, 0)),
    "restarted.webm": (WEBM, (0, 0)),
    "restarted.flv": (PLAIN, (0, 0)),
    "three.flv": (PLAIN, (9, 0, 4)),
    "restarted.nut": (PLAIN, (0, 0)),
    "three.nut": (PLAIN, (9, 0, 4)),
}
# Formats of which FFmpeg reads only the first part, or reads later parts at wrong times.
FIRST_ALONE = {
    "joined.wmv": Plan(video="msmpeg4v3", audio="mp2", options={"g": "40"}),
    "joined.wtv": MPEG2,
    "joined.mov": Plan(audio="pcm_s16le"),
    "joined.3gp": PLAIN,
    "joined.avi": Plan(video="mpeg4", audio="mp2", base=Fraction(1, UNITS)),
    "fragments.mp4": replace(PLAIN, container={"movflags": "frag_keyframe+empty_moov+default_base_moof"}),
}
SOUNDS_ALONE = {
    "joined.m4a": "aac",
    "joined.wav": "pcm_s16le",
    "joined.w64": "pcm_s16le",
    "joined.aiff": "pcm_s16be",
    "joined.au": "pcm_s16be",
    "joined.voc": "pcm_s16le",
    "joined.tta": "tta",
    "joined.wv": "wavpack",
}
SOUNDS = {"joined.flac": "flac", "joined.opus": "libopus", "flac.oga": "flac"}


def joined(folder: Path, name: str, plan: Plan, offsets: tuple[float, ...]) -> Path:
    """A file of parts, joined byte by byte: the recording goes on from each to the next."""
    data = b""
    for number, offset in enumerate(offsets):
        first = number * SECONDS
        part = replace(
            plan,
            times=[first + unit / UNITS for unit in range(SECONDS * UNITS)],
            sound=(first, first + SECONDS),
            words=tuple(range(first, first + SECONDS)),
            offset=offset - first,
        )
        data += write(folder / f"part_{number}_{name}", part).read_bytes()
    (folder / name).write_bytes(data)
    return folder / name


@pytest.fixture(scope="module", params=FILMS)
def film(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A joined film and its number of parts."""
    plan, offsets = FILMS[request.param]
    return joined(tmp_path_factory.mktemp("joined"), request.param, plan, offsets), len(offsets)


def heard(path: Path) -> Iterator[tuple[float, int | None]]:
    """(seconds, second of the recording) of quarters of a second that lie within one second."""
    for piece in sound_pieces(path):
        for at in range(0, len(piece.samples) - RATE // 4 + 1, RATE // 4):
            begins = piece.start + at / RATE
            if 0.2 < begins % 1 < 0.6:
                yield begins, second_of(piece.samples[at : at + RATE // 4])


@pytest.mark.slow
def test_the_length_of_a_joined_film_is_that_of_all_parts(film: tuple[Path, int]) -> None:
    path, parts = film
    assert probe(path).duration == pytest.approx(parts * SECONDS, abs=parts * SLACK)


def test_pictures_of_a_joined_film_are_listed_in_the_order_of_its_parts(film: tuple[Path, int]) -> None:
    path, parts = film
    with sample_frames(path, 1000) as reader:
        shown = [(frame.seconds, unit_of(frame.image) / UNITS) for frame in reader]
    assert [unit for _, unit in shown] == pytest.approx([n / UNITS for n in range(parts * SECONDS * UNITS)])
    assert all(abs(at - unit) < parts * SLACK for at, unit in shown)
    timing = read_timing(path)
    assert timing is not None and len(timing.times.ticks) == parts * SECONDS * UNITS


def test_a_thumbnail_of_a_joined_film_is_of_its_instant(film: tuple[Path, int]) -> None:
    path, parts = film
    for tenths in range(3, parts * SECONDS * 10, 17):
        image = decode_picture(thumbnail(path, tenths / 10, 160), "thumbnail")
        assert abs(unit_of(image) / UNITS - tenths / 10) < parts * SLACK, f"at {tenths / 10} s"


def test_sound_and_words_of_a_joined_film_stay_in_step(film: tuple[Path, int]) -> None:
    path, parts = film
    sounds = list(heard(path))
    assert len(sounds) >= parts * SECONDS - 1
    assert all(second == int(at) for at, second in sounds)
    probed = probe(path)
    if probed.subtitle_tracks:
        cues = words_of(path, [], probed)[0].cues
        assert [cue.text for cue in cues] == [f"second {n}" for n in range(parts * SECONDS)]
        assert all(abs(cue.start - n) < SLACK for n, cue in enumerate(cues))


@pytest.mark.parametrize("start", [5.4, 7.2])
def test_a_cut_of_a_joined_film_holds_what_is_asked(film: tuple[Path, int], start: float) -> None:
    path, parts = film
    out = path.with_name("cut.mp4")
    made = cut(path, start, start + 1, out, force=True)
    with sample_frames(out, 1000) as reader:
        shown = [unit_of(frame.image) / UNITS for frame in reader]
    assert abs(shown[0] - start) < parts * SLACK
    assert abs(shown[-1] + 1 / UNITS - start - 1) < parts * SLACK
    assert abs(made.start - start) < SLACK and made.frames == len(shown)


@pytest.mark.slow
@pytest.mark.parametrize("start", [5.4, 7.2])
@pytest.mark.parametrize("name", ["restarted.ts", "restarted.mkv", "restarted.webm", "restarted.flv"])
def test_a_copy_out_of_a_joined_film_begins_at_its_key_frame(tmp_path: Path, name: str, start: float) -> None:
    path = joined(tmp_path, name, *FILMS[name])
    out = tmp_path / f"copy{'.mkv' if path.suffix == '.flv' else path.suffix}"
    made = cut(path, start, start + 1, out, copy=True)
    with sample_frames(out, 1000) as reader:
        shown = [unit_of(frame.image) / UNITS for frame in reader]
    assert start - 1.1 < made.start <= start
    assert abs(shown[0] - made.start) < 2 * SLACK
    assert abs(shown[-1] - start - 1) < 3 * SLACK


@pytest.mark.parametrize("name", SOUNDS)
def test_joined_sound_has_the_length_of_all_parts_and_one_clock(tmp_path: Path, name: str) -> None:
    data = b""
    for first in (0, SECONDS):
        data += sound(tmp_path / f"part_{name}", SOUNDS[name], wave(first, first + SECONDS)).read_bytes()
    path = tmp_path / name
    path.write_bytes(data)
    assert probe(path).duration == pytest.approx(2 * SECONDS, abs=0.03)
    assert all(second == int(at) for at, second in heard(path))
    cut(path, 7.3, 8.3, tmp_path / "cut.m4a")
    (piece,) = sound_pieces(tmp_path / "cut.m4a")
    assert second_of(piece.samples[: RATE // 2]) == 7 and second_of(piece.samples[-RATE // 4 :]) == 8


def test_a_chained_ogg_of_ffmpeg_has_one_clock(tmp_path: Path) -> None:
    if (program := shutil.which("ffmpeg")) is None:
        pytest.skip("needs the program ffmpeg, whose Vorbis encoder PyAV lacks")
    data = b""
    for second, pitch in enumerate((500, 900)):
        part = tmp_path / f"{second}.ogg"
        tone = f"sine={pitch}:d=4:r=16000"
        subprocess.run([program, "-v", "error", "-f", "lavfi", "-i", tone, part], check=True)
        data += part.read_bytes()
    path = tmp_path / "radio.ogg"
    path.write_bytes(data)
    assert probe(path).duration == pytest.approx(8, abs=0.05)
    cut(path, 5, 6, tmp_path / "cut.m4a")
    (piece,) = sound_pieces(tmp_path / "cut.m4a")
    assert second_of(piece.samples[: RATE // 2]) == 5  # 900 Hz


@pytest.mark.parametrize("name", FIRST_ALONE)
def test_a_second_film_that_is_not_read_is_named(tmp_path: Path, name: str) -> None:
    _is_named(joined(tmp_path, name, FIRST_ALONE[name], (0, 0)), tmp_path / f"part_1_{name}")


@pytest.mark.parametrize("name", SOUNDS_ALONE)
def test_a_second_recording_of_sound_that_is_not_read_is_named(tmp_path: Path, name: str) -> None:
    part = sound(tmp_path / f"part_{name}", SOUNDS_ALONE[name], wave(0, SECONDS))
    (tmp_path / name).write_bytes(2 * part.read_bytes())
    _is_named(tmp_path / name, part)


def _is_named(path: Path, last: Path) -> None:
    """Check that the last part of a file, and nothing of that part alone, counts as joined."""
    assert abs(joined_bytes(path) - last.stat().st_size) <= 1
    assert joined_bytes(last) == 0


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_film_in_fragments_joined_to_one_without_is_named(tmp_path: Path, order: tuple[int, int]) -> None:
    plans = replace(PLAIN, container={"movflags": "faststart"}), FIRST_ALONE["fragments.mp4"]
    first, last = (write(tmp_path / f"{number}.mp4", plans[number]) for number in order)
    (tmp_path / "joined.mp4").write_bytes(first.read_bytes() + last.read_bytes())
    _is_named(tmp_path / "joined.mp4", last)


@pytest.mark.parametrize(("rate", "layout"), [(16_000, "mono"), (44_100, "mono"), (44_100, "stereo")])
def test_the_number_of_frames_of_an_mp3_is_in_a_header_and_not_in_its_data(
    tmp_path: Path, rate: int, layout: str
) -> None:
    path = tmp_path / "a.mp3"
    for states in ("1", "0"):
        with av.open(str(path), "w", options={"write_xing": states}) as container:
            stream: Any = container.add_stream("mp3", rate=rate)
            stream.layout = layout
            samples = np.zeros((1, 4608 * (1 + (layout == "stereo"))), np.int16)
            frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=layout)
            frame.sample_rate = rate
            container.mux([*stream.encode(frame), *stream.encode(None)])
        assert counts_frames(path) == (states == "1")
    data = path.read_bytes()
    path.write_bytes(data[:300] + b"Info Xing VBRI" + data[314:])
    assert not counts_frames(path)


RARE = {
    "part.gxf": "color=s=720x576:r=25:d=2 -c:v mpeg2video -b:v 1M",
    "part.mxf": "color=s=160x96:r=25:d=2 -c:v mpeg2video",
    "part.rm": "color=s=160x96:r=25:d=2 -c:v rv10",
}


@pytest.mark.parametrize("name", RARE)
def test_joined_films_of_rare_formats_are_read_or_named(tmp_path: Path, name: str) -> None:
    if (program := shutil.which("ffmpeg")) is None:
        pytest.skip("needs the program ffmpeg: PyAV cannot write these")
    part, path = tmp_path / name, tmp_path / f"joined_{name}"
    command = [program, "-v", "error", "-f", "lavfi", "-i", *RARE[name].split(), str(part)]
    subprocess.run(command, check=True)
    path.write_bytes(2 * part.read_bytes())
    assert probe(part).duration == pytest.approx(2, abs=SLACK)
    if name == "part.gxf":
        assert probe(path).duration == pytest.approx(4, abs=2 * SLACK)
    else:
        _is_named(path, part)


@pytest.mark.parametrize("name", ["raw.m4v", "raw.h264"])
def test_raw_pictures_that_were_joined_are_all_counted(tmp_path: Path, name: str) -> None:
    part = tmp_path / name
    codec = "mpeg4" if name == "raw.m4v" else "libx264"
    with av.open(str(part), "w", format=name[4:]) as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"
        for unit in range(50):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(unit), format="rgb24")))
        container.mux(stream.encode(None))
    part.write_bytes(2 * part.read_bytes())
    assert probe(part).duration == pytest.approx(4)
    with sample_frames(part, 1000) as reader:
        assert [unit_of(frame.image) for frame in reader] == [*range(50), *range(50)]


@pytest.mark.slow
def test_files_that_are_not_joined_are_left_as_they_are(tmp_path: Path) -> None:
    for name, plan in {"one.ts": PLAIN, "one.mkv": TEXT, "one.mpg": MPEG2}.items():
        path = joined(tmp_path, name, plan, (0,))
        assert not is_chained(path)
        with open_container(path) as container:
            assert joints.on_one_clock(path, container) is container


@pytest.mark.slow
def test_a_gap_between_recordings_stays_a_gap(tmp_path: Path) -> None:
    path = joined(tmp_path, "gap.ts", PLAIN, (0, 60))
    assert probe(path).duration == pytest.approx(66, abs=SLACK)


def with_impossible_times(path: Path, *pictures: int) -> Path:
    """Set all 33 bits of presentation and decoding time (ISO 13818-1, 2.4.3.7) of some stored pictures."""
    data = bytearray(path.read_bytes())
    packets = range(0, len(data), 188)
    starts = [at for at in packets if data[at + 1] & 0x40 and (data[at + 1] & 0x1F, data[at + 2]) == (1, 0)]
    for number in pictures:
        place = data.index(b"\0\0\1\xe0", starts[number]) + 9
        for stamp in (place, place + 5):
            data[stamp : stamp + 5] = bytes([data[stamp] | 0x0E, 0x7F, 0xFF, 0xFF, 0xFF])
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("pictures", [(60,), (60, 61, 62), (40, 60, 80), (60, 62, 64, 66)])
def test_impossible_times_are_no_joints(tmp_path: Path, pictures: tuple[int, ...]) -> None:
    path = with_impossible_times(joined(tmp_path, "damaged.ts", PLAIN, (0,)), *pictures)
    assert probe(path).duration == pytest.approx(SECONDS, abs=2 * SLACK)
    with sample_frames(path, 1000) as reader:
        shown = [(frame.seconds, unit_of(frame.image) / UNITS) for frame in reader]
    assert len(shown) >= SECONDS * UNITS - len(pictures)
    assert all(abs(at - unit) < 3 * SLACK for at, unit in shown)


def test_times_may_fall_back_after_an_impossible_one() -> None:
    times = [0, 1, 2, 3, 0, 1, 2, 90_000, 3, 4, 2.5, 3.5]
    scan = joints._Scan(1 << 20, stores_decoding=True)
    for at in times:
        stream = SimpleNamespace(type="audio")
        scan.add(
            SimpleNamespace(
                stream=stream, stream_index=0, time_base=Fraction(1, 1000), is_keyframe=True, duration=1000,
                pts=int(at * 1000), dts=int(at * 1000),
            )
        )  # fmt: skip
    (clock,) = scan.joints([]).clocks.values()
    shifts = [clock.shift_of(number) for number in range(len(times))]
    shown = [None if shift is None else at + shift / 1000 for at, shift in zip(times, shifts, strict=True)]
    assert shown == [0, 1, 2, 3, 4, 5, 6, None, 7, 8, 9, 10]


def test_that_a_file_has_no_joints_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = joined(tmp_path, "noted.ts", PLAIN, (0,))
    probe(path)
    joints._joints.cache_clear()
    monkeypatch.setattr(joints, "_Scan", None)
    assert probe(path).duration == pytest.approx(SECONDS, abs=SLACK)


# Edit lists. A list of (seconds of the recording or None for a pause, length).
Edits = list[tuple[float | None, float]]
EDITED: dict[str, Edits] = {
    "back": [(6.0, 2.0), (1.0, 3.0)],
    "forth": [(1.0, 2.0), (7.0, 3.0)],
    "twice": [(3.0, 2.0), (3.0, 2.0)],
}


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", 8 + len(body)) + kind + body


def boxes(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at + 4 : at + 8], data[at + 8 : at + size]))
        at += size
    return found


def with_edits(path: Path, edits: Edits) -> Path:
    """Give each track of an MP4 whose index stands last another edit list (ISO 14496-12, 8.6.6)."""
    *before, (_, index) = boxes(path.read_bytes())
    (ticks,) = struct.unpack_from(">I", dict(boxes(index))[b"mvhd"], 12)
    length = round(sum(seconds for _, seconds in edits) * ticks)

    def stated(body: bytes, at: int) -> bytes:
        return body[:at] + struct.pack(">I", length) + body[at + 4 :]

    def track(body: bytes) -> bytes:
        parts = dict(boxes(body))
        (own_ticks,) = struct.unpack_from(">I", dict(boxes(parts[b"mdia"]))[b"mdhd"], 12)
        delay = (
            struct.unpack_from(">i", dict(boxes(parts[b"edts"]))[b"elst"], 12)[0] if b"edts" in parts else 0
        )
        rows = b"".join(
            struct.pack(
                ">IiI", round(seconds * ticks), -1 if at is None else delay + round(at * own_ticks), 1 << 16
            )
            for at, seconds in edits
        )
        parts[b"tkhd"] = stated(parts[b"tkhd"], 20)
        parts[b"edts"] = box(b"elst", struct.pack(">II", 0, len(edits)) + rows)
        return b"".join(box(kind, parts[kind]) for kind in (b"tkhd", b"edts", b"mdia"))

    change: dict[bytes, Callable[[bytes], bytes]] = {b"trak": track, b"mvhd": lambda body: stated(body, 16)}
    index = b"".join(box(kind, change.get(kind, bytes)(body)) for kind, body in boxes(index))
    path.write_bytes(b"".join(box(*each) for each in [*before, (b"moov", index)]))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("name", EDITED)
def test_an_edit_list_of_several_parts_is_followed(tmp_path: Path, name: str, b_frames: int) -> None:
    edits = EDITED[name]
    path = with_edits(write(tmp_path / "a.mp4", Plan(options={"g": "40", "bf": str(b_frames)})), edits)
    length = sum(seconds for _, seconds in edits)
    # FFmpeg leaves out a picture or two at a border where pictures are not stored in order.
    slack = 2.1 / UNITS if b_frames else 0.01

    def recorded(at: float) -> float:
        for begin, seconds in edits:
            if at < seconds and begin is not None:
                return begin + at
            at -= seconds
        raise AssertionError("behind the end")

    assert probe(path).duration == pytest.approx(length)
    with sample_frames(path, 1000) as reader:
        shown = [(frame.seconds, unit_of(frame.image) / UNITS) for frame in reader]
    assert reader.last_time == pytest.approx(length, abs=0.16)
    assert all(abs(recorded(min(at, length - 0.01)) - unit) < slack + 0.02 for at, unit in shown)
    for at in (0.5, 2.5, length - 0.6):
        image = decode_picture(thumbnail(path, at, 160), "thumbnail")
        assert abs(unit_of(image) / UNITS - recorded(at)) < slack + 0.02
    assert all(second == int(recorded(at)) for at, second in heard(path))
    with pytest.raises(UsageError, match="edit list puts several parts together"):
        cut(path, 2.5, 3.5, tmp_path / "copy.mp4", copy=True)


@pytest.mark.slow
def test_a_pause_before_a_film_is_no_part_of_its_length(tmp_path: Path) -> None:
    path = with_edits(write(tmp_path / "a.mp4", Plan()), [(None, 3.0), (2.0, 4.0)])
    assert probe(path).duration == pytest.approx(4, abs=0.1)
