"""Decides which files may be served: those in the folders that were named, or else indexed.

The ledger has the path of each video, but anyone who can write to the corpus can write any path there. So the
file is opened first, and its real path, with links resolved, decides; for an object, its address.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from whenabouts.corpus import Corpus
from whenabouts.index.folders import indexed_folders
from whenabouts.index.records import VideoRecord
from whenabouts.server.errors import ServerError
from whenabouts.server.files import OpenFile, open_regular, real_path
from whenabouts.server.objects import OpenObject
from whenabouts.types import UsageError
from whenabouts.video.files import modified_ns, real_place, with_home
from whenabouts.video.objects import ObjectPath, source_path


@dataclass(frozen=True, slots=True)
class ServedFolders:
    """The folders and single files that are served, as real paths."""

    places: frozenset[str]

    @classmethod
    def of(
        cls, corpus: Corpus, named: Iterable[Path] = (), added: frozenset[str] = frozenset()
    ) -> ServedFolders:
        """The named places. If none are named: the places that were indexed, and `added`.

        A corpus of an earlier version does not record what was indexed; then the folders of its files
        are used. Raises UsageError for a named place that does not exist.
        """
        places = [source_path(with_home(place)) for place in named]
        for place in places:
            if not place.exists():
                raise UsageError(f"--files {place}: there is no such folder or file; check the path")
        if places:
            added = frozenset()
        else:
            places = [source_path(place) for place in indexed_folders(corpus.store)]
        if not places:
            records = corpus.store.ledger().records
            places = list({source_path(record.path).parent for record in records if record.kind == "media"})
        return cls(frozenset(map(real_place, places)) | added)

    @property
    def there(self) -> tuple[Path, ...]:
        """The places that exist now; places on object stores are assumed to exist."""
        places = map(source_path, sorted(self.places))
        return tuple(place for place in places if isinstance(place, ObjectPath) or place.exists())

    def hold(self, path: str) -> bool:
        """Whether a path, with links already resolved, is one of the places or below one."""
        above = source_path(path)
        return any(str(place) in self.places for place in (above, *above.parents))

    def open(self, record: VideoRecord) -> OpenFile | OpenObject:
        """The file of a video, open.

        Raises ServerError: 404 for a transcript without a recording, 410 if the file is gone or
        unreadable, 409 if it changed since indexing, 403 if it is outside the served folders, 503
        while it is being indexed.
        """
        if record.kind != "media":
            raise ServerError(404, "no_recording", f"{record.file_name} is a transcript without a recording")
        if record.size < 0:
            raise ServerError(
                503, "being_indexed", f"{record.file_name} is being indexed", headers={"Retry-After": "2"}
            )
        try:
            place = source_path(record.path)
            opened = OpenObject.of(place) if isinstance(place, ObjectPath) else open_regular(place)
        except (OSError, ValueError):
            raise ServerError(
                410,
                "video_gone",
                f"the file of {record.file_name} is gone or unreadable; restore it, or index it again",
            ) from None
        try:
            self._check(record, opened)
        except BaseException:
            opened.close()
            raise
        return opened

    @contextlib.contextmanager
    def held(self, record: VideoRecord) -> Iterator[Path]:
        """The path of a video's file, for callers that must open it by name, after the checks of `open`.

        At the end the file is checked again: raises ServerError as `open` does, and 409 if another file has
        taken the path. Then discard what was made from it.
        """
        opened = self.open(record)
        try:
            yield source_path(record.path)
            now = self.open(record)
            now.close()
            if not os.path.samestat(now.status, opened.status):
                raise _changed(record)
        finally:
            opened.close()

    def _check(self, record: VideoRecord, opened: OpenFile | OpenObject) -> None:
        same = (opened.status.st_size, modified_ns(opened.status)) == (record.size, record.modified_ns)
        is_object = isinstance(opened, OpenObject)
        if not same or (not is_object and _linked_since(record)):
            raise _changed(record)
        if not self.hold(record.path if isinstance(opened, OpenObject) else real_path(opened.descriptor)):
            raise ServerError(
                403,
                "not_served",
                f"the file of {record.file_name} is outside the folders served here; "
                "name every folder with `whenabouts serve --files`",
            )


def _changed(record: VideoRecord) -> ServerError:
    return ServerError(
        409,
        "video_changed",
        f"the file of {record.file_name} has changed since it was indexed; `whenabouts index` it again",
    )


def _linked_since(record: VideoRecord) -> bool:
    """Whether the path is now a link made after the video was indexed, or has vanished."""
    try:
        status = Path(record.path).lstat()
    except OSError:
        return True
    return stat.S_ISLNK(status.st_mode) and status.st_ctime > record.indexed_at
