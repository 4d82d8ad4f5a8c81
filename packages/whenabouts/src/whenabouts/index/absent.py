"""Decides which rows are gone and may be pruned, which files stay out, and where moved files are now."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.index.records import VideoRecord, is_missing
from whenabouts.types import UsageError, number_of
from whenabouts.video.files import (
    Findings,
    SourceFile,
    absolute,
    content_hash,
    modified_ns,
    printable,
    real_place,
    sidecars_of,
    with_home,
)
from whenabouts.video.objects import SCHEME, ObjectPath, source_path

if TYPE_CHECKING:
    from whenabouts.index.ledger import Ledger
    from whenabouts.index.store import Store

_FACT, _COPIES = "removed", "copies"


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file removed from the corpus, as it was then.

    A size of -1 marks a file that was missing already: it is indexed if it comes back, and until then its
    subtitles are not indexed alone. Added again, a file gets `video_id`, or a new id if that is "". Corpora
    store these fields, older ones without `video_id`.
    """

    path: str
    size: int
    modified_ns: int
    content_hash: str
    video_id: str = ""


def removed_files(store: Store) -> list[RemovedFile]:
    """Files removed from a corpus and not added again."""
    fact: Mapping[str, Any] = store.fact(_FACT) or {}
    return [RemovedFile(**row) for row in fact.get("files", ())]


def removed_with(store: Store, files: Iterable[RemovedFile]) -> dict[str, Any]:
    """The fact to store: removed files with `files` added, one entry per path and content."""
    merged = {(file.path, file.content_hash): file for file in [*removed_files(store), *files]}
    return {_FACT: {"files": [asdict(file) for file in merged.values()]}}


def forget_removed(store: Store, files: Iterable[RemovedFile]) -> None:
    """Delete files from the list of removed ones, because they are in the corpus again."""
    again = {(file.path, file.content_hash) for file in files}
    kept = [asdict(file) for file in removed_files(store) if (file.path, file.content_hash) not in again]
    store.put_fact(_FACT, {"files": kept})


def copied_files(store: Store) -> dict[str, str]:
    """Files left out as copies of an indexed one: path -> content hash of both; no deleted local ones."""
    files: Mapping[str, str] = (store.fact(_COPIES) or {}).get("files", {})
    return {path: files[path] for path in files if path.startswith(SCHEME) or not is_missing(Path(path))}


def remember_copies(store: Store, copies: Iterable[tuple[Path, Path]]) -> None:
    """Store which files a run left out, each with the indexed file that has the same content."""
    hashes = {record.path: record.content_hash for record in store.ledger().records}
    before = copied_files(store)
    listed = before | {str(copy): hashes[str(kept)] for copy, kept in copies if str(kept) in hashes}
    now = {path: listed[path] for path in listed.keys() - hashes.keys() if not is_missing(source_path(path))}
    if now != before:
        store.put_fact(_COPIES, {"files": now})


def as_removed(record: VideoRecord) -> RemovedFile:
    """The entry for a video that the user removes. `index` leaves its file out from now on."""
    return RemovedFile(record.path, record.size, record.modified_ns, record.content_hash, record.video_id)


def as_pruned(record: VideoRecord) -> RemovedFile:
    """The entry for a pruned video: its file is indexed again, but its subtitles alone are not."""
    return RemovedFile(record.path, -1, 0, "")


class AbsentFiles:
    """Rows of the ledger whose file is missing, and files on disk that stay out of the corpus.

    `gone` are the rows under the searched paths whose files are missing, except in folders that could not be
    read, whether reached directly or through a link. With `again`, removed files are indexed again.
    """

    def __init__(
        self,
        findings: Findings,
        ledger: Sequence[VideoRecord],
        removed: Sequence[RemovedFile],
        *,
        again: bool,
    ) -> None:
        searched, unseen = set(findings.searched), set(findings.unseen)
        unseen |= {source_path(real_place(place)) for place in unseen}
        self.gone = [
            record
            for record in ledger
            if _is_under(record.path, searched)
            and is_missing(source_path(record.path))
            and not (
                _is_under(record.path, unseen)
                or (unseen and _is_under(real_place(source_path(record.path)), unseen))
            )
        ]
        self.readmitted: dict[Path, RemovedFile] = {}
        self._again = again
        self._removed_by_size: dict[int, list[RemovedFile]] = defaultdict(list)
        self._gone_media: dict[Path, set[Path]] = defaultdict(set)
        for file in removed:
            self._removed_by_size[file.size].append(file)
        media = [source_path(record.path) for record in self.gone if record.kind == "media"]
        for path in (*media, *filter(is_missing, (source_path(file.path) for file in removed))):
            self._gone_media[path.parent].add(path)
        self._left_behind: list[tuple[Path, Path]] = []

    def is_removed(self, file: SourceFile, hash_of: Callable[[Path], str | None]) -> bool:
        """Whether the user removed this file, so that it stays out; `again` puts it in `readmitted`."""
        for removed in self._removed_by_size[file.size]:
            is_same = (str(file.path), file.modified_ns) == (removed.path, removed.modified_ns)
            if is_same or (removed.content_hash and hash_of(file.path) == removed.content_hash):
                if not self._again:
                    return True
                self.readmitted[file.path] = removed
        return False

    def found_elsewhere(self, path: Path) -> None:
        """Note that a missing recording was renamed, so its subtitles are not left behind."""
        self._gone_media[path.parent].discard(path)

    def is_subtitle_left_behind(self, file: SourceFile) -> bool:
        """Whether a transcript's recording is gone, which `notes` then says; never with `again`."""
        if self._again or file.kind != "transcript":
            return False
        owner = next(
            (media for media in self._gone_media[file.path.parent] if sidecars_of(media, [file.path])), None
        )
        if owner is not None:
            self._left_behind.append((file.path, owner))
        return owner is not None

    def notes(self, findings: Findings) -> list[str]:
        """A note for each subtitle file that was left out, and one that counts the ignored files."""
        notes = [
            f"{printable(path)}: subtitles of {printable(Path(media.name))}, which is gone; left out "
            "(--again takes them as a transcript)"
            for path, media in self._left_behind
        ]
        if findings.ignored:
            notes.append(
                f"{findings.ignored} files or folders are left out by --exclude or .whenaboutsignore"
            )
        return notes


def safely_pruned(gone: Sequence[VideoRecord], findings: Findings) -> tuple[list[VideoRecord], list[str]]:
    """The rows of `gone` that may be removed, and a note on the others, whose disk may not be connected.

    A row stays if a searched folder above it, existing or not, has no file to index. It also stays if the
    nearest existing folder above it is empty, unless the file was itself given or is in an object store.
    """
    filled = {place for file in findings.files for place in (file.path, *file.path.parents)}
    empty = {path for path in findings.searched if path not in filled}
    away = [empty.intersection(source_path(record.path).parents) for record in gone]
    is_empty = cache(_is_empty)
    for record, folders in zip(gone, away, strict=True):
        path = source_path(record.path)
        if path in findings.searched or isinstance(path, ObjectPath):
            continue
        nearest = next(filter(Path.is_dir, path.parents))
        if is_empty(nearest):
            folders.add(nearest)
    pruned = [record for record, folders in zip(gone, away, strict=True) if not folders]
    if len(pruned) == len(gone):
        return pruned, []
    names = ", ".join(sorted(printable(path) for path in set().union(*away)))
    return pruned, [
        f"kept {number_of(len(gone) - len(pruned), 'video')} of {names}, where nothing was found to index: "
        "the disk may not be connected; `whenabouts remove` removes videos"
    ]


def _is_empty(folder: Path) -> bool:
    """Whether a folder is empty, like the mount point of a disk that is away, or cannot be read."""
    try:
        return not any(folder.iterdir())
    except OSError:
        return True


def _is_under(path: str, places: set[Path]) -> bool:
    place = source_path(path)
    return bool(places) and (place in places or not places.isdisjoint(place.parents))


def relocated(ledger: Ledger, record: VideoRecord, path: str | os.PathLike[str]) -> VideoRecord:
    """The record of a missing file, with its new path.

    Raises UsageError if the old file still exists, or the new one is missing, another video's or has changed.
    """
    place = absolute(source_path(with_home(path)))
    name = printable(place)
    if not record.is_gone:
        raise UsageError(
            f"{record.video_id} is still at {printable(source_path(record.path))}; nothing to relocate"
        )
    if other := next((each for each in ledger.records if each.path == str(place)), None):
        raise UsageError(f"{name} is {other.video_id} in this corpus; name the file of {record.video_id}")
    try:
        status, new_hash = place.stat(), content_hash(place)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}; name the file as it is now") from None
    if new_hash != record.content_hash:
        raise UsageError(
            f"{name} has other content than {record.video_id}; `whenabouts index` takes it as new"
        )
    moved = record.moved_to(place)
    return replace(moved, size=status.st_size, modified_ns=modified_ns(status), state="done")


def found_again(ledger: Ledger, files: Iterable[SourceFile]) -> list[VideoRecord]:
    """The records of missing files whose content is among `files`, with their new paths.

    Only files with the size of a missing one are read; unreadable ones are skipped, and so are records that
    failed or have no content hash. Of several copies the first counts.
    """
    missing: dict[int, list[VideoRecord]] = defaultdict(list)
    for record in ledger.records:
        if record.content_hash and record.state != "failed" and record.is_gone:
            missing[record.size].append(record)
    id_at_path = {record.path: record.video_id for record in ledger.records}
    relocated_records = []
    for file in files:
        path = str(file.path)
        alike = [each for each in missing[file.size] if id_at_path.get(path) in (None, each.video_id)]
        if not alike:
            continue
        try:
            content = content_hash(file.path)
        except OSError:
            continue
        same = next((each for each in alike if each.content_hash == content), None)
        if same is not None:
            missing[file.size].remove(same)
            moved = same.moved_to(file.path)
            relocated_records.append(replace(moved, modified_ns=file.modified_ns, state="done"))
    return relocated_records
