"""Watches folders: a file that appears, changes, moves or is deleted is indexed within seconds."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.index.lance import folder_of
from whenabouts.indexing import usual_speech_model
from whenabouts.locking import is_shared
from whenabouts.types import UsageError
from whenabouts.video.files import MEDIA_SUFFIXES, TRANSCRIPT_SUFFIXES, absolute, real_place

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.index.plan import Plan
    from whenabouts.index.progress import Progress, Summary

SETTLED_SECONDS = 2.0
"""A file whose size and date stay the same for this long counts as complete."""
_LONGEST_WAIT_SECONDS = 600.0
_STEP_SECONDS = 0.25
_TICK_MS = 500


class Follower:
    """Methods that `watch` calls, for example to show progress. By default they do nothing."""

    def copying(self, paths: Sequence[Path]) -> None:
        """These files have changed and may still be growing; the next run waits for them."""

    def planned(self, plan: Plan) -> None:
        """An index run has begun."""

    def progress(self, progress: Progress) -> None:
        """The run has progressed; called at least once a second, also from another thread."""

    def idle(self) -> None:
        """The run is over; waiting for the next change."""


def watch(
    corpus: Corpus,
    paths: Sequence[str | os.PathLike[str]],
    *,
    stop: threading.Event | None = None,
    settled: float = SETTLED_SECONDS,
    follower: Follower | None = None,
    **options: Any,
) -> Iterator[Summary]:
    """Index folders, then again after each change; yields a summary of the first run and of others with work.

    Ends when `stop` is set or a run is interrupted. Waits for half-copied files. Videos whose files are
    deleted are removed, but not while their whole folder is missing or empty, because a disk may be
    unplugged. Folders that other machines may mount are polled every few seconds, because their changes are
    not announced. `follower` gets progress reports; `options` are those of `Corpus.add`. Without
    `transcribe`, speech is recognised as in most recordings of the folders. Raises UsageError for a path that
    is not a folder, and ModuleNotFoundError without watchfiles.
    """
    from watchfiles import watch as changes_in

    folders = [absolute(Path(path).expanduser()) for path in paths]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no such folder; `whenabouts watch` follows folders")
    if follower is not None:
        options |= {"planned": follower.planned, "progress": follower.progress}
    ended = stop or threading.Event()
    is_first, is_model_given = True, options.get("transcribe") is not None
    arriving, corpus_folder = _Arriving(settled), folder_of(corpus.places[0])
    # Listen before the first run, so that no change in between is missed.
    for changes in changes_in(
        *folders,
        watch_filter=lambda _, path: _may_matter(Path(path), corpus_folder),
        debounce=round(1000 * settled),
        rust_timeout=_TICK_MS,
        yield_on_timeout=True,
        stop_event=ended,
        force_polling=any(map(is_shared, folders)) or None,
        poll_delay_ms=2000,
        raise_interrupt=False,
    ):
        is_another = arriving.add(Path(path) for _, path in changes)
        if not arriving.paths and not is_first:
            continue
        if not arriving.are_complete():
            if follower is not None and is_another:
                follower.copying(list(arriving.paths))
            continue
        arriving = _Arriving(settled)
        if not is_model_given and (model := usual_speech_model(corpus, folders, options.get("language"))):
            options["transcribe"] = model
        summary = corpus.add(*folders, wait=True, prune=True, **options)
        if follower is not None:
            follower.idle()
        worked = summary.added + summary.updated + summary.renamed + summary.described
        if is_first or summary.interrupted or worked or summary.failed or summary.pruned:
            yield summary
        if summary.interrupted:
            return
        is_first = False


def _may_matter(path: Path, corpus_folder: Path) -> bool:
    """Whether the corpus may have to change: a video, a subtitle file, a folder or a deleted path.

    Paths in the corpus's own folder do not matter, or each index run would cause the next one.
    """
    is_relevant = path.suffix.lower() in MEDIA_SUFFIXES | TRANSCRIPT_SUFFIXES or not path.is_file()
    return is_relevant and not Path(real_place(path)).is_relative_to(corpus_folder)


class _Arriving:
    """All files that have changed since the last run. A run reads whole folders, so it waits for each."""

    def __init__(self, settled: float) -> None:
        self._settled, self._sizes = settled, list[tuple[int, int]]()
        self._first = self._since = math.inf
        self._looked = -math.inf
        self.paths: dict[Path, None] = {}

    def add(self, paths: Iterable[Path]) -> bool:
        """Record files that have just changed; returns whether one of them is new."""
        before = len(self.paths)
        self.paths |= dict.fromkeys(paths)
        return len(self.paths) > before

    def are_complete(self) -> bool:
        """Whether no file has changed for `settled` seconds, or ten minutes have passed."""
        if not self.paths:
            return True
        now = time.monotonic()
        if now < self._looked + _STEP_SECONDS:
            return False
        self._looked, sizes = now, _sizes(self.paths)
        if sizes != self._sizes:
            self._sizes, self._since = sizes, now
            self._first = min(self._first, now)
        return now >= min(self._since + self._settled, self._first + _LONGEST_WAIT_SECONDS)


def _sizes(paths: Iterable[Path]) -> list[tuple[int, int]]:
    sizes = []
    for path in paths:
        try:
            status = path.stat()
            sizes.append((status.st_size, status.st_mtime_ns))
        except OSError:
            sizes.append((-1, -1))
    return sizes
