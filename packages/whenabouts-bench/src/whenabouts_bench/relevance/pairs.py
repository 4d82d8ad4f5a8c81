"""Potentially relevant pairs of queries with confidence (paper 000, section 4.1).

Q queries have C <= Q distinct captions, and pairs are pairs of captions; queries of equal text are relevant
to each other with confidence 1. A pair of confidence 0 counts as not relevant. Pairs are stored in one of two
ways with equal results: as a sparse list, or as vectors from which a batch's pairs are computed on demand,
whose size does not depend on the number of pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.intake.opening import regular_name
from whenabouts.types import Query, UsageError

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

ROUNDING = 1e-6
"""Tolerance of float32 cosines: equal phrases reach a threshold of 1."""
_KIND = "relevant pairs"
_VERSION = "1"


@dataclass(frozen=True)
class PairSettings:
    """The settings by which relevant pairs were found.

    `detector` is "sent", "vp" or "np-vp" (`units.py`), `threshold` the inclusive theta of equation 7.
    `encoder` opens the sentence encoder, `encoder_fingerprint` identifies it; `phrases` is the fingerprint of
    the phrase extractor, "" without one.
    """

    detector: str
    threshold: float
    encoder: str
    encoder_fingerprint: str
    phrases: str = ""

    def __post_init__(self) -> None:
        if not -1 <= self.threshold <= 1:
            raise UsageError(f"threshold {self.threshold!r}: a cosine lies between -1 and 1")


class PairsOfCaptions(Protocol):
    """Stored pairs: `list` or `vectors`."""

    KIND: str

    def among(self, captions: Indices) -> Floats:
        """(n, n) confidence of each two of n captions, 0 if not relevant; 1 on the diagonal."""

    def of(self, caption: int) -> tuple[Indices, Floats]:
        """(captions relevant to one caption, their confidence)."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the file."""


@dataclass(frozen=True)
class ListedPairs:
    """A sparse list: caption i has columns[starts[i]:starts[i + 1]], ascending and larger than i.

    Each pair is stored once. `starts` (C + 1,) int64, `columns` (N,) int32, `confidence` (N,) float16.
    """

    starts: Indices
    columns: NDArray[np.int32]
    confidence: NDArray[np.float16]
    KIND = "list"

    def among(self, captions: Indices) -> Floats:
        """See `PairsOfCaptions`. Searches for all n * n pairs at once."""
        low = np.minimum(captions[:, None], captions[None, :])
        high = np.maximum(captions[:, None], captions[None, :])
        confidence = np.where(low == high, np.float32(1), np.float32(0))
        upper = np.triu(low != high)
        first, last = self.starts[low[upper]], self.starts[low[upper] + 1]
        places = _first_at_least(self.columns, first, last, high[upper])
        hit = places < last
        hit[hit] = self.columns[places[hit]] == high[upper][hit]
        values = np.zeros(len(hit), np.float32)
        values[hit] = self.confidence[places[hit]]
        confidence[upper] = values
        confidence.T[upper] = values
        return confidence

    def of(self, caption: int) -> tuple[Indices, Floats]:
        """See `PairsOfCaptions`. Scans the whole list for captions with smaller indices."""
        row = slice(int(self.starts[caption]), int(self.starts[caption + 1]))
        before = np.flatnonzero(self.columns[: row.start] == caption)
        rows = np.searchsorted(self.starts, before, side="right") - 1
        others = np.concatenate([rows, self.columns[row].astype(np.int64)])
        values = np.concatenate([self.confidence[before], self.confidence[row]])
        return others, values.astype(np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"starts": self.starts, "columns": self.columns, "confidence": self.confidence}


@dataclass(frozen=True)
class VectorPairs:
    """Vectors of the compared parts; pairs are computed on demand.

    Caption i has the units units[starts[i]:starts[i + 1]], the first being the caption itself. `vectors` (U,
    D) float32 of unit length, `starts` (C + 1,) int64, `units` (S,) int32.
    """

    starts: Indices
    units: NDArray[np.int32]
    vectors: Floats
    threshold: float
    KIND = "vectors"

    def among(self, captions: Indices) -> Floats:
        """See `PairsOfCaptions`: equations 7 and 8."""
        if not len(captions):
            return np.zeros((0, 0), np.float32)
        counts = self.starts[captions + 1] - self.starts[captions]
        begins = np.cumsum(counts) - counts
        slots = np.repeat(self.starts[captions] - begins, counts) + np.arange(int(counts.sum()))
        distinct, place = np.unique(self.units[slots], return_inverse=True)
        vectors = self.vectors[distinct]
        cosines = (vectors @ vectors.T)[place]
        best = np.maximum.reduceat(cosines, begins, axis=0)[:, place]
        best = np.maximum.reduceat(best, begins, axis=1)
        whole = cosines[begins][:, place[begins]]
        confidence = np.where(best >= self.threshold - ROUNDING, np.clip(whole, 0, 1), np.float32(0))
        confidence[captions[:, None] == captions[None, :]] = 1
        return np.asarray(confidence, np.float32)

    def of(self, caption: int) -> tuple[Indices, Floats]:
        units = self.units[self.starts[caption] : self.starts[caption + 1]]
        cosines = self.vectors @ self.vectors[units].T
        best = np.maximum.reduceat(cosines.max(1)[self.units], self.starts[:-1])
        others = np.flatnonzero(best >= self.threshold - ROUNDING)
        others = others[others != caption]
        values = cosines[self.units[self.starts[others]], 0]
        kept = values > 0
        return others[kept], np.clip(values[kept], 0, 1).astype(np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"starts": self.starts, "units": self.units, "vectors": self.vectors}


@dataclass(frozen=True)
class RelevantPairs:
    """Queries that are potentially relevant to one another; `caption_of` (Q,) int32 indexes `captions`."""

    query_ids: tuple[str, ...]
    caption_of: NDArray[np.int32]
    captions: tuple[str, ...]
    settings: PairSettings
    kept: PairsOfCaptions

    def block(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Floats:
        """(n, n) float32 confidence C of equation 6 for a batch of rows of `query_ids`, symmetric.

        0 for pairs that are not relevant, and for a query with itself: that pair is positive, not potentially
        relevant.
        """
        chosen = np.asarray(rows, np.int64).reshape(-1)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self.query_ids)):
            raise UsageError(
                f"rows {chosen.min()} to {chosen.max()}: there are {len(self.query_ids)} queries, from 0"
            )
        confidence = self.kept.among(self.caption_of[chosen].astype(np.int64))
        confidence[chosen[:, None] == chosen[None, :]] = 0
        return confidence

    def rows(self, query_ids: Iterable[str]) -> Indices:
        """The rows of queries. Raises UsageError for an unknown id."""
        try:
            return np.array([self._row_of[query_id] for query_id in query_ids], np.int64)
        except KeyError as error:
            raise UsageError(
                f"query {error.args[0]!r} is not among the {len(self.query_ids)} queries of the relevant "
                "pairs; make them of the split that is trained on (whenabouts relevance pairs)"
            ) from None

    def relevant_to(self, query_id: str) -> dict[str, float]:
        """Query id -> confidence of all queries relevant to one query, most confident first."""
        row = int(self.rows([query_id])[0])
        caption = int(self.caption_of[row])
        others, values = self.kept.of(caption)
        confidence = np.zeros(len(self.captions), np.float32)
        relevant = np.zeros(len(self.captions), np.bool_)
        confidence[others], relevant[others] = values, True
        confidence[caption], relevant[caption] = 1, True
        others = np.flatnonzero(relevant[self.caption_of])
        others = others[others != row]
        confidence = confidence[self.caption_of[others]]
        order = np.argsort(-confidence, kind="stable")
        ids = (self.query_ids[other] for other in others[order].tolist())
        return dict(zip(ids, confidence[order].tolist(), strict=True))

    def check(self, queries: Iterable[Query]) -> None:
        """Raise UsageError if a query is missing, or its text differs from when the pairs were made."""
        distinct = list(queries)
        for query, row in zip(distinct, self.rows(query.id for query in distinct).tolist(), strict=True):
            caption = self.captions[self.caption_of[row]]
            if caption != query.text.strip():
                raise UsageError(
                    f"query {query.id!r}: the relevant pairs were made of {caption[:60]!r}, the annotations "
                    f"say {query.text[:60]!r}; make them again (whenabouts relevance pairs)"
                )

    def save(self, path: str | Path) -> None:
        """Write one file atomically."""
        settings = json.dumps(asdict(self.settings))
        about = {"whenabouts": _KIND, "version": _VERSION, "kept": self.kept.KIND, "settings": settings}
        texts = {"query_ids": _packed(self.query_ids), "captions": _packed(self.captions)}
        write_arrays(Path(path), {"caption_of": self.caption_of, **texts, **self.kept.arrays()}, about)

    @classmethod
    def open(cls, path: str | Path) -> RelevantPairs:
        """Read saved pairs. Raises FormatError if the file is of another kind or inconsistent."""
        path = Path(path)
        arrays, about = read_arrays(path)
        kind = about.get("whenabouts", about.get("cuepoint"))  # the project's name, and its former one
        if kind != _KIND or about.get("version") != _VERSION:
            raise FormatError(
                path,
                "says of itself:",
                value={"whenabouts": kind, "version": about.get("version")},
                accepted=f"{_KIND}, version {_VERSION}; make it again (whenabouts relevance pairs)",
            )
        try:
            settings = PairSettings(**json.loads(about["settings"]))
            pairs = cls(
                query_ids=_unpacked(arrays["query_ids"]),
                caption_of=np.asarray(arrays["caption_of"]),
                captions=_unpacked(arrays["captions"]),
                settings=settings,
                kept=_kept(about["kept"], arrays, settings),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(path, f"lacks a part of {_KIND} ({error}); make it again") from None
        pairs._refuse_misfit(path)
        return pairs

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {query_id: row for row, query_id in enumerate(self.query_ids)}

    def _refuse_misfit(self, path: Path) -> None:
        """Raise FormatError for indices out of range, which would yield another query's pairs."""
        arrays, captions = self.kept.arrays(), len(self.captions)
        starts = arrays["starts"]
        filled = arrays["units" if "units" in arrays else "columns"]
        fits = (
            len(self.caption_of) == len(self.query_ids) == len(self._row_of)
            and len(starts) == captions + 1
            and starts[0] == 0
            and starts[-1] == len(filled)
            and (np.diff(starts) >= 0).all()
            and (not len(self.caption_of) or 0 <= self.caption_of.min() <= self.caption_of.max() < captions)
            and len(arrays.get("confidence", filled)) == len(filled)
        )
        if not fits:
            raise FormatError(path, f"holds {_KIND} that do not fit together; make it again")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Write named arrays as safetensors, atomically. Raises FormatError."""
    from safetensors.numpy import save

    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with write_atomically(path) as stream:
        stream.write(save(plain, dict(about)))


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """(arrays, metadata), memory-mapped. Raises FormatError if the file is missing or unreadable."""
    from safetensors import SafetensorError, safe_open

    try:
        # As tensors, because PyTorch maps them into memory; safetensors reads NumPy arrays whole.
        with regular_name(path) as name, safe_open(name, framework="pt") as opened:
            arrays = {name: opened.get_tensor(name).numpy() for name in opened.keys()}  # noqa: SIM118
            return arrays, dict(opened.metadata() or {})
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
    except (SafetensorError, TypeError, ValueError) as error:
        raise FormatError(path, f"is not a file of {_KIND}, or is cut off ({error}); make it again") from None


def _kept(kind: str, arrays: Mapping[str, NDArray[Any]], settings: PairSettings) -> PairsOfCaptions:
    starts = np.asarray(arrays["starts"], np.int64)
    if kind == ListedPairs.KIND:
        return ListedPairs(starts, arrays["columns"], arrays["confidence"])
    if kind == VectorPairs.KIND:
        return VectorPairs(starts, arrays["units"], arrays["vectors"], settings.threshold)
    raise ValueError(f"kept as {kind!r}")


def _first_at_least(values: NDArray[np.int32], first: Indices, last: Indices, least: Indices) -> Indices:
    """The first index in each of N ascending ranges [first, last) with a value of at least `least`, or
    `last`.

    All ranges are bisected together.
    """
    low, high = first.copy(), last.copy()
    while True:
        open_ = np.flatnonzero(low < high)
        if not len(open_):
            return low
        middle = (low[open_] + high[open_]) // 2
        below = values[middle] < least[open_]
        low[open_[below]] = middle[below] + 1
        high[open_[~below]] = middle[~below]


def _packed(texts: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def _unpacked(array: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(json.loads(array.tobytes()))
