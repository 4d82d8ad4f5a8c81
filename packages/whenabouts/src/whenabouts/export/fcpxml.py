"""FCPXML 1.10: the format of Final Cut Pro, which DaVinci Resolve reads too.

Times are fractions of seconds, on whole frames (1001/30000s). A format of `export`, chosen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import IO
from xml.etree import ElementTree

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.text import marker_name, marker_note
from whenabouts.export.timeline import Event, Timeline, make_timeline
from whenabouts.lines import one_line

NAME = "fcpxml"
SUFFIXES = (".fcpxml",)
MEDIA_TYPE = "application/xml"
_VERSION = "1.10"
_DEFAULT_SIZE = (1920, 1080)


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write a project with an asset clip per moment, each with a note, a marker, and its tags as keywords."""
    timeline = make_timeline(moments, options, rates="standard")
    root = ElementTree.Element("fcpxml", version=_VERSION)
    resources = ElementTree.SubElement(root, "resources")
    pictured = next((event.source for event in timeline.events if event.source.times is not None), None)
    size = _DEFAULT_SIZE if pictured is None else (pictured.width, pictured.height)
    sequence_format = _format(resources, *size, timeline.rate)
    assets: dict[tuple[str, Fraction], str] = {}
    library = ElementTree.SubElement(root, "library")
    event = ElementTree.SubElement(library, "event", name=one_line(timeline.title))
    project = ElementTree.SubElement(event, "project", name=one_line(timeline.title))
    sequence = ElementTree.SubElement(
        project,
        "sequence",
        format=sequence_format,
        duration=_seconds(timeline.frames / timeline.rate),
        tcStart=_seconds(timeline.start / timeline.rate),
        tcFormat="DF" if timeline.drop else "NDF",
    )
    spine = ElementTree.SubElement(sequence, "spine")
    for placed in timeline.events:
        key = (placed.source.path, placed.rate)
        if key not in assets:
            assets[key] = f"a{len(assets) + 1}"
            _asset(resources, assets[key], placed)
        _asset_clip(spine, placed, timeline, assets[key], resources)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    out.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE fcpxml>\n{body}\n'.encode())
    return list(timeline.notes)


def _format(resources: ElementTree.Element, width: int, height: int, rate: Fraction) -> str:
    """The id of the format with a size and rate, added on first use."""
    facts = {"frameDuration": _seconds(1 / rate), "width": str(width), "height": str(height)}
    formats = resources.findall("format")
    for format in formats:
        if facts.items() <= format.attrib.items():
            return format.attrib["id"]
    return ElementTree.SubElement(resources, "format", {"id": f"f{len(formats) + 1}"} | facts).attrib["id"]


def _asset(resources: ElementTree.Element, name: str, event: Event) -> None:
    source = event.source
    facts = {
        "id": name,
        "name": one_line(event.moment.name),
        "start": _seconds(source.start_frame(event.rate) / event.rate),
        "duration": _seconds(source.frames(event.rate) / event.rate),
    }
    if source.times is not None:
        video_format = _format(resources, source.width, source.height, event.rate)
        facts |= {"hasVideo": "1", "videoSources": "1", "format": video_format}
    if source.channels:
        facts |= {
            "hasAudio": "1",
            "audioSources": "1",
            "audioChannels": str(source.channels),
            "audioRate": str(source.sound_rate),
        }
    asset = ElementTree.SubElement(resources, "asset", facts)
    ElementTree.SubElement(asset, "media-rep", kind="original-media", src=source.url)


def _asset_clip(
    spine: ElementTree.Element, event: Event, timeline: Timeline, asset: str, resources: ElementTree.Element
) -> None:
    moment, source = event.moment, event.source
    facts = {
        "ref": asset,
        "name": one_line(moment.name),
        "offset": _seconds(event.record / timeline.rate),
        "start": _seconds((event.first + source.start_frame(event.rate)) / event.rate),
        "duration": _seconds(event.length / timeline.rate),
        "tcFormat": "DF" if source.drops(event.rate, otherwise=timeline.drop) else "NDF",
    }
    if source.times is not None:
        facts["format"] = _format(resources, source.width, source.height, event.rate)
    else:
        facts["audioRole"] = "dialogue"
    element = ElementTree.SubElement(spine, "asset-clip", facts)
    note = marker_note(moment)
    if note:
        ElementTree.SubElement(element, "note").text = note
    # The document type wants markers and keywords after the note, with times relative to the clip.
    marker = {"start": facts["start"], "duration": _seconds(1 / event.rate), "value": marker_name(moment)}
    ElementTree.SubElement(element, "marker", marker | ({"note": note} if note else {}))
    span = {"start": facts["start"], "duration": facts["duration"]}
    for tag in filter(None, map(one_line, moment.tags)):
        ElementTree.SubElement(element, "keyword", span | {"value": tag})


def _seconds(value: Fraction) -> str:
    """Rational seconds as in FCPXML.

    >>> _seconds(Fraction(1001, 30000)), _seconds(Fraction(2))
    ('1001/30000s', '2s')
    """
    return f"{value.numerator}s" if value.denominator == 1 else f"{value.numerator}/{value.denominator}s"
