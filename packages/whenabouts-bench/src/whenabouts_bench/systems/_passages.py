"""Cut transcripts into passages and rank them. Shared by the systems that search words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench.harness.system import BenchQuery, BenchVideo

PassageRows = list[tuple[str, float, float, float]]
"""(video id, start, end, score), best first."""

PASSAGE_SECONDS = 15.0


@dataclass(frozen=True)
class Passage:
    """The words that are said in a stretch of a video."""

    video_id: str
    start: float
    end: float
    text: str


def passages_of(videos: Iterable[BenchVideo], seconds: float = PASSAGE_SECONDS) -> tuple[Passage, ...]:
    """Lines joined as long as they last at most `seconds` together; a line without length never stands alone.

    Raises UsageError if no line of any video has a length.
    """
    passages = tuple(passage for video in videos for passage in _of_video(video, seconds))
    if not passages:
        raise UsageError(
            "no video of the task has a transcript in the data folder, and this system reads words alone; "
            "put {video id}.vtt (or .srt, .ass, .sbv) there"
        )
    return passages


def _of_video(video: BenchVideo, seconds: float) -> Iterable[Passage]:
    texts: list[str] = []
    first = last = 0.0
    for start, end, text in video.lines:
        if texts and last > first and end - first > seconds:
            yield Passage(video.id, first, last, " ".join(texts))
            texts = []
        first = first if texts else start
        last = max(end, last if texts else end)
        texts.append(text)
    if texts and last > first:
        yield Passage(video.id, first, last, " ".join(texts))


def number_setting(name: str, value: str | float) -> float:
    """The value of `--set NAME=VALUE`. Raises UsageError unless it is finite and above 0."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise UsageError(f"--set {name}={value}: give a number above 0")
    return number


def whole_setting(name: str, value: str | float) -> int:
    """Like `number_setting`, for whole numbers."""
    number = number_setting(name, value)
    if not number.is_integer():
        raise UsageError(f"--set {name}={value}: give a whole number above 0")
    return int(number)


def with_seconds(revision: str, seconds: float) -> str:
    """The revision of a system, with the length of its passages where that is not the default."""
    return revision if seconds == PASSAGE_SECONDS else f"{revision}-seconds-{seconds:g}"


class PassageRanking:
    """Ranks passages for queries."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        codes: dict[str, int] = {}
        self._video = np.array([codes.setdefault(p.video_id, len(codes)) for p in passages], np.int64)
        self._codes = codes

    def best(
        self, query: BenchQuery, scores: NDArray[np.floating], k: int, least: float = -np.inf
    ) -> PassageRows:
        """The k best passages of the query's videos with a score above `least`; ties keep their order.

        `scores` is (N,), one per passage.
        """
        fits = scores > least
        if query.videos:
            chosen = [self._codes[video] for video in query.videos if video in self._codes]
            fits = fits & np.isin(self._video, chosen)
        rows = np.flatnonzero(fits)
        order = rows[np.argsort(-scores[rows], kind="stable")[:k]]
        some = ((self.passages[row], float(scores[row])) for row in order.tolist())
        return [(passage.video_id, passage.start, passage.end, score) for passage, score in some]
