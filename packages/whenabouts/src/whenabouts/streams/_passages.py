"""Makes passages from cues: the rows of the subtitle stream, in time linear in the number of cues.

A passage is some fifteen seconds of speech, cut at the end of a sentence or in a pause. Its `text` is shown
to users. The words of a question seldom fall into one sentence, so a passage is found by more than its text:

- `context`, for the full-text index, holds the words of about a minute around it;
- its vector (`passage_vectors`) combines its text, its neighbours, and the minute it falls in.

Both were chosen by measurement; `docs/finding.md` has the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import unit_length
from whenabouts.index.lookup import DENSE_SCRIPT, search_words
from whenabouts.video.cue import Cue
from whenabouts.video.sentences import closed_sentences

PASSAGE_SECONDS = 15.0
"""Target length of a passage: fine enough for borders; longer passages were not found better."""

PASSAGES_AT_LEAST = 12
"""A short video is cut finer than `PASSAGE_SECONDS`, down to single cues, to have about this many
passages."""

CONTEXT_LENGTHS = 4.0
"""The context is this many passages long (a minute, less in short videos). Measured at 30 to 180 s."""

PAUSE_SECONDS = 4.0
"""A longer pause starts a new passage, however short the one before."""

# Shares of the target length: after the first, a passage ends with its sentence; the second is its limit.
_EARLY, _LATE = 0.75, 1.6

# In letters (`weight_of`). Encoders read at most 256 word pieces; longer pieces of speech lack punctuation.
_PIECE_WEIGHT = 300
_PASSAGE_WEIGHT = 900
_NEIGHBOURS = 16
_LATE_MINUTE = 1.1

_CLAUSE = re.compile(r"[,;:،؛—–、，；]\s*|\s")
_INVISIBLE = re.compile(r"[\u200b\u2060\ufeff]|[\x00-\x08\x0e-\x1f\x7f]")


class Piece(NamedTuple):
    """A sentence of a cue, or a part of one; times in seconds. `closes`: the sentence ends with it."""

    start: float
    end: float
    text: str
    closes: bool


@dataclass(frozen=True, slots=True)
class Passage:
    """A row of the subtitle stream: half-open [start, end) in seconds.

    `text` is shown; `context` is for the full-text index: `search_words` of the text and the words around it.
    `minute` numbers groups of neighbouring passages, each about a minute long.
    """

    start: float
    end: float
    text: str
    context: str
    minute: int


def passages_of(cues: Iterable[Cue], duration: float | None = None, *, language: str = "") -> list[Passage]:
    """The passages of one video, by start; empty without speech.

    `duration` is the video's length in seconds, if known: a short video is cut finer, down to single cues.
    Cues may overlap, come in any order, lack punctuation or be far too long. Cues without text or finite
    times and cues that end before 0 are skipped. `language` is the code of the words' language.

    >>> cues = [Cue(start=0.0, end=1.0, text="Hildy!"), Cue(start=1.0, end=2.0, text="How are you?")]
    >>> [(passage.start, passage.end, passage.text) for passage in passages_of(cues, 2.0)]
    [(0.0, 1.0, 'Hildy!'), (1.0, 2.0, 'How are you?')]
    """
    pieces = pieces_of(cues)
    if not pieces:
        return []
    spoken = max(piece.end for piece in pieces) - pieces[0].start
    target = min(PASSAGE_SECONDS, max(spoken, duration or 0.0) / PASSAGES_AT_LEAST)
    groups = list(_group(pieces, target))
    bounds = [(group[0].start, max(piece.end for piece in group)) for group in groups]
    texts = [" ".join(piece.text for piece in group) for group in groups]
    contexts = _contexts(bounds, texts, CONTEXT_LENGTHS * target, language)
    minutes = _minutes(bounds, CONTEXT_LENGTHS * target)
    return [
        Passage(start, end, text, context, minute)
        for (start, end), text, context, minute in zip(bounds, texts, contexts, minutes, strict=True)
    ]


def passage_vectors(
    passages: Sequence[Passage], encode: Callable[[Sequence[str]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """(N, D) unit vectors of the passages of one video.

    `encode` turns texts into unit vectors; it is called once, for all passages and all their minutes. A
    passage's vector is the normalised sum of two unit vectors: the mean of its text's and its two neighbours'
    vectors, and the vector of its minute. Because a cosine is linear in the vector, this adds several scores
    at the price of one (54.6 % of titles found first instead of 51.5 %), without smoothing at query time.
    """
    minutes = [passage.minute for passage in passages]
    words = [""] * (max(minutes, default=-1) + 1)
    for passage in passages:
        words[passage.minute] = f"{words[passage.minute]} {passage.text}".lstrip()
    vectors = encode([passage.text for passage in passages] + words)
    texts, around = vectors[: len(passages)], vectors[len(passages) :]
    blended = texts.copy()
    blended[1:] += texts[:-1]
    blended[:-1] += texts[1:]
    return unit_length(unit_length(blended) + around[minutes])


def pieces_of(cues: Iterable[Cue]) -> list[Piece]:
    """Cues cut at ends of sentences, by start; times inside a cue are interpolated by letters."""
    pieces: list[Piece] = []
    for cue in cues:
        text = " ".join(_INVISIBLE.sub("", cue.text).split())
        if not text or not (math.isfinite(cue.start) and math.isfinite(cue.end)) or cue.end <= 0:
            continue
        start = max(0.0, cue.start)
        pieces.extend(_cut(start, max(cue.end, start + 0.001), text))
    pieces.sort(key=lambda piece: (piece.start, piece.end))
    return pieces


def _cut(start: float, end: float, text: str) -> Iterator[Piece]:
    """The sentences of one cue with their times."""
    parts = [part for sentence in closed_sentences(text) for part in _shorten(sentence)]
    total = sum(len(part) for part, _ in parts)
    done = 0
    for part, closes in parts:
        begin, done = done, done + len(part)
        words = part.strip()
        if words:
            yield Piece(
                start + (end - start) * begin / total, start + (end - start) * done / total, words, closes
            )


def _shorten(sentence: tuple[str, bool]) -> Iterator[tuple[str, bool]]:
    """A sentence in parts of bounded weight, cut at commas or spaces, else anywhere."""
    text, closes = sentence
    begin = 0
    while weight_of(text[begin : begin + _PIECE_WEIGHT + 1]) > _PIECE_WEIGHT:
        dense = weight_of(text[begin : begin + _PIECE_WEIGHT // 3]) > _PIECE_WEIGHT // 2
        limit = begin + (_PIECE_WEIGHT // 3 if dense else _PIECE_WEIGHT)
        breaks = [match.end() for match in _CLAUSE.finditer(text, (begin + limit) // 2, limit)]
        end = breaks[-1] if breaks else limit
        yield text[begin:end], False
        begin = end
    if text[begin:].strip():
        yield text[begin:], closes


def weight_of(text: str) -> int:
    """Length of a text in letters; a character of a dense script counts as three."""
    return len(text) + 2 * len(DENSE_SCRIPT.findall(text))


def _group(pieces: Sequence[Piece], target: float) -> Iterator[list[Piece]]:
    """Pieces grouped to about `target` seconds, cut at ends of sentences and at pauses."""
    group: list[Piece] = []
    start = end = 0.0
    weight = 0
    for piece in pieces:
        if group and _is_full(group[-1], piece, end - start, weight, target, end):
            yield group
            group = []
        if not group:
            start, end, weight = piece.start, piece.end, 0
        group.append(piece)
        end = max(end, piece.end)
        weight += weight_of(piece.text)
    if group:
        yield group


def _is_full(last: Piece, piece: Piece, lasted: float, weight: int, target: float, end: float) -> bool:
    """Whether the next piece must start a new passage."""
    return (
        piece.start - end > PAUSE_SECONDS
        or (last.closes and lasted >= _EARLY * target)
        or max(lasted, lasted + piece.end - end) > _LATE * target
        or weight + weight_of(piece.text) > _PASSAGE_WEIGHT
    )


def _contexts(
    bounds: Sequence[tuple[float, float]], texts: Sequence[str], seconds: float, language: str
) -> list[str]:
    """For each passage the search words of all passages within `seconds` around its middle.

    At most `_NEIGHBOURS` on either side count, so that contexts stay short if lines overlap.
    """
    middles = [(start + end) / 2 for start, end in bounds]
    contexts = []
    for i, middle in enumerate(middles):
        near = range(max(0, i - _NEIGHBOURS), min(len(texts), i + _NEIGHBOURS + 1))
        words = " ".join(texts[j] for j in near if abs(middles[j] - middle) <= seconds / 2)
        contexts.append(search_words(words, language))
    return contexts


def _minutes(bounds: Sequence[tuple[float, float]], seconds: float) -> list[int]:
    """For each passage the number of its group of at most about `seconds`, from 0."""
    numbers: list[int] = []
    number, began = -1, -math.inf
    for start, end in bounds:
        if end - began > seconds * _LATE_MINUTE:
            number, began = number + 1, start
        numbers.append(number)
    return numbers
