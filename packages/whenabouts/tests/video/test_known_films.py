"""Films of known content, in each way that containers tell times: what is listed, sought, heard and cut."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from tests.known_films import RATE, UNITS, Plan, second_of, sound, unit_of, wave, write

from whenabouts.types import UsageError
from whenabouts.video.cues import words_of
from whenabouts.video.cut import cut, join
from whenabouts.video.frame_times import read_timing
from whenabouts.video.frames import sample_frames
from whenabouts.video.picture import decode_picture
from whenabouts.video.probe import MediaError, probe
from whenabouts.video.sound import sound_pieces
from whenabouts.video.thumbnails import thumbnail

# Encoders of AAC and MP2 put so much silence before the sound: such a file starts earlier than its recording.
AAC, MP2 = 1024 / RATE, 481 / RATE
EVEN = Plan().times
UNEVEN = [
    round(block + at, 2)
    for block in (0, 3, 6, 9)
    for at in (0, 0.05, 0.1, 0.25, 0.3, 0.35, 0.8, 0.85, 1.2, 1.25, 1.3, 2, 2.05, 2.5, 2.55)
]
WIDE = [0, 1, 2, 3, *(4 + n / 60 for n in range(120)), 6, 7.5, *(9 + n / 30 for n in range(90))]
NTSC = [n * 1001 / 30_000 for n in range(359)]
NTSC24 = [n * 1001 / 24_000 for n in range(287)]
WRAP = 95_443.7  # the clock of MPEG streams begins again, after 33 bits of 1 / 90,000 s
GAP = [*EVEN[:80], *EVEN[160:]]
LATER = EVEN[30:]
WEBM = Plan(video="libvpx", audio="libopus", options={"g": "40"})
MPEG2 = Plan(video="mpeg2video", audio="mp2", base=Fraction(1, UNITS))
FRAGMENTS = {"movflags": "frag_keyframe+delay_moov+default_base_moof"}
BELOW_0 = {"avoid_negative_ts": "disabled"}

# Name: the plan, and by how many seconds the file starts before its recording (-0.5: that much is cut off).
FILMS = {
    "plain.mp4": (Plan(text="mov_text"), 0),
    "plain.mkv": (Plan(text="subrip", audio="flac"), 0),
    "late.mkv": (Plan(text="subrip", audio="flac", offset=100), 0),
    "late.webm": (replace(WEBM, text="webvtt", offset=100), 0),
    "late.mp4": (Plan(text="mov_text", offset=100), AAC),
    "late.mov": (Plan(audio="pcm_s16le", offset=100), 0),
    "late.ts": (Plan(offset=100), AAC),
    "late.flv": (Plan(offset=100), AAC),
    "late.nut": (Plan(offset=100), AAC),
    "late.mpg": (replace(MPEG2, offset=100), MP2),
    "late.asf": (Plan(video="msmpeg4v3", audio="mp2", options={"g": "40"}, offset=100), MP2),
    "edit_list.mp4": (Plan(offset=-0.5, container=BELOW_0), -0.5),
    "edit_list.mov": (Plan(offset=-0.5, container=BELOW_0), -0.5),
    "below_0.mkv": (Plan(audio="flac", offset=-0.5, container=BELOW_0), 0),
    "uneven.mkv": (Plan(UNEVEN, audio="flac", text="subrip"), 0),
    "uneven.mp4": (Plan(UNEVEN), 0),
    "gap.mkv": (Plan(GAP, audio="flac"), 0),
    "gap.ts": (Plan(GAP), AAC),
    "sound_later.mkv": (Plan(sound=(1.5, 12), audio="flac"), 0),
    "sound_later.ts": (Plan(sound=(1.5, 12)), 0),
    "pictures_later.mp4": (Plan(LATER, text="mov_text"), 0),
    "pictures_later.mkv": (Plan(LATER, audio="flac", text="subrip"), 0),
    "interlaced.mpg": (replace(MPEG2, interlaced=True), MP2),
    "interlaced.mp4": (Plan(interlaced=True), 0),
    "turned.mp4": (Plan(is_turned=True), 0),
    "two_tracks.mkv": (Plan(audio="flac", tracks=2), 0),
    "decoding_times.avi": (Plan(video="mpeg4", audio="mp2", base=Fraction(1, UNITS)), 0),
    "wide.mkv": (Plan(WIDE, audio="flac", text="subrip"), 0),
    "wide.mp4": (Plan(WIDE, text="mov_text"), 0),
    "wide.webm": (replace(WEBM, times=WIDE, text="webvtt"), 0),
    "wide.ts": (Plan(WIDE), AAC),
    "wide.flv": (Plan(WIDE), AAC),
    "wide.nut": (Plan(WIDE), AAC),
    "wide.mov": (Plan(WIDE, audio="pcm_s16le"), 0),
    "wide.asf": (Plan(WIDE, video="msmpeg4v3", audio="mp2", options={"g": "40"}), MP2),
    "h264.avi": (Plan(audio="mp2", base=Fraction(1, UNITS)), 0),
    "uneven.avi": (Plan(UNEVEN, video="mpeg4", audio="mp2", base=Fraction(1, UNITS)), 0),
    "straight.avi": (Plan(audio="mp2", base=Fraction(1, UNITS), options={"g": "40", "bf": "0"}), 0),
    "two_tracks.mp4": (Plan(tracks=2), 0),
    "two_tracks.ts": (Plan(tracks=2), AAC),
    "two_tracks.avi": (Plan(video="mpeg4", audio="mp2", base=Fraction(1, UNITS), tracks=2), 0),
    "turned.mov": (Plan(is_turned=True, audio="pcm_s16le"), 0),
    "interlaced.ts": (Plan(interlaced=True), AAC),
    "interlaced.mkv": (Plan(interlaced=True, audio="flac"), 0),
    "gap.mp4": (Plan(GAP), 0),
    "gap.flv": (Plan(GAP), AAC),
    "gap.webm": (replace(WEBM, times=GAP), 0),
    "both_gap.mkv": (Plan(GAP, audio="flac", unheard=(4, 8)), 0),
    "both_gap.mp4": (Plan(GAP, unheard=(4, 8)), 0),
    "both_gap.ts": (Plan(GAP, unheard=(4, 8)), AAC),
    "both_gap.flv": (Plan(GAP, unheard=(4, 8)), AAC),
    "silence.mkv": (Plan(audio="flac", unheard=(4, 8)), 0),
    "silence.mp4": (Plan(unheard=(4, 8)), 0),
    "silence.ts": (Plan(unheard=(4, 8)), AAC),
    "silence.flv": (Plan(unheard=(4, 8)), AAC),
    "silence.webm": (replace(WEBM, unheard=(4, 8)), 0),
    "silence.asf": (Plan(video="msmpeg4v3", audio="mp2", options={"g": "40"}, unheard=(4, 8)), MP2),
    "sound_longer.mkv": (Plan(EVEN[:100], audio="flac", text="subrip"), 0),
    "sound_longer.mp4": (Plan(EVEN[:100]), 0),
    "sound_longer.ts": (Plan(EVEN[:100]), AAC),
    "sound_longer.avi": (Plan(EVEN[:100], video="mpeg4", audio="mp2", base=Fraction(1, UNITS)), 0),
    "sound_shorter.mp4": (Plan(sound=(0, 5)), 0),
    "sound_shorter.ts": (Plan(sound=(0, 5)), AAC),
    "sound_shorter.mkv": (Plan(sound=(0, 5), audio="flac"), 0),
    "sound_3.mp4": (Plan(sound=(3, 12)), 0),
    "sound_3.mov": (Plan(sound=(3, 12), audio="pcm_s16le"), 0),
    "sound_3.webm": (replace(WEBM, sound=(3, 12)), 0),
    "sound_3.flv": (Plan(sound=(3, 12)), 0),
    "sound_3.mpg": (replace(MPEG2, sound=(3, 12)), 0),
    "sound_3.asf": (Plan(video="msmpeg4v3", audio="mp2", options={"g": "40"}, sound=(3, 12)), 0),
    "pictures_later.ts": (Plan(LATER), AAC),
    "pictures_later.flv": (Plan(LATER), AAC),
    "pictures_later.mpg": (replace(MPEG2, times=LATER), MP2),
    "wrap.ts": (Plan(offset=WRAP - 5), AAC),
    "wrap.mpg": (replace(MPEG2, offset=WRAP - 5), MP2),
    "wrap_later.ts": (Plan(offset=WRAP - 1, sound=(3, 12)), 0),
    "fragments.mp4": (Plan(container=FRAGMENTS), 0),
    "fragments_late.mp4": (Plan(offset=100, container=FRAGMENTS), AAC),
    "ntsc.mp4": (Plan(NTSC, base=Fraction(1, 30_000)), 0),
    "ntsc.mkv": (Plan(NTSC, audio="flac", base=Fraction(1, 30_000)), 0),
    "ntsc.ts": (Plan(NTSC, base=Fraction(1, 30_000)), AAC),
    "film.mov": (Plan(NTSC24, audio="pcm_s16le", base=Fraction(1, 24_000)), 0),
    "below_0.webm": (replace(WEBM, offset=-0.5, container=BELOW_0), 0.007),
}
# The others are slow tests: a film of each container, and each way of telling times once.
QUICK = {
    *("plain.mp4", "late.mkv", "late.mov", "late.ts", "late.flv", "edit_list.mp4", "uneven.mkv", "gap.webm"),
    *("sound_later.ts", "pictures_later.mpg", "interlaced.mp4", "turned.mp4", "two_tracks.mkv", "wrap.ts"),
    *("decoding_times.avi", "silence.asf", "sound_longer.mkv", "fragments_late.mp4", "film.mov"),
}
SPANS = [pytest.param(span, marks=pytest.mark.slow) for span in ((0.0, 1.4), (8.25, 9.3))] + [(2.25, 3.3)]
SOUGHT = [pytest.param(at, marks=pytest.mark.slow) for at in (0.0, 3.3, 8.77, 11.2)] + [5.02]


@dataclass(frozen=True)
class Film:
    """A film, and when (seconds of the file) each of its pictures is shown, with the unit that it shows.

    `stored` has also the pictures before 0, which a player leaves out.
    """

    path: Path
    plan: Plan
    early: float
    stored: list[tuple[float, int]]

    @property
    def pictures(self) -> list[tuple[float, int]]:
        return [row for row in self.stored if row[0] > -0.001]

    @property
    def sounding(self) -> set[int]:
        """The seconds of the recording whose middle has sound."""
        (begin, end), (quiet, loud) = self.plan.sound, self.plan.unheard
        middles = {second: second + 0.5 for second in range(12)}
        return {at for at, mid in middles.items() if begin < mid < end and not quiet < mid < loud}

    def shown_at(self, instant: float) -> tuple[float, int]:
        """The picture on the screen at an instant, or else the first one."""
        return [self.stored[0], *(row for row in self.stored if row[0] <= instant + 0.001)][-1]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FILMS],
)
def film(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Film:
    plan, early = FILMS[request.param]
    path = write(tmp_path_factory.mktemp("films") / request.param, plan)
    return Film(path, plan, early, [(at + early, round(at * UNITS)) for at in plan.times])


def shown(path: Path, start: float = 0.0) -> list[tuple[float, int]]:
    """(seconds, unit) of every picture from an instant on."""
    with sample_frames(path, 1000, start=start) as reader:
        return [(frame.seconds, unit_of(frame.image)) for frame in reader]


def agrees(pictures: list[tuple[float, int]], truth: list[tuple[float, int]]) -> bool:
    """Whether the same units are shown, at times that are equal to 4 ms."""
    return [unit for _, unit in pictures] == [unit for _, unit in truth] and all(
        abs(at - right) < 0.004 for (at, _), (right, _) in zip(pictures, truth, strict=True)
    )


def heard(path: Path, early: float, track: str = "") -> dict[int, int | None]:
    """For each second of the recording that has sound: which second's tone sounds there."""
    tones: dict[int, int | None] = {}
    for piece in sound_pieces(path, rate=RATE, track=track):
        for second in range(12):
            first = round((second + 0.3 + early - piece.start) * RATE)
            if 0 <= first <= len(piece.samples) - 0.4 * RATE:
                tones[second] = second_of(piece.samples[first : first + round(0.4 * RATE)])
    return tones


@pytest.mark.slow
def test_every_picture_is_at_its_time(film: Film) -> None:
    assert agrees(shown(film.path), film.pictures)
    timing = read_timing(film.path)
    assert timing is not None
    times = [float(timing.times.time(number)) for number in range(len(timing.times))]
    assert times == pytest.approx([at for at, _ in film.pictures], abs=0.004)


def test_the_length_is_that_of_the_recording(film: Film) -> None:
    assert probe(film.path).duration == pytest.approx(12 + film.early, abs=0.2)


def test_each_second_sounds_and_is_read_at_its_time(film: Film) -> None:
    tones = heard(film.path, film.early)
    assert {second for second in film.sounding if 1 <= second <= 10} <= set(tones)
    assert tones == {second: second if second in film.sounding else None for second in tones}
    tracks = words_of(film.path, (), probe(film.path))
    assert len(tracks) == bool(film.plan.text)
    for track in tracks:
        starts = {int(cue.text.split()[-1]): cue.start for cue in track.cues}
        assert starts == pytest.approx({n: n + film.early for n in range(12)}, abs=0.01)


@pytest.mark.parametrize("instant", SOUGHT)
def test_the_picture_sought_is_that_of_its_instant(film: Film, instant: float) -> None:
    truth = [row for row in film.pictures if row[0] >= instant - 0.0005]
    assert agrees(shown(film.path, instant), truth)
    _, unit = truth[0] if truth else film.pictures[-1]
    assert unit_of(decode_picture(thumbnail(film.path, instant, 160), "thumbnail")) == unit


@pytest.mark.parametrize("span", SPANS)
def test_a_cut_shows_and_sounds_as_the_recording(
    film: Film, span: tuple[float, float], tmp_path: Path
) -> None:
    start, end = span
    made = cut(film.path, start, end, tmp_path / "out.mp4")
    truth = [row for row in film.pictures if start - 0.0005 <= row[0] < end - 0.0005]
    if not truth or truth[0][0] - start > 0.1:  # the cut begins with the picture that is still shown
        truth.insert(0, (start, film.shown_at(start)[1]))
    assert agrees([(at + made.start, unit) for at, unit in shown(made.path)], truth)
    _check_sound(film, made.path, made.start, end)


@pytest.mark.parametrize("span", SPANS)
def test_a_copy_shows_and_sounds_as_the_recording(
    film: Film, span: tuple[float, float], tmp_path: Path
) -> None:
    start, end = span
    suffix = film.path.suffix if film.path.suffix in (".mp4", ".mov", ".mkv", ".ts") else ".mkv"
    out = tmp_path / f"out{suffix}"
    if film.path.suffix == ".avi":
        with pytest.raises(UsageError, match="leave out --copy"):
            cut(film.path, start, end, out, copy=True)
        return
    # The first pictures of below_0 in Matroska have no time, so they cannot be copied.
    if end < film.pictures[0][0] or (film.path.stem == "below_0" and start == 0):
        with pytest.raises(MediaError, match="can be copied; leave out --copy"):
            cut(film.path, start, end, out, copy=True)
        return
    made = cut(film.path, start, end, out, copy=True)
    first = film.pictures[0][0]
    assert made.start <= max(start, first) + 0.001
    pictures = [(at + made.start, unit) for at, unit in shown(made.path)]
    assert pictures[0][1] == film.shown_at(made.start)[1]
    truth = {unit: at for at, unit in film.stored}
    assert all(abs(truth[unit] - at) < 0.06 for at, unit in pictures)
    wanted = {unit for at, unit in film.pictures if made.start <= at < end - 0.0005}
    assert wanted <= {unit for _, unit in pictures}
    _check_sound(film, made.path, made.start, end)


def _check_sound(film: Film, path: Path, start: float, end: float) -> None:
    """The sound of a cut of [start, end), which is silent before the sound of the film begins."""
    if end < film.plan.sound[0]:
        return
    if not film.sounding & set(range(math.floor(start), math.ceil(end))):
        return
    tones = heard(path, film.early - start)
    assert tones == {second: second if second in film.sounding else None for second in tones}
    assert tones or not film.sounding & set(range(math.ceil(start), math.floor(end)))


@pytest.mark.slow
def test_joined_cuts_keep_the_sound_behind_the_pictures(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mkv", FILMS["sound_longer.mkv"][0])
    out = tmp_path / "out.mp4"
    made = join([(path, 4.0, 7.0), (path, 8.0, 10.0), (path, 1.0, 3.0)], out)
    assert [(round(one.start, 2), round(one.end, 2)) for one in made] == [(4, 7), (8, 10), (1, 3)]
    assert [heard(out, -4).get(second) for second in (4, 5, 6)] == [4, 5, 6]
    assert [heard(out, -5).get(second) for second in (8, 9)] == [8, 9]
    assert [heard(out, 4).get(second) for second in (1, 2)] == [1, 2]
    pictures = shown(out)
    assert [unit for at, unit in pictures if at < 4.9][-1] == 99
    assert [unit for at, unit in pictures if at > 4.9] == list(range(20, 60))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["late.mkv", "late.ts", "edit_list.mp4", "sound_later.mkv"])
def test_subtitles_beside_a_film_count_from_its_first_instant(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, FILMS[name][0])
    beside = path.with_suffix(".srt")
    cues = (f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\nsecond {n}\n\n" for n in range(1, 11))
    beside.write_text("".join(cues))
    track = words_of(path, (beside,), probe(path))[0]
    assert [cue.start for cue in track.cues] == list(range(1, 11))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.mkv", "a.mp4", "a.ts"])
def test_pictures_with_the_same_time_or_none_of_their_own_move_no_other(tmp_path: Path, name: str) -> None:
    even = write(tmp_path / f"even_{name}", Plan(options={"g": "40", "bf": "0"}))
    path = tmp_path / name
    with av.open(str(even)) as source, av.open(str(path), "w") as out:
        streams: dict[int, Any] = {
            each.index: out.add_stream_from_template(each, opaque=True) for each in source.streams
        }
        numbers = itertools.count()
        packet: Any
        for packet in source.demux():
            if not packet.size:
                continue
            if packet.stream.type == "video" and next(numbers) in (70, 71, 150):
                packet.pts -= packet.duration - (name == "a.mp4")  # times in an MP4 must differ
                packet.dts = packet.pts
            packet.stream = streams[packet.stream_index]
            out.mux(packet)
    pictures, film = shown(path), shown(even)
    assert len(pictures) in (237, 238, 240)
    at_right_time = [abs(at - film[0][0] - unit / UNITS) < 0.004 for at, unit in pictures]
    assert sum(at_right_time) >= 237 and sum(not right for right in at_right_time) <= 3
    timing = read_timing(path)
    assert timing is not None
    for at in (3.45, 3.7, 8.3):
        jpeg = decode_picture(thumbnail(path, at + film[0][0], 160), "thumbnail")
        assert unit_of(jpeg) == round(at * UNITS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.ts", "a.flv"])
@pytest.mark.parametrize("b_frames", ["0", "2"])
def test_a_film_cut_without_decoding_keeps_pictures_and_sound_in_step(
    tmp_path: Path, name: str, b_frames: str
) -> None:
    if (program := shutil.which("ffmpeg")) is None:
        pytest.skip("needs the program ffmpeg, which most people cut with")
    whole = write(tmp_path / "whole.mp4", Plan(options={"g": "40", "bf": b_frames}))
    path = tmp_path / name
    command = [program, "-v", "error", "-ss", "3.3", "-i", str(whole), "-t", "6", "-c", "copy", str(path)]
    subprocess.run(command, check=True)
    pictures = shown(path)
    begins = pictures[0][1] / UNITS - pictures[0][0]
    assert 1.9 < begins < 3.4 and len(pictures) > 110
    # FFmpeg shows the last one or two pictures of some of these cuts for a different length.
    assert all(abs(at + begins - unit / UNITS) < 0.004 for at, unit in pictures[:-3])
    tones = heard(path, -begins)
    assert {4, 5, 6, 7} <= set(tones)
    assert all(second == tone for second, tone in tones.items())
    assert probe(path).duration == pytest.approx(pictures[-1][0], abs=0.4)
    for at in (1.0, 3.33, 5.2):
        _, unit = next(row for row in pictures if row[0] >= at - 0.0005)
        assert unit_of(decode_picture(thumbnail(path, at, 160), "thumbnail")) == unit


@pytest.mark.slow
@pytest.mark.parametrize("lost", [(0.3, 0.55), (0.2, 0.35), (0.4, 0.6)])
@pytest.mark.parametrize("name", ["late.ts", "late.mpg", "wide.ts"])
def test_pictures_after_lost_packets_are_at_their_time(
    tmp_path: Path, name: str, lost: tuple[float, float]
) -> None:
    plan, early = FILMS[name]
    path = write(tmp_path / name, plan)
    data, size = path.read_bytes(), 188 if name.endswith("ts") else 2048
    first, last = (int(len(data) // size * share) * size for share in lost)
    path.write_bytes(data[:first] + data[last:])
    whole = {round(at * UNITS): at + early for at in plan.times}
    pictures = shown(path)
    assert all(at < 12.2 for at, _ in pictures)
    # Pictures between the gap and the next key frame are damaged.
    behind = [(at, unit) for at, unit in pictures if unit >= 190]
    assert len(behind) >= 30 and all(abs(at - whole[unit]) < 0.06 for at, unit in behind)
    timing = read_timing(path)
    assert timing is not None and float(timing.times.end) < 12.2
    for second, tone in heard(path, early).items():
        assert tone in (None, second)


def test_an_avi_that_lost_pictures_says_that_later_ones_come_early(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avi", FILMS["decoding_times.avi"][0])
    data = bytearray(path.read_bytes())
    first, last = int(0.35 * len(data)), int(0.5 * len(data))
    with sample_frames(path, 5) as reader:
        assert list(reader) and reader.damage is None
    data[first:last] = bytes(last - first)
    path.write_bytes(data)
    with sample_frames(path, 5) as reader:
        assert list(reader)
        assert "s of its pictures cannot be read, and what follows them is listed that" in (
            reader.damage or ""
        )


def test_an_avi_without_pictures_has_no_times(tmp_path: Path) -> None:
    path = write(tmp_path / "a.avi", FILMS["decoding_times.avi"][0])
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"movi") + 4])
    with pytest.raises(MediaError, match="holds no picture that can be reached"):
        read_timing(path)


@pytest.mark.slow
def test_a_film_that_cannot_be_searched_by_time_is_read_from_its_first_instant(tmp_path: Path) -> None:
    if (program := shutil.which("ffmpeg")) is None:
        pytest.skip("needs the program ffmpeg: PyAV lacks the encoder")
    whole, path = write(tmp_path / "whole.mkv", FILMS["plain.mkv"][0]), tmp_path / "a.swf"
    form = ["-c:v", "flv", "-q:v", "3", "-c:a", "mp3", "-ar", "44100"]
    subprocess.run([program, "-v", "error", "-i", str(whole), *form, str(path)], check=True)
    assert shown(path, 5.0)[0] == (5.0, 100)
    assert unit_of(decode_picture(thumbnail(path, 8.5, 160), "thumbnail")) == 170
    made = cut(path, 7.0, 9.0, tmp_path / "cut.mp4")
    assert [unit for _, unit in shown(made.path)] == list(range(140, 180))
    assert heard(made.path, -7.0) == {7: 7, 8: 8}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.mp4", "a.mov"])
def test_what_is_left_of_a_film_with_its_index_first_is_at_its_time(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, Plan(container={"movflags": "faststart"}))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    pictures = shown(path)
    assert 60 < len(pictures) < 200
    assert all(at == pytest.approx(unit / UNITS, abs=0.004) for at, unit in pictures)
    tones = heard(path, 0.0)
    assert len(tones) > 2 and all(second == tone for second, tone in tones.items())
    assert probe(path).missing_bytes > 0
    assert unit_of(decode_picture(thumbnail(path, 2.5, 160), "thumbnail")) == 50


def test_the_second_track_of_two_is_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mkv", FILMS["two_tracks.mkv"][0])
    assert heard(path, 0.0, "2") == {second: second + 20 for second in range(12)}


def test_what_is_left_of_a_film_cut_off_is_at_its_time(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.mkv", FILMS["late.mkv"][0]).read_bytes()
    (tmp_path / "b.mkv").write_bytes(whole[: len(whole) // 2])
    pictures = shown(tmp_path / "b.mkv")
    assert 60 < len(pictures) < 200
    assert all(at == pytest.approx(unit / UNITS, abs=0.004) for at, unit in pictures)
    tones = heard(tmp_path / "b.mkv", 0.0)
    assert len(tones) > 2 and all(second == tone for second, tone in tones.items())


@pytest.mark.parametrize(
    ("name", "codec", "form"), [("talk.aac", "aac", "adts"), ("talk.mp3", "libmp3lame", None)]
)
def test_a_length_that_no_format_states_is_not_guessed_from_its_first_seconds(
    tmp_path: Path, name: str, codec: str, form: str
) -> None:
    loud = np.random.default_rng(0).standard_normal(10 * RATE) * 9_000
    samples = np.concatenate([np.zeros(40 * RATE), loud]).astype(np.int16)
    sound(tmp_path / name, codec, samples, form, is_variable=name.endswith("mp3"))
    assert probe(tmp_path / name).duration == pytest.approx(50, abs=0.2)


@pytest.mark.parametrize(("name", "codec"), [("radio.opus", "libopus"), ("radio.mp3", "libmp3lame")])
def test_words_of_a_recording_that_was_appended_are_not_put_into_the_first(
    tmp_path: Path, name: str, codec: str
) -> None:
    parts = [sound(tmp_path / f"{higher}{name}", codec, wave(0, 6, higher)).read_bytes() for higher in (0, 6)]
    (tmp_path / name).write_bytes(b"".join(parts))
    heard = list(sound_pieces(tmp_path / name, 3.0, rate=RATE))
    assert [piece.start for piece in heard] == sorted(piece.start for piece in heard)
    for piece in heard:
        for at in range(-int(-piece.start // 1), int(piece.start + len(piece.samples) / RATE)):
            first = round((at + 0.2 - piece.start) * RATE)
            assert second_of(piece.samples[first : first + RATE // 2]) == at
    assert heard[-1].start + len(heard[-1].samples) / RATE == pytest.approx(12, abs=0.2)
