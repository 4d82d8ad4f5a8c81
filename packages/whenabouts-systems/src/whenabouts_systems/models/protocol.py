"""The interface of systems: their input batches, their encodings, and their scores.

Every system in `models/` is one file with a `Config`, a `Model` and its loss. Its methods show its abilities:
a retriever has `score_videos`, a localizer `score_spans`, and many systems have both. No code depends on
a system's name. The README of this package has a line for each system of the papers.

Shapes: Q queries, V videos, P pairs of a query and a video, T clips, L tokens, K keys, D width. Masks are
true for real values. Padding is always at the end and never changes a score.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from whenabouts.types import UsageError

if TYPE_CHECKING:
    from typing import Self

Named = Mapping[str, Tensor]
Encoding = TypeVar("Encoding", "QueryEncoding", "VideoEncoding")
Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_whenabouts_by_rows"
_PAPERS = __name__.removesuffix("protocol")
_PROGRAMS = _PAPERS.replace(".models.", ".released.")


class _OfRows:
    """A record with a `mask`, (rows, …)."""

    def __len__(self) -> int:
        return len(vars(self)["mask"])


class _OfTensors:
    """A frozen record of tensors, mappings of tensors, and other such records."""

    def to(self, device: torch.device | str) -> Self:
        """The record moved to a device."""
        moved: Self = type(self)(**{name: _moved(value, device) for name, value in vars(self).items()})
        return moved


class _Encoding(_OfTensors):
    """A record whose tensors have one row for each query, or for each video."""

    def take(self, rows: Tensor) -> Self:
        """The record of the given `rows` (P,) int64, in this order; rows may repeat."""
        chosen: Self = type(self)(**{name: _rows(value, rows) for name, value in vars(self).items()})
        return chosen


@dataclass(frozen=True)
class QueryBatch(_OfRows, _OfTensors):
    """A batch of queries.

    `tokens` are features of words (Q, L, D), or ids (Q, L) for a model with its own text encoder; `mask` is
    (Q, L).
    """

    tokens: Tensor
    mask: Tensor


@dataclass(frozen=True)
class SentenceBatch(_OfRows, _Encoding):
    """The speech of V videos, sentence by sentence, and the clips that each sentence covers.

    `words` (V, S, L) int64 are token ids without special tokens. `mask` (V, S, L) marks the real words; a
    sentence may have none. `of_clips` (V, T) int64 is each clip's sentence, -1 without one. A sentence may
    have no clip.
    """

    words: Tensor
    mask: Tensor
    of_clips: Tensor


@dataclass(frozen=True)
class ClipBatch(_OfRows, _OfTensors):
    """A batch of videos: `streams`, name -> (V, T, D), with one grid and one `mask` (V, T) for all of them.

    A clip without content in a stream (no words) is a row of zeros. `silent` (V,) bool or None marks videos
    with only zeros in all streams, which are never retrieved (`ranking.encoded_corpus`). `sentences` or None
    is the speech, for systems that read words (HERO).
    """

    streams: Named
    mask: Tensor
    silent: Tensor | None = None
    sentences: SentenceBatch | None = None


@dataclass(frozen=True)
class QueryEncoding(_Encoding):
    """A model's encoding of Q queries.

    `search` is stream -> vectors (Q, D), which are compared with the keys of videos. `parts` holds everything
    else that the model needs later, with Q rows each.
    """

    search: Named
    parts: Named = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter((*self.search.values(), *self.parts.values()))))


@dataclass(frozen=True)
class VideoEncoding(_OfRows, _Encoding):
    """A model's encoding of V videos, made once for each video and stored in the index.

    - `keys` is stream -> vectors (V, K, D). A video's score in a stream is the largest dot product of the
      query's search vector with a key, so an index of nearest neighbours serves every late-fusion model. Keys
      are unit vectors if the score is a cosine. A model that must see query and video together has no keys.
    - `key_masks` (V, K) marks the real keys.
    - `parts` holds everything else that the model needs to score moments, with V rows each.
    - `mask` is (V, T).
    """

    mask: Tensor
    keys: Named = field(default_factory=dict)
    key_masks: Named = field(default_factory=dict)
    parts: Named = field(default_factory=dict)


@dataclass(frozen=True)
class SpanScores(_OfRows):
    """The scores of all spans of clips of P pairs; first and last clip are both inclusive. A span scores

    `start[p, first] + end[p, last] + spans[p, first, last]`.

    The shapes are (P, T), (P, T), (P, T, T) and `mask` (P, T). Systems that score borders leave `spans` None;
    those with a 2-D map leave `start` and `end` zero. If the paper multiplies scores, these are logarithms.
    No answer contains masked clips, whatever their values.

    Systems whose times lie on no grid have `windows` (P, N, 3) instead: start and end of N windows, in clips
    without rounding, and their scores. Then the answers are windows only.
    """

    start: Tensor
    end: Tensor
    mask: Tensor
    spans: Tensor | None = None
    windows: Tensor | None = None

    @classmethod
    def of_windows(cls, windows: Tensor, mask: Tensor) -> SpanScores:
        """The scores of windows (P, N, 3) in videos with `mask` (P, T)."""
        zeros = windows.new_zeros(mask.shape)
        return cls(zeros, zeros, mask, None, windows)


@dataclass(frozen=True)
class Batch(_OfTensors):
    """The input of a training step: Q queries, each with its true span of clips, and V >= 1 videos.

    - `video_of` (Q,) int64: each query's row in `videos`. V may be smaller than Q (a video with several
      queries comes once) or larger (the last videos are only negatives).
    - `spans` (Q, 2) int64: first and last clip of the true moment, inclusive, on the video's grid.
    - `positives` (Q, V) bool: pairs that are never negatives: the query's own video, and any other video
      known to answer it.
    - `confidence` (Q, Q) float in [0, 1] or None: how relevant query i is to the moment of query j, if the
      pair is "potentially relevant" (paper 000, equation 6); else 0, also on the diagonal.
    - `weight` (Q,) float or None: the weight of each query's own moment (paper 004: the similarity of query
      and caption). Systems whose `Config` has `ignores_weights` ignore it.
    - `negatives` (Q, N) int64 or None: rows of `videos` that are each query's hard negatives, padded with -1.
    - `other_queries` (E) or None: queries that are only negatives. `negative_queries` (W, M) int64 or None:
      their rows that are hard negatives of the first W videos (those with a query in the batch), padded
      with -1.
    - `epoch` counts from 0; `progress` in [0, 1] is the finished part of the training.
    - `labels`: name -> other labels of the queries from the data set.
    """

    queries: QueryBatch
    videos: ClipBatch
    video_of: Tensor
    spans: Tensor
    positives: Tensor
    confidence: Tensor | None = None
    weight: Tensor | None = None
    negatives: Tensor | None = None
    other_queries: QueryBatch | None = None
    negative_queries: Tensor | None = None
    epoch: int = 0
    progress: float = 0.0
    labels: Named = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.spans)


Losses = Mapping[str, Tensor]
"""Name -> weighted term, a scalar with a gradient; the training minimises their sum."""


class MomentModel(Protocol):
    """A trainable system; each is also a `torch.nn.Module`."""

    config: Any
    """A frozen dataclass of plain values, which `config.json` stores.

    Training fills its fields of these names from the features: `streams` (name -> width), `query_width`,
    `text_encoder` (the tokenizer's name, for models that read words), `max_clips`, `max_tokens`,
    `clips_per_cell`. It needs `streams` and one of `query_width` and `text_encoder`.
    """

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Encode queries; an encoding depends on no other query and no padding."""

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Encode videos; an encoding depends on no query, no padding and no other video."""

    def loss(self, batch: Batch) -> Losses:
        """The terms of the paper's loss.

        A model may keep other numbers of this batch in `watched`, name -> scalar: the curves record them.
        """


@runtime_checkable
class Retriever(Protocol):
    """A system that ranks videos."""

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V) scores of every video for every query; higher is better."""


@runtime_checkable
class Localizer(Protocol):
    """A system that scores the spans of a video."""

    @property
    def video_weight(self) -> float:
        """The weight of the video's score in a moment's score, `span + video_weight * video`.

        XML's alpha or PREM's 1/t; 1 if the video's score is already a logarithm; 0 if it does not count.
        """

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Scores of all spans of P pairs: row p of `queries` with row p of `videos`."""


@runtime_checkable
class Salient(Protocol):
    """A system that scores how salient each clip of a video is for a query."""

    def saliency(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(P, T) saliency for P pairs: higher is better, the scale has no zero point; 0 in padding."""


@runtime_checkable
class Explainer(Protocol):
    """A system that gives the weight of each word of a query."""

    def word_weights(self, queries: QueryEncoding) -> Named:
        """Stream -> (Q, L): the words' weights in the vector that is compared with this stream.

        A query's weights add up to 1; they are 0 in padding.
        """


def max_over_keys(queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
    """(Q, V): the mean over streams of the best key's dot product with the query's search vector.

    Raises ValueError if a stream of the queries has no keys.
    """
    if not queries.search or set(queries.search) - set(videos.keys):
        raise ValueError(
            f"queries search {sorted(queries.search)}, videos have keys for {sorted(videos.keys)}"
        )
    scores = [
        best_key(vectors, videos.keys[name], videos.key_masks[name])
        for name, vectors in queries.search.items()
    ]
    return torch.stack(scores).mean(0)


def best_key(vectors: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """(Q, V): the largest dot product of each vector (Q, D) with a real key of each video (V, K, D).

    It is a single matrix product, in full precision even if a training computes in bfloat16.
    """
    count, length, width = keys.shape
    # bfloat16 loses the third digit of a cosine, which matters for a margin; for dot products around 100 its
    # error is above 1.
    with torch.autocast(keys.device.type, enabled=False):
        wide = torch.promote_types(keys.dtype, torch.float32)
        rows = keys.to(wide).reshape(count * length, width)
        # The layout (V, K, Q) makes mask and maximum run along contiguous memory.
        products = (rows @ vectors.to(wide).T).view(count, length, len(vectors))
    if not mask.all():
        products += torch.zeros_like(mask, dtype=products.dtype).masked_fill_(~mask, -torch.inf)[..., None]
    return products.amax(1).T


def pair_products(queries: Tensor, clips: Tensor) -> Tensor:
    """(P, T): the dot products of each query (P, D) with the clips of its own video (P, T, D).

    If all pairs share one video, passed as an expanded view, it is a single matrix product.
    """
    # A stride of 0: every row of `clips` is the same memory, expanded and not copied.
    if len(queries) > 1 and clips.stride(0) == 0:
        return queries @ clips[0].T
    return torch.einsum("pd,ptd->pt", queries, clips)


def scaled_clips(clips: Tensor, factors: Tensor) -> Tensor:
    """(P, T, D): clips times factors (P, T, 1); computed once if all pairs share one video (a view)."""
    if len(clips) > 1 and clips.stride(0) == 0 and factors.stride(0) == 0:
        return (clips[:1] * factors[:1]).expand_as(clips)
    return clips * factors


def few_pairs(
    queries: QueryEncoding, videos: VideoEncoding, clips: int
) -> Iterator[tuple[QueryEncoding, VideoEncoding]]:
    """P pairs in parts whose videos have at most `clips` clips together, with padding."""
    numbers = torch.arange(len(queries), device=videos.mask.device)
    for rows in torch.split(numbers, max(1, clips // videos.mask.shape[1])):
        yield queries.take(rows), videos.take(rows)


def joined(encodings: Sequence[Encoding]) -> Encoding:
    """Join several encodings to one, padded to the longest. Raises ValueError for an empty list."""
    if not encodings:
        raise ValueError("there is nothing to join")
    joint = {name: _stacked([vars(encoding)[name] for encoding in encodings]) for name in vars(encodings[0])}
    return replace(encodings[0], **joint)


def by_rows(method: Method) -> Method:
    """Mark a method `(self, queries)` or `(self, videos)` that works row by row.

    Row i of each returned tensor must depend only on query or video i. Then several processes share the rows
    (`training.devices`). In a single process the mark has no effect.
    """
    setattr(method, _MARK, True)
    return method


def methods_by_rows(model: Any) -> list[str]:
    """A model's marked methods, and `encode_queries` and `encode_videos`, which need no mark."""
    marked = {
        name for kind in type(model).__mro__ for name, method in vars(kind).items() if hasattr(method, _MARK)
    }
    encoders = {name for name in ("encode_queries", "encode_videos") if hasattr(model, name)}
    return sorted(marked | encoders)


def _rows(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    return {name: tensor.index_select(0, rows) for name, tensor in value.items()}


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, Tensor | _OfTensors):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: tensor.to(device) for name, tensor in value.items()}
    return value


def _stacked(values: Sequence[Any]) -> Any:
    """The rows of all values; a second axis is padded with zeros (false) to the longest."""
    if isinstance(values[0], Mapping):
        return {name: _stacked([value[name] for value in values]) for name in values[0]}
    if values[0].dim() < 2 or len({tensor.shape[1] for tensor in values}) == 1:
        return torch.cat(list(values))
    longest = max(tensor.shape[1] for tensor in values)
    # `pad` counts axes from the last: pad nothing in the others, then the missing rows in the second.
    others = [0, 0] * (values[0].dim() - 2)
    return torch.cat([pad(tensor, (*others, 0, longest - tensor.shape[1])) for tensor in values])


class PaperModel(nn.Module):
    """The base of systems that exist in two forms: as the paper describes them, and as the authors' program.

    `Model(config)` makes the system of the paper. If `config.as_released`, it makes the subclass `AsReleased`
    of `released/<system>.py` instead, as `pathlib.Path()` makes a `PosixPath`. Raises UsageError if
    `AsReleased` is called with the settings of the paper.
    """

    def __new__(cls, config: Any = None) -> Self:  # a copy is made without a config
        released = getattr(config, "as_released", False)
        if released and cls.__module__.startswith(_PAPERS):
            program: Any = importlib.import_module(_PROGRAMS + cls.__module__.removeprefix(_PAPERS))
            cls = program.AsReleased
        elif config is not None and not released and cls.__module__.startswith(_PROGRAMS):
            raise UsageError(f"{cls.__module__}.{cls.__name__}: as_released is false; accepted: true")
        return super().__new__(cls)
