"""The zero-shot localizer: finds moments in the clip scores of candidate videos, without training.

A *curve* has the scores of one query in every clip of one video: a cosine for pictures, a fused score for
words. Curves of several videos are processed together, as concatenated arrays with array operations; no
result depends on the other videos in the batch.

1. Scores are standardised by the background of the query (`Curves.level`, `.spread`).
2. The curve is smoothed lightly, and the video's mean level (and its slow drift, in long videos) is
   subtracted, so that borders follow changes of the video and not differences to the corpus.
3. At several heights between that level and the video's peak, all maximal-scoring segments of
   `curve - height` are candidates (`segments.py`). For a box in white noise, the height half-way between the
   means inside and outside gives the most likely borders.
4. The weight of a candidate is `mean * clips ** evidence_exponent`; an exponent of 0.5 would give the
   likelihood ratio in white noise. The heaviest survive non-maximum suppression in seconds (`overlap.py`).
5. The score that orders moments of all videos is `mean * seconds ** extent_exponent`, with the mean
   relative to the background of the query.

`docs/finding.md` has the measurements, `benchmarks/results/localizer.md` the rejected alternatives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from whenabouts.moments.segments import Flags, maximal_segments
from whenabouts.overlap import Floats, Indices, suppress, total_order
from whenabouts.types import UsageError

_MICROSECONDS = 1_000_000
# Clips handled together: enough to make array steps pay, few enough to stay in the processor's cache.
_BLOCK = 32_768


@dataclass(frozen=True)
class Config:
    """Settings of the localizer; the defaults were chosen on one half of the data of `docs/finding.md`.

    - `min_seconds`, `max_seconds`: length of a moment. A shorter one grows by neighbouring clips if possible;
      a longer one is dropped in favour of those above a greater height. A single clip is always allowed.
    - `height_shares`: the heights, as shares of the video's peak above its level.
    - `smoothing`: weight of each neighbouring clip in the smoothed curve; 0 for none, at most 1/3.
    - `own_level`: share of the video's level that is subtracted before borders are sought.
    - `drift_seconds`: window of the slow drift that is subtracted in longer videos; 0 for never.
    - `evidence_exponent`, `extent_exponent`: see steps 4 and 5 above.
    - `soft_borders`: true puts a border between two clip middles, where the curve crosses half of the
      moment's mean: for pictures, whose clips are cut blindly. False keeps the borders of clips: for passages
      of sentences.
    - `max_gap_seconds`: no moment spans a longer gap between clips.
    - `moments_per_video`: most moments of a video.
    - `min_share`: moments of a video that weigh less than this share of its heaviest are dropped.
    - `nms_iou`: largest intersection over union of two moments of a video; at 0 they never overlap.
    - `snap_seconds`: largest distance by which `snap` moves a border.
    """

    min_seconds: float = 1.0
    max_seconds: float = 600.0
    height_shares: tuple[float, ...] = (0.3, 0.5)
    smoothing: float = 0.2
    own_level: float = 1.0
    drift_seconds: float = 300.0
    evidence_exponent: float = 0.45
    extent_exponent: float = 0.3
    soft_borders: bool = True
    max_gap_seconds: float = 30.0
    moments_per_video: int = 5
    min_share: float = 0.25
    nms_iou: float = 0.3
    snap_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_seconds <= self.max_seconds:
            raise UsageError(
                f"min_seconds {self.min_seconds!r} and max_seconds {self.max_seconds!r}: "
                "they must be 0 <= min_seconds <= max_seconds"
            )
        if not self.height_shares or not all(0 < share < 1 for share in self.height_shares):
            raise UsageError(f"height_shares is {self.height_shares!r}; give one or more between 0 and 1")
        ranges = {"smoothing": 1 / 3, "own_level": 1.0, "evidence_exponent": 1.0, "extent_exponent": 1.0}
        ranges |= {"min_share": 1.0, "nms_iou": 1.0, "drift_seconds": np.inf}
        ranges |= {"max_gap_seconds": np.inf, "snap_seconds": np.inf}
        for name, highest in ranges.items():
            if not 0 <= getattr(self, name) <= highest:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}; it must lie between 0 and {highest:.4g}"
                )
        if self.moments_per_video < 1:
            raise UsageError(f"moments_per_video is {self.moments_per_video!r}; it must be 1 or more")


@dataclass(frozen=True, eq=False)
class Curves:
    """Clip scores of one query in V candidate videos with N clips together.

    `score`, `start`, `end` (N,): video after video; times in seconds, half-open, starts never decreasing
    within a video. Clips may differ in length, overlap and leave gaps. Video v has the clips `offsets[v]` to
    `offsets[v + 1]` (V + 1,); a video without clips yields no moment. `level`, `spread`: background of the
    query, one number or one per video.

    Raises UsageError for arrays that do not fit together, non-finite values, and clips that are empty,
    reversed or out of order, or a spread of 0 or less.
    """

    score: Floats
    start: Floats
    end: Floats
    offsets: Indices
    level: Floats | float = 0.0
    spread: Floats | float = 1.0

    def __post_init__(self) -> None:
        for name in ("score", "start", "end"):
            object.__setattr__(self, name, finite_row(name, getattr(self, name)))
        if not len(self.score) == len(self.start) == len(self.end):
            raise UsageError(
                f"score, start and end have {len(self.score)}, {len(self.start)} and {len(self.end)} "
                "values; they must have one per clip"
            )
        object.__setattr__(self, "offsets", checked_offsets(self.offsets, len(self.score), "clips"))
        for name in ("level", "spread"):
            object.__setattr__(self, name, self._per_video(name))
        if not np.all(np.asarray(self.spread) > 0):
            raise UsageError("a spread is 0 or negative; it must be positive")
        self._check_times()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _per_video(self, name: str) -> Floats:
        values = np.asarray(getattr(self, name), dtype=np.float64)
        if values.shape not in ((), (len(self),)) or not np.isfinite(values).all():
            raise UsageError(
                f"{name} must be one finite number, or one for each of {len(self)} videos; "
                f"its shape is {values.shape}"
            )
        return np.broadcast_to(values, (len(self),))

    def _check_times(self) -> None:
        reversed_clips = self.end <= self.start
        if reversed_clips.any():
            at = int(np.argmax(reversed_clips))
            raise UsageError(f"clip {at} runs from {self.start[at]} to {self.end[at]} s; it must end later")
        backwards = self.start[1:] < self.start[:-1]
        borders = self.offsets[1:-1]
        backwards[borders[(borders > 0) & (borders < len(self.start))] - 1] = False
        if backwards.any():
            at = int(np.argmax(backwards)) + 1
            raise UsageError(
                f"clip {at} starts at {self.start[at]} s, before the clip in front of it "
                f"({self.start[at - 1]} s); sort the clips of a video by start"
            )


@dataclass(frozen=True, eq=False)
class Moments:
    """M moments, best first: score descending, then video, start, end. All arrays are (M,).

    `video` indexes the videos of the curves; `start`, `end` are in seconds, start < end; `first_clip`,
    `last_clip` (inclusive) count from the video's first clip. With soft borders a time may lie up to half a
    clip inside or outside of these clips. Scores may be negative; only their order matters.
    """

    video: Indices
    start: Floats
    end: Floats
    score: Floats
    first_clip: Indices
    last_clip: Indices

    def __len__(self) -> int:
        return len(self.video)

    def take(self, which: Indices | Flags | slice) -> Moments:
        """The moments at these places, in this order."""
        return Moments(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def followed_by(self, others: Moments) -> Moments:
        """These moments and then others, which score no better."""
        names = [field.name for field in fields(self)]
        return Moments(*(np.concatenate([getattr(self, name), getattr(others, name)]) for name in names))


@dataclass(frozen=True, slots=True)
class _Line:
    """A block of curves without empty videos, ready for array operations; V videos, N clips.

    `video` (N,) is each clip's row in `begin` and `names` (V,); `opens` (N,) is true at the first clip of a
    video and after a gap; `height` (N,) is the standardised score.
    """

    start: Floats
    end: Floats
    begin: Indices
    count: Indices
    names: Indices
    video: Indices
    opens: Flags
    height: Floats


@dataclass(frozen=True, slots=True)
class _Spans:
    """C candidates: clips `first`..`last` (inclusive, counted over all videos) and their weight."""

    first: Indices
    last: Indices
    weight: Floats

    def take(self, which: Indices | Flags) -> _Spans:
        return _Spans(self.first[which], self.last[which], self.weight[which])


class ZeroShotLocalizer:
    """Finds moments in curves; stateless."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()

    def localize(self, curves: Curves) -> Moments:
        """Moments of every video, best first; each video with clips yields one or more.

        A flat curve yields one moment: its highest clips, with their low score.
        """
        parts = [self._localize(curves, low, high) for low, high in _blocks(curves)]
        merged = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Moments)}
        moments = Moments(**merged)
        return moments.take(total_order(moments.score, moments.video, moments.start, moments.end))

    def _localize(self, curves: Curves, low: int, high: int) -> Moments:
        """Moments of the videos `low` to `high` (exclusive), in no particular order."""
        line = _lined_up(curves, low, high, self.config.max_gap_seconds)
        if not len(line.height):
            nothing = np.zeros(0, dtype=np.int64)
            return Moments(nothing, np.zeros(0), np.zeros(0), np.zeros(0), nothing, nothing)
        curve = self._relative(line)
        spans = self._with_fallback(line, curve, self._candidates(line, curve))
        start, end = self._borders(line, curve, spans)
        kept = suppress(
            line.video[spans.first],
            start,
            end,
            spans.weight,
            self.config.nms_iou,
            self.config.moments_per_video,
        )
        return self._scored(line, spans.take(kept), start[kept], end[kept])

    def _relative(self, line: _Line) -> Floats:
        """The smoothed curve above the video's level and drift, (N,)."""
        curve = _smoothed(line, self.config.smoothing)
        if not self.config.own_level:
            return curve
        mean = _video_mean(line, curve)
        deviation = np.sqrt(_video_mean(line, (curve - mean[line.video]) ** 2))
        # Without the high clips, because a long moment would raise its own baseline.
        usual = curve <= (mean + deviation)[line.video]
        level = _video_mean(line, np.where(usual, curve, 0.0)) / _video_mean(line, usual.astype(np.float64))
        curve = curve - (self.config.own_level * level)[line.video]
        if not self.config.drift_seconds:
            return curve
        return curve - self.config.own_level * _drift(line, curve, usual, self.config.drift_seconds)

    def _candidates(self, line: _Line, curve: Floats) -> _Spans:
        """Maximal-scoring segments above every height that are heavy enough and not too long."""
        config = self.config
        size = len(curve)
        peak = np.maximum.reduceat(curve, line.begin)
        heights = np.outer(config.height_shares, np.maximum(peak, 0.0))
        segments = maximal_segments(
            (curve - heights[:, line.video]).ravel(), np.tile(line.opens, len(config.height_shares))
        )
        row, first = np.divmod(segments.first, size)
        last = segments.last - row * size
        video = line.video[first]
        clips = last - first + 1
        mean = segments.gain / clips + heights[row, video]
        spans = _Spans(first, last, mean * clips**config.evidence_exponent)
        spans = spans.take((line.end[last] - line.start[first] <= config.max_seconds) | (clips == 1))
        heaviest = np.full(len(peak), -np.inf)
        np.maximum.at(heaviest, line.video[spans.first], spans.weight)
        spans = spans.take(spans.weight >= config.min_share * heaviest[line.video[spans.first]])
        return _grown(line, curve, spans, config.min_seconds, config.max_seconds)

    def _with_fallback(self, line: _Line, curve: Floats, spans: _Spans) -> _Spans:
        """The candidates, and the first stretch of highest clips of every video without one."""
        missing = np.ones(len(line.names), dtype=bool)
        missing[line.video[spans.first]] = False
        if not missing.any():
            return spans
        peak = np.maximum.reduceat(curve, line.begin)
        # If a curve is flat up to rounding, all of it is the highest stretch.
        flat = np.abs(curve - peak[line.video]) <= 1e-9 * np.maximum(1.0, np.abs(line.height))
        top = np.flatnonzero(flat & missing[line.video])
        leads = np.ones(len(top), dtype=bool)
        leads[1:] = line.video[top[1:]] != line.video[top[:-1]]
        first = top[leads]
        stops = np.append(np.flatnonzero(~flat | line.opens), len(curve))
        last = stops[np.searchsorted(stops, first, side="right")] - 1
        for row in range(len(first)):  # once per moment, not per clip
            fits = line.end[first[row] : last[row] + 1] - line.start[first[row]] <= self.config.max_seconds
            last[row] = first[row] + max(int(np.count_nonzero(np.logical_and.accumulate(fits))), 1) - 1
        flats = _Spans(first, last, peak[missing])
        flats = _grown(line, curve, flats, self.config.min_seconds, self.config.max_seconds)
        return _Spans(
            np.concatenate([spans.first, flats.first]),
            np.concatenate([spans.last, flats.last]),
            np.concatenate([spans.weight, flats.weight]),
        )

    def _borders(self, line: _Line, curve: Floats, spans: _Spans) -> tuple[Floats, Floats]:
        """Start and end of every candidate in seconds, (C,) each."""
        start = line.start[spans.first]
        end = _span_reduce(np.maximum, line.end, spans)
        if not self.config.soft_borders:
            return start, end
        half = 0.5 * _span_reduce(np.add, curve, spans) / (spans.last - spans.first + 1)
        behind = np.minimum(spans.last + 1, len(curve) - 1)
        soft_start = _crossing(line, curve, half, spans.first, np.maximum(spans.first - 1, 0), start)
        soft_end = _crossing(line, curve, half, spans.last, behind, end)
        length = soft_end - soft_start
        fits = (length >= np.minimum(self.config.min_seconds, end - start)) & (length > 0)
        fits &= (length <= self.config.max_seconds) | (length <= end - start)
        return np.where(fits, soft_start, start), np.where(fits, soft_end, end)

    def _scored(self, line: _Line, spans: _Spans, start: Floats, end: Floats) -> Moments:
        """The spans as moments, with the score that compares them across videos."""
        mean = _span_reduce(np.add, line.height, spans) / (spans.last - spans.first + 1)
        extent = (end - start) ** self.config.extent_exponent
        # Below the background a longer moment is not a better one.
        score = np.where(mean > 0, mean * extent, mean)
        row = line.video[spans.first]
        begin = line.begin[row]
        return Moments(line.names[row], start, end, score, spans.first - begin, spans.last - begin)


def snap(moments: Moments, borders: ArrayLike, offsets: ArrayLike, snap_seconds: float) -> Moments:
    """The moments with starts and ends moved to the nearest close border.

    `borders` (B,) are seconds of shot changes and cue boundaries, video after video, ascending within a
    video; those of video v are at `offsets[v]` to `offsets[v + 1]` (V + 1,). A start or end moves by at most
    `snap_seconds`, and never to or past the moment's middle, so that no moment vanishes; of two equally close
    borders the earlier is taken. Scores and clips stay; the moments are sorted again.

    Raises UsageError for borders that are not finite, do not fit the offsets or the moments, or descend.
    """
    times = finite_row("borders", borders)
    bounds = checked_offsets(offsets, len(times), "borders")
    if len(moments) and int(moments.video.max()) >= len(bounds) - 1:
        raise UsageError(f"there are borders of {len(bounds) - 1} videos, none of {int(moments.video.max())}")
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    if ((times[1:] < times[:-1]) & (owner[1:] == owner[:-1])).any():
        raise UsageError("borders of a video descend; sort them")
    middle = (moments.start + moments.end) / 2
    start = _nearest(times, owner, moments.video, moments.start, snap_seconds)
    end = _nearest(times, owner, moments.video, moments.end, snap_seconds)
    start = np.where(start < middle, start, moments.start)
    end = np.where(end > middle, end, moments.end)
    moved = Moments(moments.video, start, end, moments.score, moments.first_clip, moments.last_clip)
    return moved.take(total_order(moved.score, moved.video, start, end))


def checked_offsets(offsets: ArrayLike, count: int, noun: str) -> Indices:
    """Offsets (V + 1,) of the values of V videos, as int64. Raises UsageError if they are invalid.

    Video v has the values `offsets[v]` to `offsets[v + 1]`; `count` is the number of all values.
    """
    bounds = np.asarray(offsets, dtype=np.int64)
    if bounds.ndim != 1 or not len(bounds) or bounds[0] != 0 or bounds[-1] != count:
        raise UsageError(f"offsets {bounds!r} do not run from 0 to the number of {noun}, {count}")
    if (np.diff(bounds) < 0).any():
        raise UsageError(f"offsets decrease; they must say where each video's {noun} begin, in order")
    return bounds


def finite_row(name: str, values: ArrayLike) -> Floats:
    """The values as (N,) float64. Raises UsageError for another shape or a number that is not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise UsageError(f"{name} must be one row of numbers; its shape is {array.shape}")
    if not np.isfinite(array).all():
        at = int(np.argmax(~np.isfinite(array)))
        raise UsageError(f"{name}[{at}] is {array[at]}; a clip needs a finite number, or must be left out")
    return array


def _blocks(curves: Curves) -> Iterable[tuple[int, int]]:
    """First and last (exclusive) video of blocks of about `_BLOCK` clips; videos are not divided."""
    block = curves.offsets[:-1] // _BLOCK
    cuts = np.flatnonzero(block[1:] != block[:-1]) + 1
    return itertools.pairwise([0, *cuts.tolist(), len(curves)])


def _lined_up(curves: Curves, low: int, high: int, max_gap_seconds: float) -> _Line:
    """The curves of some videos as arrays over all their clips, with standardised scores."""
    offsets = curves.offsets[low : high + 1]
    clips = slice(offsets[0], offsets[-1])
    start, end = curves.start[clips], curves.end[clips]
    count = np.diff(offsets)
    filled = np.flatnonzero(count)
    count, begin, names = count[filled], offsets[filled] - offsets[0], filled + low
    video = np.repeat(np.arange(len(names)), count)
    opens = np.zeros(len(video), dtype=bool)
    opens[1:] = start[1:] - end[:-1] > max_gap_seconds
    opens[begin] = True
    level, spread = np.asarray(curves.level)[names], np.asarray(curves.spread)[names]
    height = (curves.score[clips] - level[video]) / spread[video]
    return _Line(start, end, begin, count, names, video, opens, height)


def _smoothed(line: _Line, share: float) -> Floats:
    """The weighted mean of each clip and its two neighbours (weight `share` each), (N,).

    Where a video or a gap leaves no neighbour, the clip stands in for it.
    """
    height = line.height
    if not share:
        return height
    before, after = height.copy(), height.copy()
    inside = ~line.opens[1:]
    np.copyto(before[1:], height[:-1], where=inside)
    np.copyto(after[:-1], height[1:], where=inside)
    return (1 - 2 * share) * height + share * (before + after)


def _video_mean(line: _Line, values: Floats) -> Floats:
    """Mean over the clips of each video, (V,)."""
    means: Floats = np.add.reduceat(values, line.begin) / line.count
    return means


def _drift(line: _Line, curve: Floats, usual: Flags, window_seconds: float) -> Floats:
    """The slow drift of `curve` around the video's level at each clip, (N,); 0 in short videos.

    It is the mean over a window of `window_seconds` (at the video's mean clip length). Clips that are not
    `usual` count as 0, so that a window with few usual clips has little effect.
    """
    drift = np.zeros(len(curve))
    last = line.begin + line.count - 1
    seconds = _video_mean(line, line.end - line.start)
    reach = np.maximum(window_seconds / 2 / seconds, 1.0).astype(np.int64)
    long = (line.end[last] - line.start[line.begin] > window_seconds) & (line.count > 2 * reach)
    for row in np.flatnonzero(long):  # once per long video, not per clip
        begin, stop, half = line.begin[row], last[row] + 1, reach[row]
        sums = np.zeros(stop - begin + 1)
        np.cumsum(np.where(usual[begin:stop], curve[begin:stop], 0.0), out=sums[1:])
        place = np.arange(stop - begin)
        low, high = np.maximum(place - half, 0), np.minimum(place + half + 1, len(place))
        drift[begin:stop] = (sums[high] - sums[low]) / (high - low)
    return drift


def _grown(line: _Line, curve: Floats, spans: _Spans, min_seconds: float, max_seconds: float) -> _Spans:
    """The spans; those below `min_seconds` are extended by neighbouring clips, the higher clip first."""
    first, last = spans.first.copy(), spans.last.copy()
    size = len(curve)
    opens = np.append(line.opens, True)
    active = np.flatnonzero(line.end[last] - line.start[first] < min_seconds)
    while len(active):
        low, high = first[active], last[active]
        left, right = ~opens[low], ~opens[high + 1]
        before = np.where(left, curve[np.maximum(low - 1, 0)], -np.inf)
        after = np.where(right, curve[np.minimum(high + 1, size - 1)], -np.inf)
        back = left & (before >= after)
        forth = right & ~back
        low, high = low - back, high + forth
        fits = (back | forth) & (line.end[high] - line.start[low] <= max_seconds)
        active, low, high = active[fits], low[fits], high[fits]
        first[active], last[active] = low, high
        active = active[line.end[high] - line.start[low] < min_seconds]
    return _Spans(first, last, spans.weight)


def _span_reduce(operation: np.ufunc, values: Floats, spans: _Spans) -> Floats:
    """`operation` (a ufunc such as add) over the clips of each span, (C,)."""
    edges = np.stack([spans.first, spans.last + 1], axis=1).ravel()
    # reduceat accepts no edge after the last value; the appended value is never part of a span.
    reduced: Floats = operation.reduceat(np.append(values, 0.0), edges)[::2]
    return reduced


def _crossing(
    line: _Line, curve: Floats, half: Floats, inner: Indices, outer: Indices, hard: Floats
) -> Floats:
    """Where the curve falls through `half` between the middles of an edge clip and its outer neighbour.

    The hard border is kept if the neighbour belongs to another video or does not touch, or if the edge clip
    itself is below `half`.
    """
    later = np.maximum(inner, outer)
    touching = (inner != outer) & ~line.opens[later] & (line.start[later] == line.end[later - 1])
    high, low = curve[inner], curve[outer]
    crosses = touching & (high > half) & (low < half)
    share = np.where(crosses, (high - half) / np.where(crosses, high - low, 1.0), 0.0)
    from_middle = (line.start[inner] + line.end[inner]) / 2
    to_middle = (line.start[outer] + line.end[outer]) / 2
    return np.where(crosses, from_middle + share * (to_middle - from_middle), hard)


def _nearest(times: Floats, owner: Indices, video: Indices, at: Floats, reach: float) -> Floats:
    """The border of the same video nearest to each instant, or the instant if none is within reach."""
    if not len(times):
        return at
    # Integer microseconds below the video's number: one sorted row for all videos, exact in any batch.
    ticks = (owner << 42) + np.rint(times * _MICROSECONDS).astype(np.int64)
    right = np.searchsorted(ticks, (video << 42) + np.rint(at * _MICROSECONDS).astype(np.int64))
    nearest, best = at, np.full(len(at), np.inf)
    for place in (right - 1, right):
        inside = np.clip(place, 0, len(times) - 1)
        distance = np.where((place == inside) & (owner[inside] == video), np.abs(times[inside] - at), np.inf)
        closer = (distance <= reach) & (distance < best)
        nearest, best = np.where(closer, times[inside], nearest), np.where(closer, distance, best)
    return nearest
