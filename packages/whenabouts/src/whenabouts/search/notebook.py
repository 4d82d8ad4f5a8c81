"""A search's answer as HTML for a notebook: a table with a picture of each moment."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html import escape
from typing import Protocol

from whenabouts.index.records import VideoRecord, unambiguous
from whenabouts.streams import stream as stream_named
from whenabouts.times import format_time
from whenabouts.types import Answer, Evidence, ScoredMoment, WhenaboutsError
from whenabouts.video.objects import source_path
from whenabouts.video.thumbnails import thumbnail

# A picture takes a fraction of a second, and 10 kB in the notebook's file.
_MOST_ROWS = 20
_PIXELS_WIDE = 192
_ANSWERS = {"match": "match", "unsure": "unsure", "no_match": "no match"}


class Answered(Protocol):
    """The parts of a `SearchResult` that the table shows."""

    @property
    def question(self) -> str: ...

    @property
    def answer(self) -> Answer: ...

    @property
    def doubt(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def moments(self) -> tuple[ScoredMoment, ...]: ...

    @property
    def videos(self) -> Mapping[str, VideoRecord]: ...

    def __len__(self) -> int:
        """The number of moments."""

    def name(self, scored: ScoredMoment) -> str:
        """The video's name."""

    def instant(self, scored: ScoredMoment) -> float:
        """The second to show as a picture."""


def html_of(result: Answered) -> str:
    """The answer as an HTML table: no scripts, all text escaped, pictures as data URIs.

    Pictures are made at once, and only from files that are unchanged since indexing.
    """
    head = f"{len(result)} moments for “{escape(result.question)}”: {_ANSWERS[result.answer]}"
    if result.doubt:
        head += f" ({escape(result.doubt)})"
    rows = [_row(result, rank, scored) for rank, scored in enumerate(result.moments[:_MOST_ROWS], 1)]
    notes = [escape(note) for note in result.notes]
    if len(result) > _MOST_ROWS:
        notes.append(f"and {len(result) - _MOST_ROWS} more")
    return (
        f"<div><p><b>{head}</b></p><table>{''.join(rows)}</table>"
        + "".join(f"<p>{note}</p>" for note in notes)
        + "</div>"
    )


def _row(result: Answered, rank: int, scored: ScoredMoment) -> str:
    record = result.videos[scored.video_id]
    picture = _picture(record, result.instant(scored))
    image = "" if picture is None else _framed(picture, scored.evidence.values())
    name, title = escape(result.name(scored)), escape(unambiguous(scored.title))
    confidence = "" if scored.confidence is None else f"{scored.confidence:.2f}"
    cells = [
        str(rank),
        image,
        f"<b>{name}</b>" + (f"<br>{title}" if title and title != name else ""),
        f"{format_time(scored.start)} - {format_time(scored.end)}",
        confidence,
        "<br>".join(
            f"{escape(stream)}: {escape(unambiguous(stream_named(stream).evidence_text(piece)))}"
            for stream, piece in scored.evidence.items()
        ),
    ]
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def _framed(picture: str, pieces: Iterable[Evidence]) -> str:
    """A picture with a frame around each piece of evidence in it."""
    image = f'<img alt="" width="{_PIXELS_WIDE}" style="display:block" src="{picture}">'
    frames = ""
    for left, top, right, bottom in (piece.box for piece in pieces if piece.box is not None):
        shares = {"left": left, "top": top, "width": right - left, "height": bottom - top}
        place = ";".join(f"{name}:{100 * share:.1f}%" for name, share in shares.items())
        frames += f'<span style="position:absolute;outline:2px solid #f5a623;{place}"></span>'
    return f'<div style="position:relative;width:{_PIXELS_WIDE}px">{image}{frames}</div>'


def _picture(record: VideoRecord, at: float) -> str | None:
    """A data URI; None without a picture, or if the file is gone or has changed."""
    if not record.has_picture:
        return None
    try:
        status = source_path(record.path).stat()
        if (status.st_size, status.st_mtime_ns) != (record.size, record.modified_ns):
            return None
        return _data_uri(record.path, record.modified_ns, at)
    except (WhenaboutsError, OSError):
        return None


@lru_cache(maxsize=200)
def _data_uri(path: str, modified_ns: int, at: float) -> str:
    return "data:image/jpeg;base64," + b64encode(thumbnail(source_path(path), at, _PIXELS_WIDE)).decode()
