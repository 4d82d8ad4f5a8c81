"""Who may see where files lie on the server, and what all others see instead."""

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
# The folders of absolute paths; the last name of a path stays.
_FOLDERS = re.compile(r"(?<![\w:/])/(?:[^/:\n]+/)+")
_PATH_KEYS = frozenset({"path", FOLDER})


class Paths:
    """What clients are told of paths.

    `are_shown` comes of the settings (`Settings.shows_paths`). Where it is false no answer names a folder,
    and no request can try out what one is called. `places` are known places (folders of the corpus, of
    models), as they may stand in messages; `folders` those whose files messages may name.
    """

    def __init__(self, *, are_shown: bool, places: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        self.are_shown = are_shown
        roots = [folder for folder in folders if folder != "/"]
        spelled = {place for name in (*places, *roots) for place in _spellings(name)}
        # _FOLDERS takes folders for their names alone, and a colon for the end of a path.
        names = {place: Path(place).name for place in spelled} | {f"{folder}/": "/./" for folder in roots}
        self._names = {place: names[place] for place in sorted(names, key=len, reverse=True)}

    def of_file(self, record: VideoRecord) -> str:
        """How a list for editors calls a video's file: where it lies, else its name below the video's id."""
        return record.path if self.are_shown else f"{record.video_id}/{Path(record.path).name}"

    def folder_of(self, record: VideoRecord) -> str | None:
        """The folder of a video's file; None where it is not shown."""
        return unambiguous(record.path).rpartition("/")[0] if self.are_shown else None

    def without_folders(self, text: str) -> str:
        """A message that names files but no folders, whoever reads it."""
        for place, name in self._names.items():
            text = text.replace(place, name)
        return _FOLDERS.sub("", text)

    def name(self, place: str) -> str:
        """What an encoder or a model is called: its name, of a folder the last part."""
        is_folder = place.startswith(("/", ".", "~")) or place.count("/") > 1 or Path(place).is_dir()
        return Path(place).name if is_folder and not self.are_shown else place

    def unless_hidden(self, text: str, instead: str) -> str:
        """A message that may hold any path; `instead` for those who may not see it, and a line in the log."""
        if self.are_shown:
            return self.without_folders(text)
        _log.warning("%s", text)
        return instead

    def check_conditions(self, where: Iterable[str]) -> None:
        """Raise ServerError (403) for a condition on paths: its answers would spell them out."""
        if not self.are_shown and any(Condition.parse(text).key in _PATH_KEYS for text in where):
            raise ServerError(
                403,
                "paths_hidden",
                "this server does not show where files lie, so it cannot be searched by path; "
                "ask by name, or let its owner start it with --show-paths",
                field="where",
            )

    def of_stats(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a corpus without its own place and those of its files and encoders."""
        seen = {key: value for key, value in numbers.items() if key != "corpus"}
        seen["failed"] = len(numbers["failed"])
        seen["gone"] = [path if self.are_shown else Path(path).name for path in numbers["gone"]]
        seen["streams"] = {
            stream: {**facts, "encoder": self.name(facts["encoder"])}
            for stream, facts in numbers["streams"].items()
        }
        return seen


def _spellings(place: str) -> Iterable[str]:
    """A place as it was named, as it is, and as object stores write it: without its first slash."""
    if "://" in place or len(place) < 2:
        return (place,) if place else ()
    whole = [str(Path(place).absolute()), str(Path(place).resolve())]
    return place, *whole, *(path.lstrip("/") for path in whole if path.count("/") > 1)
