"""Markers, notes and tags of moments in FCPXML, OpenTimelineIO and Premiere's table, read back."""

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
from tests.export.test_round_trip import RATES, SPANS, Film, fraction, named

from whenabouts.export import render
from whenabouts.export.json import ResultsError, read_moments
from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.premiere import COLUMNS
from whenabouts.export.text import marker_name, marker_note
from whenabouts.times import frame_of

Make = Callable[..., FileMoment]
COLLECTED: dict[str, Any] = {
    "note": "the applause",
    "tags": ("opening", "crowd, wide"),
    "text": "Hello there.",
}
# Content models from Apple's document type for FCPXML 1.10, for the elements that are written here.
CHILDREN = {
    "fcpxml": r"resources library ",
    "resources": r"((asset|format) )*",
    "format": r"",
    "asset": r"(media-rep )+",
    "media-rep": r"",
    "library": r"event ",
    "event": r"project ",
    "project": r"sequence ",
    "sequence": r"(note )?spine ",
    "spine": r"(asset-clip )*",
    "asset-clip": r"(note )?((marker|keyword) )*",
    "note": r"",
    "marker": r"",
    "keyword": r"",
}
ATTRIBUTES = {
    "marker": ({"start", "value"}, {"duration", "completed", "note"}),
    "keyword": ({"value"}, {"start", "duration", "note"}),
    "note": (set(), set()),
    "asset-clip": (
        {"ref"},
        {"offset", "name", "start", "duration", "enabled", "format", "tcFormat", "audioRole", "videoRole"},
    ),
}


def check_document_type(root: ElementTree.Element) -> None:
    """Check that children have the order, and attributes the names, of the document type."""
    for element in root.iter():
        children = "".join(f"{child.tag} " for child in element)
        assert re.fullmatch(CHILDREN[element.tag], children), f"{element.tag}: {children}"
        if element.tag in ATTRIBUTES:
            required, optional = ATTRIBUTES[element.tag]
            assert required <= set(element.attrib) <= required | optional


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_an_fcpxml_marker_stands_on_the_first_frame_of_its_clip(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    moments = [make(films[name].path, *span, **COLLECTED), make(films[name].path, *span)]
    root = ElementTree.fromstring(render(moments, "fcpxml")[0])
    check_document_type(root)
    clip, plain = root.iter("asset-clip")
    marker = clip.find("marker")
    assert marker is not None
    assert marker.attrib["value"] == "the applause"
    first, length = (fraction(marker.attrib[key]) * RATES[name] for key in ("start", "duration"))
    assert length == 1
    assert named(films[name], RATES[name], int(first), int(first) + 1)[:1] == films[name].inside(*span)[:1]
    keywords = clip.findall("keyword")
    assert [keyword.attrib["value"] for keyword in keywords] == ["opening", "crowd, wide"]
    assert all(
        keyword.attrib[key] == clip.attrib[key] for keyword in keywords for key in ("start", "duration")
    )
    assert clip.findtext("note") == marker.attrib["note"]
    assert (
        "the applause | somebody greets | Hello there. | score 1.25 confidence 0.97" in marker.attrib["note"]
    )
    assert [child.tag for child in plain] == ["note", "marker"]


def test_an_fcpxml_file_of_a_moment_without_words_has_a_marker(samples: Path, make: Make) -> None:
    bare = make(samples / "nasa_audio_only.mp3", 3, 5, text="", query="", score=None, confidence=None)
    root = ElementTree.fromstring(render([bare], "fcpxml")[0])
    check_document_type(root)
    (marker,) = root.iter("marker")
    assert (marker.attrib["value"], "note" in marker.attrib) == ("nasa_audio_only.mp3", False)


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_an_otio_marker_covers_the_frames_of_the_moment(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    otio = pytest.importorskip("opentimelineio")
    data, _ = render([make(films[name].path, *span, **COLLECTED)], "otio")
    timeline = otio.adapters.read_from_string(data.decode(), "otio_json")
    marked = [clip for clip in timeline.find_clips() if len(clip.markers)]
    assert [clip.parent().kind for clip in marked] == ["Video"]
    (marker,) = marked[0].markers
    assert isinstance(marker, otio.schema.Marker)
    assert marker.name == "the applause"
    assert marker.comment.endswith("#opening #crowd, wide")
    facts = marker.metadata["whenabouts"]
    assert (facts["note"], list(facts["tags"])) == ("the applause", ["opening", "crowd, wide"])
    first = round(marker.marked_range.start_time.value)
    frames = named(films[name], RATES[name], first, first + round(marker.marked_range.duration.value))
    assert frames == films[name].inside(*span)


def test_an_otio_marker_of_sound_is_on_the_sound(samples: Path, make: Make) -> None:
    otio = pytest.importorskip("opentimelineio")
    data, _ = render([make(samples / "nasa_audio_only.mp3", 3, 5)], "otio")
    (clip,) = otio.adapters.read_from_string(data.decode(), "otio_json").find_clips()
    assert [marker.name for marker in clip.markers] == ["somebody greets"]


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline=""), delimiter="\t"))


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_a_premiere_marker_spans_the_frames_of_the_moment(
    films: dict[str, Film], make: Make, name: str, span: tuple[float, float]
) -> None:
    rate = RATES[name]
    (row,) = rows_of(render([make(films[name].path, *span, **COLLECTED)], "premiere")[0])
    assert tuple(row) == COLUMNS
    drop = name == "29.97"
    assert (":" in row["In"]) is not drop

    def frame(text: str) -> int:
        return frame_of(re.sub(";(?=.*;)", ":", text), rate)[0]

    first, last, length = (frame(row[key]) for key in ("In", "Out", "Duration"))
    assert named(films[name], rate, first, last) == films[name].inside(*span)
    assert last - first == length
    assert (row["Marker Name"], row["Marker Type"]) == ("the applause", "Comment")
    assert row["Description"].startswith(f"{films[name].path.name} | the applause | somebody")


def test_premiere_markers_of_several_videos_follow_one_another(films: dict[str, Film], make: Make) -> None:
    moments = [make(films["25"].path, 3, 4), make(films["29.97"].path, 1, 2)]
    data, notes = render(moments, "premiere")
    assert [(row["In"], row["Out"]) for row in rows_of(data)] == [
        ("00:00:00:00", "00:00:01:00"),
        ("00:00:01:00", "00:00:02:00"),
    ]
    assert any("a sequence of all moments" in note for note in notes)
    later, _ = render(moments, "premiere", Options(start_timecode="10:00:00:00"))
    assert rows_of(later)[1]["In"] == "10:00:01:00"


@pytest.mark.slow
def test_premiere_markers_of_a_minute_of_drop_frame_keep_the_clock(
    tmp_path: Path, make_film: Any, make: Make
) -> None:
    film = make_film(tmp_path / "long.mp4", range(3800), Fraction(1001, 30000))
    (row,) = rows_of(render([make(film.path, 60.06, 62.062)], "premiere")[0])
    assert (row["In"], row["Duration"]) == ("00;01;00;02", "00;00;02;00")


def test_a_cell_of_premieres_table_neither_ends_early_nor_is_a_formula(
    films: dict[str, Film], make: Make
) -> None:
    hostile = '=1+1\t"quoted\r\nx'
    (row,) = rows_of(
        render([make(films["25"].path, 1, 2, note=hostile, text=hostile, query=hostile)], "premiere")[0]
    )
    assert row["Marker Name"] == "'=1+1 'quoted x"
    assert row["Marker Type"] == "Comment"


def test_the_name_of_a_marker_is_the_first_text_there_is(films: dict[str, Film], make: Make) -> None:
    path = films["25"].path
    assert marker_name(make(path, 1, 2, note="n" * 200)) == "n" * 99 + "…"
    assert marker_name(make(path, 1, 2)) == "somebody greets"
    assert marker_name(make(path, 1, 2, query="\x00")) == "Hello there."
    assert marker_name(make(path, 1, 2, query="", text="", name="\x1b")) == "moment 1"
    assert marker_note(make(path, 1, 2, query="", text="", score=None, confidence=None)) == ""


def test_notes_and_tags_survive_a_file_of_moments(films: dict[str, Film], make: Make, tmp_path: Path) -> None:
    moment = make(films["25"].path, 1.0, 2.0, **COLLECTED)
    document = json.loads(render([moment], "json")[0])
    place = tmp_path / "moments.json"
    place.write_text(json.dumps(document))
    assert read_moments(place) == [moment]
    document["moments"][0]["tags"] = ["a", 3]
    place.write_text(json.dumps(document))
    with pytest.raises(ResultsError, match=r"moments\[0\]\.tags: \['a', 3\]; accepted: a list of texts"):
        read_moments(place)
