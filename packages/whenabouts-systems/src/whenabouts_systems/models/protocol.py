"""What a trained system is: how queries and videos go in, what is kept of them, what comes out.

Every system of `models/` is one file with a `Config`, a `Model` and its loss; nobody asks for its name.
Its methods say what a system can do: a retriever has `score_videos`, a localizer `score_spans`, and many have
both. ARCHITECTURE.md ("How the systems fit the protocol") has a line for each
system of the papers.

Shapes: Q queries, V videos, P pairs of a query and a video, T clips, L tokens, K keys, D width. Masks are
true where there is something; padding is always at the end, and what lies there never reaches a score.
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


class _OfTensors:
    """A frozen record of tensors, of tables of tensors and of other such records."""

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""
        moved: Self = type(self)(**{name: _moved(value, device) for name, value in vars(self).items()})
        return moved


class _Encoding(_OfTensors):
    """A record whose tensors have a row for each query, or for each video."""

    def take(self, rows: Tensor) -> Self:
        """Some of them, in the order of `rows` (P,) int64; each may come more than once."""
        taken: Self = type(self)(**{name: _taken(value, rows) for name, value in vars(self).items()})
        return taken


@dataclass(frozen=True)
class QueryBatch(_OfTensors):
    """Queries as a model reads them.

    `tokens` is (Q, L, D) features of words, or (Q, L) ids where a model has a text encoder of its own; `mask`
    (Q, L).
    """

    tokens: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True)
class SentenceBatch(_Encoding):
    """What is said in V videos, sentence by sentence, and which clips each sentence covers.

    `words` (V, S, L) int64 ids of a tokenizer without its special tokens; `mask` (V, S, L), true from the
    first word on, nowhere for a sentence without words. `of_clips` (V, T) int64: the sentence that each clip
    belongs to, -1 where there is none. A sentence may have no clip.
    """

    words: Tensor
    mask: Tensor
    of_clips: Tensor

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True)
class ClipBatch(_OfTensors):
    """Videos as a model reads them: stream name -> (V, T, D), one grid and one `mask` (V, T) for all streams.

    A clip for which a stream has nothing (no words) is a row of zeros. `silent` (V,) bool or None: videos of
    which no stream has anything, so that no search reaches them (`ranking.encoded_corpus`). `sentences` or
    None: what is said, for systems that read words as they are (HERO).
    """

    streams: Named
    mask: Tensor
    silent: Tensor | None = None
    sentences: SentenceBatch | None = None

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True)
class QueryEncoding(_Encoding):
    """What a model made of Q queries.

    `search` holds, by stream, the vectors (Q, D) that are compared with the keys of videos; `parts` whatever
    else the model needs later, each with Q rows.
    """

    search: Named
    parts: Named = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter((*self.search.values(), *self.parts.values()))))


@dataclass(frozen=True)
class VideoEncoding(_Encoding):
    """What a model keeps of V videos: made once a video, stored in the index.

    `keys` holds, by stream, the vectors (V, K, D) that a query is compared with: the video's score in a
    stream is the largest dot product of the query's search vector with a key, so that an index of nearest
    neighbours serves every late-fusion model without knowing it. They are unit vectors where the score is a
    cosine. `key_masks` (V, K) says which keys are real. A model that must see query and video together has
    no keys. `parts` is whatever else the model needs to score moments, each with V rows; `mask` (V, T).
    """

    mask: Tensor
    keys: Named = field(default_factory=dict)
    key_masks: Named = field(default_factory=dict)
    parts: Named = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True)
class SpanScores:
    """How well each span of clips of P pairs answers; first and last clip are both inclusive. A span scores

    `start[p, first] + end[p, last] + spans[p, first, last]`.

    Systems that score borders leave `spans` None; those with a 2-D map leave `start` and `end` zero. Scores
    are logarithms where the paper multiplies. (P, T), (P, T), (P, T, T) and `mask` (P, T); what is masked is
    never answered, whatever stands there.

    Systems that answer times of no grid have `windows` (P, N, 3) instead: start and end of N windows, counted
    in clips and not rounded, and the score of each. Then nothing but these is answered.
    """

    start: Tensor
    end: Tensor
    mask: Tensor
    spans: Tensor | None = None
    windows: Tensor | None = None

    @classmethod
    def of_windows(cls, windows: Tensor, mask: Tensor) -> SpanScores:
        """From windows (P, N, 3) in videos of that mask (P, T)."""
        nothing = windows.new_zeros(mask.shape)
        return cls(nothing, nothing, mask, None, windows)

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True)
class Batch(_OfTensors):
    """What a step of training sees: B = Q queries with the clip span each is true for, and V >= 1 videos.

    `video_of` (Q,) int64 is the row of `videos` that a query belongs to. V may be smaller than Q (a video
    with several queries comes once) or larger (videos behind that are negatives only).
    `spans` (Q, 2) int64: first and last clip of the truth, inclusive, on the video's grid.
    `positives` (Q, V) bool: pairs that are never a negative: the query's own video, and any other video
    known to answer it.
    `confidence` (Q, Q) float in [0, 1] or None: how relevant query i is to the moment of query j, where the
    pair is "potentially relevant" (paper 000, equation 6); 0 where it is not, and on the diagonal.
    `weight` (Q,) float or None: how much a query's own moment counts (paper 004: the similarity of query and
    caption).
    `negatives` (Q, N) int64 or None: rows of `videos` that were chosen as a query's hard negatives; -1 where
    a query has fewer.
    `other_queries` (E of them) or None: queries that are negatives only. `negative_queries` (W, M) int64 or
    None: rows of them that were chosen as hard negatives of the first W videos, those that have a query of
    the batch; -1 where a video has fewer.
    `epoch` counts from 0; `progress` in [0, 1] is how much of the training is done.
    `labels` holds what else the data set says of the queries, by name.
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
"""Named terms, weights applied; their sum is trained on. Scalars with a gradient."""


class MomentModel(Protocol):
    """A system that is trained; each is a `torch.nn.Module` as well."""

    config: Any
    """A frozen dataclass of plain values: what `config.json` keeps."""

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """What is kept of queries."""
        ...

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """What is kept of videos; it depends on no query, on no padding and on no other video."""
        ...

    def loss(self, batch: Batch) -> Losses:
        """The terms of the paper's loss."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """A system that ranks videos."""

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V) scores of every video for every query; higher is better."""
        ...


@runtime_checkable
class Localizer(Protocol):
    """A system that scores the spans of a video."""

    @property
    def video_weight(self) -> float:
        """How often the video's score counts in a moment's score: `span + video_weight * video`.

        XML's alpha, PREM's 1/t, 1 where the video's score is a logarithm already, 0 where it does not count.
        """
        ...

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Scores of all spans of P pairs: row p of `queries` with row p of `videos` (see `take`)."""
        ...


@runtime_checkable
class Salient(Protocol):
    """A system that says how much each clip of a video is worth seeing."""

    def saliency(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(P, T) of P pairs, row p with row p: more is better, the zero means nothing; 0 behind the end."""
        ...


@runtime_checkable
class Explainer(Protocol):
    """A system that says how much each word of a query counts."""

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) by stream: how much each word counts in what is compared with that stream.

        Of a query they add up to 1; behind its end they are 0.
        """
        ...


def max_over_keys(queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
    """(Q, V): the mean over streams of the best key's dot product with the query's search vector.

    Raises ValueError where a stream of the queries has no keys.
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

    One product of matrices, in full precision also where a training computes in bfloat16.
    """
    count, length, width = keys.shape
    # The third digit of a cosine, which bfloat16 loses, is a good part of a margin; of dot products by the
    # hundred the error is above 1.
    with torch.autocast(keys.device.type, enabled=False):
        wide = torch.promote_types(keys.dtype, torch.float32)
        rows = keys.to(wide).reshape(count * length, width)
        # Laid out (V, K, Q), so that mask and maximum run along memory.
        products = (rows @ vectors.to(wide).T).view(count, length, len(vectors))
    if not mask.all():
        products += torch.zeros_like(mask, dtype=products.dtype).masked_fill_(~mask, -torch.inf)[..., None]
    return products.amax(1).T


def pair_products(queries: Tensor, clips: Tensor) -> Tensor:
    """(P, T): the dot products of each query (P, D) with the clips of its own video (P, T, D).

    Where all are of one video (a view of it, as `ranking` hands it over) it is one product of matrices.
    """
    # A stride of 0: every row of `clips` is the same memory, expanded and not copied.
    if len(queries) > 1 and clips.stride(0) == 0:
        return queries @ clips[0].T
    return torch.einsum("pd,ptd->pt", queries, clips)


def scaled_clips(clips: Tensor, factors: Tensor) -> Tensor:
    """(P, T, D): clips times factors (P, T, 1); those of one video where all pairs are of it (a view)."""
    if len(clips) > 1 and clips.stride(0) == 0 and factors.stride(0) == 0:
        return (clips[:1] * factors[:1]).expand_as(clips)
    return clips * factors


def few_pairs(
    queries: QueryEncoding, videos: VideoEncoding, most: int
) -> Iterator[tuple[QueryEncoding, VideoEncoding]]:
    """P pairs, a few at a time: their videos have at most so many clips together, padding included."""
    every = torch.arange(len(queries), device=videos.mask.device)
    for some in torch.split(every, max(1, most // videos.mask.shape[1])):
        yield queries.take(some), videos.take(some)


def joined(encodings: Sequence[Encoding]) -> Encoding:
    """Several encodings as one, padded to the longest."""
    if not encodings:
        raise ValueError("there is nothing to join")
    joint = {name: _stacked([vars(encoding)[name] for encoding in encodings]) for name in vars(encodings[0])}
    return replace(encodings[0], **joint)


def by_rows(method: Method) -> Method:
    """Mark a method `(self, queries)` or `(self, videos)` whose answer is made row by row.

    Row i of each tensor that it returns must depend on query or video i alone. With several processes each
    then computes some of the rows, and all get all (`training.distributed`); without, the mark does nothing.
    """
    setattr(method, _MARK, True)
    return method


def methods_by_rows(model: Any) -> list[str]:
    """The names of a model's marked methods, and of the two encoders of the protocol, which need no mark."""
    marked = {
        name for kind in type(model).__mro__ for name, method in vars(kind).items() if hasattr(method, _MARK)
    }
    encoders = {name for name in ("encode_queries", "encode_videos") if hasattr(model, name)}
    return sorted(marked | encoders)


def _taken(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    return {name: tensor.index_select(0, rows) for name, tensor in value.items()}


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, Tensor | _OfTensors):
        return value.to(device)
    return (
        {name: _moved(inner, device) for name, inner in value.items()}
        if isinstance(value, Mapping)
        else value
    )


def _stacked(values: Sequence[Any]) -> Any:
    """Rows of all, the second axis padded with zeros (false) to the longest where they have one."""
    if isinstance(values[0], Mapping):
        return {name: _stacked([value[name] for value in values]) for name in values[0]}
    if values[0].dim() < 2 or len({tensor.shape[1] for tensor in values}) == 1:
        return torch.cat(list(values))
    longest = max(tensor.shape[1] for tensor in values)
    # `pad` counts axes from the last: nothing is added to the others, then the missing rows to the second.
    others = [0, 0] * (values[0].dim() - 2)
    return torch.cat([pad(tensor, (*others, 0, longest - tensor.shape[1])) for tensor in values])


class PaperModel(nn.Module):
    """A system as its paper describes it.

    `Model(config)` makes the system of the paper, or with `config.as_released` the subclass `AsReleased` of
    `released/<system>.py`, as `pathlib.Path()` makes a `PosixPath`. Raises UsageError if `AsReleased` is
    called with the settings of the paper.
    """

    def __new__(cls, config: Any = None) -> Self:  # a copy is made without a config
        released = getattr(config, "as_released", False)
        if released and cls.__module__.startswith(_PAPERS):
            program: Any = importlib.import_module(_PROGRAMS + cls.__module__.removeprefix(_PAPERS))
            cls = program.AsReleased
        elif config is not None and not released and cls.__module__.startswith(_PROGRAMS):
            raise UsageError(f"{cls.__module__}.{cls.__name__}: as_released is false; accepted: true")
        return super().__new__(cls)
