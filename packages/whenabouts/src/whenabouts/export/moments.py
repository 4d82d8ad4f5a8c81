"""`FileMoment`, the input of lists and cuts, made from a search result, a ledger row or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.export.source import shown_path
from whenabouts.types import Moment, UsageError
from whenabouts.video.files import absolute, content_hash
from whenabouts.video.objects import source_path
from whenabouts.video.probe import MediaError

if TYPE_CHECKING:
    # Only types of rooms above this one.
    from whenabouts.index.records import VideoRecord
    from whenabouts.search.search_result import SearchResult


@dataclass(frozen=True, slots=True)
class FileMoment:
    """A moment of a file: [start, end) in seconds, from 0 at the file's start.

    `path` is absolute; `name` is for display. `score` and `confidence` are None, and `query` is "", for a
    moment that was named instead of found. `note` and `tags` are those of a collection.
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
    return FileMoment(
        rank=rank,
        video_id=record.video_id,
        path=record.path,
        name=shown_path(Path(record.path).name) or record.video_id,
        start=start,
        end=end,
        **facts,
    )


def moment_of_file(path: str | Path, start: float, end: float, rank: int = 1) -> FileMoment:
    """A moment of a file outside of any corpus. Raises UsageError if the file does not exist."""
    place = absolute(Path(path))
    if not place.exists():
        raise UsageError(f"{shown_path(str(path))}: there is no such file; check the path")
    Moment(place.name, start, end)
    return FileMoment(
        rank=rank,
        video_id=shown_path(place.stem),
        path=str(place),
        name=shown_path(place.name),
        start=start,
        end=end,
    )


def check_unchanged(record: VideoRecord) -> None:
    """Raise MediaError if the file is missing or has changed since it was indexed.

    Compares as `index` does: size and time, and if only the time differs, the content.
    """
    path = source_path(record.path)
    name = shown_path(record.path)
    try:
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) == (record.size, record.modified_ns):
            return
        is_same = status.st_size == record.size and content_hash(path) == record.content_hash
    except FileNotFoundError:
        raise MediaError(f"{name}: is gone; restore it, or remove it with `whenabouts remove`") from None
    except OSError as error:
        raise MediaError(f"{name}: cannot be read ({error.strerror}); check its permissions") from None
    if not is_same:
        raise MediaError(
            f"{name}: has changed since it was indexed, so the moment may be elsewhere; "
            "run `whenabouts index` on it again"
        )
