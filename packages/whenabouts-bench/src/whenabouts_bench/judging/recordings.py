"""Locate the recordings of tasks in a folder, by name, or in a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from whenabouts.index.store import Store
from whenabouts.types import UsageError, Video, number_of
from whenabouts.video.probe import probe
from whenabouts_bench.corpus_run import names_of
from whenabouts_bench.relevance.pool_frames import files_of_videos


def in_folder(videos: Mapping[str, Video], folder: Path) -> dict[str, Video]:
    """The videos with paths in a folder, matched by name, and durations.

    Raises UsageError if a recording is missing or ambiguous, MediaError if a file is not a recording.
    """
    files = files_of_videos(videos, folder)
    _require_all(videos, files, str(folder))
    return {
        name: replace(video, path=str(files[name].absolute()), duration=probe(files[name]).duration)
        for name, video in videos.items()
    }


def in_corpus(videos: Mapping[str, Video], corpus: str) -> dict[str, Video]:
    """As `in_folder`, from a corpus; a video known only by its transcript gets no path."""
    records = Store.open(corpus, create=False).videos()
    called = names_of(records, list(videos.values()), corpus)
    by_name = {called[record.video_id]: record for record in records if record.video_id in called}
    _require_all(videos, by_name, corpus)
    return {
        name: replace(
            video,
            path=by_name[name].path if by_name[name].kind == "media" else "",
            duration=by_name[name].duration,
        )
        for name, video in videos.items()
    }


def _require_all(videos: Mapping[str, Video], present: Mapping[str, object], place: str) -> None:
    missing = [name for name in videos if name not in present]
    if missing:
        listed = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UsageError(
            f"{place}: has no recording of {number_of(len(missing), 'video')} to judge: {listed}; name the "
            "folder or corpus that holds them all"
        )
