"""Hides paths of the server's files from clients that may not see them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from whenabouts.index.filters import Condition
from whenabouts.index.records import VideoRecord, unambiguous
from whenabouts.search.library import FOLDER
from whenabouts.server.errors import ServerError

_log = logging.getLogger(__name__)
# Folders of absolute paths; the last name of a path stays.
_FOLDERS = re.compile(r"(?<![\w:/])/(?:[^/:\n]+/)+")
_PATH_KEYS = frozenset({"path", FOLDER})


class Paths:
    """Hides paths from clients.

    If `are_shown` is false (`Settings.shows_paths`), no answer names a folder and no request can probe
    for one. `places` are paths of the corpus and models as messages may contain them; `folders` are
    folders whose file names messages may show.
    """

    def __init__(self, *, are_shown: bool, places: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        self.are_shown = are_shown
        roots = [folder for folder in folders if folder != "/"]
        spelled = {place for name in (*places, *roots) for place in _spellings(name)}
        # _FOLDERS would drop such a place entirely, and it ends a path at a colon.
        names = {place: name for place in spelled if (name := Path(place).name)}
        names |= {f"{folder}/": "/./" for folder in roots}
        self._names = {place: names[place] for place in sorted(names, key=len, reverse=True)}

    def of_file(self, record: VideoRecord) -> str:
        """The name of a video's file in an exported list: its path, or VIDEO_ID/NAME if paths are hidden."""
        return record.path if self.are_shown else f"{record.video_id}/{Path(record.path).name}"

    def folder_of(self, record: VideoRecord) -> str | None:
        """The folder of a video's file; None if paths are hidden."""
        return unambiguous(record.path).rpartition("/")[0] if self.are_shown else None

    def without_folders(self, text: str) -> str:
        """A message with folders removed and file names kept, whether or not paths are shown."""
        for place, name in self._names.items():
            text = text.replace(place, name)
        return _FOLDERS.sub("", text)

    def name(self, place: str) -> str:
        """The name of an encoder or model; a hidden folder is named by its last part."""
        is_folder = place.startswith(("/", ".", "~")) or place.count("/") > 1 or Path(place).is_dir()
        return Path(place).name if is_folder and not self.are_shown else place

    def unless_hidden(self, text: str, instead: str) -> str:
        """A message that may contain any path; if paths are hidden, logs it and returns `instead`."""
        if self.are_shown:
            return self.without_folders(text)
        _log.warning("%s", text)
        return instead

    def check_conditions(self, where: Iterable[str]) -> None:
        """Raise ServerError 403 for a condition on paths, because its answers would reveal them."""
        if not self.are_shown and any(Condition.parse(text).key in _PATH_KEYS for text in where):
            raise ServerError(
                403,
                "paths_hidden",
                "this server does not show file paths, so it cannot be searched by path; search by "
                "name, or start it with --show-paths",
                field="where",
            )

    def of_stats(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The statistics of a corpus without its location and hidden paths; `failed` becomes a number."""
        seen = {key: value for key, value in numbers.items() if key != "corpus"}
        seen["failed"] = len(numbers["failed"])
        seen["gone"] = [path if self.are_shown else Path(path).name for path in numbers["gone"]]
        seen["streams"] = {
            stream: {**facts, "encoder": self.name(facts["encoder"])}
            for stream, facts in numbers["streams"].items()
        }
        return seen


def without_location(text: str, location: str, instead: str) -> str:
    """A message with a corpus's location replaced, but not where "." or "films" is part of a longer name."""
    place = re.escape(location.rstrip("/"))
    return re.sub(rf"(?<![\w./)-])(?<!\w'){place}/?(?![\w-]|\.\w)", instead, text)


def _spellings(place: str) -> Iterable[str]:
    """A place as given, made absolute, resolved, and without its first slash, as object stores print it."""
    if "://" in place:
        return (place,)
    whole = [str(Path(place).absolute()), str(Path(place).resolve())]
    return place, *whole, *(path.lstrip("/") for path in whole if path.count("/") > 1)
