"""EMScore: how well a sentence describes a video, from vectors of its words and of the video's frames.

Shi et al., "EMScore: Evaluating Video Captioning via Coarse-Grained and Fine-Grained Embedding Matching"
(CVPR 2022), as MVMR uses it (paper 001, section 4.1). With unit vectors t_i of words and f_j of frames of one
space:

- coarse: cosine of the whole sentence and the mean of the frames;
- fine, precision: the mean over words, weighted by idf, of the most similar frame;
- fine, recall: the mean over frames of the most similar word; idf never enters it;
- fine, F: 2PR / (P + R);
- full: the mean of coarse and fine F, which MVMR calls s_tv.

The frames of a long video are averaged to at most a given number, and normalised again, so that all
similarities are cosines. In MVMR's program, words that pad a short sentence in a batch count with similarity
0; here they do not count, which gives the same scores where similarities are positive. Pools come from s_tv,
so a change of any number changes the data sets that are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import unit_length
from whenabouts.types import UsageError

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

_SENTENCES_AT_ONCE = 256
"""Sentences compared with one video at a time: some 4,000 words by 128 frames are 2 MB."""


@dataclass(frozen=True)
class Words:
    """Word vectors of S sentences.

    Sentence i has the words starts[i]:starts[i + 1], CLIP's with start and end tokens; `starts` (S + 1,),
    `ids` (N,) vocabulary indices, `vectors` (N, D) unit, `whole` (S, D) unit vectors of whole sentences.
    `made_by` is the encoder's fingerprint, `times` (S,) the number of occurrences of each sentence.
    """

    starts: Indices
    ids: Indices
    vectors: Floats
    whole: Floats
    made_by: str
    times: Indices

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def width(self) -> int:
        """The width D of a vector."""
        return int(self.whole.shape[1])


@dataclass(frozen=True)
class Frames:
    """Frame vectors of V videos: video i has rows starts[i]:starts[i + 1] of `vectors` (N, D).

    `whole` (V, D) is the normalised mean of a video's frames; `made_by` the encoder's fingerprint, or "".
    """

    starts: Indices
    vectors: Floats
    whole: Floats
    made_by: str = ""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, videos: Iterable[NDArray[Any]], most: int, made_by: str = "") -> Self:
        """Frames of (T, D) rows for each video, averaged to at most `most`."""
        if most < 1:
            raise UsageError(f"frames {most}: a video needs at least 1")
        pooled = [cls.pooled(np.asarray(rows, np.float32), most) for rows in videos]
        if not pooled:
            raise UsageError("there are no videos")
        sums = np.stack([rows.sum(axis=0, dtype=np.float64) for rows in pooled])
        starts, vectors = _joined(pooled)
        return cls(starts, vectors, unit_length(sums), made_by)

    @staticmethod
    def pooled(rows: Floats, most: int) -> Floats:
        """(T, D) unit vectors of one video's frames, averaged to `most` rows if there are more."""
        unit = unit_length(rows)
        return unit if len(unit) <= most else unit_length(pooled_evenly(unit, most))


def _joined(parts: list[Floats]) -> tuple[Indices, Floats]:
    """(offsets, all rows). Empties the list, so that nothing is held twice."""
    starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    rows = np.empty((int(starts[-1]), parts[0].shape[1]), np.float32)
    for number in reversed(range(len(parts))):
        rows[starts[number] : starts[number + 1]] = parts.pop()
    return starts, rows


def pooled_evenly(rows: Floats, count: int) -> Floats:
    """(count, D) adaptive pooling: row i is the mean of rows floor(i T / count) to ceil((i + 1) T / count).

    Neighbours share a row if T is not a multiple of `count`.
    """
    place = np.arange(count)
    first = place * len(rows) // count
    last = -(-(place + 1) * len(rows) // count)
    sums = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0, dtype=np.float64)])
    return np.asarray((sums[last] - sums[first]) / (last - first)[:, None], np.float32)


def inverse_document_frequencies(words: Words) -> Floats:
    """(N,) the weight of each word: log((n + 1) / (c + 1)), where c of all n sentences contain it.

    Equal sentences count as often as they occur. Tokens in every sentence (start, end) weigh 0.
    """
    sentence = np.repeat(np.arange(len(words)), np.diff(words.starts))
    vocabulary, number = np.unique(words.ids, return_inverse=True)
    pairs = np.unique(sentence * len(vocabulary) + number)
    held = np.bincount(
        pairs % len(vocabulary), words.times[pairs // len(vocabulary)].astype(np.float64), len(vocabulary)
    )
    weights = np.log((words.times.sum() + 1) / (held + 1))
    return np.asarray(weights[number], np.float32)


@dataclass(frozen=True)
class Scores:
    """(n,) arrays of the module's scores for n pairs of a sentence and a video."""

    coarse: Floats
    fine_p: Floats
    fine_r: Floats

    @property
    def fine_f(self) -> Floats:
        total = self.fine_p + self.fine_r
        safe = np.where(total == 0, np.float32(1), total)
        return np.asarray(2 * self.fine_p * self.fine_r / safe, np.float32)

    @property
    def full_f(self) -> Floats:
        """Mean of coarse and F: s_tv."""
        return np.asarray((self.fine_f + self.coarse) / 2, np.float32)


@dataclass(frozen=True)
class EMScore:
    """Scores pairs of a query and a video, both given by index.

    `sentence_of` (Q,) is each query's sentence in `words`; equal texts are stored once. `weights` (N,) are
    the `inverse_document_frequencies`.
    """

    words: Words
    frames: Frames
    weights: Floats
    sentence_of: Indices

    @classmethod
    def of(cls, words: Words, frames: Frames, sentence_of: Indices | None = None) -> Self:
        """Raises UsageError if words and frames are of different models."""
        _require_one_space(words, frames)
        named = np.arange(len(words)) if sentence_of is None else np.asarray(sentence_of, np.int64)
        return cls(words, frames, inverse_document_frequencies(words), named)

    def score(self, queries: Indices, videos: Indices, *, idf: bool = True) -> Scores:
        """Scores of pairs (queries[i], videos[i]); without `idf` all words weigh the same.

        A score depends on its pair alone. A sentence whose words all weigh 0 is scored without weights.
        """
        sentences, videos = self.sentence_of[np.asarray(queries)], np.asarray(videos)
        weights = self.weights if idf else np.ones_like(self.weights)
        coarse, fine_p, fine_r = (np.empty(len(sentences), np.float32) for _ in fields(Scores))
        for rows in _by_video(videos):
            video = int(videos[rows[0]])
            frames = self.frames.vectors[self.frames.starts[video] : self.frames.starts[video + 1]]
            fine_p[rows], fine_r[rows] = _fine(self.words, sentences[rows], frames, weights)
            coarse[rows] = self.words.whole[sentences[rows]] @ self.frames.whole[video]
        return Scores(coarse, fine_p, fine_r)


def _by_video(videos: Indices) -> Iterator[Indices]:
    """Indices of pairs with the same video, in batches, so that products need no padding."""
    order = np.argsort(videos, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(videos[order])) + 1) if len(order) else []:
        for begin in range(0, len(part), _SENTENCES_AT_ONCE):
            yield part[begin : begin + _SENTENCES_AT_ONCE]


def _fine(words: Words, sentences: Indices, frames: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """(precision, recall) of n sentences on one video."""
    first, last = words.starts[sentences], words.starts[sentences + 1]
    # The words of all n sentences in one array; sentence i begins at begins[i].
    lengths = last - first
    begins = np.cumsum(lengths) - lengths
    rows = np.arange(int(lengths.sum())) + np.repeat(first - begins, lengths)
    similar = words.vectors[rows] @ frames.T
    recall = np.maximum.reduceat(similar, begins, axis=0).mean(axis=1)
    best, weight = similar.max(axis=1), weights[rows]
    totals = np.add.reduceat(weight, begins)
    # If all words of a sentence are in every sentence, the weights sum to 0: weigh them equally.
    weight = np.where(np.repeat(totals, lengths) > 0, weight, np.float32(1))
    precision = np.add.reduceat(best * weight, begins) / np.add.reduceat(weight, begins)
    return np.asarray(precision, np.float32), np.asarray(recall, np.float32)


def _require_one_space(words: Words, frames: Frames) -> None:
    width = int(frames.vectors.shape[1])
    if width != words.width:
        raise UsageError(
            f"frames are {width} wide and words {words.width} ({words.made_by}): they are of two models; "
            "give the model that the frames were made with, or frames of this one"
        )
    if frames.made_by and words.made_by and frames.made_by != words.made_by:
        raise UsageError(
            f"frames were made by {frames.made_by!r} and words by {words.made_by!r}: EMScore needs one model "
            "for both; name the one that the frames were made with, or make the frames again"
        )


def words_of(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Iterable[tuple[Indices, Floats]]],
    made_by: str,
    times: Indices | None = None,
    whole: Floats | None = None,
) -> Words:
    """Words of texts, from a function that returns (ids, (L, D) vectors) of each; vectors are normalised.

    Without `whole`, the last word's vector (the end token, as in CLIP) represents the sentence. Raises
    UsageError for non-finite vectors.
    """
    ids: list[Indices] = []
    vectors: list[Floats] = []
    ends: list[Floats] = []
    for text, (numbers, rows) in zip(texts, encode(texts), strict=True):
        if not np.isfinite(rows).all():
            raise UsageError(f"{made_by}: gave no finite vectors for {text[:60]!r}")
        unit = unit_length(rows)
        ids.append(np.asarray(numbers, np.int64))
        vectors.append(unit)
        ends.append(unit[-1])
    starts, joined = _joined(vectors)
    counts = np.ones(len(ids), np.int64) if times is None else np.asarray(times, np.int64)
    whole_vectors = np.stack(ends) if whole is None else whole
    return Words(starts, np.concatenate(ids), joined, whole_vectors, made_by, counts)
