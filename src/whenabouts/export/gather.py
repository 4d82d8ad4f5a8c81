"""Moments from where they come from: an answer, a file of answers, or a person who names one."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote_to_bytes

from whenabouts.export.clip import Clip
from whenabouts.export.source import shown_path
from whenabouts.types import Moment, UsageError, WhenaboutsError
from whenabouts.video.files import content_hash
from whenabouts.video.probe import MediaError

if TYPE_CHECKING:
    # The nouns of rooms above this one: what is handed in, never what is called.
    from whenabouts.index.records import VideoRecord
    from whenabouts.search import SearchResult

_MOST_BYTES = 64 << 20
_MOST_MOMENTS = 10_000
_LONGEST_TEXT = 100_000


class ResultsError(WhenaboutsError):
    """A file of answers that is none; the message names file, place, value and what is accepted."""


def clips_of_result(result: SearchResult) -> list[Clip]:
    """The moments of an answer, best first."""
    return [
        _clip(
            result.videos[found.moment.video_id],
            found.moment,
            rank=rank,
            score=found.score,
            confidence=found.confidence,
            text=found.text,
            query=result.query,
        )
        for rank, found in enumerate(result.moments, 1)
    ]


def clip_of_moment(record: VideoRecord, start: float, end: float, rank: int = 1) -> Clip:
    """A moment of a video of a corpus that a person named."""
    return _clip(record, Moment(record.video_id, start, end), rank=rank)


def clip_of_file(path: str | Path, start: float, end: float, rank: int = 1) -> Clip:
    """A moment of a file that need not be in any corpus. Raises UsageError where there is no such file."""
    place = Path(path).absolute()
    if not place.exists():
        raise UsageError(f"{shown_path(str(path))}: there is no such file; check the path")
    Moment(place.name, start, end)
    return Clip(
        rank=rank,
        video_id=shown_path(place.stem),
        path=str(place),
        name=shown_path(place.name),
        start=start,
        end=end,
    )


def _clip(record: VideoRecord, moment: Moment, *, rank: int, **facts: Any) -> Clip:
    return Clip(
        rank=rank,
        video_id=moment.video_id,
        path=record.path,
        name=shown_path(Path(record.path).name) or moment.video_id,
        start=moment.start,
        end=moment.end,
        **facts,
    )


def check_unchanged(record: VideoRecord) -> None:
    """Raise MediaError where the file is gone, or is another one than was indexed.

    As `index` does: size and time tell, and where the time alone differs, the content.
    """
    path = Path(record.path)
    name = shown_path(record.path)
    try:
        status = path.stat()
        if (status.st_size, status.st_mtime_ns) == (record.size, record.modified_ns):
            return
        is_same = status.st_size == record.size and content_hash(path) == record.content_hash
    except FileNotFoundError:
        raise MediaError(
            f"{name}: is no longer there; put it back, or take it out with `whenabouts remove`"
        ) from None
    except OSError as error:
        raise MediaError(f"{name}: cannot be read ({error.strerror}); check its permissions") from None
    if not is_same:
        raise MediaError(
            f"{name}: has changed since it was indexed, so the moment may be elsewhere; "
            "run `whenabouts index` on it again"
        )


def clips_of_json(path: str | Path) -> list[Clip]:
    """The moments of a file that `search --json` or `export --format json` printed, in its order.

    Everything in it is checked. Raises ResultsError, naming the place; UsageError where it has no moments.
    """
    document = _document(Path(path))
    reader = _Reader(shown_path(str(path)))
    if not isinstance(document, dict):
        reader.refuse(
            "", document, "an object with a list `moments`, as `whenabouts search --json` prints it"
        )
    moments = document.get("moments")
    if not isinstance(moments, list):
        reader.refuse("moments", moments, "a list")
    if not moments:
        raise UsageError(f"{reader.name}: has no moments; search again with another question")
    if len(moments) > _MOST_MOMENTS:
        raise ResultsError(f"{reader.name}: has {len(moments)} moments; at most {_MOST_MOMENTS} are taken")
    query = reader.text(document, "", "query", default="")
    return [reader.clip(moment, f"moments[{row}]", row + 1, query) for row, moment in enumerate(moments)]


def _document(path: Path) -> Any:
    name = shown_path(str(path))
    try:
        if path.exists() and not path.is_file():
            raise ResultsError(f"{name}: no plain file; give what `whenabouts search --json` printed")
        if path.stat().st_size > _MOST_BYTES:
            raise ResultsError(f"{name}: is over {_MOST_BYTES >> 20} MB; that is no answer of a search")
        return json.loads(path.read_bytes(), parse_constant=_no_constant)
    except OSError as error:
        raise ResultsError(f"{name}: cannot be read ({error.strerror}); check the path") from None
    except (ValueError, RecursionError) as error:
        raise ResultsError(
            f"{name}: is not JSON ({error}); give what `whenabouts search --json` printed"
        ) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


class _Reader:
    """Takes values out of a document, and says exactly what is wrong with those that do not fit."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refuse(self, where: str, value: Any, accepted: str) -> NoReturn:
        """Raise the error."""
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        place = f" {where}" if where else ""
        raise ResultsError(f"{self.name}:{place}: {shown}; accepted: {accepted}")

    def clip(self, value: Any, where: str, row: int, query: str) -> Clip:
        """One moment."""
        if not isinstance(value, dict):
            self.refuse(where, value, "an object with path, start and end")
        start = self.number(value, where, "start")
        end = self.number(value, where, "end")
        if start is None or end is None or not 0 <= start < end:
            self.refuse(f"{where}.start, end", (start, end), "seconds, 0 <= start < end")
        path = self._path(value, where)
        rank = value.get("rank", row)
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
            self.refuse(f"{where}.rank", rank, "a whole number from 1 on")
        confidence = self.number(value, where, "confidence")
        if confidence is not None and not 0 <= confidence <= 1:
            self.refuse(f"{where}.confidence", confidence, "a number from 0 to 1, or null")
        return Clip(
            rank=rank,
            video_id=self.text(value, where, "video_id", default="") or Path(path).stem,
            path=path,
            name=shown_path(Path(path).name),
            start=start,
            end=end,
            score=self.number(value, where, "score"),
            confidence=confidence,
            text=self.text(value, where, "text", default=""),
            query=self.text(value, where, "query", default=query),
        )

    def number(self, holder: Mapping[str, Any], where: str, key: str) -> float | None:
        """A finite number, or None for null and nothing."""
        value = holder.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            self.refuse(f"{where}.{key}", value, "a number")
        return float(value)

    def text(self, holder: Mapping[str, Any], where: str, key: str, *, default: str) -> str:
        """Text of a bearable length."""
        value = holder.get(key, default)
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
            self.refuse(f"{where}.{key}".lstrip("."), value, "text")
        return value

    def _path(self, holder: Mapping[str, Any], where: str) -> str:
        """The file's path: absolute, and there. A name that is no Unicode is taken from the link."""
        shown = holder.get("path")
        if not isinstance(shown, str) or not shown.startswith("/") or "\0" in shown:
            self.refuse(f"{where}.path", shown, "the absolute path of a recording")
        path = shown
        link = holder.get("link")
        if link is not None:
            path = self._linked(link, where, shown)
        place = Path(path)
        if not place.exists():
            raise MediaError(f"{self.name}: {where}.path: {shown_path(path)} is not there; search again")
        if not place.is_file():
            self.refuse(f"{where}.path", shown, "a plain file, no folder or device")
        return path

    def _linked(self, link: Any, where: str, shown: str) -> str:
        """The path of a link, which must be the one that is shown."""
        address = link.split("#", 1)[0] if isinstance(link, str) else ""
        path = os.fsdecode(unquote_to_bytes(address.removeprefix("file://")))
        if not address.startswith("file:///") or "\0" in path or shown_path(path) != shown:
            self.refuse(f"{where}.link", link, f"the file:// link of {shown}")
        return path


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
