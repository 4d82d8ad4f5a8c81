"""The content of each list format, hostile names in it, and moments that cannot be written."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import av
import numpy as np
import pysubs2
import pytest

from whenabouts import export
from whenabouts.export import format_names, format_of, render, write
from whenabouts.export.csv import defused
from whenabouts.export.edl import reel_names
from whenabouts.export.moments import FileMoment, moment_of_record
from whenabouts.export.options import Options
from whenabouts.index.records import VideoRecord
from whenabouts.plugins import PluginError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.aside import WriteError
from whenabouts.video.cut import join
from whenabouts.video.probe import MediaError, probe

Make = Callable[..., FileMoment]
Film = Any
HOSTILE = '<script>alert("x")</script>\n* FROM CLIP NAME: other\r\n-->\x1b[31m\x00 &amp; "quoted", \u2028=cmd'


@pytest.mark.parametrize("name", format_names())
def test_each_format_of_the_folder_keeps_the_contract(films: dict[str, Film], make: Make, name: str) -> None:
    module = format_of(name)
    assert name == module.NAME and module.MEDIA_TYPE and module.SUFFIXES
    assert all(
        suffix.startswith(".") and format_of(None, f"a{suffix}") is module for suffix in module.SUFFIXES
    )
    moments = [
        make(films["25"].path, 1, 2),
        make(films["29.97"].path, 3, 4, rank=2, score=None, confidence=None),
    ]
    data, notes = render(moments, name)
    assert data and render(moments, name) == (data, notes)  # the same each time
    assert data.decode("utf-8")
    with pytest.raises(UsageError, match="no moment"):
        render([], name)


def test_a_format_is_a_file_that_is_dropped_in(
    films: dict[str, Film], make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spans.py").write_text(
        'NAME, SUFFIXES, MEDIA_TYPE = "spans", (".spans",), "text/plain"\n'
        "def write(moments, out, options):\n"
        "    for moment in moments:\n"
        "        out.write(b'%s %.1f-%.1f\\n' % (moment.name.encode(), moment.start, moment.end))\n"
        "    return ['times only']\n"
    )
    monkeypatch.setattr(export, "__path__", [*export.__path__, str(tmp_path)])
    assert "spans" in format_names()
    assert write([make(films["25"].path, 1, 2)], tmp_path / "out.spans") == ["times only"]
    assert (tmp_path / "out.spans").read_text() == "pal.mp4 1.0-2.0\n"


@pytest.mark.parametrize("returned", ["None", "'times only'"])
def test_a_format_that_returns_no_list_of_notes_is_named(
    films: dict[str, Film], make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str
) -> None:
    name = f"silent_{len(returned)}"
    (tmp_path / f"{name}.py").write_text(
        f"NAME, SUFFIXES, MEDIA_TYPE = '{name}', ('.{name}',), 'text/plain'\n"
        f"def write(moments, out, options): return {returned}\n"
    )
    monkeypatch.setattr(export, "__path__", [*export.__path__, str(tmp_path)])
    with pytest.raises(PluginError, match=f"{name} returns {returned}; let it return a list of notes"):
        write([make(films["25"].path, 1, 2)], tmp_path / f"out.{name}")
    assert not (tmp_path / f"out.{name}").exists()


@pytest.mark.parametrize("name", format_names())
def test_hostile_words_are_harmless_in_every_format(films: dict[str, Film], make: Make, name: str) -> None:
    moment = make(films["25"].path, 1, 2, text=HOSTILE, query=HOSTILE, name=HOSTILE, video_id=HOSTILE)
    data, _ = render([moment], name, Options(title=HOSTILE))
    text = data.decode()
    assert "\x1b" not in text and "\x00" not in text
    if name == "edl":
        assert sum(line.startswith("* FROM CLIP NAME") for line in text.splitlines()) == 1
        assert sum(line.startswith("001") for line in text.splitlines()) == 1
    if name == "fcpxml":
        root = ElementTree.fromstring(data)
        assert not list(root.iter("script"))
    if name == "vtt":
        assert "<script" not in text.split("-->", 1)[1]
        assert text.count("-->") == 1
        assert len(pysubs2.SSAFile.from_string(text, format_="vtt")) == 1
    if name in ("json", "otio"):
        json.loads(data)


STRANGE = [
    "with space.mp4",
    "ünïcode 映画.mp4",
    "quote's.mp4",
    'double".mp4',
    "a&b<c>.mp4",
    "#1 50%.mp4",
    "tab\tx.mp4",
]


def test_ffmpeg_reads_a_list_of_moments_to_the_frame(
    films: dict[str, Film], make: Make, tmp_path: Path
) -> None:
    moments = [make(films["25"].path, 1.2, 2.0), make(films["25"].path, 3.04, 4.0)]
    data, notes = render(moments, "ffconcat")
    assert b"concatdec_select" in data and "concatdec_select" in notes[0]
    (tmp_path / "list.ffconcat").write_bytes(data)
    options = {"safe": "0", "segment_time_metadata": "1"}
    with av.open(str(tmp_path / "list.ffconcat"), format="concat", options=options) as container:
        graph = av.filter.Graph()
        source = graph.add_buffer(template=container.streams.video[0])
        chosen, sink = graph.add("select", "concatdec_select"), graph.add("buffersink")
        source.link_to(chosen)
        chosen.link_to(sink)
        graph.configure()
        times = []
        for frame in container.decode(video=0):
            source.push(frame)
            with contextlib.suppress(av.error.BlockingIOError, av.error.EOFError):
                pulled: Any = sink.pull()
                times.append(round(float(pulled.time), 3))
    assert times == [round(number / 25, 3) for number in range(20 + 24)]


def test_a_confidence_is_never_rounded_up_to_certainty(films: dict[str, Film], make: Make) -> None:
    moment = make(films["25"].path, 1, 2, confidence=0.999998)
    texts = {name: render([moment], name)[0].decode() for name in ("edl", "vtt", "fcpxml", "csv")}
    assert "CONFIDENCE 0.9999\r" in texts["edl"] and "confidence=0.9999 " in texts["vtt"]
    assert "confidence 0.9999" in texts["fcpxml"] and ",0.999998," in texts["csv"]


@pytest.mark.parametrize("strange", STRANGE)
def test_strange_names_lead_back_to_the_file(
    films: dict[str, Film], make: Make, tmp_path: Path, strange: str
) -> None:
    place = tmp_path / strange
    place.write_bytes(films["25"].path.read_bytes())
    moment = make(place, 1, 2)
    root = ElementTree.fromstring(render([moment], "fcpxml")[0])
    assert root.find(".//media-rep").attrib["src"] == place.as_uri()  # type: ignore[union-attr]
    assert json.loads(render([moment], "json")[0])["moments"][0]["path"] == str(place)
    assert f"%{len(os.fsencode(place))}%{place},1.000000,1.000000" in render([moment], "mpv")[0].decode()
    assert place.as_uri() in render([moment], "m3u")[0].decode()
    (tmp_path / "list.ffconcat").write_bytes(render([moment], "ffconcat")[0])
    with av.open(str(tmp_path / "list.ffconcat"), format="concat", options={"safe": "0"}) as container:
        assert next(container.decode(video=0)).width == 64


def test_names_that_are_no_unicode_are_written(films: dict[str, Film], make: Make, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    try:
        place.write_bytes(films["25"].path.read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    moment = make(place, 1, 2, name="caf\\xe9.mp4")
    for name in format_names():
        data, _ = render([moment], name)
        assert b"caf" in data.lower()
    assert b"caf%E9.mp4" in render([moment], "fcpxml")[0]
    assert b"caf\xe9.mp4" in render([moment], "ffconcat")[0]


def test_a_line_break_in_a_name_is_refused_where_it_would_begin_a_line(
    films: dict[str, Film], make: Make
) -> None:
    for path in ("/a\nfile '/etc/passwd'", "/a\0.mp4"):
        with pytest.raises(UsageError, match="a line break or a NUL character"):
            render([make(Path(path), 1, 2)], "ffconcat")


def test_csv_is_rfc_4180_and_no_cell_is_a_formula(films: dict[str, Film], make: Make) -> None:
    said = ["=1+1", "+1", "-1", "@x", "plain", 'with "quotes", and comma', "\t=1"]
    moments = [make(films["25"].path, 1, 2, text=text, query=text) for text in said]
    data, _ = render(moments, "csv")
    assert data.count(b"\r\n") == len(said) + 1 and b"\n" not in data.replace(b"\r\n", b"")
    rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    assert [row["text"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@x", "plain", said[5], "'=1"]
    assert rows[0]["start_time"] == "00:00:01.000" and rows[0]["score"] == "1.25"
    assert defused("＝1") == "'＝1"


def test_csv_has_a_mark_for_spreadsheets_and_ends_with_title_and_date(tmp_path: Path, make: Make) -> None:
    record = VideoRecord("a-00000000", str(tmp_path / "a.mp4"), modified_ns=10**18, title="=Übung, 1")
    dated = replace(record, title="", metadata={"recorded": "2024-05-01T13:30"})
    moments = [moment_of_record(each, 1, 2) for each in (record, dated)]
    data, _ = render([*moments, make(tmp_path / "b.mp4", 1, 2)], "csv")
    assert data.startswith("\ufeffrank,video_id,name,path,start,end,".encode())
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    assert [row[-2:] for row in rows] == [
        ["title", "recorded"],
        ["'=Übung, 1", ""],
        ["", "2024-05-01 13:30"],
        ["", ""],
    ]


def test_reels_are_short_plain_and_unlike_one_another() -> None:
    paths = [f"/{folder}/holiday film {n}.mp4" for folder in "ab" for n in range(60)] + [
        "/映画.mp4",
        "/BL.mp4",
        "/ax.mov",
    ]
    names = reel_names(paths)
    assert len(set(names.values())) == len(paths)
    assert all(re.fullmatch(r"[A-Z0-9]{1,8}", name) for name in names.values())
    assert not {"BL", "AX"} & set(names.values())


def test_an_edl_has_at_most_999_events(films: dict[str, Film], make: Make) -> None:
    moment = make(films["25"].path, 1, 2)
    assert len(re.findall(r"^\d{3}  ", render([moment] * 999, "edl")[0].decode(), flags=re.M)) == 999
    with pytest.raises(UsageError, match="999 events"):
        render([moment] * 1000, "edl")


def test_vtt_gives_chapters_of_one_video_and_notes_of_their_scores(
    films: dict[str, Film], make: Make
) -> None:
    path = films["25"].path
    data, notes = render([make(path, 3, 4, text="second"), make(path, 1, 2, rank=2, text="first")], "vtt")
    cues = [block.strip().split("\n") for block in data.decode().split("\n\n") if "-->" in block]
    assert cues == [
        ["2", "00:00:01.000 --> 00:00:02.000", "first"],
        ["1", "00:00:03.000 --> 00:00:04.000", "second"],
    ]
    assert "NOTE rank=1 score=1.25 confidence=0.97" in data.decode() and not notes


def test_vtt_of_several_videos_is_timed_for_the_joined_file(films: dict[str, Film], make: Make) -> None:
    moments = [make(films["25"].path, 3, 4.5), make(films["29.97"].path, 1, 2)]
    data, notes = render(moments, "vtt")
    cues = pysubs2.SSAFile.from_string(data.decode(), format_="vtt")
    assert [(cue.start, cue.end) for cue in cues] == [(0, 1520), (1520, 2521)]  # 38 and 30 frames
    assert any("a file that joins them" in note for note in notes)


def test_vtt_counts_an_unreadable_file_as_asked_and_says_so_once(
    films: dict[str, Film], make: Make, tmp_path: Path
) -> None:
    gone = make(tmp_path / "gone.mp4", 1, 1.51)
    data, notes = render([gone, gone, make(films["25"].path, 3, 4)], "vtt")
    assert b"00:00:00.510 --> 00:00:01.020" in data
    assert len([note for note in notes if "can differ by a frame" in note and "no such file" in note]) == 1


@pytest.mark.slow
def test_vtt_of_several_videos_ends_with_the_film_that_cut_joins(
    films: dict[str, Film], make: Make, make_film: Any, samples: Path, tmp_path: Path
) -> None:
    names = ("friday.mp4", "flower.webm")
    slides = make_film(tmp_path / "slides.mp4", [0, 1500, 3000, 4500], Fraction(1, 1000))
    sounding = make_film(tmp_path / "sounding.mp4", range(5), Fraction(1, 25), sound=True)
    spans = [(films[name].path, at, at + 0.51) for name in films for at in (0.0, 1.013, 3.33, 5.7)]
    spans += [(slides.path, 0.3, 1.2), (slides.path, 1.0, 2.5), (slides.path, 1.5, 1.53), (slides.path, 4, 9)]
    spans += [(films["25"].path, 1.001, 1.003), (sounding.path, 0.0, 1.0), (films["varying"].path, 0, 3)]
    spans += [(samples / name, at, at + 0.51) for name in names for at in (0.2, 1.1)]
    spans.insert(3, (samples / "nasa_audio_only.mp3", 3.0, 4.3))
    moments = [make(*span) for span in spans]
    cues = pysubs2.SSAFile.from_string(render(moments, "vtt")[0].decode(), format_="vtt")
    ends = np.cumsum([part.duration for part in join(spans, tmp_path / "film.mp4")])
    assert [cue.end / 1000 for cue in cues] == pytest.approx(ends.tolist(), abs=0.002)
    assert probe(tmp_path / "film.mp4").duration == pytest.approx(cues[-1].end / 1000, abs=1 / 30)


def test_an_ending_behind_the_end_is_clamped_and_told(films: dict[str, Film], make: Make) -> None:
    for name in ("edl", "otio", "fcpxml", "json", "csv"):
        _, notes = render([make(films["25"].path, 5, 60)], name)
        assert any("behind the end of the file; taken up to 6.000 s" in note for note in notes)


@pytest.mark.parametrize("name", format_names())
def test_a_moment_behind_the_end_is_refused(films: dict[str, Film], make: Make, name: str) -> None:
    with pytest.raises(UsageError, match="behind the end of the file"):
        render([make(films["25"].path, 6.0, 7.0)], name)


@pytest.mark.parametrize("name", format_names())
def test_an_end_behind_the_end_is_moved_there_and_told(films: dict[str, Film], make: Make, name: str) -> None:
    data, notes = render([make(films["25"].path, 0.0, 543.0)], name)
    assert [note for note in notes if "taken up to" in note]
    assert b"543" not in data
    assert b"9:03" not in data


def test_a_source_that_is_gone_is_refused_by_time_lines_and_told_in_tables(
    make: Make, tmp_path: Path
) -> None:
    moment = make(tmp_path / "gone.mp4", 1, 2)
    for name in ("edl", "otio", "fcpxml"):
        with pytest.raises(MediaError, match="no such file"):
            render([moment], name)
    data, notes = render([moment], "json")
    assert json.loads(data)["moments"][0]["first_frame"] is None
    assert any("no such file" in note for note in notes)


def test_a_source_without_frames_is_told_once_in_a_table(make: Make, tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text("WEBVTT\n")
    moments = [make(tmp_path / "talk.vtt", start, start + 1) for start in range(3)]
    assert len(json.loads(render(moments, "json")[0])["notes"]) == 1


def test_a_transcript_has_no_place_on_a_time_line(make: Make, tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text("WEBVTT\n")
    with pytest.raises(MediaError, match="a transcript"):
        render([make(tmp_path / "talk.vtt", 1, 2)], "edl")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(start_timecode="01:00:00;00"), "drop-frame exists"),
        (Options(start_timecode="1 o'clock"), "is not a time code"),
        (Options(drop_frame=True), "drop-frame exists"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    films: dict[str, Film], make: Make, options: Options, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        render([make(films["25"].path, 1, 2)], "edl", options)


def test_an_unknown_format_is_refused_with_those_there_are(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"csv, edl, fcpxml"):
        format_of("aaf")
    with pytest.raises(UsageError, match=r"'list\.txt' does not tell the format"):
        write([make(tmp_path / "a.mp4", 1, 2)], tmp_path / "list.txt")


def test_nothing_is_replaced_or_half_written(
    films: dict[str, Film], make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment, out = make(films["25"].path, 1, 2), tmp_path / "list.edl"
    out.write_bytes(b"mine")
    with pytest.raises(UsageError, match="is there already"):
        write([moment], out)
    assert out.read_bytes() == b"mine"
    write([moment], out, force=True)
    whole = out.read_bytes()
    assert whole.startswith(b"TITLE")

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WriteError, match="no room left"):
        write([moment], out, force=True)
    assert out.read_bytes() == whole and [path.name for path in tmp_path.iterdir()] == ["list.edl"]
    with pytest.raises(WriteError, match="there is no folder"):
        write([moment], out / "list.edl")


def test_the_folder_of_a_list_is_made(films: dict[str, Film], make: Make, tmp_path: Path) -> None:
    write([make(films["25"].path, 1, 2)], tmp_path / "new" / "list.edl")
    assert (tmp_path / "new" / "list.edl").read_bytes().startswith(b"TITLE")


def test_every_error_is_one_of_ours(tmp_path: Path, make: Make) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"\x00\x00\x00\x18ftypmp42" + bytes(500))
    for name in ("edl", "otio", "fcpxml"):
        with pytest.raises(WhenaboutsError, match=r"broken\.mp4"):
            render([make(tmp_path / "broken.mp4", 1, 2)], name)
