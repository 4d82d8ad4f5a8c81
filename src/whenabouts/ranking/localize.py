"""Localize: the best moments of each query in its candidate videos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.models.decoding import BestSpans, Decoding, best_over_videos, best_spans, clips_inside, ranked
from whenabouts.models.protocol import Localizer, QueryEncoding, SpanScores, VideoEncoding
from whenabouts.ranking.corpus import CorpusEncoding, evaluating
from whenabouts.ranking.retrieve import Candidates, sliced
from whenabouts.types import UsageError

Indices = NDArray[np.int64]

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


def best_moments(
    model: Any,
    queries: QueryEncoding,
    corpus: CorpusEncoding,
    candidates: Candidates,
    decoding: Decoding,
    k: int,
    *,
    weight: float | None = None,
) -> tuple[BestSpans, Tensor]:
    """The k best moments of each of Q queries over its candidates, and the corpus rows (Q, k) they lie in.

    A moment scores span + weight * video; `weight` None is the system's own `video_weight`. Equal scores go
    by row of the corpus, first and last clip. Raises UsageError for a system that finds no moments.
    """
    if not can_localize(model):
        raise UsageError(
            "this system chooses videos and does not find moments in them; ask it for videos (VR)"
        )
    factor = float(model.video_weight) if weight is None else weight
    sought = candidates.in_order()
    missing = sought.scores == -torch.inf
    video = torch.where(
        missing, -torch.inf, sought.scores * factor if factor else torch.zeros_like(sought.scores)
    )
    gathered = _Gathered(corpus, sought.rows.shape, decoding, k)
    with evaluating(model):
        for scores, pairs in scored_pairs(model, queries, corpus, sought.rows, ~missing):
            gathered.put(scores, pairs, sought.rows.flatten()[pairs])
    best = gathered.best(video)
    return best, sought.rows.gather(1, best.place)


def scored_pairs(
    model: Any, queries: QueryEncoding, corpus: CorpusEncoding, rows: Tensor, real: Tensor
) -> Iterator[tuple[SpanScores, Tensor]]:
    """Scores of spans, with the numbers (P,) of the pairs (query * N + place).

    Blocks come longest first, so that what is gathered need not grow.
    """
    pairs = real.flatten().nonzero()[:, 0]
    numbers = pairs.cpu().numpy()
    wanted = rows.flatten()[pairs].cpu().numpy()
    order = np.lexsort((corpus.row[wanted], -corpus.block[wanted]))
    numbers, wanted = numbers[order], wanted[order]
    borders = np.flatnonzero(np.diff(corpus.block[wanted])) + 1
    for mine, videos in zip(np.split(numbers, borders), np.split(wanted, borders), strict=True):
        if not len(mine):
            continue
        encoding = corpus.blocks[int(corpus.block[videos[0]])]
        asked = torch.from_numpy(mine).to(rows.device)
        askers = asked // rows.shape[1]
        # Systems without keys look at query and video together: large products, worth all threads.
        small = bool(encoding.keys) and _bytes_of_one(encoding) < _SMALL
        with _threads(1 if small else torch.get_num_threads()):
            for low, high, scores in _scored_block(model, queries, encoding, askers, corpus.row[videos]):
                yield scores, asked[low:high]


def _scored_block(
    model: Any, queries: QueryEncoding, encoding: VideoEncoding, askers: Tensor, rows: Indices
) -> Iterator[tuple[int, int, SpanScores]]:
    """Scores of the pairs low..high of one block: the queries (P,) that ask and the block's rows (P,)."""
    found: list[SpanScores] = []
    begin = high = 0
    for low, high, shown in _grouped(encoding, rows, askers.device):
        found.append(model.score_spans(queries.take(askers[low:high]), shown))
        if found[-1].spans is not None or high - begin >= _TOGETHER:
            yield begin, high, _together(found)
            found, begin = [], high
    if found:
        yield begin, high, _together(found)


def _together(scores: list[SpanScores]) -> SpanScores:
    """Scores of pairs of one block, one after the other."""
    if len(scores) == 1:
        return scores[0]
    start, end, mask = (
        torch.cat([getattr(one, name) for one in scores]) for name in ("start", "end", "mask")
    )
    return SpanScores(start, end, mask)


def _grouped(
    encoding: VideoEncoding, rows: Indices, device: torch.device
) -> Iterator[tuple[int, int, VideoEncoding]]:
    """The videos of pairs (sorted by row) in groups low..high: a popular one as a view, others as copies."""
    room = max(1, _COPIES.get(device.type, _COPIES_ELSEWHERE) // max(1, _bytes_of_one(encoding)))
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    counts = np.diff(firsts, append=len(rows))
    popular = counts >= (_POPULAR if device.type == "cpu" else room)
    low = 0
    for first, count in zip(firsts[popular].tolist(), counts[popular].tolist(), strict=True):
        yield from _copied(encoding, rows, low, first, room, device)
        one = sliced(encoding, int(rows[first]), int(rows[first]) + 1).to(device)
        yield first, first + count, _repeated(one, count)
        low = first + count
    yield from _copied(encoding, rows, low, len(rows), room, device)


def _copied(
    encoding: VideoEncoding, rows: Indices, low: int, high: int, room: int, device: torch.device
) -> Iterator[tuple[int, int, VideoEncoding]]:
    for begin in range(low, high, room):
        end = min(begin + room, high)
        wanted = torch.from_numpy(rows[begin:end]).to(encoding.mask.device)
        yield begin, end, encoding.take(wanted).to(device)


def _repeated(one: VideoEncoding, count: int) -> VideoEncoding:
    """One video as `count` rows, without a copy."""
    groups = (
        {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in group.items()}
        for group in (one.keys, one.key_masks, one.parts)
    )
    return VideoEncoding(one.mask.expand(count, -1), *groups)


def _bytes_of_one(encoding: VideoEncoding) -> int:
    """Bytes that a block keeps of each of its videos."""
    groups = (encoding.keys, encoding.key_masks, encoding.parts)
    tensors = [encoding.mask, *(one for group in groups for one in group.values())]
    return sum(one[0].numel() * one.element_size() for one in tensors)


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
class _Gathered:
    """Scores of all pairs (Q, N) until the best of each query are taken.

    Of systems that score borders, start and end (Q, N, T) are kept; of those with a map, of each pair its
    own k best spans.
    """

    corpus: CorpusEncoding
    shape: tuple[int, ...]
    decoding: Decoding
    k: int
    inside: Tensor = field(init=False)
    start: Tensor | None = field(default=None, init=False)
    end: Tensor | None = field(default=None, init=False)
    spans: BestSpans | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.inside = torch.from_numpy(
            clips_inside(self.corpus.clip_seconds, self.corpus.durations, self.decoding)
        )

    def put(self, scores: SpanScores, pairs: Tensor, rows: Tensor) -> None:
        """Keep the scores of some pairs; clips behind their video's end are masked."""
        self.inside = self.inside.to(rows.device)
        at = torch.arange(scores.mask.shape[1], device=rows.device)
        mask = scores.mask & (at < self.inside[rows][:, None])
        if scores.spans is None:
            self._put_borders(scores, mask, pairs)
        else:
            found = best_spans(
                SpanScores(scores.start, scores.end, mask, scores.spans), self.decoding, self.k
            )
            self._put_spans(found, pairs)

    def best(self, video: Tensor) -> BestSpans:
        """The k best of each query; `video` (Q, N) is added to every span of its video."""
        if self.spans is not None:
            return self._best_of_spans(self.spans, video)
        if self.start is None or self.end is None:
            none = video.new_zeros((*self.shape, 1))
            return best_over_videos(SpanScores(none, none, none > 0), video, self.decoding, self.k)
        start, end = (one.view(*self.shape, -1) for one in (self.start, self.end))
        return best_over_videos(SpanScores(start, end, start > -torch.inf), video, self.decoding, self.k)

    def _put_borders(self, scores: SpanScores, mask: Tensor, pairs: Tensor) -> None:
        clips = mask.shape[1]
        if self.start is None or self.end is None or self.start.shape[1] < clips:
            self.start, self.end = (
                _widened(one, self.shape, clips, scores.start) for one in (self.start, self.end)
            )
        for kept, one in ((self.start, scores.start), (self.end, scores.end)):
            kept[:, :clips][pairs] = one.masked_fill(~mask, -torch.inf)

    def _put_spans(self, found: BestSpans, pairs: Tensor) -> None:
        if self.spans is None:
            shape = (int(np.prod(self.shape)), self.k)
            zeros = [torch.zeros(shape, dtype=torch.int64, device=pairs.device) for _ in range(3)]
            self.spans = BestSpans(zeros[0], zeros[1], found.score.new_full(shape, -torch.inf), zeros[2])
        for name in ("first", "last", "score"):
            getattr(self.spans, name)[pairs] = getattr(found, name)

    def _best_of_spans(self, spans: BestSpans, video: Tensor) -> BestSpans:
        queries, videos = self.shape
        scores = spans.score.view(queries, videos, self.k) + video[..., None]
        best, at = ranked(scores.flatten(1), self.k)
        found = best > -torch.inf
        first, last = (
            one.view(queries, -1).gather(1, at).where(found, 0) for one in (spans.first, spans.last)
        )
        return BestSpans(first, last, best, (at // self.k).where(found, 0))


def _widened(kept: Tensor | None, shape: tuple[int, ...], clips: int, like: Tensor) -> Tensor:
    """(Q * N, clips) of minus infinity, with what was kept at its beginning."""
    wide = like.new_full((int(np.prod(shape)), clips), -torch.inf)
    if kept is not None:
        wide[:, : kept.shape[1]] = kept
    return wide
