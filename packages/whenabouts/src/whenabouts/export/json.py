"""JSON: moments as printed by `search --json`, with frame numbers; `--from` reads them back.

A format of `export`, chosen by name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, get_args
from urllib.parse import unquote_to_bytes

from whenabouts.export.moments import FileMoment
from whenabouts.export.options import Options
from whenabouts.export.source import shown_path
from whenabouts.export.timeline import frame_numbers
from whenabouts.intake.files import loads
from whenabouts.intake.opening import read_regular
from whenabouts.search.search_result import is_matched
from whenabouts.types import Answer, UsageError, WhenaboutsError
from whenabouts.video.files import file_url
from whenabouts.video.objects import SCHEME, check_place, source_path
from whenabouts.video.probe import MediaError

NAME = "json"
SUFFIXES = (".json",)
MEDIA_TYPE = "application/json"
_MOST_BYTES = 64 << 20
_MOST_MOMENTS = 10_000
_LONGEST_TEXT = 100_000
_MOST = sys.float_info.max


class ResultsError(WhenaboutsError):
    """A file is not a valid list of search results; names file, place, value and what is accepted."""


def write(moments: Sequence[FileMoment], out: IO[bytes], options: Options) -> list[str]:
    """Write one document: query, moments, notes."""
    notes: list[str] = []
    records = [_record(moment, options, notes) for moment in moments]
    document = {"query": _shared_query(moments), "moments": records, "notes": notes}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    out.write(text.encode("utf-8", "backslashreplace") + b"\n")
    return notes


def _record(moment: FileMoment, options: Options, notes: list[str]) -> dict[str, Any]:
    frames = frame_numbers(moment, options, notes)
    return {
        "rank": moment.rank,
        "video_id": moment.video_id,
        "path": shown_path(moment.path),
        "start": round(float(moment.start), 3),
        "end": round(float(moment.end), 3),
        "score": moment.score,
        "confidence": moment.confidence,
        "text": moment.text,
        "query": moment.query,
        "note": moment.note,
        "tags": list(moment.tags),
        "link": f"{file_url(moment.path)}#t={moment.start:.3f},{moment.end:.3f}",
        "first_frame": None if frames is None else frames.first,
        "end_frame": None if frames is None else frames.end,
        "frame_rate": None if frames is None else str(frames.rate),
        "constant_rate": None if frames is None else frames.is_constant,
    }


def _shared_query(moments: Sequence[FileMoment]) -> str:
    queries = {moment.query for moment in moments}
    return queries.pop() if len(queries) == 1 else ""


def read_moments(path: str | Path, *, all_moments: bool = False) -> list[FileMoment]:
    """The moments of a file printed by `search --json` or `export --format json`, in its order.

    If the file has the answer, only the moments that matched (`is_matched`), or all with `all_moments`.
    Raises ResultsError for an invalid value, MediaError for a missing video, UsageError without moments.
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
        raise UsageError(f"{reader.name}: has no moments; search again with another query")
    if len(moments) > _MOST_MOMENTS:
        raise ResultsError(f"{reader.name}: has {len(moments)} moments; at most {_MOST_MOMENTS} are taken")
    query = reader.text(document, "", "query", default="")
    answer = document.get("answer", "unsure")
    if answer not in get_args(Answer):
        reader.refuse("answer", answer, ", ".join(get_args(Answer)))
    read = [reader.moment(value, f"moments[{row}]", row + 1, query) for row, value in enumerate(moments)]
    if all_moments:
        return read
    return [moment for moment in read if is_matched(answer, moment.confidence, is_first=moment is read[0])]


def _document(path: Path) -> Any:
    name, remedy = shown_path(str(path)), "give what `whenabouts search --json` printed"
    try:
        return loads(read_regular(path, _MOST_BYTES), parse_constant=_no_constant)
    except OSError as error:
        raise ResultsError(f"{name}: cannot be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise ResultsError(f"{name}: is not JSON ({error}); {remedy}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


class _Reader:
    """Takes values out of a document, and reports invalid ones with their place."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refuse(self, where: str, value: Any, accepted: str) -> NoReturn:
        """Raise ResultsError with the place, the value and the accepted values."""
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        place = f" {where}" if where else ""
        raise ResultsError(f"{self.name}:{place}: {shown}; accepted: {accepted}")

    def moment(self, value: Any, where: str, row: int, query: str) -> FileMoment:
        """The moment of a JSON object; `row` is its rank if it has none."""
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
        tags = value.get("tags", [])
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            self.refuse(f"{where}.tags", tags, "a list of texts")
        confidence = self.number(value, where, "confidence")
        if confidence is not None and not 0 <= confidence <= 1:
            self.refuse(f"{where}.confidence", confidence, "a number from 0 to 1, or null")
        return FileMoment(
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
            note=self.text(value, where, "note", default=""),
            tags=tuple(tags),
        )

    def number(self, holder: Mapping[str, Any], where: str, key: str) -> float | None:
        """A finite number, or None for null or a missing key."""
        value = holder.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
            self.refuse(f"{where}.{key}", value, "a number")
        return float(value)

    def text(self, holder: Mapping[str, Any], where: str, key: str, *, default: str) -> str:
        """Text of bounded length."""
        value = holder.get(key, default)
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
            self.refuse(f"{where}.{key}".lstrip("."), value, "text")
        return value

    def _path(self, holder: Mapping[str, Any], where: str) -> str:
        """The path of an existing file or object. A name that is not Unicode is taken from the link."""
        shown = holder.get("path")
        if not isinstance(shown, str) or not shown.startswith(("/", SCHEME)) or "\0" in shown:
            self.refuse(f"{where}.path", shown, "the absolute path or s3:// address of a recording")
        check_place(shown)
        path = shown
        link = holder.get("link")
        if link is not None:
            path = self._linked(link, where, shown)
        place = source_path(path)
        if not place.exists():
            raise MediaError(f"{self.name}: {where}.path: {shown_path(path)} is not there; search again")
        if not place.is_file():
            self.refuse(f"{where}.path", shown, "a regular file, not a folder or a device")
        return path

    def _linked(self, link: Any, where: str, shown: str) -> str:
        """The path of a link, which must equal the shown one."""
        address = link.split("#", 1)[0] if isinstance(link, str) else ""
        path = os.fsdecode(unquote_to_bytes(address.removeprefix("file://")))
        if not address.startswith(("file:///", SCHEME)) or "\0" in path or shown_path(path) != shown:
            self.refuse(f"{where}.link", link, f"the link of {shown}")
        return path
