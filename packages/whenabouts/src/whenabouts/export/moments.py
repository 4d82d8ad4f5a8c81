"""`FileMoment`, the input of lists and cuts, made from a search result, a ledger row or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.export.source import shown_path
from whenabouts.index.filters import recorded
from whenabouts.types import Moment, UsageError, number_of
from whenabouts.video.files import absolute, content_hash
from whenabouts.video.objects import source_path
from whenabouts.video.probe import MediaError

if TYPE_CHECKING:
    # Only types of rooms above this one.
    from whenabouts.index.records import VideoRecord
    from whenabouts.search.search_result import SearchResult

_MOST_FAULTS = 5


@dataclass(frozen=True, slots=True)
class FileMoment:
    """A moment of a file: [start, end) in seconds, from 0 at the file's start.

    `path` is absolute; `name` is for display. `score` and `confidence` are None, and `query` is "", for a
    moment that was named instead of found. `note` and `tags` are those of a collection. `title` and
    `recorded` are those of a corpus's video; "" if it has no date but that of the file's last change.
    """

    rank: int
    video_id: str
    path: str
    name: str
    start: float
    end: float
    score: float | None = None
    confidence: float | None = None
    text: str = ""
    query: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    title: str = ""
    recorded: str = ""

    @property
    def duration(self) -> float:
        return self.end - self.start


def moments_of_result(result: SearchResult, *, all_moments: bool = False) -> list[FileMoment]:
    """The moments of a search result that match (`SearchResult.matched`), or all of them; best first."""
    return [
        moment_of_record(
            result.videos[scored.video_id],
            scored.start,
            scored.end,
            rank,
            score=scored.score,
            confidence=scored.confidence,
            text=scored.text,
            query=result.question,
        )
        for rank, scored in enumerate(result.moments if all_moments else result.matched, 1)
    ]


def moment_of_record(
    record: VideoRecord, start: float, end: float, rank: int = 1, **facts: Any
) -> FileMoment:
    """A moment of a corpus's video, with further fields. Raises UsageError for invalid times."""
    Moment(record.video_id, start, end)
    date, source = recorded(record)
    facts |= {"title": record.title, "recorded": "" if source == "modified" else f"{date:%Y-%m-%d %H:%M}"}
    return FileMoment(rank, record.video_id, record.path, record.file_name, start, end, **facts)


def moment_of_file(path: str | Path, start: float, end: float, rank: int = 1) -> FileMoment:
    """A moment of a file outside of any corpus. Raises UsageError if the file does not exist."""
    place = absolute(Path(path))
    if not place.exists():
        raise UsageError(f"{shown_path(str(path))}: there is no such file; check the path")
    Moment(place.name, start, end)
    return FileMoment(rank, shown_path(place.stem), str(place), shown_path(place.name), start, end)


def check_unchanged(*records: VideoRecord) -> None:
    """Raise MediaError, naming them, if files are missing or have changed since they were indexed."""
    faults = list(filter(None, map(_fault, {record.video_id: record for record in records}.values())))
    if more := len(faults[_MOST_FAULTS:]):
        faults[_MOST_FAULTS:] = [f"… and {number_of(more, 'more file')}"]
    if faults:
        raise MediaError("; ".join(faults))


def _fault(record: VideoRecord) -> str:
    """Why a file is not the one that was indexed, or "".

    Compares as `index` does: size and time, and if only the time differs, the content.
    """
    path = source_path(record.path)
    name = shown_path(record.path)
    try:
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) == (record.size, record.modified_ns):
            return ""
        is_same = status.st_size == record.size and content_hash(path) == record.content_hash
    except FileNotFoundError:
        return f"{name}: is gone; restore it, or remove it with `whenabouts remove`"
    except OSError as error:
        return f"{name}: cannot be read ({error.strerror}); check its permissions"
    if is_same:
        return ""
    remedy = "so the moment may be elsewhere; run `whenabouts index` on it again"
    return f"{name}: has changed since it was indexed, {remedy}"
