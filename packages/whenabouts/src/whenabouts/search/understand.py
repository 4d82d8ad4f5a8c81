"""Step 1: turn a text or an example into a query that each stream can compare.

The words are checked, and each encoder is called once for all its streams.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.background import Language
from whenabouts.encoders.protocol import WordPieces
from whenabouts.index.records import ClipBlock, ClipHits, unambiguous
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder, QueryKind
from whenabouts.search.example import Example
from whenabouts.search.options import MOST_K
from whenabouts.search.query_language import (
    note_on_languages,
    note_on_strange,
    strange_language,
    understands,
)
from whenabouts.search.stored_calibration import Calibration
from whenabouts.streams import all_streams
from whenabouts.streams import stream as stream_named
from whenabouts.types import Moment, UsageError, WhenaboutsError

# A sentence encoder reads 256 word pieces; more words only cost time.
MOST_QUERY_WORDS = 256
NEAREST_CLIPS = 200
"""Clips that a vector index retrieves; more find the same moments (docs/finding.md)."""
_TEXT: frozenset[QueryKind] = frozenset({"text"})
_MADE_OF: Mapping[QueryKind, str] = {"text": "words", "picture": "a picture", "moment": "a moment"}

TextVectors = Mapping[tuple[str, str], NDArray[np.float32]]
"""(stream, words) -> the vector (D,) of a query's words."""
TextHits = Mapping[tuple[str, str], tuple[Hashable, ClipHits]]
"""(stream, words) -> the state of the stream, and its clips nearest to the vector."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTexts:
    """Queries encoded in one batch, by the encoders of one `version` of a corpus's description.

    `nearest` has the nearest clips of queries for which an index was asked in one call.
    """

    version: int
    vectors: TextVectors
    nearest: TextHits = field(default_factory=lambda: MappingProxyType({}))

    def at(self, version: int) -> EncodedTexts:
        """The encoded queries if the corpus's description is unchanged, else none."""
        return self if version == self.version else NOT_ENCODED


NOT_ENCODED = EncodedTexts(-1, MappingProxyType({}))


@dataclass(frozen=True, slots=True, eq=False)
class StreamQuery:
    """A query for one stream: its `vector` (None: compare words only).

    `is_alike`: the vector comes from an example, so measurements with sentences do not apply. `nearest` are
    its nearest clips of the whole stream, if known.
    """

    vector: NDArray[np.float32] | None
    is_alike: bool = False
    nearest: ClipHits | None = None


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """An encoded query: its words, its form for each stream. Answers that overlap `excluded` do not count."""

    text: str
    streams: Mapping[str, StreamQuery]
    excluded: Moment | None = None


class Understanding:
    """Encodes queries for the streams of one store.

    `encoders` maps streams to query encoders; a stream without one is searched by words only, or not at all.
    Streams in `broken` (their encoder cannot be used here) are left out; requesting one, or having no other,
    raises its error.
    """

    def __init__(
        self,
        store: Store,
        encoders: Mapping[str, QueryEncoder],
        broken: Mapping[str, WhenaboutsError] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._encoders = dict(encoders)
        self.broken = dict(broken)
        self._understood: dict[str, bool] = {}
        self.streams = {name: stream_named(name) for name in store.streams}

    @property
    def text_streams(self) -> tuple[str, ...]:
        """Names of the streams that words can search."""
        return tuple(name for name in self.streams if "text" in self.kinds(name))

    def kinds(self, name: str) -> frozenset[QueryKind]:
        """The kinds of query that a stream can answer here; without its encoder only its own moments."""
        kinds = self.streams[name].meets
        if name in self.broken:
            return kinds & {"moment"}
        return kinds if self._store.streams[name].dimension else kinds & _TEXT

    def query_for(
        self,
        text: str,
        streams: Sequence[str] = (),
        like: Example | None = None,
        encoded: EncodedTexts = NOT_ENCODED,
    ) -> EncodedQuery:
        """A query for the streams (none given: all) that can answer it. Raises UsageError."""
        kinds = frozenset(kind for kind in ("text" if text else None, like and like.kind) if kind)
        chosen = self.chosen(streams, kinds)
        query = self.encode(text, chosen, like, encoded)
        answering = {
            name: part
            for name, part in query.streams.items()
            if part.vector is not None or (text and "text" in self.kinds(name))
        }
        if not answering and like is not None:
            titles = " or ".join(self.streams[name].title for name in chosen)
            raise UsageError(f"{like.name}: this corpus has no {titles} there to compare with others")
        return replace(query, streams=answering)

    def chosen(self, streams: Sequence[str], kinds: frozenset[QueryKind] = _TEXT) -> list[str]:
        """The given streams, without repeats, if one of the `kinds` suits them; none given: all it suits.

        Raises UsageError for an unknown or unsuitable stream, and the error of a broken one.
        """
        named = [self._store.stream(name).name for name in dict.fromkeys(streams)]
        chosen = [name for name in named or self.streams if self.kinds(name) & kinds]
        unable = [name for name in named if name not in chosen] or ([] if chosen else [*self.streams])
        for name in unable:
            if name in self.broken and self.streams[name].meets & kinds:
                raise self.broken[name]
        if unable:
            raise UsageError(_cannot_meet(unable, kinds))
        return chosen

    def encode(
        self,
        text: str,
        streams: Iterable[str],
        like: Example | None = None,
        encoded: EncodedTexts = NOT_ENCODED,
    ) -> EncodedQuery:
        """Encode a query once for each stream that can compare it, unless `encoded` has it already."""
        names = list(streams)
        missing = [name for name in names if (name, text) not in encoded.vectors]
        complete = replace(encoded, vectors={**encoded.vectors, **self.encoded([text], missing)})
        queries = {name: self._stream_query(name, text, like, complete) for name in names}
        return EncodedQuery(text, queries, None if like is None else like.excluded)

    def encoded(self, texts: Sequence[str], streams: Iterable[str] | None = None) -> TextVectors:
        """The vectors of queries for streams (None: all); each encoder is called once for all of them.

        Encoding in one batch changes a vector only by rounding, some 1e-7.
        """
        texts, vectors = [*filter(None, dict.fromkeys(texts))], dict[tuple[str, str], NDArray[np.float32]]()
        by_encoder: dict[int, NDArray[np.float32]] = {}
        for name in self.streams if streams is None else streams:
            encoder = self._encoders.get(name)
            if encoder is None or not texts or "text" not in self.kinds(name):
                continue
            if id(encoder) not in by_encoder:
                by_encoder[id(encoder)] = self.streams[name].query_vectors(texts, encoder)
            vectors |= {(name, text): row for text, row in zip(texts, by_encoder[id(encoder)], strict=True)}
        return vectors

    def made_ready(self, texts: Sequence[str]) -> EncodedTexts:
        """Queries encoded in one batch, with their nearest clips if an index is asked for all at once."""
        vectors, nearest = self.encoded(texts), dict[tuple[str, str], tuple[Hashable, ClipHits]]()
        for stream in dict.fromkeys(stream for stream, _ in vectors):
            queries = [(text, vector) for (name, text), vector in vectors.items() if name == stream]
            state = self.state_of(stream)
            each = self._store.nearest_of_each(stream, [vector for _, vector in queries], NEAREST_CLIPS)
            if each is not None and self.state_of(stream) == state:
                for (text, _), hits in zip(queries, each, strict=True):
                    nearest[stream, text] = state, hits
        return EncodedTexts(self._store.description_version, vectors, nearest)

    def state_of(self, stream: str) -> Hashable:
        """A value that changes with the stream or the ledger."""
        return self._store.version, self._store.state_of(stream)

    def _stream_query(self, name: str, text: str, like: Example | None, encoded: EncodedTexts) -> StreamQuery:
        """A query for one stream: by the vector of its words, of an example, or of both.

        Both are the sum of two directions. Cosines with examples have no measured scale, so those with the
        candidates stand in (`fuse`).
        """
        words = encoded.vectors.get((name, text))
        if like is None:
            kept = encoded.nearest.get((name, text))
            return StreamQuery(words, nearest=kept[1] if kept and kept[0] == self.state_of(name) else None)
        example = self._vector_like(name, like)
        if example is None:
            return StreamQuery(words)
        return StreamQuery(example if words is None else _unit(words + example), is_alike=True)

    def _vector_like(self, name: str, like: Example) -> NDArray[np.float32] | None:
        """The vector of an example in a stream; None without one."""
        if like.kind not in self.kinds(name):
            return None
        if like.picture is not None:
            return self.streams[name].picture_vector(like.picture, self._encoders[name])
        assert like.moment is not None
        block = self._store.clips_of(name, [like.moment.video_id])
        mean = _unit(block.vectors[clips_inside(block, like.moment)].sum(axis=0))
        return mean if mean.any() else None

    def notes_on_languages(self, query: str, calibration: Calibration) -> list[str]:
        """Notes if an encoder does not know the language of some videos."""
        spoken = self._store.ledger().languages
        strange = strange_language(query, spoken)
        if strange is not None and not self._is_understood(strange):
            return [note_on_strange(strange, spoken)]
        if not calibration.note:
            return []
        return [note_on_languages(query, spoken, calibration.foreign) or calibration.note]

    def knows(self, word: str) -> bool:
        """Whether a word is one piece for a sentence encoder, as the frequent words of its languages are."""
        namers = [encoder for encoder in self._encoders.values() if isinstance(encoder, WordPieces)]
        rows = [namer.word_pieces(["a", word, word.title()]) for namer in namers]
        return any(len(single) in map(len, others) for single, *others in rows)

    def _is_understood(self, language: Language) -> bool:
        """Whether a sentence encoder knows a language; measured once, in some tenths of a second."""
        if language.code not in self._understood:
            self._understood[language.code] = any(
                understands(encoder, language)
                for name, encoder in self._encoders.items()
                if self.streams[name].has_words is not False
            )
        return self._understood[language.code]


def checked_query(
    text: str, k: int, min_confidence: float = 0.0, most: int = MOST_K, *, is_optional: bool = False
) -> tuple[str, list[str]]:
    """The words of a query as they are searched, with notes on changes.

    Raises UsageError for a query without words, unless words are optional, and for an invalid `k` (at most
    `most`) or `min_confidence`.
    """
    if not isinstance(text, str):
        raise UsageError(f"the query is {text!r}; give it as text")
    if isinstance(k, bool) or not isinstance(k, SupportsIndex):
        raise UsageError(f"k is {k!r}; give a whole number")
    if not 1 <= k <= most:
        raise UsageError(f"k is {k}; ask for 1 to {most} moments")
    if not 0 <= min_confidence <= 1:
        raise UsageError(f"the minimum confidence is {min_confidence}; give a number from 0 to 1")
    words = unambiguous(text).split()
    if not words and is_optional:
        return "", []
    if not words:
        raise UsageError("the query is empty; say in a few words what to look for")
    notes = []
    if len(words) > MOST_QUERY_WORDS:
        notes.append(f"only the first {MOST_QUERY_WORDS} of the query's {len(words)} words were used")
    if not any(letter.isalnum() for word in words for letter in word):
        notes.append("the query has no letters or digits, so it can only be compared by meaning")
    return words_of_query(text), notes


def words_of_query(text: str) -> str:
    """The words of a query, separated by single spaces and limited in number."""
    return " ".join(unambiguous(text).split()[:MOST_QUERY_WORDS])


def clips_inside(block: ClipBlock, moment: Moment) -> NDArray[np.bool_]:
    """(n,) which clips of a block overlap a moment."""
    inside = np.zeros(len(block), np.bool_)
    if moment.video_id in block.video_ids:
        rows = block.rows(block.video_ids.index(moment.video_id))
        inside[rows] = (block.start[rows] < moment.end) & (block.end[rows] > moment.start)
    return inside


def _unit(vector: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """The vector with length 1; zeros stay."""
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length > 0 else vector, np.float32)


def _cannot_meet(streams: Sequence[str], kinds: frozenset[QueryKind]) -> str:
    """Why some streams cannot answer a query of some kinds, with the remedy."""
    given = " or ".join(_MADE_OF[kind] for kind in sorted(kinds))
    meets = sorted(set[QueryKind]().union(*(stream_named(name).meets for name in streams)))
    remedies = "; or ".join(
        dict.fromkeys(
            stream.remedy
            for name, stream in all_streams().items()
            if stream.meets & kinds and name not in streams
        )
    )
    takes = [f"by {_MADE_OF[kind]}" for kind in meets]
    keys = sorted({key for name in streams if (key := stream_named(name).filter_key)})
    takes += [f"to narrow a search (--where {key}=NAME, where=)" for key in keys]
    return f"{' and '.join(streams)} cannot be searched by {given}, but {' or '.join(takes)}; {remedies}"
