"""The parts of captions that are compared, as vectors; distinct texts are parsed and encoded once.

A detector chooses the parts (paper 000, section 4.1): captions are relevant if any part of one has a cosine
of at least theta with any part of the other (equation 7). The caption itself is always the first part, also
for Phi_np-vp, where clauses replace verb phrases "instead of solely using VPs in addition to the original
sentence".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import TextEncoder
from whenabouts.types import Query, UsageError
from whenabouts_bench.relevance.phrases.protocol import PhraseExtractor, Phrases

_ENCODED_AT_ONCE = 8192


@dataclass(frozen=True)
class Detector:
    """A name, and the parts besides the caption, if any."""

    name: str
    parts: Callable[[Phrases], tuple[str, ...]] | None


DETECTORS = {
    detector.name: detector
    for detector in (
        Detector("sent", None),
        Detector("vp", lambda phrases: phrases.verb),
        Detector("np-vp", lambda phrases: phrases.clauses),
    )
}


def detector_of(name: str) -> Detector:
    """A detector by name, with hyphen or underscore. Raises UsageError with the known names."""
    detector = DETECTORS.get(name.lower().replace("_", "-"))
    if detector is None:
        raise UsageError(f"{name!r}: no such detector; accepted: {', '.join(DETECTORS)}")
    return detector


@dataclass(frozen=True)
class Units:
    """The distinct captions of Q queries, and their parts.

    `caption_of` (Q,) int32 is each query's caption. Caption i has the parts units[starts[i]:starts[i + 1]],
    the first being the caption itself; `starts` (C + 1,) int64, `units` (S,) int32 index `texts` and
    `vectors` (U, D) float32 of unit length.
    """

    query_ids: tuple[str, ...]
    caption_of: NDArray[np.int32]
    captions: tuple[str, ...]
    starts: NDArray[np.int64]
    units: NDArray[np.int32]
    texts: tuple[str, ...]
    vectors: NDArray[np.float32]


def units_of(
    queries: Iterable[Query], detector: Detector, extractor: PhraseExtractor | None, encoder: TextEncoder
) -> Units:
    """The parts of queries' captions. Raises UsageError for a query without text or a duplicate id."""
    all_queries = list(queries)
    captions, caption_of = distinct_captions(all_queries)
    parts = parts_of(captions, detector, extractor)
    all_parts = list(chain.from_iterable(parts))
    number = {text: place for place, text in enumerate(dict.fromkeys(all_parts))}
    texts = list(number)
    return Units(
        query_ids=tuple(query.id for query in all_queries),
        caption_of=caption_of,
        captions=tuple(captions),
        starts=np.cumsum([0, *map(len, parts)], dtype=np.int64),
        units=np.array([number[part] for part in all_parts], np.int32),
        texts=tuple(texts),
        vectors=encoded(texts, encoder),
    )


def comparable(text: str) -> str:
    """A query's text without case, surplus blanks and a final full stop."""
    return " ".join(text.lower().split()).rstrip(" .")


def distinct_captions(queries: Sequence[Query]) -> tuple[list[str], NDArray[np.int32]]:
    """(C distinct texts in order, (Q,) index of each text). UsageError without text or for a duplicate id."""
    numbers: dict[str, int] = {}
    seen: set[str] = set()
    caption_of = []
    for query in queries:
        text = query.text.strip()
        if not text:
            raise UsageError(
                f"query {query.id!r} has no text, and relevance is judged by texts; give a file that has them"
            )
        if query.id in seen:
            raise UsageError(f"query {query.id!r} comes twice; each query needs an id of its own")
        seen.add(query.id)
        caption_of.append(numbers.setdefault(text, len(numbers)))
    return list(numbers), np.array(caption_of, np.int32)


def parts_of(
    captions: Sequence[str], detector: Detector, extractor: PhraseExtractor | None
) -> list[tuple[str, ...]]:
    """Each caption followed by the detector's parts, without duplicates."""
    if detector.parts is None:
        return [(caption,) for caption in captions]
    if extractor is None:
        raise UsageError(f"the detector {detector.name!r} needs phrases; name what finds them")
    return [
        tuple(dict.fromkeys((caption, *detector.parts(phrases))))
        for caption, phrases in zip(captions, extractor.phrases(captions), strict=True)
    ]


def encoded(texts: Sequence[str], encoder: TextEncoder) -> NDArray[np.float32]:
    """(N, D) unit vectors, encoded in batches of similar text length to reduce padding."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    for begin in range(0, len(texts), _ENCODED_AT_ONCE):
        rows = order[begin : begin + _ENCODED_AT_ONCE]
        vectors[rows] = encoder.encode_text([texts[row] for row in rows.tolist()])
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(1))[0])
        raise UsageError(f"the encoder {encoder.name!r} gave no finite vector for {texts[row][:60]!r}")
    return vectors
