"""Find the recordings and transcripts of a task's videos in the data folder, for systems to index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from whenabouts.types import Video
from whenabouts.video.files import MEDIA_SUFFIXES, TRANSCRIPT_SUFFIXES
from whenabouts_bench.datasets.folder import DatasetFolder
from whenabouts_bench.formats.json_records import NotNegative, Text, Words, read_records
from whenabouts_bench.harness.system import BenchVideo, Line

TVR_SUBTITLES = "tvqa_preprocessed_subtitles.jsonl"
"""TVR's subtitles, one video a line; in the folder data/ of jayleicn/TVRetrieval."""


class _SubtitleLine(msgspec.Struct):
    start: NotNegative
    end: NotNegative
    text: Text


class _Subtitles(msgspec.Struct):
    vid_name: Words
    sub: list[_SubtitleLine]


def videos_in(folder: Path, videos: Iterable[Video]) -> list[BenchVideo]:
    """The videos of a task with their files: {video id}.mp4, {video id}.vtt and so on, at any depth.

    The ending of an id may be missing: s13.vtt also belongs to the video "s13.avi". Transcripts of TVR come
    from its file of subtitles. Raises FormatError for a broken line in it.
    """
    here = DatasetFolder(folder).by_name
    media = _by_stem(here, MEDIA_SUFFIXES)
    transcripts = _by_stem(here, TRANSCRIPT_SUFFIXES)
    subtitles = _of_tvr(here.get(TVR_SUBTITLES, ())[:1])
    return [
        BenchVideo(
            video.id,
            video.duration,
            media.get(video.id) or media.get(Path(video.id).stem),
            transcripts.get(video.id) or transcripts.get(Path(video.id).stem) or subtitles.get(video.id, ()),
        )
        for video in videos
    ]


def _by_stem(names: Mapping[str, tuple[Path, ...]], suffixes: Iterable[str]) -> dict[str, Path]:
    """Name without its last ending -> nearest file with one of the suffixes."""
    endings, by_stem = frozenset(suffixes), dict[str, Path]()
    for path in chain.from_iterable(names.values()):
        if path.suffix.lower() in endings and path.is_file():
            nearest = by_stem.setdefault(path.stem, path)
            if len(path.parts) < len(nearest.parts):
                by_stem[path.stem] = path
    return by_stem


def _of_tvr(paths: Iterable[Path]) -> dict[str, tuple[Line, ...]]:
    subtitles: dict[str, tuple[Line, ...]] = {}
    for path in paths:
        for origin, fields in read_records(path):
            video = origin.convert(fields, _Subtitles)
            subtitles[video.vid_name] = tuple((line.start, line.end, line.text) for line in video.sub)
    return subtitles
