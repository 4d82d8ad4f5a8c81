"""Lists read back: they name exactly the frames that are shown in each moment."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from whenabouts.export import render, write
from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.times import frame_of

Make = Callable[..., FileMoment]
Film = Any
RATES = {
    "23.976": Fraction(24000, 1001),
    "25": Fraction(25),
    "29.97": Fraction(30000, 1001),
    "varying": Fraction(25),
}
SPANS = [(0.0, 1.0), (1.0, 2.5), (2.002, 3.003), (0.501, 4.999), (5.0, 5.2), (1.735, 1.85)]
EVENT = re.compile(r"(\d{3})  (\S+)\s+(\S+)\s+C\s+(\S+) (\S+) (\S+) (\S+)")


def cells(film: Film, rate: Fraction) -> list[int]:
    """The nearest frame number of each frame at a constant rate."""
    return [int(time * rate + Fraction(1, 2)) for time in film.times]


def named(film: Film, rate: Fraction, first: int, last: int) -> list[int]:
    """The frames of a film to which [first, last) of a list refers."""
    return [frame for frame, number in enumerate(cells(film, rate)) if first <= number < last]


def events_of(data: bytes, rate: Fraction) -> list[tuple[str, list[int]]]:
    """(reel, source in, source out, record in, record out) of an EDL."""
    found = [EVENT.fullmatch(line) for line in data.decode().splitlines()]
    return [(m[2], [frame_of(m[n], rate)[0] for n in range(4, 8)]) for m in found if m]


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_an_edl_names_the_frames_in_the_moment(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    film, rate = films[name], RATES[name]
    data, notes = render([make(film.path, *span)], "edl")
    ((_, (first, last, begins, ends)),) = events_of(data, rate)
    assert named(film, rate, first, last) == film.inside(*span)
    assert ends - begins == last - first
    text = data.decode()
    assert ("FCM: DROP FRAME" in text) == (name == "29.97")
    assert (";" in text) == (name == "29.97")
    assert any("its rate varies; counted at a constant 25" in note for note in notes) == (name == "varying")


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_an_otio_file_names_the_frames_in_the_moment(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    otio = pytest.importorskip("opentimelineio")
    film, rate = films[name], RATES[name]
    data, _ = render([make(film.path, *span), make(film.path, *span)], "otio")
    timeline = otio.adapters.read_from_string(data.decode(), "otio_json")
    moments = list(timeline.find_clips())
    video = [moment for moment in moments if moment.parent().kind == "Video"]
    assert len(video) == 2
    for moment in video:
        used = moment.source_range
        assert used.start_time.rate == pytest.approx(float(rate))
        first = round(used.start_time.value)
        assert named(film, rate, first, first + round(used.duration.value)) == film.inside(*span)
        assert moment.media_reference.target_url == film.path.as_uri()
        there = moment.media_reference.available_range
        assert there.start_time <= used.start_time and used.end_time_exclusive() <= there.end_time_exclusive()
        assert moment.metadata["whenabouts"]["confidence"] == 0.97
    assert timeline.global_start_time.to_timecode(float(rate), name == "29.97")[:8] == "01:00:00"


@pytest.mark.parametrize("name", RATES)
def test_an_otio_file_survives_opentimelineio_unchanged(
    films: dict[str, Film], make: Make, name: str
) -> None:
    otio = pytest.importorskip("opentimelineio")
    data, _ = render([make(films[name].path, 1, 2), make(films[name].path, 3, 4)], "otio")
    timeline = otio.adapters.read_from_string(data.decode(), "otio_json")
    again = json.loads(otio.adapters.write_to_string(timeline, "otio_json"))

    def plain(value: Any) -> Any:
        """A document without empty fields, which some versions of OpenTimelineIO write and others omit."""
        if isinstance(value, dict):
            return {
                k: plain(v)
                for k, v in value.items()
                if v not in (None, [], {}) and k not in ("color", "enabled")
            }
        return [plain(v) for v in value] if isinstance(value, list) else value

    assert plain(again) == plain(json.loads(data))


def fraction(text: str) -> Fraction:
    """Rational seconds."""
    assert re.fullmatch(r"\d+(/\d+)?s", text), text
    return Fraction(text.removesuffix("s"))


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_an_fcpxml_file_names_the_frames_in_the_moment(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    film, rate = films[name], RATES[name]
    data, _ = render([make(film.path, *span), make(film.path, *span)], "fcpxml")
    root = ElementTree.fromstring(data)
    check_fcpxml(root)
    first, second = root.iter("asset-clip")
    start, length = (fraction(first.attrib[key]) * rate for key in ("start", "duration"))
    assert named(film, rate, int(start), int(start + length)) == film.inside(*span)
    assert fraction(second.attrib["offset"]) == fraction(first.attrib["offset"]) + fraction(
        first.attrib["duration"]
    )
    assert root.find(".//media-rep").attrib["src"] == film.path.as_uri()  # type: ignore[union-attr]
    assert root.find(".//sequence").attrib["tcFormat"] == ("DF" if name == "29.97" else "NDF")  # type: ignore[union-attr]


def check_fcpxml(root: ElementTree.Element) -> None:
    """Check the rules of Apple's FCPXML reference that need no DTD."""
    assert root.tag == "fcpxml" and root.attrib["version"] == "1.10"
    ids = [element.attrib["id"] for element in root.find("resources") or ()]
    assert len(ids) == len(set(ids)) > 0
    formats = {
        element.attrib["id"]: fraction(element.attrib["frameDuration"]) for element in root.iter("format")
    }
    assets = {element.attrib["id"]: element for element in root.iter("asset")}
    for asset in assets.values():
        assert len(asset.findall("media-rep")) == 1
        assert asset.attrib.get("hasVideo") == "1" or asset.attrib.get("hasAudio") == "1"
        assert ("format" in asset.attrib) == (asset.attrib.get("hasVideo") == "1")
    (sequence,) = root.iter("sequence")
    frame = formats[sequence.attrib["format"]]
    total = Fraction(0)
    for moment in root.iter("asset-clip"):
        asset = assets[moment.attrib["ref"]]
        own = formats[moment.attrib["format"]] if "format" in moment.attrib else frame
        for value, unit in (("offset", frame), ("duration", frame), ("start", own)):
            assert (fraction(moment.attrib[value]) / unit).denominator == 1, f"{value} is not on a frame"
        begins, lasts = (fraction(moment.attrib[key]) for key in ("start", "duration"))
        assert begins >= fraction(asset.attrib["start"])
        assert begins + lasts <= fraction(asset.attrib["start"]) + fraction(asset.attrib["duration"]) + max(
            own, frame
        )
        assert fraction(moment.attrib["offset"]) == fraction(sequence.attrib["tcStart"]) + total
        total += lasts
    assert fraction(sequence.attrib["duration"]) == total


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_json_and_csv_name_the_frames_in_the_moment(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    film = films[name]
    moment = make(film.path, *span)
    (found,) = json.loads(render([moment], "json")[0])["moments"]
    (row,) = csv.DictReader(io.StringIO(render([moment], "csv")[0].decode()))
    rate = Fraction(found["frame_rate"])
    assert rate == RATES[name] and found["constant_rate"] == (name != "varying")
    assert named(film, rate, found["first_frame"], found["end_frame"]) == film.inside(*span)
    assert (int(row["first_frame"]), int(row["end_frame"])) == (found["first_frame"], found["end_frame"])


def test_a_moment_up_to_the_last_frame_ends_behind_it(films: dict[str, Film], make: Make) -> None:
    for name, film in films.items():
        end = float(film.end)
        data, notes = render([make(film.path, end - 0.2, end)], "edl")
        ((_, (first, last, _, _)),) = events_of(data, RATES[name])
        assert named(film, RATES[name], first, last)[-1] == len(film.times) - 1
        assert not any("behind the end" in note for note in notes)


def test_the_time_line_begins_where_it_is_told_to(films: dict[str, Film], make: Make) -> None:
    moments = [make(films["29.97"].path, 1, 2), make(films["29.97"].path, 3, 4)]
    for code, drop in (("10:00:00;00", True), ("10:00:00:00", False), ("00:00:59;29", True)):
        data, _ = render(moments, "edl", Options(start_timecode=code))
        assert f"{code} " in data.decode()
        assert ("FCM: DROP FRAME" in data.decode()) == drop
        events = events_of(data, RATES["29.97"])
        assert events[1][1][2] == events[0][1][3]
        xml = ElementTree.fromstring(render(moments, "fcpxml", Options(start_timecode=code))[0])
        check_fcpxml(xml)
    plain, _ = render(moments, "edl", Options(drop_frame=False))
    assert "FCM: NON-DROP FRAME" in plain.decode() and ";" not in plain.decode()


def test_an_edl_goes_past_midnight(films: dict[str, Film], make: Make) -> None:
    data, notes = render([make(films["25"].path, 0, 2)], "edl", Options(start_timecode="23:59:59:00"))
    assert "23:59:59:00 00:00:01:00" in data.decode()
    assert "time codes begin anew at 00:00:00:00 after 24 hours" in notes
    _, notes = render([make(films["25"].path, 0, 2)], "edl", Options(start_timecode="23:59:57:24"))
    assert not notes


def test_several_rates_share_a_time_line(films: dict[str, Film], make: Make) -> None:
    moments = [make(films[name].path, 1, 2) for name in films]
    data, notes = render(moments, "edl", Options(rate=Fraction(25)))
    events = events_of(data, Fraction(25))
    assert len({reel for reel, _ in events}) == 4
    assert all(places[1] - places[0] == places[3] - places[2] for _, places in events)
    assert sum("counted at a constant 25 frames a second, by time" in note for note in notes) == 3
    check_fcpxml(ElementTree.fromstring(render(moments, "fcpxml")[0]))


def test_the_cameras_own_time_code_counts(tmp_path: Path, make_film: Any, make: Make) -> None:
    film = make_film(tmp_path / "tape.mov", range(100), Fraction(1, 25), timecode="10:20:30:05")
    ((_, places),) = events_of(render([make(film.path, 1, 2)], "edl")[0], Fraction(25))
    zero = frame_of("10:20:30:05", Fraction(25))[0]
    assert places[:2] == [zero + 25, zero + 50]
    root = ElementTree.fromstring(render([make(film.path, 1, 2)], "fcpxml")[0])
    check_fcpxml(root)
    assert fraction(next(root.iter("asset-clip")).attrib["start"]) * 25 == zero + 25


def test_time_codes_of_a_camera_skip_numbers_only_if_the_camera_does(
    tmp_path: Path, make_film: Any, make: Make
) -> None:
    rate = RATES["29.97"]
    codes = {"skips": "10:00:58;00", "counts": "01:00:58:00", "plain": ""}
    films = [make_film(tmp_path / f"{n}.mov", range(150), 1 / rate, timecode=c) for n, c in codes.items()]
    moments = [make(film.path, 2.002, 4.004) for film in films]
    for record, plain, drops in (("01:00:00;00", "00:00:02;00", True), ("01:00:00:00", "00:00:02:00", False)):
        options = Options(drop_frame=drops)
        lines = render(moments, "edl", options)[0].decode().splitlines()
        modes = {True: "FCM: DROP FRAME", False: "FCM: NON-DROP FRAME"}
        told = [modes[drops], *([] if drops else [modes[True]]), modes[False], *([modes[True]] * drops)]
        assert [line for line in lines if line.startswith("FCM")] == told
        starts = [match[4] for match in map(EVENT.fullmatch, lines) if match]
        assert starts == ["10:01:00;02", "01:01:00:00", plain]
        assert f" {record} " in lines[3 + (not drops)]
        root = ElementTree.fromstring(render(moments, "fcpxml", options)[0])
        assert [clip.attrib["tcFormat"] for clip in root.iter("asset-clip")] == [
            *("DF", "NDF"),
            "DF" if drops else "NDF",
        ]


@pytest.mark.parametrize(
    ("rate", "code", "listed", "coded", "seconds"),
    [
        (Fraction(12), "01:00:00:00", None, "01:00:01:00", Fraction(3601)),
        (RATES["29.97"], "00:59:59;28", Fraction(24), "01:00:00:22", Fraction(107920) / RATES["29.97"]),
        (RATES["29.97"], "00:59:59;28", 2 * RATES["29.97"], "01:00:00;56", Fraction(107920) / RATES["29.97"]),
        (RATES["23.976"], "01:00:00:00", Fraction(25), "01:00:01:00", Fraction(86424) / RATES["23.976"]),
        (RATES["23.976"], "00:01:00:01", RATES["29.97"], "00:01:01:01", Fraction(1465) / RATES["23.976"]),
        (Fraction(50), "00:00:59:49", Fraction(24), "00:01:00:23", Fraction(3049, 50)),
    ],
)
def test_time_codes_of_a_camera_are_kept_in_a_list_of_another_rate(
    rate: Fraction,
    code: str,
    listed: Fraction | None,
    coded: str,
    seconds: Fraction,
    tmp_path: Path,
    make_film: Any,
    make: Make,
) -> None:
    film = make_film(tmp_path / "tape.mov", range(3 * round(rate)), 1 / rate, timecode=code)
    moments, options = [make(film.path, float(round(rate) / rate), 2.5)], Options(rate=listed)
    assert f" C        {coded} " in render(moments, "edl", options)[0].decode()
    root = ElementTree.fromstring(render(moments, "fcpxml", options)[0])
    check_fcpxml(root)
    assert fraction(next(root.iter("asset-clip")).attrib["start"]) == seconds
    assert fraction(next(root.iter("asset")).attrib["start"]) == seconds - round(rate) / rate
    (track,) = json.loads(render(moments, "otio", options)[0])["tracks"]["children"]
    start = track["children"][0]["source_range"]["start_time"]
    assert start["value"] / start["rate"] == pytest.approx(float(seconds))


def test_a_varying_rate_is_counted_anew_from_the_cameras_time_code(
    tmp_path: Path, make_film: Any, make: Make
) -> None:
    ticks = [0, 40, 80, 200, 240, 280, 320, 440, 480, 520, 560]
    film = make_film(tmp_path / "phone.mov", ticks, Fraction(1, 1000), timecode="01:00:00:00")
    moments, options = [make(film.path, 0.2, 0.5)], Options(rate=Fraction(50))
    for name in ("otio", "fcpxml", "edl"):
        text = render(moments, name, options)[0].decode()
        wanted = {"otio": '"value": 180010.0', "fcpxml": 'start="18001/5s"', "edl": "01:00:00:10"}
        assert wanted[name] in text


def test_sound_alone_stands_on_a_track_of_sound(samples: Path, make: Make) -> None:
    moment = make(samples / "nasa_audio_only.mp3", 3, 5)
    data, _ = render([moment], "edl")
    assert re.search(r"001  NASAAUDI AA? ", data.decode())
    check_fcpxml(ElementTree.fromstring(render([moment], "fcpxml")[0]))
    tracks = json.loads(render([moment], "otio")[0])["tracks"]["children"]
    assert [track["kind"] for track in tracks] == ["Audio"]


def test_a_list_is_written_by_its_suffix(films: dict[str, Film], make: Make, tmp_path: Path) -> None:
    moment = make(films["25"].path, 1, 2)
    for suffix, begins in (
        (".edl", b"TITLE"),
        (".otio", b"{"),
        (".fcpxml", b"<?xml"),
        (".vtt", b"WEBVTT"),
        (".csv", b"\xef\xbb\xbfrank"),
    ):
        write([moment], tmp_path / f"list{suffix}")
        assert (tmp_path / f"list{suffix}").read_bytes().startswith(begins)
