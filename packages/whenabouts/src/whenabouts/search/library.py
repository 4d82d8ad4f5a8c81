"""The videos of a corpus as a library: filter, sort, and count shared values.

Works on columns of the ledger, because walking through 100,000 record objects takes seconds.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.filters import DATE_KEYS, Condition, Filter, date_of
from whenabouts.index.plan import GIVEN_LANGUAGE
from whenabouts.index.records import SHOTS_BY, SOUND_TRACK, SOUND_TRACKS, VideoRecord, is_missing, natural_key
from whenabouts.index.store import Store
from whenabouts.search.coverage import with_clips
from whenabouts.search.query_language import name_of
from whenabouts.streams import all_streams
from whenabouts.streams import stream as stream_named
from whenabouts.types import UsageError
from whenabouts.video.files import folded_name
from whenabouts.video.probe import WRITERS_TAGS

Sort = Literal["id", "name", "date", "length", "added"]
FOLDER, STREAM, STATE, CORPUS = "video.folder", "video.stream", "video.state", "video.corpus"
FACTS = frozenset({FOLDER, STREAM, STATE, CORPUS})
"""Keys of conditions besides the metadata: a folder with its subfolders, a stream of the video, one of
`STATES`, the name of its corpus.
"""
STATES = {
    "fine": "whole",
    "damaged": "damaged",
    "missing": "file missing",
    "unreadable": "could not be read",
}
"""The states of a video, and their names for users."""

_LOOK_SECONDS = 30.0
_MOST_VALUES, _MOST_KEYS, _MOST_FOLDERS = 20, 10, 200
_COLUMNS = (
    *("video_id", "path", "modified_ns", "kind", "state", "streams", "title", "metadata"),
    *("duration", "damage", "indexed_at", "has_picture"),
)
_NOT_COUNTED = {*DATE_KEYS, *FACTS, GIVEN_LANGUAGE, SHOTS_BY, SOUND_TRACK, SOUND_TRACKS}
_NOT_COUNTED |= {"language", "title", "name", "path", "duration"}
# What the writing program tells of itself, in any file and in AVI and MXF.
_NOT_COUNTED |= WRITERS_TAGS | {"software", "application_platform", "operational_pattern_ul", "uid"}
_NOT_COUNTED |= {"generation_uid", "product_uid", "product_version", "product_version_num"}
_NOT_COUNTED |= {"toolkit_version", "toolkit_version_num", "material_package_umid", "timecode"}


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value that `count` videos have; `where` is the condition that filters by it."""

    value: str
    title: str
    count: int
    where: str


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of one key among some videos; `more` counts those left out."""

    key: str
    title: str
    values: tuple[FacetValue, ...]
    more: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "values": [asdict(each) for each in self.values]}


@dataclass(frozen=True, eq=False)
class _Coded:
    """A column of n facts: `values[codes[row]]`; the code -1 means no fact."""

    codes: NDArray[np.int32]
    values: Sequence[Any]

    def accepted(self, condition: Condition) -> NDArray[np.bool_]:
        """(n,) whether each row meets a condition on this column."""
        facts = [{condition.key: value} for value in self.values]
        fitting = [condition.accepts(fact) for fact in [*facts, {}]]
        return np.array(fitting, np.bool_)[self.codes]

    def counts(self, rows: NDArray[np.bool_]) -> list[tuple[Any, int]]:
        """(value, number of rows) among some rows; each item of a list counts."""
        held = np.bincount(self.codes[rows & (self.codes >= 0)], minlength=len(self.values))
        counts: Counter[Any] = Counter()
        for value, count in zip(self.values, held.tolist(), strict=True):
            for each in value if isinstance(value, list | tuple) else [value]:
                if count and isinstance(each, str | int | float):
                    counts[each] += count
        return list(counts.items())


class Library:
    """The videos of one version of a corpus, by id (2 before 10)."""

    def __init__(
        self,
        tables: Sequence[tuple[str, Any]],
        holding: Callable[[], Mapping[str, Collection[str]]] = dict,
    ) -> None:
        """`tables`: for each corpus its place, and `_COLUMNS` of its ledger as an Arrow table.

        `holding` gives `coverage.with_clips`, once it is needed.
        """
        import pyarrow as pa

        joined = pa.concat_tables([table.select(_COLUMNS) for _, table in tables])
        ids = joined["video_id"].to_pylist()
        order = np.array(sorted(range(len(ids)), key=lambda row: natural_key(ids[row])), np.int64)
        self._table = joined.take(pa.array(order)) if len(order) else joined
        self.ids: list[str] = [ids[row] for row in order.tolist()]
        sizes = [len(table) for _, table in tables]
        corpus = np.repeat(np.arange(len(tables), dtype=np.int32), sizes)[order]
        self._corpus = _Coded(corpus, corpus_names([place for place, _ in tables]))
        self._holding = holding
        self._looked: tuple[float, NDArray[np.bool_]] | None = None
        self._orders: dict[tuple[Sort, bool], NDArray[np.int64]] = {}

    @classmethod
    def of(cls, store: Store) -> Library:
        """The library of a corpus, or of several side by side, as last read."""
        return cls(store.ledger_columns(_COLUMNS), lambda: with_clips(store, store.streams))

    @property
    def count(self) -> int:
        """The number of videos, without files that could not be read."""
        return int((~self._failed).sum())

    # Narrowing -------------------------------------------------------------------------------------

    def rows(self, filter: Filter, sort: Sort = "id", *, descending: bool = False) -> NDArray[np.int64]:
        """The rows of the videos that a filter allows, sorted; rows without the sorted value come last."""
        order = self._order(sort, descending)
        return order[self._all(self._fitting(filter))[order]]

    def ids_of(self, rows: Iterable[int]) -> list[str]:
        """The ids of the videos in some rows."""
        return [self.ids[row] for row in rows]

    def facets(self, filter: Filter, *, folders: bool = True) -> list[Facet]:
        """Values shared by the videos that a filter allows, most general first.

        A key's values are counted as if the filter had no condition on it, so that another value can be
        chosen. Streams and folders are counted among the videos of the whole filter.
        """
        fitting = self._fitting(filter)
        every, chosen = self._all(fitting), {key for key, _ in fitting}

        def rows(key: str) -> NDArray[np.bool_]:
            return self._all(fitting, without=key) if key in chosen else every

        languages = self._metadata_column("language")
        facets = [
            _facet(CORPUS, "corpus", self._corpus.counts(rows(CORPUS))),
            self._folders(every, filter) if folders else None,
            _facet(
                STREAM,
                "indexed",
                self._streams.counts(every),
                lambda name: stream_named(name).title,
                _order_of_stream,
            ),
            _facet("language", "language", languages.counts(rows("language")), name_of),
            _facet(STATE, "state", self._states.counts(rows(STATE)), lambda state: STATES[state]),
            *(_facet(key, key, self._metadata_column(key).counts(rows(key))) for key in self._counted_keys),
        ]
        trivial = {CORPUS: len(self._corpus.values) < 2, STATE: not self._states.codes.any()}
        return [facet for facet in facets if facet and facet.values and not trivial.get(facet.key)]

    def _fitting(self, filter: Filter) -> list[tuple[str, NDArray[np.bool_]]]:
        """For each condition of a filter, its key and which rows meet it."""
        fitting = [(condition.key, self._accepted(condition)) for condition in filter.conditions]
        if filter.after is not None:
            fitting.append(("after", self._dates >= filter.after.timestamp()))
        if filter.before is not None:
            fitting.append(("before", self._dates < filter.before.timestamp()))
        if filter.within:
            within = set(filter.within)
            fitting.append(("within", np.array([name in within for name in self.ids], np.bool_)))
        if not any(key == STATE for key, _ in fitting):  # unreadable files are listed only on request
            fitting.append((STATE, ~self._failed))
        return fitting

    def _all(self, fitting: Iterable[tuple[str, NDArray[np.bool_]]], without: str = "") -> NDArray[np.bool_]:
        """(n,) whether each row meets all conditions, except those on one key."""
        rows = np.ones(len(self.ids), np.bool_)
        for key, fits in fitting:
            if key != without:
                rows &= fits
        return rows

    def _accepted(self, condition: Condition) -> NDArray[np.bool_]:
        if condition.key == FOLDER:
            return self._in_folder(condition)
        if condition.key == STATE and not any(map(condition.names, STATES)):
            raise UsageError(f"{STATE}={condition.value}: the states are {', '.join(STATES)}")
        return self._column(condition.key).accepted(condition)

    def _column(self, key: str) -> _Coded:
        columns: dict[str, Callable[[], _Coded]] = {
            CORPUS: lambda: self._corpus,
            STREAM: lambda: self._streams,
            STATE: lambda: self._states,
            "duration": lambda: _distinct(self._table["duration"].to_pylist()),
            "path": lambda: _distinct(self._paths),
            "name": lambda: _distinct(self._file_names),
        }
        return columns.get(key, lambda: self._metadata_column(key))()

    # Columns ---------------------------------------------------------------------------------------

    @cached_property
    def _paths(self) -> list[str]:
        return [path.decode("utf-8", "backslashreplace") for path in self._table["path"].to_pylist()]

    @cached_property
    def _file_names(self) -> list[str]:
        names = [re.split(rb"[/\\]", path)[-1] for path in self._table["path"].to_pylist()]
        return [name.decode("utf-8", "backslashreplace") for name in names]

    @cached_property
    def _failed(self) -> NDArray[np.bool_]:
        return self._is("state", "failed")

    @property
    def _states(self) -> _Coded:
        codes = np.where(self._is("damage", ""), 0, 1)
        codes = np.where(self._is("state", "gone") | self._missing, 2, codes)
        return _Coded(np.where(self._failed, 3, codes).astype(np.int32), list(STATES))

    @property
    def _missing(self) -> NDArray[np.bool_]:
        """(n,) whether each file is missing, cached for half a minute; object stores are not asked."""
        if self._looked is None or time.monotonic() - self._looked[0] > _LOOK_SECONDS:
            self._looked = time.monotonic(), _not_there(self._table["path"].to_pylist())
        return self._looked[1]

    def _is(self, column: str, text: str) -> NDArray[np.bool_]:
        import pyarrow.compute as pc

        return np.asarray(pc.equal(self._table[column], text), np.bool_)

    @cached_property
    def _streams(self) -> _Coded:
        """The streams of each video that have clips of it."""
        texts, codes = _encoded(self._table["streams"])
        named = [sorted(json.loads(text), key=_order_of_stream) for text in texts]
        holding = self._holding()
        # A bit for each stream that found nothing in the video, and the first for lacking pictures.
        lacking = 1 - self._table["has_picture"].to_numpy().astype(np.int64)
        for bit, videos in enumerate(holding.values(), 1):
            lacking |= np.array([video_id not in videos for video_id in self.ids], np.int64) << bit
        bits = {name: 1 for name, stream in all_streams().items() if "picture" in stream.meets}
        bits |= {name: 1 << bit for bit, name in enumerate(holding, 1)}
        pairs, rows = np.unique(lacking * len(texts) + codes, return_inverse=True)
        values = [
            [name for name in named[code] if not bits.get(name, 0) & without]
            for without, code in (divmod(pair, len(texts)) for pair in pairs.tolist())
        ]
        return _Coded(rows.astype(np.int32), values)

    @cached_property
    def _metadata(self) -> tuple[NDArray[np.int32], dict[str, tuple[list[int], list[int], list[Any]]]]:
        """(number of each row among distinct metadata; key -> (numbers with it, value codes, values))."""
        texts, numbers = _encoded(self._table["metadata"])
        keys: dict[str, tuple[list[int], list[int], list[Any]]] = {}
        codes: dict[str, dict[str, int]] = {}
        for number, metadata in enumerate(json.loads(f"[{','.join(texts)}]")):
            for key, value in metadata.items():
                if value is None:
                    continue
                having, coded, values = keys.setdefault(key, ([], [], []))
                text = value if isinstance(value, str) else f"\0{value!r}"
                code = codes.setdefault(key, {}).setdefault(text, len(values))
                if code == len(values):
                    values.append(value)
                having.append(number)
                coded.append(code)
        return numbers, keys

    def _metadata_column(self, key: str) -> _Coded:
        numbers, keys = self._metadata
        having, coded, values = keys.get(key, ([], [], []))
        codes = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int32)
        codes[having] = coded
        return _Coded(codes[numbers], values)

    @cached_property
    def _counted_keys(self) -> list[str]:
        """The metadata keys with few but several values, those of most videos first."""
        counted = []
        for key, (having, coded, values) in self._metadata[1].items():
            if key in _NOT_COUNTED or len(values) > _MOST_VALUES or not _condition(key, "x"):
                continue
            rows = self._metadata_column(key).codes
            is_same = len(set(coded)) == 1 and bool((rows >= 0).all())
            if having and not is_same and all(isinstance(value, str | int | float) for value in values):
                counted.append((-int((rows >= 0).sum()), key))
        return [key for _, key in sorted(counted)[:_MOST_KEYS]]

    @cached_property
    def _dates(self) -> NDArray[np.float64]:
        """When each video was recorded, in seconds since 1970 (`filters.recorded`)."""
        dates: NDArray[np.float64] = self._table["modified_ns"].to_numpy() / 1e9
        for key in reversed(DATE_KEYS):
            column = self._metadata_column(key)
            parsed = [
                math.nan if (date := date_of(value)) is None else date.timestamp() for value in column.values
            ]
            given = np.array([*parsed, math.nan])[column.codes]
            dates = np.where(np.isnan(given), dates, given)
        return dates

    @cached_property
    def _names(self) -> list[str]:
        """The name of each video for users: its title, else its file name."""
        titles = self._table["title"].to_pylist()
        return [title or path.rsplit("/", 1)[-1] for title, path in zip(titles, self._paths, strict=True)]

    # Sorting ---------------------------------------------------------------------------------------

    def _order(self, sort: Sort, descending: bool) -> NDArray[np.int64]:
        if (sort, descending) not in self._orders:
            keys = self._keys(sort)
            order = np.argsort(-keys if descending else keys, kind="stable")
            self._orders[sort, descending] = order
        return self._orders[sort, descending]

    def _keys(self, sort: Sort) -> NDArray[np.float64]:
        """(n,) numbers to sort by; NaN comes last in both directions."""
        match sort:
            case "id":
                return np.arange(len(self.ids), dtype=np.float64)
            case "date":
                return self._dates
            case "length":
                return np.asarray(self._table["duration"], np.float64)
            case "added":
                return np.asarray(self._table["indexed_at"], np.float64)
            case "name":
                folded = [folded_name(name) for name in self._names]
                ranks = {name: rank for rank, name in enumerate(sorted(set(folded), key=natural_key))}
                return np.array([ranks[name] for name in folded], np.float64)
        raise UsageError(f"sort is {sort!r}; sort by {', '.join(get_args(Sort))}")

    # Folders ---------------------------------------------------------------------------------------

    @cached_property
    def _folder(self) -> _Coded:
        return _distinct([path.rsplit("/", 1)[0] if "/" in path else "" for path in self._paths])

    @cached_property
    def root(self) -> str:
        """The common parent folder of all videos."""
        return _shared_folder(self._folder.values)

    def _in_folder(self, condition: Condition) -> NDArray[np.bool_]:
        if condition.operator not in ("=", "!="):
            raise UsageError(
                f"{condition.key}{condition.operator}{condition.value}: folders have no order; write ="
            )
        folder = condition.value.rstrip("/")
        # The star at the end also matches nothing, so the pattern includes the folder itself.
        pattern = replace(condition, value=f"{folder}/*") if "*" in folder else None
        held = [
            _is_in(each, folder) or (pattern is not None and pattern.names(f"{each}/"))
            for each in self._folder.values
        ]
        inside = np.array([*held, False], np.bool_)
        rows: NDArray[np.bool_] = inside[self._folder.codes]
        return rows if condition.operator == "=" else ~rows

    def _folders(self, rows: NDArray[np.bool_], filter: Filter) -> Facet | None:
        """The subfolders of the filter's folder, or else of the common parent folder."""
        named = [each.value for each in filter.conditions if each.key == FOLDER and each.operator == "="]
        above = named[-1].rstrip("/") if named else self.root
        below: dict[str, list[tuple[str, int]]] = {}
        for folder, count in self._folder.counts(rows):
            if folder != above and _is_in(folder, above):
                below.setdefault(folder[len(above) :].split("/")[1], []).append((folder, count))
        values = []
        for name in sorted(below, key=natural_key)[:_MOST_FOLDERS]:
            # Skip folders that contain only one other folder.
            place = _shared_folder([folder for folder, _ in below[name]])
            if where := _condition(FOLDER, place, is_pattern=False):
                count = sum(count for _, count in below[name])
                values.append(FacetValue(place, place[len(above) + 1 :], count, where))
        return Facet(FOLDER, "folder", tuple(values), max(0, len(below) - _MOST_FOLDERS))


class LibraryMemory:
    """Caches the library of the version last read, for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[int, Library] | None = None

    def drop(self) -> None:
        with self._lock:
            self._kept = None

    def of(self, store: Store) -> Library:
        """The library of a corpus as last read."""
        with self._lock:
            if self._kept is None or self._kept[0] != store.version:
                self._kept = store.version, Library.of(store)
            return self._kept[1]


def narrowed(filter: Filter, library: Callable[[], Library]) -> Filter:
    """The filter with conditions on `FACTS`, which searches cannot evaluate, resolved to video ids."""
    left, facts = filter.parted(FACTS)
    if not facts:
        return filter
    present = library()
    allowed = present.ids_of(present.rows(Filter(within=filter.within, conditions=facts)).tolist())
    # No video has an empty id, so this filter allows nothing.
    return replace(left, within=tuple(allowed) or ("",))


def state_of(record: VideoRecord, *, is_gone: bool) -> str:
    """One of `STATES`."""
    if record.state == "failed":
        return "unreadable"
    return "missing" if is_gone else "damaged" if record.damage else "fine"


def remedy_of(state: str, place: str) -> str:
    """How to repair a video of the corpus at `place`; "" if nothing is wrong."""
    index = f"`whenabouts index FOLDER --corpus {place}`"
    return {
        "damaged": f"Replace it with an intact copy and run {index}; only the readable part is searched.",
        "missing": f"If it was moved, run `whenabouts relocate FOLDER --corpus {place}` with its new folder; "
        f"it is recognised by its content. If it was deleted, run {index} with `--prune` and its old folder.",
        "unreadable": f"Repair the file, or install what it needs, and run {index} with `--retry`.",
    }.get(state, "")


def corpus_names(places: Sequence[str]) -> list[str]:
    """Names of corpora: the last part of each place, numbered if equal."""
    names: list[str] = []
    for place in places:
        name = plain = place.rstrip("/").rsplit("/", 1)[-1] or place
        number = 1
        while name in names:
            number += 1
            name = f"{plain} ({number})"
        names.append(name)
    return names


def _facet(
    key: str,
    title: str,
    counts: Iterable[tuple[Any, int]],
    title_of: Callable[[str], str] = str,
    order: Callable[[str], Any] | None = None,
) -> Facet:
    """A facet. Values that differ only in case are merged, because conditions ignore case."""
    merged: dict[str, FacetValue] = {}
    for value, count in sorted(counts, key=lambda item: (-item[1], str(item[0]))):
        text, where = str(value), _condition(key, str(value))
        if not where:
            continue
        first = merged.setdefault(folded_name(text), FacetValue(text, title_of(text), 0, where))
        merged[folded_name(text)] = replace(first, count=first.count + count)
    values = sorted(
        merged.values(), key=lambda each: order(each.value) if order else (-each.count, each.title)
    )
    return Facet(key, title, tuple(values[:_MOST_VALUES]), max(0, len(values) - _MOST_VALUES))


def _condition(key: str, value: str, *, is_pattern: bool = True) -> str:
    """The condition that a key has exactly a value; "" if no condition can express it."""
    written = glob.escape(value) if is_pattern else value
    text = f"{key}={written}"
    try:
        text.encode()
        is_same = Condition.parse(text) == Condition(key, "=", written)
    except (UsageError, UnicodeEncodeError):
        return ""
    return text if is_same and value and "\n" not in text and len(text) <= 500 else ""


def _encoded(column: Any) -> tuple[list[str], NDArray[np.int32]]:
    """The distinct texts of an Arrow column, and each row's number among them."""
    encoded = column.combine_chunks().dictionary_encode()
    if hasattr(encoded, "chunks"):
        encoded = encoded.combine_chunks()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int32)


def _distinct(values: Sequence[Any]) -> _Coded:
    numbers: dict[Any, int] = {}
    codes = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
    return _Coded(np.array(codes, np.int32), list(numbers))


def _not_there(paths: Sequence[bytes]) -> NDArray[np.bool_]:
    """(n,) which files are missing. Lists folders, because 100,000 single checks take longer."""
    listed: dict[bytes, set[bytes]] = {}
    missing = np.zeros(len(paths), np.bool_)
    for row, path in enumerate(paths):
        if b"://" in path:
            continue
        folder, name = os.path.split(path)
        if folder not in listed:
            try:
                with os.scandir(folder) as entries:
                    listed[folder] = {entry.name for entry in entries}
            except OSError:
                listed[folder] = set()
        # A name may be listed in another Unicode form.
        missing[row] = name not in listed[folder] and is_missing(Path(os.fsdecode(path)))
    return missing


def _shared_folder(folders: Sequence[str]) -> str:
    """The deepest folder that contains, or is, all of these."""
    shared = []
    for names in zip(*(folder.split("/") for folder in folders), strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return "/".join(shared)


def _is_in(folder: str, above: str) -> bool:
    return folder == above or folder.startswith(f"{above}/")


def _order_of_stream(name: str) -> tuple[int, str]:
    return list(all_streams()).index(name) if name in all_streams() else 99, name
