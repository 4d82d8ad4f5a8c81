"""Reports the progress of each watched folder: how many files are being copied, wait, are read, are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.watching import Follower

if TYPE_CHECKING:
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress

_MOST_NAMES = 5


@dataclass(slots=True)
class _Folder:
    """The files of a folder that are being copied, are being read, and are done; `total` is for this run."""

    copying: list[Path] = field(default_factory=list)
    total: int = 0
    reading: dict[Path, None] = field(default_factory=dict)
    done: set[Path] = field(default_factory=set)


class WatchedProgress(Follower):
    """Adds up an index run's reports by folder, and passes each change to `say`.

    `say` gets {folder: facts}, without idle folders. A file in nested watched folders counts for the
    inner one.
    """

    def __init__(self, folders: Sequence[str], say: Callable[[Mapping[str, Any]], None]) -> None:
        self._say = say
        self._paths = sorted(map(Path, folders), key=lambda folder: -len(folder.parts))
        self.idle()

    def idle(self) -> None:
        """Nothing is being indexed."""
        self._folders = {folder: _Folder() for folder in self._paths}
        self._tell({})

    def copying(self, paths: Sequence[Path]) -> None:
        """These files are still being written."""
        self._clear_copying()
        for path in paths:
            if (folder := self._folder(path)) is not None and path.is_file():
                folder.copying.append(path)
        self._tell({})

    def planned(self, plan: Plan) -> None:
        """The files that will be read."""
        self._clear_copying()
        for work in plan.work:
            if (folder := self._folder(work.file.path)) is not None:
                folder.total += 1
        self._tell({})

    def progress(self, progress: Progress) -> None:
        """A file has progressed or is done, or the run is in a step after all files."""
        path = progress.path
        if path is not None and (folder := self._folder(path)) is not None:
            if progress.is_done:
                folder.reading.pop(path, None)
                folder.done.add(path)
            elif path not in folder.done:
                folder.reading[path] = None
        shown = {"rate": progress.rate_text, "left": progress.left_text, "step": progress.step}
        self._tell(shown, progress.fraction)

    def _clear_copying(self) -> None:
        for folder in self._folders.values():
            folder.copying.clear()

    def _folder(self, path: Path) -> _Folder | None:
        return next((self._folders[each] for each in self._paths if path.is_relative_to(each)), None)

    def _tell(self, shown: Mapping[str, str], fraction: float = 0.0) -> None:
        working = [folder for folder in self._folders.values() if folder.total]
        facts = {}
        for path, folder in self._folders.items():
            if not folder.total and not folder.copying:
                continue
            done = len(folder.done)
            # If only one folder has files to read, the run's fraction is the folder's.
            share = fraction if len(working) == 1 else done / max(1, folder.total)
            facts[str(path)] = {
                "copying": [each.name for each in folder.copying[:_MOST_NAMES]],
                "copying_in_all": len(folder.copying),
                "waiting": max(0, folder.total - done - len(folder.reading)),
                "reading": [each.name for each in list(folder.reading)[:_MOST_NAMES]],
                "reading_in_all": len(folder.reading),
                "done": done,
                "total": folder.total,
                "fraction": round(share, 4),
                **shown,
            }
        self._say(facts)
