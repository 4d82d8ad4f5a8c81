"""Potentially relevant pairs of queries with confidence (paper 000, section 4.1).

Q queries have C <= Q distinct texts, called captions. Pairs join captions; queries of equal text are relevant
to each other with confidence 1. A pair of confidence 0 counts as not relevant. Pairs are stored as a sparse
list of float16 confidences, or as float32 vectors from which the pairs of a batch are computed. Both give the
same pairs up to float16 rounding. The size of the vectors does not depend on the number of pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, write_atomically
from whenabouts.intake.opening import regular_name
from whenabouts.types import Query, UsageError

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

ROUNDING = 1e-6
"""A cosine reaches a threshold if it is at most this far below: float32 cosines of equal phrases miss 1."""
_KIND = "relevant pairs"
_VERSION = "1"


@dataclass(frozen=True)
class PairSettings:
    """The settings by which relevant pairs were found. Raises UsageError for an impossible threshold.

    `detector` is "sent", "vp" or "np-vp" (`units.py`); `threshold` is theta of equation 7, inclusive.
    `encoder` is the name that opens the sentence encoder. `encoder_fingerprint` and `phrases` identify the
    sentence encoder and the phrase extractor ("" without an extractor).
    """

    detector: str
    threshold: float
    encoder: str
    encoder_fingerprint: str
    phrases: str = ""

    def __post_init__(self) -> None:
        if not -1 <= self.threshold <= 1:
            raise UsageError(f"threshold {self.threshold!r}: a cosine lies between -1 and 1")


@dataclass(frozen=True)
class ListedPairs:
    """A sparse list: columns[starts[i]:starts[i + 1]] are the captions j > i relevant to i, ascending.

    N pairs, each stored once. `starts` (C + 1,) int64, `columns` (N,) int32, `confidence` (N,) float16.
    """

    starts: Indices
    columns: NDArray[np.int32]
    confidence: NDArray[np.float16]
    KIND = "list"

    def among(self, captions: Indices) -> Floats:
        """(n, n) confidence for n caption indices: 0 if not relevant, 1 for a caption with itself."""
        # All pairs above the diagonal are looked up together, and mirrored.
        low = np.minimum(captions[:, None], captions[None, :])
        high = np.maximum(captions[:, None], captions[None, :])
        confidence = np.where(low == high, np.float32(1), np.float32(0))
        upper = np.triu(low != high)
        first, last = self.starts[low[upper]], self.starts[low[upper] + 1]
        entries = _first_at_least(self.columns, first, last, high[upper])
        hit = entries < last
        hit[hit] = self.columns[entries[hit]] == high[upper][hit]
        values = np.zeros(len(hit), np.float32)
        values[hit] = self.confidence[entries[hit]]
        confidence[upper] = values
        confidence.T[upper] = values
        return confidence

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fields as they are written."""
        return {"starts": self.starts, "columns": self.columns, "confidence": self.confidence}


@dataclass(frozen=True)
class VectorPairs:
    """Vectors of units (captions and their phrases); pairs are computed on demand.

    units[starts[i]:starts[i + 1]] are the rows of caption i in `vectors`, the first for the caption itself.
    `vectors` (U, D) float32 of unit length, `starts` (C + 1,) int64, `units` (S,) int32.
    """

    starts: Indices
    units: NDArray[np.int32]
    vectors: Floats
    threshold: float
    KIND = "vectors"

    def among(self, captions: Indices) -> Floats:
        """As `ListedPairs.among`: equation 7 says which pairs are relevant, equation 8 their confidence."""
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
        """(indices of the other captions relevant to one caption, their confidence), both (m,)."""
        units = self.units[self.starts[caption] : self.starts[caption + 1]]
        cosines = self.vectors @ self.vectors[units].T
        best = np.maximum.reduceat(cosines.max(1)[self.units], self.starts[:-1])
        others = np.flatnonzero(best >= self.threshold - ROUNDING)
        others = others[others != caption]
        values = cosines[self.units[self.starts[others]], 0]
        kept = values > 0
        return others[kept], np.clip(values[kept], 0, 1).astype(np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fields as they are written."""
        return {"starts": self.starts, "units": self.units, "vectors": self.vectors}


PairsOfCaptions = ListedPairs | VectorPairs


@dataclass(frozen=True)
class RelevantPairs:
    """Pairs of potentially relevant queries; `caption_of` (Q,) int32 is each query's row of `captions`."""

    query_ids: tuple[str, ...]
    caption_of: NDArray[np.int32]
    captions: tuple[str, ...]
    settings: PairSettings
    kept: PairsOfCaptions

    def block(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Floats:
        """(n, n) float32 confidence C of equation 6, symmetric, for n rows of `query_ids`.

        0 for pairs that are not relevant, and for a query with itself, which is a positive pair instead.
        Raises UsageError for rows out of range.
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
        """(n,) rows of `query_ids`. Raises UsageError for an unknown id."""
        try:
            return np.array([self._row_of[query_id] for query_id in query_ids], np.int64)
        except KeyError as error:
            raise UsageError(
                f"query {error.args[0]!r} is not among the {len(self.query_ids)} queries of the relevant "
                "pairs; make pairs of the split that you train on (whenabouts relevance pairs)"
            ) from None

    def check(self, queries: Iterable[Query]) -> None:
        """Raise UsageError if a query's id is unknown, or its text differs from when the pairs were made."""
        checked = list(queries)
        for query, row in zip(checked, self.rows(query.id for query in checked).tolist(), strict=True):
            caption = self.captions[self.caption_of[row]]
            if caption != query.text.strip():
                raise UsageError(
                    f"query {query.id!r}: the relevant pairs were made of {caption[:60]!r}, the annotations "
                    f"say {query.text[:60]!r}; make the pairs again (whenabouts relevance pairs)"
                )

    def save(self, path: str | Path) -> None:
        """Write one safetensors file atomically. Raises FormatError."""
        settings = json.dumps(asdict(self.settings))
        about = {"whenabouts": _KIND, "version": _VERSION, "kept": self.kept.KIND, "settings": settings}
        texts = {"query_ids": _packed(self.query_ids), "captions": _packed(self.captions)}
        write_arrays(Path(path), {"caption_of": self.caption_of, **texts, **self.kept.arrays()}, about)

    @classmethod
    def open(cls, path: str | Path) -> RelevantPairs:
        """Read saved pairs. Raises FormatError for an unreadable or inconsistent file, or another kind."""
        path = Path(path)
        arrays, about = read_arrays(path)
        kind = about.get("whenabouts", about.get("cuepoint"))  # the former name of the project
        if kind != _KIND or about.get("version") != _VERSION:
            raise FormatError(
                path,
                "is of another kind or version:",
                value={"whenabouts": kind, "version": about.get("version")},
                accepted=f"{_KIND}, version {_VERSION}; make the file again (whenabouts relevance pairs)",
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
            raise FormatError(path, f"a part is missing or invalid ({error}); make the file again") from None
        pairs._refuse_misfit(path)
        return pairs

    @cached_property
    def _row_of(self) -> Mapping[str, int]:
        return {query_id: row for row, query_id in enumerate(self.query_ids)}

    def _refuse_misfit(self, path: Path) -> None:
        """Raise FormatError if ids, lengths, `starts` or `caption_of` do not fit; `entries` is not read."""
        arrays, captions = self.kept.arrays(), len(self.captions)
        starts = arrays["starts"]
        entries = arrays["units" if "units" in arrays else "columns"]
        fits = (
            len(self.caption_of) == len(self.query_ids) == len(self._row_of)
            and len(starts) == captions + 1
            and starts[0] == 0
            and starts[-1] == len(entries)
            and (np.diff(starts) >= 0).all()
            and (not len(self.caption_of) or 0 <= self.caption_of.min() <= self.caption_of.max() < captions)
            and len(arrays.get("confidence", entries)) == len(entries)
        )
        if not fits:
            raise FormatError(path, f"holds {_KIND} that do not fit together; make the file again")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Write named arrays, with metadata `about`, as safetensors, atomically. Raises FormatError."""
    from safetensors.numpy import save

    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with write_atomically(path) as stream:
        stream.write(save(plain, dict(about)))


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """(memory-mapped arrays by name, metadata). Raises FormatError if the file is missing or unreadable."""
    from safetensors import SafetensorError, safe_open

    try:
        # Opened for PyTorch, because safetensors maps tensors into memory but reads NumPy arrays whole.
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
    raise ValueError(f"unknown kind {kind!r}")


def _first_at_least(values: NDArray[np.int32], first: Indices, last: Indices, least: Indices) -> Indices:
    """In each of N ranges [first, last), the first index with a value >= `least`, else `last`.

    Values ascend in each range. All arguments but `values` are (N,); all ranges are bisected together.
    """
    low, high = first.copy(), last.copy()
    while True:
        unfinished = np.flatnonzero(low < high)
        if not len(unfinished):
            return low
        middle = (low[unfinished] + high[unfinished]) // 2
        below = values[middle] < least[unfinished]
        low[unfinished[below]] = middle[below] + 1
        high[unfinished[~below]] = middle[~below]


def _packed(texts: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def _unpacked(array: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(json.loads(array.tobytes()))
