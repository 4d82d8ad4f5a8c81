"""Watches folders: a file that appears, changes, moves or is deleted is indexed within seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.corpus import Corpus
from whenabouts.locking import is_shared
from whenabouts.types import UsageError
from whenabouts.video.files import MEDIA_SUFFIXES, TRANSCRIPT_SUFFIXES

if TYPE_CHECKING:
    from whenabouts.index.progress import Summary

SETTLED_SECONDS = 2.0
"""A file whose size and date stay the same for so long counts as complete."""
_LONGEST_WAIT_SECONDS = 600.0
_STEP_SECONDS = 0.25
_TICK_MS = 500


def watch(
    corpus: Corpus,
    paths: Sequence[str | os.PathLike[str]],
    *,
    stop: threading.Event | None = None,
    settled: float = SETTLED_SECONDS,
    **options: Any,
) -> Iterator[Summary]:
    """Index the folders, then again after each change in them; gives a summary where something was done.

    Ends when `stop` is set. Half-copied files are waited for. Videos whose files are deleted leave the
    corpus, but not while a whole folder is missing or empty: a disk may have been unplugged. Folders that
    other machines may mount are looked at every few seconds, because their changes are not announced.
    `options` are those of `Corpus.add`. Raises UsageError for a path that is no folder, and
    ModuleNotFoundError without watchfiles.
    """
    from watchfiles import watch as changes_in

    folders = [Path(path).expanduser().absolute() for path in paths]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: there is no such folder; `whenabouts watch` follows folders")
    ended = stop or threading.Event()
    is_first = True
    # Changes are listened to before the first run, so that none between the two is missed.
    for changes in changes_in(
        *folders,
        watch_filter=lambda _, path: _may_matter(Path(path)),
        debounce=round(1000 * settled),
        rust_timeout=_TICK_MS,
        yield_on_timeout=True,
        stop_event=ended,
        force_polling=any(map(is_shared, folders)) or None,
        poll_delay_ms=2000,
        raise_interrupt=False,
    ):
        if not changes and not is_first:
            continue
        _wait_until_complete((Path(path) for _, path in changes), settled, ended.is_set)
        if ended.is_set():
            return
        summary = _indexed(corpus, folders, options)
        if is_first or _did_something(summary):
            yield summary
        is_first = False


def _did_something(summary: Summary) -> bool:
    changed = summary.added + summary.updated + summary.renamed + summary.described
    return changed > 0 or bool(summary.failed or summary.pruned)


def _may_matter(path: Path) -> bool:
    """Whether the corpus may have to change: a video, a subtitle file, a folder or a deleted path."""
    return path.suffix.lower() in MEDIA_SUFFIXES | TRANSCRIPT_SUFFIXES or not path.is_file()


def _indexed(corpus: Corpus, folders: Sequence[Path], options: dict[str, Any]) -> Summary:
    there = all(folder.is_dir() and any(folder.iterdir()) for folder in folders)
    return corpus.add(*folders, wait=True, prune=there, **options)


def _wait_until_complete(paths: Iterable[Path], settled: float, is_over: Callable[[], bool]) -> None:
    """Wait until none of the files has grown for `settled` seconds, ten minutes at most."""
    watched = list(paths)
    if not watched:
        return
    before, since = _sizes(watched), time.monotonic()
    latest = since + _LONGEST_WAIT_SECONDS
    while not is_over() and time.monotonic() < min(latest, since + settled):
        time.sleep(_STEP_SECONDS)
        now = _sizes(watched)
        if now != before:
            before, since = now, time.monotonic()


def _sizes(paths: Iterable[Path]) -> list[tuple[int, int]]:
    sizes = []
    for path in paths:
        try:
            status = path.stat()
            sizes.append((status.st_size, status.st_mtime_ns))
        except OSError:
            sizes.append((-1, -1))
    return sizes
