"""What a video is called in a corpus, and how its name is printed."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path


def video_id_for(path: Path, content_hash_hex: str, taken: Collection[str] = ()) -> str:
    """The id of a new video: its file's name and eight digits of its content's hash.

    The name is for people; the digits keep two videos of one name apart wherever they lie. An id is kept
    when the content changes, so the id of what a file once held may be `taken`: then a number is added.

    >>> video_id_for(Path("My holiday?.mp4"), "00ff" * 8)
    'My_holiday-00ff00ff'
    >>> video_id_for(Path("a.mp4"), "00ff" * 8, {"a-00ff00ff"})
    'a-00ff00ff-2'
    """
    wanted = f"{_name(path)}-{content_hash_hex[:8]}"
    chosen, number = wanted, 1
    while chosen in taken:
        number += 1
        chosen = f"{wanted}-{number}"
    return chosen


def failed_id_for(path: Path) -> str:
    """The ledger key of a file that could not be read: it has no content to be named by."""
    digest = hashlib.blake2b(unambiguous(path).encode(), digest_size=16).hexdigest()
    return f"{_name(path)}-failed-{digest[:8]}"


def _name(path: Path) -> str:
    stem = unicodedata.normalize("NFC", unambiguous(path.stem))
    return re.sub(r"[^\w.-]+", "_", stem).strip("_.-")[:60] or "video"


class VideoNames:
    """What people call the videos of a corpus: by id, else path, file name, or that without its ending."""

    def __init__(self, paths: Iterable[tuple[str, str]]) -> None:
        """`paths` are (id, path) of each video."""
        self._ways: tuple[dict[str, list[str]], ...] = tuple(defaultdict(list) for _ in range(4))
        for video_id, place in paths:
            path = Path(place)
            for way, name in zip(self._ways, (video_id, place, path.name, path.stem), strict=True):
                way[name].append(video_id)

    def fitting(self, name: str) -> list[str]:
        """The ids of the videos that a name fits, in the first of these ways in which it fits any."""
        ids, paths, *others = self._ways
        wanted = [(ids, name), (paths, name), (paths, str(Path(name).absolute()))]
        wanted += [(way, name) for way in others]
        return next((way[called] for way, called in wanted if called in way), [])


def spoken_name(path: Path) -> str:
    """A file's name as words, for want of a title.

    >>> spoken_name(Path("My_summer-holiday.2.mp4"))
    'My summer holiday 2'
    """
    return " ".join(re.sub(r"[_.-]", " ", unambiguous(path.stem)).split())


def unambiguous(path: Path | str) -> str:
    """A whole path as valid Unicode, whatever its bytes are: for programs, which must find the file by it."""
    return str(path).encode("utf-8", "backslashreplace").decode()
