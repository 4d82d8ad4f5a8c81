"""Find the best moments of each query in its candidate units.

Shapes: Q queries, N candidates of a query, P pairs of a query and a unit, T clips.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import (
    BestSpans,
    Decoding,
    best_over_videos,
    best_spans,
    best_windows,
    clips_inside,
    ranked,
    span_mask,
)
from whenabouts_systems.models.protocol import Localizer, QueryEncoding, SpanScores, VideoEncoding
from whenabouts_systems.ranking.candidates import Candidates, sliced
from whenabouts_systems.ranking.encoded_corpus import Indices, MemoryCorpus, bytes_of, evaluating

# A video that is a candidate of this many queries is scored for all of them through a view, without copies.
_POPULAR = 4
# Bytes of encodings that are copied at a time: on a CPU as much as stays in its cache; a GPU needs more.
_COPY_BYTES = {"cpu": 4 << 20}
_COPY_BYTES_ELSEWHERE = 1 << 29
# The number of pairs from which scores are yielded together.
_PAIRS_TOGETHER = 8192
# A video of fewer bytes is scored by one thread: a second one costs more than it saves, on a busy machine ten
# times as much, because the threads wait for each other to be scheduled.
_SMALL_BYTES = 1 << 20


def can_localize(model: Any) -> bool:
    """Whether a system finds moments in videos."""
    return isinstance(model, Localizer)


def check_localizes(model: Any) -> None:
    """Raise UsageError for a system that finds no moments."""
    if not can_localize(model):
        raise UsageError(
            "this system chooses videos and does not find moments in them; ask it for videos (VR), or name "
            "a localizer"
        )


def best_moments(
    model: Any,
    queries: QueryEncoding,
    corpus: MemoryCorpus,
    candidates: Candidates,
    decoding: Decoding,
    k: int,
    *,
    weight: float | None = None,
) -> tuple[BestSpans, Tensor]:
    """The k best spans of each query over all its candidates, and the corpus rows (Q, k) they lie in.

    A moment scores span score + weight * video score; `weight` None uses the system's `video_weight`. Ties
    are ordered by corpus row, first and last clip. Raises UsageError for a system that finds no moments.
    """
    check_localizes(model)
    factor = float(model.video_weight) if weight is None else weight
    ordered = candidates.in_order()
    weighted = ordered.scores * factor if factor else torch.zeros_like(ordered.scores)
    video = torch.where(ordered.exist, weighted, -torch.inf)
    scores = _Scores(ordered.rows.shape, decoding, k)
    with evaluating(model):
        for part, pairs in scored_pairs(model, queries, corpus, ordered, decoding):
            scores.put(part, pairs)
    best = scores.best(video)
    return best, ordered.rows.gather(1, best.place)


def best_of_each(
    model: Any, queries: QueryEncoding, corpus: MemoryCorpus, candidates: Candidates, decoding: Decoding
) -> BestSpans:
    """The best span of each query in each of its candidates, (Q, N); ties are ordered by first and last clip.

    Video scores do not count. A score is minus infinity if there is no span. Raises UsageError for a system
    that finds no moments.
    """
    check_localizes(model)
    shape = candidates.rows.shape
    first, last = (torch.zeros_like(candidates.rows).flatten() for _ in range(2))
    score = torch.full_like(candidates.rows, 0, dtype=torch.float32).fill_(-torch.inf).flatten()
    borders: Tensor | None = None
    with evaluating(model):
        for part, pairs in scored_pairs(model, queries, corpus, candidates, decoding):
            best = best_spans(part, decoding, 1)
            first[pairs], last[pairs] = best.first[:, 0], best.last[:, 0]
            score[pairs] = best.score[:, 0].float()
            if best.borders is not None:
                borders = score.new_zeros((len(score), 2)) if borders is None else borders
                borders[pairs] = best.borders[:, 0]
    place = torch.zeros_like(candidates.rows)
    spans = BestSpans(first.view(shape), last.view(shape), score.view(shape), place)
    return spans if borders is None else replace(spans, borders=borders.view(*shape, 2))


def scored_pairs(
    model: Any, queries: QueryEncoding, corpus: MemoryCorpus, candidates: Candidates, decoding: Decoding
) -> Iterator[tuple[SpanScores, Tensor]]:
    """Span scores of all filled pairs, part by part, each with the pairs' numbers (P,): query * N + place.

    Clips after the end of their video are masked. Blocks with the longest videos come first, so that buffers
    need not grow. Raises UsageError if a span scores NaN.
    """
    rows = candidates.rows
    inside = torch.from_numpy(clips_inside(corpus.clip_seconds, corpus.durations, decoding)).to(rows.device)
    numbers = candidates.exist.flatten().nonzero()[:, 0].cpu().numpy()
    units = rows.flatten().cpu().numpy()[numbers]
    order = np.lexsort((corpus.row[units], -corpus.block[units]))
    numbers, units = numbers[order], units[order]
    borders = np.flatnonzero(np.diff(corpus.block[units])) + 1
    for of_block, videos in zip(np.split(numbers, borders), np.split(units, borders), strict=True):
        if not len(of_block):
            continue
        encoding = corpus.blocks[int(corpus.block[videos[0]])]
        pairs = torch.from_numpy(of_block).to(rows.device)
        # Systems without keys process query and video together: large products, which need all threads.
        small = bool(encoding.keys) and bytes_of(encoding) // len(encoding) < _SMALL_BYTES
        with _threads(1 if small else torch.get_num_threads()):
            blocks = _scored_block(model, queries, encoding, pairs // rows.shape[1], corpus.row[videos])
            for low, high, scores in blocks:
                at = torch.arange(scores.mask.shape[1], device=rows.device)
                mask = scores.mask & (at < inside[rows.flatten()[pairs[low:high]]][:, None])
                scores = replace(scores, mask=mask)
                _refuse_nan(scores)
                yield scores, pairs[low:high]


def _refuse_nan(scores: SpanScores) -> None:
    """Raise UsageError if an unmasked span scores NaN; masked values may be anything."""
    borders = (scores.start.isnan() | scores.end.isnan()) & scores.mask
    broken = bool(borders.any())
    if scores.spans is not None and bool(scores.spans.amax().isnan()):  # NaN anywhere makes the maximum NaN
        both = (scores.mask[:, :, None] & scores.mask[:, None, :]).triu()
        broken = broken or bool((scores.spans.isnan() & both).any())
    if scores.windows is not None:
        broken = broken or bool(scores.windows.isnan().any())
    if broken:
        raise UsageError(
            "a moment scores NaN: the system's weights or the features hold NaN or infinity; train the "
            "system again, or extract the features again"
        )


def _scored_block(
    model: Any, queries: QueryEncoding, encoding: VideoEncoding, query_rows: Tensor, rows: Indices
) -> Iterator[tuple[int, int, SpanScores]]:
    """Scores of the pairs low..high of one block, given their query rows (P,) and block rows (P,)."""
    scored: list[SpanScores] = []
    begin = high = 0
    for low, high, videos in _grouped(encoding, rows, query_rows.device):
        scored.append(model.score_spans(queries.take(query_rows[low:high]), videos))
        if scored[-1].spans is not None or high - begin >= _PAIRS_TOGETHER:
            yield begin, high, _joined(scored)
            scored, begin = [], high
    if scored:
        yield begin, high, _joined(scored)


def _joined(scores: list[SpanScores]) -> SpanScores:
    """Scores of consecutive pairs of one block as one."""
    if len(scores) == 1:
        return scores[0]
    start, end, mask = (
        torch.cat([getattr(part, name) for part in scores]) for name in ("start", "end", "mask")
    )
    windows = [part.windows for part in scores if part.windows is not None]
    return SpanScores(start, end, mask, None, torch.cat(windows) if windows else None)


def _grouped(
    encoding: VideoEncoding, rows: Indices, device: torch.device
) -> Iterator[tuple[int, int, VideoEncoding]]:
    """The videos of pairs low..high, pairs sorted by row: a popular video as a view, others as copies."""
    of_unit = max(1, bytes_of(encoding) // len(encoding))
    size = max(1, _COPY_BYTES.get(device.type, _COPY_BYTES_ELSEWHERE) // of_unit)
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    counts = np.diff(firsts, append=len(rows))
    popular = counts >= (_POPULAR if device.type == "cpu" else size)
    low = 0
    for first, count in zip(firsts[popular].tolist(), counts[popular].tolist(), strict=True):
        yield from _copied(encoding, rows, low, first, size, device)
        video = sliced(encoding, int(rows[first]), int(rows[first]) + 1).to(device)
        yield first, first + count, repeated(video, count)
        low = first + count
    yield from _copied(encoding, rows, low, len(rows), size, device)


def _copied(
    encoding: VideoEncoding, rows: Indices, low: int, high: int, size: int, device: torch.device
) -> Iterator[tuple[int, int, VideoEncoding]]:
    for begin in range(low, high, size):
        end = min(begin + size, high)
        videos = torch.from_numpy(rows[begin:end]).to(encoding.mask.device)
        yield begin, end, encoding.take(videos).to(device)


def repeated(video: VideoEncoding, count: int) -> VideoEncoding:
    """One video repeated as `count` rows, as a view."""
    groups = (
        {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in group.items()}
        for group in (video.keys, video.key_masks, video.parts)
    )
    return VideoEncoding(video.mask.expand(count, -1), *groups)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Run the block with `count` PyTorch threads."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(eq=False)
class _Scores:
    """Collects the scores of all pairs (Q, N), then takes the best of each query.

    What is collected depends on what the system scores:

    - borders: start and end (Q, N, T);
    - a map: each pair's spans in order of first and last clip if there are at most k, else its k best;
    - windows: all of them (Q, N, M, 3), and each video's number of clips (Q, N).
    """

    shape: tuple[int, ...]
    decoding: Decoding
    k: int
    start: Tensor | None = field(default=None, init=False)
    end: Tensor | None = field(default=None, init=False)
    spans: BestSpans | None = field(default=None, init=False)
    cells: tuple[Tensor, Tensor] | None = field(default=None, init=False)
    windows: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    def put(self, scores: SpanScores, pairs: Tensor) -> None:
        """Add the scores of some pairs; the pairs with the most clips must come first."""
        if scores.windows is not None:
            self._put_windows(scores.windows, scores.mask.sum(1), pairs)
            return
        if scores.spans is None:
            self._put_borders(scores, pairs)
            return
        if self.spans is None and self.cells is None:
            first, last = span_mask(scores.mask.shape[1], self.decoding, pairs.device).nonzero(as_tuple=True)
            if len(first) <= self.k:
                self.cells = first, last
        if self.cells is None:
            self._put_spans(best_spans(scores, self.decoding, self.k), pairs)
        else:
            self._put_cells(scores, pairs, *self.cells)

    def best(self, video: Tensor) -> BestSpans:
        """The k best spans of each query; `video` (Q, N) is added to every span score of that video."""
        if self.windows is not None:
            return best_windows(*self.windows, video, self.decoding, self.k)
        if self.cells is not None and self.start is not None:
            return self._best_of_cells(self.start, *self.cells, video)
        if self.spans is not None:
            return self._best_of_spans(self.spans, video)
        if self.start is None or self.end is None:
            zeros = video.new_zeros((*self.shape, 1))
            return best_over_videos(SpanScores(zeros, zeros, zeros > 0), video, self.decoding, self.k)
        start, end = (kept.view(*self.shape, -1) for kept in (self.start, self.end))
        return best_over_videos(SpanScores(start, end, start > -torch.inf), video, self.decoding, self.k)

    def _put_windows(self, windows: Tensor, clips: Tensor, pairs: Tensor) -> None:
        number = windows.shape[1]
        if self.windows is None:  # long videos come first, so no later one has more windows
            kept = windows.new_full((*self.shape, number, 3), -torch.inf)
            self.windows = kept, clips.new_zeros(self.shape)
        self.windows[0].flatten(0, 1)[pairs, :number] = windows
        self.windows[1].flatten(0, 1)[pairs] = clips

    def _put_borders(self, scores: SpanScores, pairs: Tensor) -> None:
        clips = scores.mask.shape[1]
        if self.start is None or self.end is None or self.start.shape[1] < clips:
            self.start, self.end = (
                _widened(kept, self.shape, clips, scores.start) for kept in (self.start, self.end)
            )
        for kept, values in ((self.start, scores.start), (self.end, scores.end)):
            kept[:, :clips][pairs] = values.masked_fill(~scores.mask, -torch.inf)

    def _put_cells(self, scores: SpanScores, pairs: Tensor, first: Tensor, last: Tensor) -> None:
        """Store all spans of some pairs, each in the column of the same span of the longest videos."""
        assert scores.spans is not None
        if self.start is None:
            self.start = _widened(None, self.shape, len(first), scores.start)
        column = (last < scores.mask.shape[1]).nonzero()[:, 0]
        first, last = first[column], last[column]
        values = scores.start[:, first] + scores.end[:, last] + scores.spans[:, first, last]
        values = values.masked_fill(~(scores.mask[:, first] & scores.mask[:, last]), -torch.inf)
        if len(column) == self.start.shape[1]:
            self.start[pairs] = values
        else:
            self.start[pairs[:, None], column] = values

    def _best_of_cells(self, cells: Tensor, first: Tensor, last: Tensor, video: Tensor) -> BestSpans:
        scores = cells.view(*self.shape, -1) + video[..., None]
        best, at = ranked(scores.flatten(1), self.k)
        exist = best > -torch.inf
        cell = at % len(first)
        return BestSpans(
            first[cell].where(exist, 0), last[cell].where(exist, 0), best, (at // len(first)).where(exist, 0)
        )

    def _put_spans(self, best: BestSpans, pairs: Tensor) -> None:
        if self.spans is None:
            shape = (int(np.prod(self.shape)), self.k)
            zeros = [torch.zeros(shape, dtype=torch.int64, device=pairs.device) for _ in range(3)]
            self.spans = BestSpans(zeros[0], zeros[1], best.score.new_full(shape, -torch.inf), zeros[2])
        for name in ("first", "last", "score"):
            getattr(self.spans, name)[pairs] = getattr(best, name)

    def _best_of_spans(self, spans: BestSpans, video: Tensor) -> BestSpans:
        queries, videos = self.shape
        scores = spans.score.view(queries, videos, self.k) + video[..., None]
        best, at = ranked(scores.flatten(1), self.k)
        exist = best > -torch.inf
        first, last = (
            kept.view(queries, -1).gather(1, at).where(exist, 0) for kept in (spans.first, spans.last)
        )
        return BestSpans(first, last, best, (at // self.k).where(exist, 0))


def _widened(kept: Tensor | None, shape: tuple[int, ...], clips: int, scores: Tensor) -> Tensor:
    """(Q * N, clips) of the type of `scores`: `kept` in its first columns, minus infinity elsewhere."""
    wide = scores.new_full((int(np.prod(shape)), clips), -torch.inf)
    if kept is not None:
        wide[:, : kept.shape[1]] = kept
    return wide
