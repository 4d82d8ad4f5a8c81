"""A query by example: a picture, or a moment of the corpus; answers look or read like it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from whenabouts.index.records import VideoRecord
from whenabouts.times import format_time, parse_instant, parse_moment
from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts.video.picture import KINDS, read_picture
from whenabouts.video.probe import MediaError

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from whenabouts.index.stream import QueryKind
    from whenabouts.opened_corpus import OpenedCorpus

    Like: TypeAlias = "str | os.PathLike[str] | Moment | ScoredMoment | NDArray[np.uint8] | Example"
    """The forms of an example (`SearchOptions.like`)."""

ASIDE_SECONDS = 2.0
"""Video up to this long before and after an example instant is no answer, because it shows the same."""
PICTURE_SIZE = 768
"""The most pixels of an example picture's short side; most encoders look at 512 or fewer."""
# An instant becomes a moment of this length, because the end of a moment is after its start.
_SHORTEST_SECONDS = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A picture (H, W, 3), RGB, or a moment; `name` is its name for users.

    Answers that overlap `excluded` do not count: the moment itself, or the surroundings of an instant.
    """

    name: str
    picture: NDArray[np.uint8] | None = None
    moment: Moment | None = None
    excluded: Moment | None = None

    @property
    def kind(self) -> QueryKind:
        """The kind of query it makes."""
        return "moment" if self.picture is None else "picture"


def example_of(corpus: OpenedCorpus, like: Like) -> Example:
    """The example that a value of `SearchOptions.like` describes.

    Raises UsageError for a moment that begins outside the corpus, for a whole video of the corpus, and for
    anything that is neither a file nor a moment; MediaError for another file that is not a readable picture.
    """
    if isinstance(like, Example):
        return like
    like = like.moment if isinstance(like, ScoredMoment) else like
    if isinstance(like, Moment):
        record = corpus.resolve(like.video_id)
        return _of_span(record, Moment(record.video_id, like.start, like.end))
    if isinstance(like, np.ndarray):
        return Example("a picture", picture=_checked(like))
    if not isinstance(like, str | os.PathLike):
        raise UsageError(f"an example is a picture (file or array) or a moment, not a {type(like).__name__}")
    # `Path.is_file` raises OSError for a name that is too long.
    if isinstance(like, str) and "@" in like and not os.path.isfile(like):  # noqa: PTH113
        return example_at(like, corpus.resolve, corpus.rate_of)
    return _of_file(corpus, Path(like))


def example_at(
    place: str,
    resolve: Callable[[str], VideoRecord],
    rate_of: Callable[[str], Fraction | None] = lambda video: None,
) -> Example:
    """The example named VIDEO@TIME or VIDEO@START-END; `resolve` maps a video's name to its record.

    `rate_of` gives a video's frame rate, for timecodes. Raises UsageError, and the errors of `resolve`.
    """
    try:
        video, start, end = parse_moment(place, rate_of)
    except UsageError as error:
        try:
            video, at = parse_instant(place, rate_of)
        except UsageError:
            raise error from None
        return _of_instant(resolve(video), at)
    record = resolve(video)
    return _of_span(record, Moment(record.video_id, start, end))


def _of_span(record: VideoRecord, moment: Moment) -> Example:
    _check_inside(record, moment.start)
    name = f"{record.file_name}@{format_time(moment.start)}-{format_time(moment.end)}"
    return Example(name, moment=moment, excluded=moment)


def _of_instant(record: VideoRecord, at: float) -> Example:
    _check_inside(record, at)
    around = Moment(record.video_id, max(0.0, at - ASIDE_SECONDS), at + ASIDE_SECONDS)
    name = f"{record.file_name}@{format_time(at)}"
    return Example(name, moment=Moment(record.video_id, at, at + _SHORTEST_SECONDS), excluded=around)


def _check_inside(record: VideoRecord, at: float) -> None:
    if record.duration is not None and at >= record.duration:
        end = format_time(record.duration)
        raise UsageError(f"{record.file_name} ends at {end}, before {format_time(at)}; name an earlier time")


def _of_file(corpus: OpenedCorpus, path: Path) -> Example:
    try:
        return Example(path.name, picture=read_picture(path, PICTURE_SIZE))
    except MediaError as error:
        try:
            name = corpus.resolve(str(path)).file_name
        except UsageError:
            if os.path.isfile(path):  # noqa: PTH113
                raise error from None
            raise UsageError(
                f"{error}; an example is a {KINDS} file, or a moment of the corpus: VIDEO@TIME or "
                "VIDEO@START-END"
            ) from None
        raise UsageError(
            f"{name} is a video; name a part of it as the example: {name}@TIME or {name}@START-END"
        ) from None


def _checked(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise UsageError(
            f"a picture of shape {picture.shape} and type {picture.dtype}; give RGB, (height, width, 3) uint8"
        )
    return picture
