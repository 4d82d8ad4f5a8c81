"""Localize: the best moments of each query in its candidate units.

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

# A video that so many queries ask for is scored for all of them without copies of what is kept of it.
_POPULAR = 4
# Bytes of copies of encodings that are made at once: what stays in a processor's cache; a GPU wants more.
_COPIES = {"cpu": 4 << 20}
_COPIES_ELSEWHERE = 1 << 29
# Pairs whose scores are put away together.
_TOGETHER = 8192
# Videos of fewer bytes make operations so small that a second thread costs more than it does: on a machine
# with other work ten times as much, for each waits until the other is given a processor.
_SMALL = 1 << 20


def can_localize(model: Any) -> bool:
    """Whether a system finds moments in a video."""
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
    """The k best spans of each query over its candidates, and the corpus rows (Q, k) they lie in.

    A span scores span + weight * video; `weight` None is the system's own `video_weight`. Equal scores go by
    row of the corpus, first and last clip. Raises UsageError for a system that finds no moments.
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
    """The best span of each query in each candidate by itself, (Q, N); equal scores by first, last clip.

    Its score is the span's alone, minus infinity where there is none. Raises UsageError for a system that
    finds no moments.
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
    """Scores of spans, with the numbers (P,) of the pairs (query * N + place) that are filled.

    Clips behind their video's end are masked. Blocks come longest first, so that what is gathered need not
    grow. Raises UsageError where a span scores NaN.
    """
    rows = candidates.rows
    inside = torch.from_numpy(clips_inside(corpus.clip_seconds, corpus.durations, decoding)).to(rows.device)
    numbers = candidates.exist.flatten().nonzero()[:, 0].cpu().numpy()
    units = rows.flatten().cpu().numpy()[numbers]
    order = np.lexsort((corpus.row[units], -corpus.block[units]))
    numbers, units = numbers[order], units[order]
    borders = np.flatnonzero(np.diff(corpus.block[units])) + 1
    for mine, videos in zip(np.split(numbers, borders), np.split(units, borders), strict=True):
        if not len(mine):
            continue
        encoding = corpus.blocks[int(corpus.block[videos[0]])]
        pairs = torch.from_numpy(mine).to(rows.device)
        # Systems without keys look at query and video together: large products, worth all threads.
        small = bool(encoding.keys) and _bytes_of_unit(encoding) < _SMALL
        with _threads(1 if small else torch.get_num_threads()):
            blocks = _scored_block(model, queries, encoding, pairs // rows.shape[1], corpus.row[videos])
            for low, high, scores in blocks:
                at = torch.arange(scores.mask.shape[1], device=rows.device)
                mask = scores.mask & (at < inside[rows.flatten()[pairs[low:high]]][:, None])
                scores = replace(scores, mask=mask)
                _refuse_nan(scores)
                yield scores, pairs[low:high]


def _refuse_nan(scores: SpanScores) -> None:
    """Raise UsageError where a span that may be answered scores NaN; what is masked may be anything."""
    borders = (scores.start.isnan() | scores.end.isnan()) & scores.mask
    broken = bool(borders.any())
    if scores.spans is not None and bool(scores.spans.amax().isnan()):  # the maximum tells whether to look
        both = (scores.mask[:, :, None] & scores.mask[:, None, :]).triu()
        broken = broken or bool((scores.spans.isnan() & both).any())
    if scores.windows is not None:
        broken = broken or bool(scores.windows.isnan().any())
    if broken:
        raise UsageError("a moment scores NaN; the system's weights or the features are broken")


def _scored_block(
    model: Any, queries: QueryEncoding, encoding: VideoEncoding, query_rows: Tensor, rows: Indices
) -> Iterator[tuple[int, int, SpanScores]]:
    """Scores of the pairs low..high of one block: the rows (P,) of the queries and of the block."""
    scored: list[SpanScores] = []
    begin = high = 0
    for low, high, videos in _grouped(encoding, rows, query_rows.device):
        scored.append(model.score_spans(queries.take(query_rows[low:high]), videos))
        if scored[-1].spans is not None or high - begin >= _TOGETHER:
            yield begin, high, _together(scored)
            scored, begin = [], high
    if scored:
        yield begin, high, _together(scored)


def _together(scores: list[SpanScores]) -> SpanScores:
    """Scores of pairs of one block, one after the other."""
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
    """The videos of pairs (sorted by row) in groups low..high: a popular one as a view, others as copies."""
    room = max(1, _COPIES.get(device.type, _COPIES_ELSEWHERE) // max(1, _bytes_of_unit(encoding)))
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    counts = np.diff(firsts, append=len(rows))
    popular = counts >= (_POPULAR if device.type == "cpu" else room)
    low = 0
    for first, count in zip(firsts[popular].tolist(), counts[popular].tolist(), strict=True):
        yield from _copied(encoding, rows, low, first, room, device)
        video = sliced(encoding, int(rows[first]), int(rows[first]) + 1).to(device)
        yield first, first + count, repeated(video, count)
        low = first + count
    yield from _copied(encoding, rows, low, len(rows), room, device)


def _copied(
    encoding: VideoEncoding, rows: Indices, low: int, high: int, room: int, device: torch.device
) -> Iterator[tuple[int, int, VideoEncoding]]:
    for begin in range(low, high, room):
        end = min(begin + room, high)
        some = torch.from_numpy(rows[begin:end]).to(encoding.mask.device)
        yield begin, end, encoding.take(some).to(device)


def repeated(video: VideoEncoding, count: int) -> VideoEncoding:
    """One video as `count` rows, without a copy."""
    groups = (
        {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in group.items()}
        for group in (video.keys, video.key_masks, video.parts)
    )
    return VideoEncoding(video.mask.expand(count, -1), *groups)


def _bytes_of_unit(encoding: VideoEncoding) -> int:
    """Bytes that a block keeps of each of its units."""
    return bytes_of(encoding) // len(encoding)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """PyTorch with so many threads for a while."""
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
    """Scores of all pairs (Q, N) until the best of each query are taken.

    Of systems that score borders, start and end (Q, N, T) are kept. Of those with a map all spans are kept
    where they are no more than k, in order of first and last clip; else of each pair its own k best. Of those
    that answer windows all are kept, (Q, N, M, 3), with the number of clips (Q, N) of each video.
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
        """Keep the scores of some pairs; those with the most clips come first."""
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
        """The k best of each query; `video` (Q, N) is added to every span of its video."""
        if self.windows is not None:
            return best_windows(*self.windows, video, self.decoding, self.k)
        if self.cells is not None and self.start is not None:
            return self._best_of_cells(self.start, *self.cells, video)
        if self.spans is not None:
            return self._best_of_spans(self.spans, video)
        if self.start is None or self.end is None:
            none = video.new_zeros((*self.shape, 1))
            return best_over_videos(SpanScores(none, none, none > 0), video, self.decoding, self.k)
        start, end = (kept.view(*self.shape, -1) for kept in (self.start, self.end))
        return best_over_videos(SpanScores(start, end, start > -torch.inf), video, self.decoding, self.k)

    def _put_windows(self, windows: Tensor, clips: Tensor, pairs: Tensor) -> None:
        number = windows.shape[1]
        if self.windows is None:  # long videos, which may have more windows, come first
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
        """All spans of some pairs, at the places of those of the longest videos."""
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


def _widened(kept: Tensor | None, shape: tuple[int, ...], clips: int, like: Tensor) -> Tensor:
    """(Q * N, clips) of minus infinity, with what was kept at its beginning."""
    wide = like.new_full((int(np.prod(shape)), clips), -torch.inf)
    if kept is not None:
        wide[:, : kept.shape[1]] = kept
    return wide
