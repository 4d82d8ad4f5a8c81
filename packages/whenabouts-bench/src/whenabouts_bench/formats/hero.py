"""Lists of videos in HERO's format: LMDB, query id -> msgpack of [[video, score, ...], ...].

CONQUER and SQuiDNet read their first stage from such files. Videos are numbers, defined by a file beside the
lists with `video2dur_idx` in its name (TVR: `tvr_video2dur_idx.json`): {split: {video: [seconds, number]}},
optionally without splits, or {video: number}. If splits define numbers differently, the split in the lists'
name (`val_top100`) decides.

SQuiDNet's ranking program names videos, and then no other file is needed.

Only the first two fields of an entry are read. HERO's program scores videos by exp(20 * cosine).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from whenabouts.intake.files import (
    LMDB_START,
    FormatError,
    Sign,
    is_lmdb,
    lmdb_file_in,
    open_unpacked,
    read_head,
    read_json,
    write_atomically,
)
from whenabouts.intake.opening import open_regular
from whenabouts_bench.formats.json_records import Origin, names_of_numbers
from whenabouts_bench.formats.lmdb_records import LmdbRecords
from whenabouts_bench.formats.runs import (
    BLOCK_ROWS,
    FileRun,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    RunSource,
    own_lists,
    refuse_empty,
)

NAME = "hero"
KEEPS: frozenset[str] = frozenset()
SIGNS = {"open_run": (Sign(start=LMDB_START),)}

_INDEX = "*video2dur_idx*.json*"
_ENTRY = "[[video number, score, ...], ...], best first"
_GZIP = b"\x1f\x8b"
_COPIED = 1 << 24


def open_run(path: Path) -> RunSource:
    """The lists, in blocks of about 250,000 entries, of an LMDB file or its folder. Raises FormatError."""
    file = lmdb_file_in(path) or path
    if not is_lmdb(read_head(file).head):
        raise FormatError(file, "is not an LMDB file", accepted=f"LMDB, query id -> {_ENTRY}")
    lists = _Lists(None if _names_videos(file) else _videos_of(path, file))
    return FileRun(file, str(path), ("VR",), lists.blocks, "lists", own_lists(("VR",)))


@dataclass(frozen=True)
class _Lists:
    """Reads the lists of an LMDB file; `videos` maps numbers to names, None if the file has names."""

    videos: Mapping[int, str] | None

    def blocks(self, path: Path) -> Iterator[RunBlock]:
        """Blocks of the lists, by query id, entries in order."""
        builder, waiting, answered = RunBlockBuilder(), 0, False
        with _unpacked(path) as file, LmdbRecords(file) as records:
            for key in records.all_keys():
                query_id = key.decode("utf-8", "replace")
                origin = Origin(path, field=f"query {query_id!r}")
                builder.add(query_id, self._rows(origin, records.get(key)))
                waiting, answered = waiting + 1, True
                if len(builder) >= BLOCK_ROWS:
                    yield builder.block()
                    waiting = 0
        if waiting:
            yield builder.block()
        refuse_empty(path, answered)

    def _rows(self, origin: Origin, data: bytes) -> Iterator[RunRow]:
        try:
            entries = msgspec.msgpack.decode(data)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise origin.error(f"is not msgpack ({str(error)[:80]})", accepted=_ENTRY) from None
        if not isinstance(entries, list):
            raise origin.error(f"holds a {type(entries).__name__}", accepted=_ENTRY)
        for rank, entry in enumerate(entries, 1):
            yield self._row(origin, rank, entry)

    def _row(self, origin: Origin, rank: int, entry: Any) -> RunRow:
        if not isinstance(entry, list) or len(entry) < 2:
            fault = f"entry {rank} is not a video with a score: {str(entry)[:60]}"
            raise origin.error(fault, accepted=_ENTRY)
        number, score = entry[:2]
        if type(score) not in (int, float) or not np.isfinite(score):
            fault = f"entry {rank} has the score {str(score)[:20]}, not a finite number"
            raise origin.error(fault, accepted=_ENTRY)
        return self._name(origin, rank, number), np.nan, np.nan, float(score)

    def _name(self, origin: Origin, rank: int, number: Any) -> str:
        if self.videos is None:
            if isinstance(number, str):
                return number
            fault = f"entry {rank} has {str(number)[:20]!r} where others have the name of a video"
            raise origin.error(fault, accepted=_ENTRY)
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if type(number) is not int or number not in self.videos:
            unknown = f"entry {rank} names video number {str(number)[:20]}"
            fault = f"{unknown}, which the file of numbers does not have (it has {len(self.videos):,})"
            raise origin.error(fault, accepted=_ENTRY)
        return self.videos[number]


def _names_videos(file: Path) -> bool:
    """Whether the first entry of a file names a video instead of numbering it."""
    with _unpacked(file) as plain, LmdbRecords(plain) as records:
        for key in records.all_keys():
            try:
                entries = msgspec.msgpack.decode(records.get(key))
            except (msgspec.MsgspecError, RecursionError, ValueError):
                return False  # reported when it is read
            if entries:
                first = entries[0] if isinstance(entries, list) else None
                return isinstance(first, list) and bool(first) and isinstance(first[0], str)
    return False


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The file; of gzip, an unpacked copy."""
    with open_regular(path) as raw:
        packed = raw.read(2) == _GZIP
    if not packed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="whenabouts-") as folder:
        copy = Path(folder) / "data.mdb"
        with open_unpacked(path) as stream, write_atomically(copy) as target:
            while piece := stream.read(_COPIED):
                target.write(piece)
        yield copy


def _videos_of(path: Path, file: Path) -> dict[int, str]:
    """Number -> video, from the file beside the lists. Raises FormatError without exactly one."""
    lists = (file.parent if file.name.removesuffix(".gz") == "data.mdb" else file).absolute()
    indices = sorted({*lists.parent.glob(_INDEX), *(lists.glob(_INDEX) if lists.is_dir() else ())})
    if len(indices) != 1:
        problem = "names videos by numbers, and no file beside it has their names"
        if indices:
            names = ", ".join(index.name for index in indices[:3])
            problem = f"has {len(indices)} files beside it that say which videos its numbers mean ({names})"
        raise FormatError(
            path, problem, accepted=f"one file …video2dur_idx.json in {lists.parent}, such as TVR's"
        )
    return _numbers(indices[0], lists.name.lower())


def _numbers(path: Path, lists: str) -> dict[int, str]:
    content = Origin(path).object(read_json(path) or None, _NUMBERS)
    splits = content if all(isinstance(videos, dict) for videos in content.values()) else {"": content}
    words = re.findall(r"[a-z\d]+", lists)  # "valid_top100" names the split "val", "retrieval" does not
    named = [s for s in splits if s and any(word.startswith(s.lower().split("_")[0]) for word in words)]
    by_split = {split: names_of_numbers(Origin(path), videos, _NUMBERS) for split, videos in splits.items()}
    whole: dict[int, str] = {}
    for split, videos in by_split.items():
        for number, name in videos.items():
            if whole.setdefault(number, name) == name:
                continue
            if len(named) == 1:
                return by_split[named[0]]
            raise FormatError(
                path,
                f"number {number} is {whole[number]!r} and, in {split!r}, {name!r}",
                accepted="numbers of one split, or lists whose name has the split in it, such as val_top100",
            )
    return whole


_NUMBERS = "{split: {video: [seconds, number]}}, as in tvr_video2dur_idx.json"
