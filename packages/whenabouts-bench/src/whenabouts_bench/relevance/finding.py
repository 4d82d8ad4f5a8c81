"""Find relevant pairs among all captions, blockwise and with bounded memory.

Distinct parts are compared with one another (half of the matrix); whether a cosine reaches the threshold is
one bit, and bits of parts become bits of captions. Time and memory do not depend on the number of pairs until
they are listed: C * C / 8 bytes for the bits (663 MB for 72,842 captions), 6 bytes per pair.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import open_text_encoder
from whenabouts.types import Query, UsageError
from whenabouts_bench.relevance.pairs import ROUNDING, ListedPairs, PairSettings, RelevantPairs, VectorPairs
from whenabouts_bench.relevance.phrases import open_phrases
from whenabouts_bench.relevance.units import Units, detector_of, units_of

Bits = NDArray[np.uint8]

MOST_PAIRS = 200_000_000
"""The limit of listed pairs: 1.2 GB. Denser relations are kept as vectors."""
MOST_CAPTIONS = 150_000
"""The limit of compared captions: 2.8 GB of bits."""
_ROWS = 2048
_COLUMNS = 8192
_CAPTIONS = 8192


def listed_pairs(units: Units, settings: PairSettings) -> RelevantPairs:
    """All relevant pairs of captions as a list. Raises UsageError for too many: see `vector_pairs`."""
    captions = len(units.captions)
    if captions > MOST_CAPTIONS:
        raise UsageError(
            f"{captions} captions are too many to compare all with all (at most {MOST_CAPTIONS}); "
            "keep them as vectors (--as vectors)"
        )
    reached = reached_captions(units, settings.threshold)
    count = (int(np.bitwise_count(reached).sum(dtype=np.int64)) - captions) // 2
    if count > MOST_PAIRS:
        possible = captions * (captions - 1) // 2
        raise UsageError(
            f"{count} of {possible} pairs of captions are relevant ({100 * count / possible:.1f} %), and at "
            f"most {MOST_PAIRS} are listed; keep them as vectors (--as vectors), which answer the same, "
            f"or raise the threshold above {settings.threshold:g}"
        )
    kept = _listed(units, reached, count)
    return RelevantPairs(units.query_ids, units.caption_of, units.captions, settings, kept)


def vector_pairs(units: Units, settings: PairSettings) -> RelevantPairs:
    """All relevant pairs of captions, computed on demand; the size does not depend on their number."""
    kept = VectorPairs(units.starts, units.units, units.vectors, settings.threshold)
    return RelevantPairs(units.query_ids, units.caption_of, units.captions, settings, kept)


def reached_captions(parts: Units, threshold: float) -> Bits:
    """(C, ceil(C / 8)) packed bits: the captions relevant to each caption, itself included."""
    captions, distinct = len(parts.captions), len(parts.vectors)
    reached = np.zeros((captions, -(-captions // 8)), np.uint8)
    order = np.argsort(parts.units, kind="stable")
    owners = (np.searchsorted(parts.starts, order, side="right") - 1).astype(np.int64)
    owned = np.searchsorted(parts.units[order], np.arange(distinct + 1))
    for begin in range(0, distinct, _ROWS):
        end = min(begin + _ROWS, distinct)
        block = _captions_with(parts, _hits(parts.vectors, begin, end, threshold), end - begin)
        for unit in range(begin, end):
            reached[owners[owned[unit] : owned[unit + 1]]] |= block[unit - begin]
    _mirror(reached, captions)
    return reached


def _hits(vectors: NDArray[np.float32], begin: int, end: int, threshold: float) -> Bits:
    """(U, B / 8): for each part from `begin` on, the near ones among parts begin..end; 0 before."""
    hits = np.zeros((len(vectors), -(-(end - begin) // 8)), np.uint8)
    rows = np.ascontiguousarray(vectors[begin:end].T)
    for first in range(begin, len(vectors), _COLUMNS):
        near = vectors[first : first + _COLUMNS] @ rows >= threshold - ROUNDING
        hits[first : first + _COLUMNS] = np.packbits(near, axis=1)
    return hits


def _captions_with(parts: Units, hits: Bits, count: int) -> Bits:
    """(B, C / 8): for each of B parts, the captions with a near part."""
    captions = len(parts.captions)
    reached = np.empty((count, -(-captions // 8)), np.uint8)
    for first in range(0, captions, _CAPTIONS):
        last = min(first + _CAPTIONS, captions)
        slots = slice(int(parts.starts[first]), int(parts.starts[last]))
        begins = parts.starts[first:last] - parts.starts[first]
        near = np.bitwise_or.reduceat(hits[parts.units[slots]], begins, axis=0)
        bits = np.unpackbits(near, axis=1, count=count)
        reached[:, first // 8 : -(-last // 8)] = np.packbits(bits.T, axis=1)
    return reached


def _mirror(reached: Bits, captions: int) -> None:
    side = 4096
    for top in range(0, captions, side):
        rows = slice(top, min(top + side, captions))
        row_bytes = slice(top // 8, -(-rows.stop // 8))
        for left in range(0, top + 1, side):
            columns = slice(left, min(left + side, captions))
            column_bytes = slice(left // 8, -(-columns.stop // 8))
            upper = np.unpackbits(reached[columns, row_bytes], axis=1, count=rows.stop - top)
            lower = np.unpackbits(reached[rows, column_bytes], axis=1, count=columns.stop - left)
            both = lower | upper.T
            reached[rows, column_bytes] = np.packbits(both, axis=1)
            reached[columns, row_bytes] = np.packbits(both.T, axis=1)


def _listed(parts: Units, reached: Bits, count: int) -> ListedPairs:
    """The pairs with their confidence (equation 8), each once; pairs of confidence 0 are left out."""
    captions = len(parts.captions)
    whole = parts.vectors[parts.units[parts.starts[:-1]]]
    columns, confidence = np.empty(count, np.int32), np.empty(count, np.float16)
    lengths = np.zeros(captions, np.int64)
    filled = 0
    for begin in range(0, captions, 256):
        end = min(begin + 256, captions)
        bits = np.unpackbits(reached[begin:end, begin // 8 :], axis=1, count=captions - begin)
        row, column = np.nonzero(np.triu(bits, 1))
        cosines = whole[begin:end] @ whole[begin:].T
        values = np.clip(cosines[row, column], 0, 1).astype(np.float16)
        kept = values > 0
        row, column, values = row[kept], column[kept], values[kept]
        columns[filled : filled + len(row)] = column + begin
        confidence[filled : filled + len(row)] = values
        lengths[begin:end] = np.bincount(row, minlength=end - begin)
        filled += len(row)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ListedPairs(starts, columns[:filled].copy(), confidence[:filled].copy())


def find_pairs(
    queries: Iterable[Query],
    detector: str,
    threshold: float,
    *,
    encoder: str | None = None,
    phrases: str | None = None,
    as_list: bool = True,
) -> tuple[RelevantPairs, Units]:
    """The relevant pairs of queries, and the compared parts.

    Names are those of `DETECTORS`, `open_text_encoder` and `open_phrases`, whose errors are raised.
    """
    chosen = detector_of(detector)
    extractor = None if chosen.parts is None else open_phrases(phrases)
    opened = open_text_encoder(encoder)
    made_by = "" if extractor is None else extractor.fingerprint
    settings = PairSettings(chosen.name, threshold, opened.name, opened.fingerprint, made_by)
    units = units_of(queries, chosen, extractor, opened)
    return (listed_pairs(units, settings) if as_list else vector_pairs(units, settings)), units
