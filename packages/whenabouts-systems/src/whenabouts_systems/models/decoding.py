"""Turn scores of spans into the best spans of a video, and these into seconds.

A span has a first and a last clip, and scores start + end (+ map). The k best are found exactly without all
pairs of first and last clips. A *row* is all spans with one first clip, and its best span is a running
maximum. Only the k rows with the best spans can have any of the k best spans, so only these are expanded.
Ties are ordered by video, first and last clip, so that the result is unique.

Shapes: R rows or queries, N videos of a query, T clips, M windows, P pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import pad

from whenabouts.clips import clip_counts, span_seconds
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import SpanScores
from whenabouts_systems.models.settings import Size, check_fields, check_keys

Ends = Literal["inclusive", "exclusive", "as-released"]
Floats = NDArray[np.float64]

# Numbers of a block of work: 64 MiB of float32.
_BLOCK = 1 << 24


@dataclass(frozen=True, slots=True)
class Decoding:
    """The settings by which spans of clips become answers, and their borders seconds.

    | ends | clips of first..last | last - first | seconds |
    | --- | --- | --- | --- |
    | inclusive | last - first + 1 | min - 1 to max - 1 | [first * clip, (last + 1) * clip) |
    | exclusive | last - first | min to max | [first * clip, last * clip) |
    | as-released | last - first + 1 | min to max - 1 | [first * clip, (last + 1) * clip) |

    `min_clips` and `max_clips` (None: as long as the video) bound the length in clips. "inclusive" and
    "exclusive" end at most with the video. "exclusive" is for models that learned the clip after a moment as
    its end. "as-released" is XML's program: its lengths are off by one clip and may pass the video's end. The
    program of ReLoCLNet with 2 and 16 is "exclusive" with 2 and 15.

    Windows lie on no grid and keep their borders. With every `ends`, the length of a window is the number of
    clips that it touches. "as-released" rounds borders to whole clips, as the evaluation of the DETR family
    does.

    - `top_videos`: in how many videos a query's moments are searched.
    - `spans_per_query`: how many moments are answered.
    - `nms`: a moment is suppressed if its IoU with a better one of its query and video is above this value,
      among the `spans_before_nms` best moments.
    """

    min_clips: Annotated[int, msgspec.Meta(ge=0)] = 1
    max_clips: Size | None = None
    ends: Ends = "inclusive"
    top_videos: Size = 100
    spans_per_query: Size = 100
    nms: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    spans_before_nms: Size = 200

    def __post_init__(self) -> None:
        check_fields(self, "decoding")
        if not self.min_clips and self.ends != "as-released":
            raise UsageError("decoding: min_clips is 0; accepted: a whole number, 1 or more")
        low, high = self.offsets
        if high is not None and high < low and self.ends != "as-released":
            raise UsageError(
                f"decoding: no span has {self.min_clips} to {self.max_clips} clips (ends {self.ends})"
            )

    @property
    def offsets(self) -> tuple[int, int | None]:
        """The least and greatest `last - first`, both inclusive; None if only the video limits it."""
        least = self.min_clips - (self.ends == "inclusive")
        greatest = None if self.max_clips is None else self.max_clips - (self.ends != "exclusive")
        return least, greatest

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `config.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Decoding:
        """Settings from plain values. Raises UsageError for an unknown key or a value out of range."""
        check_keys(value, cls, "decoding")
        return cls(**value)


@dataclass(frozen=True)
class BestSpans:
    """Up to k spans for each of R rows, best first: `first`, `last` (R, k) int64 clips and `score` (R, k).

    Missing spans have the score minus infinity and clips 0. `place` (R, k) is the span's video among those of
    its row (always 0 in `best_spans`). `borders` (R, k, 2), only for systems that answer windows, are the
    begin and end counted in clips; `first` and `last` are then the clips that a window touches.
    """

    first: Tensor
    last: Tensor
    score: Tensor
    place: Tensor
    borders: Tensor | None = None

    def where(self, chosen: Tensor) -> BestSpans:
        """The `chosen` (R, k) spans, as tensors of (N,)."""
        columns = {name: value[chosen] for name, value in vars(self).items() if value is not None}
        return BestSpans(**columns)

    def seconds(
        self, clip_seconds: ArrayLike, duration: ArrayLike, decoding: Decoding
    ) -> tuple[Floats, Floats]:
        """Start and end of each span in seconds; the arguments are broadcast, as in `seconds_of`.

        A window that begins after its video's end, in the last clip, begins with the clip instead. Rounded
        windows ("as-released") may be empty.
        """
        first, last = self.first.cpu().numpy(), self.last.cpu().numpy()
        if self.borders is None:
            return seconds_of(first, last, clip_seconds, duration, decoding)
        clip, borders = np.asarray(clip_seconds, np.float64), self.borders.double().cpu().numpy()
        start, end = (np.minimum(borders[..., at] * clip, duration) for at in (0, 1))
        if decoding.ends == "as-released":
            return start, end
        # The last clip may be longer than the video: a window in its empty rest is answered as the clip.
        return np.where(start < end, start, first * clip), end


def span_mask(clips: int, decoding: Decoding, device: torch.device | str = "cpu") -> Tensor:
    """(T, T) bool: whether the span first..last may be answered in a video of `clips` clips."""
    least, greatest = decoding.offsets
    at = torch.arange(clips, device=device)
    offset = at[None, :] - at[:, None]
    allowed = offset >= least
    return allowed if greatest is None else allowed & (offset <= greatest)


def seconds_of(
    first: ArrayLike, last: ArrayLike, clip_seconds: ArrayLike, duration: ArrayLike | None, decoding: Decoding
) -> tuple[Floats, Floats]:
    """Start and end of spans in seconds; the arguments are broadcast.

    `duration` in seconds is None or infinite if unknown. `decoding.ends` is the meaning of the clips.
    """
    last_clip = np.asarray(last) - (decoding.ends == "exclusive")
    return span_seconds(first, last_clip, clip_seconds, None if decoding.ends == "as-released" else duration)


def clips_inside(clip_seconds: ArrayLike, duration: ArrayLike, decoding: Decoding) -> NDArray[np.int64]:
    """The number of clips of each video that spans may use; the arguments are broadcast.

    Features may have a clip more than the duration fills. A span there would be empty, or repeat another one.
    A duration may be infinite. Released programs do not know the duration, so "as-released" uses all clips.
    """
    clip, seconds = np.broadcast_arrays(
        np.asarray(clip_seconds, np.float64), np.asarray(duration, np.float64)
    )
    unlimited = np.full(clip.shape, np.iinfo(np.int64).max)
    if decoding.ends == "as-released":
        return unlimited
    is_finite = np.isfinite(seconds)
    filled = clip_counts(np.where(is_finite, seconds, 0.0), clip)
    return np.where(is_finite, filled + (decoding.ends == "exclusive"), unlimited)


def best_spans(scores: SpanScores, decoding: Decoding, k: int) -> BestSpans:
    """The k best spans of each of P pairs, exactly; ties are ordered by first, then last clip.

    Spans with a masked clip, with a length that `decoding` forbids, or with a score of minus infinity or NaN
    are never answered. Memory beyond the scores is bounded for any P and T.
    """
    no_video = scores.start.new_zeros((len(scores), 1))
    if scores.windows is not None:
        return best_windows(scores.windows[:, None], scores.mask[:, None].sum(-1), no_video, decoding, k)
    grouped: dict[str, Any] = {
        name: rows if rows is None else rows[:, None] for name, rows in vars(scores).items()
    }
    return best_over_videos(SpanScores(**grouped), no_video, decoding, k)


def best_over_videos(scores: SpanScores, video: Tensor, decoding: Decoding, k: int) -> BestSpans:
    """The k best spans of each of R queries over its N videos; ties are ordered by video, first, last clip.

    The arrays of `scores` are (R, N, T), a map is (R, N, T, T). `video` (R, N) is added to all span scores of
    a video; minus infinity excludes the video. See `best_spans`.
    """
    rows, videos, clips = scores.start.shape
    width = _width(clips, decoding)
    if not rows or width < 1 or not videos:
        return _nothing(rows, k, scores.start)
    a_row = videos * clips * (width if scores.spans is not None else 4) + min(k, videos * clips) * width
    size = max(1, _BLOCK // a_row)
    blocks = [
        _best_of_block(scores, video, slice(low, low + size), decoding, k) for low in range(0, rows, size)
    ]
    columns = zip(*((block.first, block.last, block.score, block.place) for block in blocks), strict=True)
    return BestSpans(*map(torch.cat, columns))


def best_windows(windows: Tensor, clips: Tensor, video: Tensor, decoding: Decoding, k: int) -> BestSpans:
    """The k best windows of each of R queries over its N videos; ties are ordered by video, start and end.

    `windows` (R, N, M, 3) are start, end and score; they are clipped to the `clips` (R, N) of their video.
    `video` (R, N) is added to the scores. Windows that are empty, touch a number of clips that `decoding`
    forbids, or score NaN or minus infinity are never answered.
    """
    queries, videos, number = windows.shape[:3]
    borders = torch.minimum(windows[..., :2].clamp(min=0), clips[..., None, None].to(windows))
    first, last = borders[..., 0].floor().long(), borders[..., 1].ceil().long() - 1
    touched = last - first + 1
    allowed = (borders[..., 1] > borders[..., 0]) & (touched >= decoding.min_clips)
    if decoding.max_clips is not None:
        allowed &= touched <= decoding.max_clips
    scores = (windows[..., 2] + video[..., None]).masked_fill(~allowed, -torch.inf)
    if not queries or not videos * number:
        return replace(_nothing(queries, k, windows[..., 2]), borders=windows.new_zeros((queries, k, 2)))
    if decoding.ends == "as-released":
        borders = borders.round()
    # An untrained system scores all windows about the same, so some scores tie in float32.
    order = borders[..., 1].argsort(dim=2, stable=True)
    order = order.gather(2, borders[..., 0].gather(2, order).argsort(dim=2, stable=True))
    first, last, scores = (column.gather(2, order) for column in (first, last, scores))
    borders = borders.gather(2, order[..., None].expand_as(borders))
    score, at, exists = _filled(scores.flatten(1), k)
    first, last, start, end = (
        column.flatten(1).gather(1, at).where(exists, 0)
        for column in (first, last, borders[..., 0], borders[..., 1])
    )
    return BestSpans(first, last, score, (at // number).where(exists, 0), torch.stack([start, end], -1))


def ranked(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row of (R, N) in descending order, ties by position; and their positions.

    `torch.topk` does not define which of several equal values it takes; here the result is unique. NaN counts
    as minus infinity. Both results are (R, min(k, N)). Raises UsageError for a k below 1.
    """
    if k < 1:
        raise UsageError(f"k is {k!r}; ask for one span or more")
    if values.isnan().any():
        values = values.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    count = min(k, values.shape[1])
    if count == values.shape[1]:
        return _in_order(*torch.sort(values, dim=1, descending=True, stable=True))
    # One value more than needed shows in which rows topk had a choice.
    top, at = torch.topk(values, count + 1, dim=1)
    open_rows = ((top[:, count - 1] == top[:, count]) & (top[:, count] > -torch.inf)).nonzero()[:, 0]
    best, at = _in_order(top[:, :count], at[:, :count])
    # In these rows several values equal the smallest one taken: take the first of them.
    if len(open_rows):
        at[open_rows] = _first_of_equals(values[open_rows], best[open_rows, -1:], count)
        best[open_rows], at[open_rows] = _in_order(values[open_rows].gather(1, at[open_rows]), at[open_rows])
    return best, at


def _first_of_equals(values: Tensor, border: Tensor, count: int) -> Tensor:
    """Positions (R, count) of all values above the border and of the first ones equal to it."""
    above, equal = values > border, values == border
    lacking = count - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= lacking))
    return chosen.nonzero()[:, 1].view(len(values), count)


def _in_order(values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Values and positions, sorted by descending value, ties by position."""
    at, order = at.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, at.gather(1, order)


def _width(clips: int, decoding: Decoding) -> int:
    """The largest number of last clips that a first clip may have."""
    least, greatest = decoding.offsets
    return (clips - 1 if greatest is None else min(greatest, clips - 1)) - least + 1


def _nothing(rows: int, k: int, scores: Tensor) -> BestSpans:
    score, zeros, _ = _filled(scores.new_zeros((rows, 0)), k)
    return BestSpans(zeros, zeros, score, zeros)


def _filled(scores: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """(R, k) each: the k best scores of (R, N), their positions, and which exist; others are -inf at 0."""
    score, at = ranked(scores, k)
    more = (0, max(0, k - score.shape[1]))
    score = pad(score, more, value=-torch.inf)
    return score, pad(at, more), score > -torch.inf


def _best_of_block(scores: SpanScores, video: Tensor, rows: slice, decoding: Decoding, k: int) -> BestSpans:
    """`best_over_videos` of some rows: the k best first clips, then the best of all their spans."""
    clips, video = scores.start.shape[-1], video[rows]
    least, width = decoding.offsets[0], _width(clips, decoding)
    start, end = (
        border[rows].masked_fill(~scores.mask[rows], -torch.inf) for border in (scores.start, scores.end)
    )
    # A band holds the last clips of each first clip: entry w of clip i is the last clip i + least + w.
    end = pad(end, (0, least + width - 1), value=-torch.inf)[..., least:]
    if scores.spans is None:
        best = (start + _running_maximum(end, width) + video[..., None]).flatten(1)
    else:
        band = _band(scores.spans[rows], least, width) + (start[..., None] + end.unfold(-1, width, 1))
        best = (band.amax(-1) + video[..., None]).flatten(1)
    # Only the k first clips with the best spans can have any of the k best spans.
    _, opened = ranked(best, min(k, best.shape[1]))
    opened = opened.sort(dim=1).values
    place, first = opened // clips, opened % clips
    if scores.spans is None:
        steps = torch.arange(width, device=end.device)
        at = (place * end.shape[-1] + first)[..., None] + steps
        windows = end.flatten(1).gather(1, at.flatten(1)).view(at.shape)
        windows = start.flatten(1).gather(1, opened)[..., None] + windows
    else:
        windows = band.flatten(1, 2).gather(1, opened[..., None].expand(-1, -1, width))
    windows = windows + video.gather(1, place)[..., None]
    score, at, exists = _filled(windows.flatten(1), k)
    row = at // width
    place, first = place.gather(1, row), first.gather(1, row)
    last = first + least + at % width
    first, last, place = (column.where(exists, 0) for column in (first, last, place))
    return BestSpans(first, last, score, place)


def _running_maximum(values: Tensor, width: int) -> Tensor:
    """The maximum of each `width` neighbours along the last axis, (..., N - width + 1).

    The maximum of 2 n neighbours is the larger of two maxima of n, so log2(width) steps suffice.
    """
    reach = 1
    while reach < width:
        step = min(reach, width - reach)
        values = torch.maximum(values[..., :-step], values[..., step:])
        reach += step
    return values


def _band(spans: Tensor, least: int, width: int) -> Tensor:
    """Maps (R, N, T, T) as (R, N, T, W): entry w of clip i is the span i..i + least + w, or -inf."""
    clips = spans.shape[-1]
    last = torch.arange(clips, device=spans.device)[:, None] + torch.arange(
        least, least + width, device=spans.device
    )
    inside = last < clips
    at = last.clamp(max=clips - 1).expand(*spans.shape[:-1], width)
    return spans.gather(-1, at).masked_fill(~inside, -torch.inf)
