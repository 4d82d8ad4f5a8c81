from __future__ import annotations

import math
import shutil
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.cues import words_of
from whenabouts.video.frames import Frame, FrameGrid, sample_frames
from whenabouts.video.probe import MediaError, open_media, probe
from whenabouts.video.thumbnails import thumbnail
from whenabouts.video.time_limit import TimeLimit

ALL = 1000.0  # a rate that no sample video reaches: every frame


def times(frames: list[Frame]) -> list[Fraction]:
    return [frame.time for frame in frames]


def first_at_or_after(all_times: list[Fraction], rate: float) -> list[Fraction]:
    """What sampling should give, written down as slowly as it is defined; half a millisecond is rounding."""
    instant, chosen = Fraction(1) / Fraction(rate).limit_denominator(1_000_000), list[Fraction]()
    number = 0
    while True:
        after = [time for time in all_times if time >= number * instant - Fraction(1, 2000)]
        if not after:
            return chosen
        if not chosen or after[0] != chosen[-1]:
            chosen.append(after[0])
        number += 1


@pytest.mark.parametrize("rate", [1, 2.5, 3, 7, 24, 30])
def test_each_instant_gets_the_first_frame_at_or_after_it(tmp_path: Path, studio: Any, rate: float) -> None:
    ticks = [0, 40, 80, 120, 500, 505, 510, 900, 1000, 1333, 1334, 2100, 2101, 2999, 3000, 4200]
    path = studio.video(tmp_path / "vfr.mkv", ticks)
    frames = list(sample_frames(path, rate))
    exact = [Fraction(tick, 1000) for tick in ticks]
    assert times(frames) == first_at_or_after(exact, rate)
    assert [studio.number(frame.image) for frame in frames] == [exact.index(frame.time) for frame in frames]


@pytest.mark.slow
@given(
    gaps=st.lists(st.integers(1, 900), min_size=1, max_size=60),
    rate=st.sampled_from([0.1, 0.5, 1, 2, 3, 4, 7.5, 12, 29.97, 60]),
    base=st.sampled_from([Fraction(1, 1000), Fraction(1, 90000), Fraction(1, 25)]),
)
@settings(max_examples=200, deadline=None)
def test_the_grid_takes_the_frames_that_its_definition_names(
    gaps: list[int], rate: float, base: Fraction
) -> None:
    ticks = [sum(gaps[:count]) - gaps[0] for count in range(1, len(gaps) + 1)]
    grid = FrameGrid(Fraction(rate).limit_denominator(1_000_000), base, Fraction(0))
    taken = []
    for tick in ticks:
        if tick >= grid.wanted:
            taken.append(tick * base)
            grid.move_past(tick)
    slack = min(base / 2, Fraction(1, 2000))
    instant = 1 / Fraction(rate).limit_denominator(1_000_000)
    wanted = []
    for tick in ticks:
        number = math.floor((tick * base + slack) / instant)  # the last instant this frame could serve
        before = [other for other in ticks if other < tick]
        if not before or (before[-1] * base + slack) // instant < number:
            wanted.append(tick * base)
    assert taken == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "last"),
    [
        ("bottle-detection.mp4", 1189, 39.855),
        ("friday.mp4", 185, 6.167),
        ("flower.webm", 150, 5.009),
        ("man_green_wall.mp4", 1465, 24.441),
        ("nasa_13013.mp4", 325, 13.0),
    ],
)
def test_all_frames_of_the_samples_come_with_rising_exact_times(
    samples: Path, name: str, count: int, last: float
) -> None:
    with sample_frames(samples / name, ALL, size=32) as reader:
        frames = list(reader)
    assert len(frames) == count == reader.frames_decoded
    assert all(a.time < b.time for a, b in pairwise(frames))
    assert reader.damage is None and reader.last_time == pytest.approx(last, abs=0.002)
    assert isinstance(frames[1].time, Fraction) and frames[1].seconds == float(frames[1].time)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["flower.webm", "friday.mp4", "nasa_13013.mp4", "man_green_wall.mp4", "bottle-detection.mp4"]
)
def test_skipping_what_nobody_wants_changes_no_frame(samples: Path, name: str) -> None:
    fast, plain = sample_frames(samples / name, 3, size=64), sample_frames(samples / name, 3, size=64)
    plain.skips_unwanted = False
    for one, other in zip(fast, plain, strict=True):
        assert one.time == other.time
        assert np.array_equal(one.image, other.image)
    if name == "bottle-detection.mp4":
        assert fast.frames_decoded < 0.7 * plain.frames_decoded


def test_variable_rates_keep_their_times(real_video: Path) -> None:
    seconds = [frame.seconds for frame in sample_frames(real_video / "bikes_vfr_vp9.webm", ALL, size=32)]
    assert len(seconds) == 128
    assert seconds[:3] == [0.0, 0.04, 0.08] and seconds[-1] == 9.92
    assert 3.2 in seconds and 3.04 not in seconds


def test_a_container_without_presentation_times_gets_right_ones(real_video: Path) -> None:
    reader = sample_frames(real_video / "makeup_mpeg4.avi", ALL, size=32)
    assert [frame.time for frame in reader] == [Fraction(number, 25) for number in range(164)]
    assert reader.last_time == pytest.approx(6.56)


@pytest.mark.parametrize(("name", "codec"), [("a.avi", "mpeg4"), ("b.avi", "libx264"), ("c.h264", "libx264")])
def test_reordered_frames_without_times_are_counted(
    tmp_path: Path, studio: Any, name: str, codec: str
) -> None:
    path = studio.video(
        tmp_path / name, range(60), codec=codec, time_base=Fraction(1, 25), options={"bf": "2"}
    )
    frames = list(sample_frames(path, ALL))
    assert times(frames) == [Fraction(number, 25) for number in range(60)]
    assert [studio.number(frame.image) for frame in frames] == list(range(60))
    middle = list(sample_frames(path, ALL, start=1.0, end=1.2))
    assert [studio.number(frame.image) for frame in middle] == [25, 26, 27, 28, 29]


@pytest.mark.parametrize("name", ["a.ts", "a.flv", "a.mpg"])
def test_a_start_that_is_not_zero_is_taken_off(tmp_path: Path, studio: Any, name: str) -> None:
    codec = "mpeg2video" if name == "a.mpg" else "libx264"
    path = studio.video(tmp_path / name, range(50), codec=codec, time_base=Fraction(1, 25))
    with open_media(path) as container:
        assert container.start_time > 0
    frames = list(sample_frames(path, ALL))
    assert len(frames) == 50 and frames[0].time == 0
    assert frames[-1].seconds == pytest.approx(49 / 25)


def test_pictures_that_start_after_the_sound_keep_their_distance(tmp_path: Path, studio: Any) -> None:
    path = studio.video(tmp_path / "late.mkv", range(2000, 4000, 40), sound_seconds=4.0)
    frames = list(sample_frames(path, 1))
    # AAC begins a frame early; the container counts from there.
    assert frames[0].seconds == pytest.approx(2.0, abs=0.07)


def test_the_first_real_video_stream_is_read(samples: Path) -> None:
    frame = next(iter(sample_frames(samples / "nasa_13013.mp4", 1)))
    assert frame.image.shape == (180, 320, 3)


MATRICES: dict[str, tuple[tuple[int, int, int, int], Any]] = {
    "0": ((1, 0, 0, 1), lambda image: image),
    "90 clockwise": ((0, 1, -1, 0), lambda image: np.rot90(image, -1)),
    "180": ((-1, 0, 0, -1), lambda image: np.rot90(image, 2)),
    "270 clockwise": ((0, -1, 1, 0), lambda image: np.rot90(image, 1)),
    "mirrored": ((-1, 0, 0, 1), lambda image: image[:, ::-1]),
    "upside down": ((1, 0, 0, -1), lambda image: image[::-1]),
    "transposed": ((0, 1, 1, 0), lambda image: image.transpose(1, 0, 2)),
}


@pytest.mark.parametrize("turn", MATRICES)
def test_pictures_are_upright(tmp_path: Path, studio: Any, turn: str) -> None:
    def quarters(_: int) -> Any:
        image = np.zeros((96, 160, 3), np.uint8)
        image[:48, :80], image[:48, 80:], image[48:, :80], image[48:, 80:] = 240, 160, 80, 10
        return image

    path = studio.video(tmp_path / "a.mp4", range(0, 400, 40), picture=quarters)
    matrix, expected = MATRICES[turn]
    studio.turn(path, *matrix)
    frame = next(iter(sample_frames(path, ALL)))
    upright = expected(quarters(0))
    assert frame.image.shape == upright.shape and frame.image.flags.c_contiguous
    assert np.abs(frame.image.astype(int) - upright.astype(int)).mean() < 6


def test_a_telephone_video_is_turned(real_video: Path) -> None:
    frames = list(sample_frames(real_video / "rot90_three_frames.mov", ALL))
    assert [frame.image.shape for frame in frames] == [(568, 320, 3)] * 3
    (fire, *_) = sample_frames(real_video / "dog_rot180_vfr.mp4", 1, size=180)
    with av.open(str(real_video / "dog_rot180_vfr.mp4")) as container:
        stored = next(container.decode(video=0)).to_ndarray(format="rgb24", width=320, height=180)
    turned = np.asarray(stored)[::-1, ::-1].astype(int)
    assert np.abs(fire.image.astype(int) - turned).mean() < 4


def test_size_is_the_short_side_and_nothing_is_enlarged(samples: Path) -> None:
    assert next(iter(sample_frames(samples / "friday.mp4", 1, size=224))).image.shape == (224, 299, 3)
    assert next(iter(sample_frames(samples / "friday.mp4", 1, size=5000))).image.shape == (480, 640, 3)


def test_pixels_become_square(tmp_path: Path, studio: Any) -> None:
    path = studio.video(tmp_path / "a.mp4", range(0, 200, 40), aspect=Fraction(2, 1))
    assert next(iter(sample_frames(path, 1))).image.shape == (96, 320, 3)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.ts", "a.webm"])
@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (2.02, 3.5), (3.0, None), (4.96, None), (7.0, 9.0)])
def test_a_part_is_what_the_whole_has_there(
    tmp_path: Path, studio: Any, name: str, start: float, end: float | None
) -> None:
    codec = "libvpx-vp9" if name.endswith("webm") else "libx264"
    options = {"g": "30", "bf": "3", "deadline": "realtime", "cpu-used": "8"}
    options = {
        key: options[key] for key in (("g", "bf") if codec == "libx264" else ("g", "deadline", "cpu-used"))
    }
    path = studio.video(tmp_path / name, range(0, 5000, 40), codec=codec, options=options)
    whole = [frame for frame in sample_frames(path, 10) if start <= frame.time < (end or 99)]
    instant = Fraction(1, 10)
    whole = [
        frame for frame in whole if math.floor((frame.time + Fraction(1, 2000)) / instant) * instant >= start
    ]
    part = list(sample_frames(path, 10, start=start, end=end))
    assert times(part) == times(whole)
    assert [studio.number(frame.image) for frame in part] == [studio.number(frame.image) for frame in whole]


def test_a_part_is_reached_by_seeking_not_by_reading_all_before_it(samples: Path) -> None:
    reader = sample_frames(samples / "bottle-detection.mp4", 2, size=64, start=35.0, end=36.0)
    assert len(list(reader)) == 2
    assert reader.frames_decoded < 400


@pytest.mark.parametrize(
    ("name", "frames", "end", "words"),
    [
        ("truncated_car.mp4", 151, 12.16, "1,611,553 bytes are missing"),
        ("truncated_flower.webm", 50, 1.67, "bytes are missing"),
    ],
)
def test_a_broken_off_file_gives_what_it_has_and_says_where_it_ends(
    real_video: Path, name: str, frames: int, end: float, words: str
) -> None:
    reader = sample_frames(real_video / name, ALL, size=32)
    assert len(list(reader)) == frames
    assert reader.last_time == pytest.approx(end, abs=0.01)
    assert reader.damage is not None and words in reader.damage and f"{end:.1f} s" in reader.damage


def test_damage_inside_is_told_and_what_lies_behind_it_is_read(real_video: Path) -> None:
    reader = sample_frames(real_video / "corrupt_frames.mp4", ALL, size=32)
    seconds = [frame.seconds for frame in reader]
    assert seconds[:28] == [round(number * 0.1, 1) for number in range(28)]
    assert seconds[-1] > 4.5
    assert reader.damage is not None and "packet" in reader.damage


def test_flipped_bytes_never_break_the_reading(tmp_path: Path, samples: Path) -> None:
    data = bytearray((samples / "friday.mp4").read_bytes())
    generator = np.random.default_rng(7)
    for place in generator.integers(60_000, len(data) - 1, 400):
        data[place] ^= 0xFF
    (tmp_path / "hurt.mp4").write_bytes(data)
    frames = list(sample_frames(tmp_path / "hurt.mp4", 10, size=32))
    assert frames and all(a.time < b.time for a, b in pairwise(frames))


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_to_a_file_it_is_read_or_refused_with_a_reason(
    tmp_path: Path, samples: Path, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    name = ("friday.mp4", "nasa_13013.mp4", "frog.webm")[seed % 3]
    data = bytearray((samples / name).read_bytes())
    if seed % 4 == 0:
        del data[int(generator.integers(len(data))) :]
    else:
        reach = (len(data), 3000, 60_000)[seed % 4 - 1]
        for place in generator.integers(0, reach, 30):
            data[place] = int(generator.integers(256))
    path = tmp_path / name
    path.write_bytes(data)
    try:
        found = probe(path)
        words_of(path, [], found)
        frames = list(sample_frames(path, 4, size=32)) if found.picture else []
    except WhenaboutsError as error:
        assert name in str(error)
        return
    assert all(a.time < b.time for a, b in pairwise(frames)) and all(frame.time >= 0 for frame in frames)


def test_a_damaged_frame_rate_makes_no_video_of_years(tmp_path: Path, studio: Any) -> None:
    path = studio.video(tmp_path / "a.avi", range(50), codec="mpeg4", time_base=Fraction(1, 25))
    data = bytearray(path.read_bytes())
    scale = data.index(b"strh") + 28
    data[scale : scale + 4] = (0x7FFFFFFF).to_bytes(4, "little")
    path.write_bytes(data)
    frames = list(sample_frames(path, 4))
    assert frames and frames[-1].seconds < 86_400
    assert (probe(path).duration or 0) < 31 * 86_400


def test_no_pictures_is_an_error_that_says_what_to_do(samples: Path) -> None:
    with pytest.raises(MediaError, match=r"nasa_audio_only\.mp3.*no pictures.*words"):
        list(sample_frames(samples / "nasa_audio_only.mp3", 1))


def test_a_thumbnail_late_in_a_long_recording_is_of_its_instant(studio: Any, tmp_path: Path) -> None:
    # No fraction with a denominator of at most a million is as near to 1 / 15879.57 as needed.
    seconds = (0, 4_000, 8_000, 12_000, 15_879, 15_880, 16_200)
    film = studio.video(tmp_path / "long.mp4", [1000 * at for at in seconds])
    with film.open("ab") as file:  # a small file may not hold hours between two pictures
        file.write((1 << 20).to_bytes(4, "big") + b"free" + bytes((1 << 20) - 8))
    assert thumbnail(film, 15_879.57, 160) == thumbnail(film, 15_880.0, 160)
    assert thumbnail(film, 15_879.57, 160) != thumbnail(film, 16_200.0, 160)


def test_frames_before_the_start_are_not_decoded_in_full(samples: Path) -> None:
    def decoded(*, skips: bool) -> int:
        with sample_frames(samples / "friday.mp4", ALL, start=3.0, end=3.2) as reader:
            reader.skips_unwanted = skips
            assert next(iter(reader)).seconds >= 3.0 - 5e-4
            return reader.frames_decoded

    assert decoded(skips=True) < decoded(skips=False)


def test_a_very_low_rate_delivers_the_first_frame_alone(studio: Any, tmp_path: Path) -> None:
    film = studio.video(tmp_path / "a.mp4", range(0, 2000, 40))
    assert [frame.time for frame in sample_frames(film, 1e-9)] == [0]
    assert thumbnail(film, 30 * 86_400.0, 160) == thumbnail(film, 1.96, 160)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": math.nan},
        {"rate": 2000},
        {"size": 0},
        {"threads": -1},
        {"start": -1.0},
        {"start": 2.0, "end": 1.0},
        {"end": math.nan},
        {"end": math.inf},
    ],
)
def test_values_out_of_range_are_refused(samples: Path, wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        sample_frames(samples / "friday.mp4", **({"rate": 1} | wrong))  # type: ignore[arg-type]


def test_a_reader_reads_once_and_closes_when_left_early(tmp_path: Path, samples: Path) -> None:
    copy = Path(shutil.copy(samples / "friday.mp4", tmp_path / "a.mp4"))
    with sample_frames(copy, 5, size=32) as reader:
        next(iter(reader))
    with pytest.raises(UsageError, match="once"):
        next(iter(reader))


def test_times_that_jump_back_go_on_rising(tmp_path: Path, studio: Any) -> None:
    """Two transport streams written one behind the other: the second starts anew at its own zero."""
    parts = [studio.video(tmp_path / f"{n}.ts", range(50), time_base=Fraction(1, 25)) for n in range(2)]
    (tmp_path / "joined.ts").write_bytes(b"".join(part.read_bytes() for part in parts))
    frames = list(sample_frames(tmp_path / "joined.ts", ALL))
    assert all(a.time < b.time for a, b in pairwise(frames))
    assert len(frames) >= 98 and frames[-1].seconds == pytest.approx(3.96, abs=0.1)


def test_times_that_leap_further_than_a_file_can_hold_make_no_weeks(tmp_path: Path, studio: Any) -> None:
    path = studio.video(tmp_path / "a.mkv", [number * 86_000_000 for number in range(6)])
    assert (probe(path).duration or 0) < 60
    with sample_frames(path, 4) as reader:
        assert len(list(reader)) >= 1
        assert reader.last_time < 60
        assert reader.damage is not None and "leap 5 time(s)" in reader.damage


def test_pictures_that_stand_long_keep_their_times(tmp_path: Path, studio: Any) -> None:
    seconds = [0, 600, 1200, 1500, 2900]
    path = studio.video(tmp_path / "slides.mkv", [1000 * second for second in seconds])
    with sample_frames(path, 4) as reader:
        assert [frame.seconds for frame in reader] == seconds
        assert reader.damage is None


@pytest.mark.parametrize(
    ("size", "gap", "allowed"), [(0, 3602, 1), (0, 1000, 3), (640_000, 3602, 3), (10**9, 86_401, 0)]
)
def test_a_file_holds_as_much_time_without_pictures_as_its_size_allows(
    size: int, gap: int, allowed: int
) -> None:
    limit = TimeLimit(size)
    assert sum(limit.allows(Fraction(gap)) for _ in range(20)) == allowed
    assert all(limit.allows(Fraction(2)) for _ in range(1000))
