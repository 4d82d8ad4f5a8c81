"""Measure how much two feature files differ, and say it in a sentence: `whenabouts features compare`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts_systems.features._batches import ItemBatch, item_batches, row_norms
from whenabouts_systems.features.fingerprint import FeatureMismatch, Fingerprint, require_same
from whenabouts_systems.features.source import FeatureSource, Rows

Verdict = Literal["same", "same_where_finite", "rounded", "normalised", "different", "incomparable"]

PERCENTILES = (1, 5, 25, 50)
_WORST = 10
_SAME_DIRECTION = 1e-5
"""Up to this 1 - cosine two rows have one direction. Rounding to bfloat16 changes it by some 1.4e-6."""
_SAME_NORM = 1e-2
"""The share by which rounding alone may change the norm of a row."""
# Half a step of float16, for normal and for subnormal numbers.
_HALF_STEP, _HALF_LEAST = 2.0**-11, 2.0**-25


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """One item in both files: the mean and least cosine of its common rows, and its two numbers of rows."""

    id: str
    cosine_mean: float
    cosine_min: float
    length_a: int
    length_b: int

    def line(self) -> str:
        """One line of text."""
        cosines = f"{self.cosine_mean:9.6f} {self.cosine_min:9.6f}"
        return f"  {cosines} {self.length_a:6} {self.length_b:6}  {self.id!r}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two feature files.

    Rows at the same place are compared, as far as both files have them. `cosine_mean` and `percentiles` are
    over items (their mean cosines), `cosine_min` is over rows. Without anything to compare the cosines are
    None.
    """

    a: Path
    b: Path
    verdict: Verdict
    sentence: str
    widths: tuple[int, int]
    items_compared: int
    rows_compared: int
    rows_equal: int
    rows_not_finite: int
    """Rows that are not finite in A, in B or in both; they have no cosine, norm or difference."""
    rows_not_finite_by_file: tuple[int, int]
    cosine_mean: float | None
    cosine_min: float | None
    percentiles: dict[int, float]
    largest_difference: float | None
    norm_means: tuple[float, float] | None
    differing_lengths: int
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    worst: tuple[ItemDifference, ...]
    fingerprints: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ids that only one file has are counted, and the first ten named."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return shown | {
            "a": str(self.a),
            "b": str(self.b),
            "percentiles": {str(share): value for share, value in self.percentiles.items()},
            "only_in_a": {"count": len(self.only_in_a), "first": list(self.only_in_a[:_WORST])},
            "only_in_b": {"count": len(self.only_in_b), "first": list(self.only_in_b[:_WORST])},
            "worst": [
                {name: getattr(item, name) for name in ItemDifference.__slots__} for item in self.worst
            ],
        }

    def lines(self) -> list[str]:
        """Lines of text, the sentence first."""
        lines = [self.sentence, f"A  {self.a}", f"B  {self.b}", self.fingerprints]
        if self.cosine_mean is not None and self.cosine_min is not None:
            shares = "  ".join(f"{share} %: {value:.6f}" for share, value in self.percentiles.items())
            lines += [
                f"cosine of items  mean {self.cosine_mean:.6f}  {shares}",
                f"cosine of rows   least {self.cosine_min:.6f}",
                f"rows compared    {self.rows_compared:,}, of which {self.rows_equal:,} are equal",
            ]
        if self.norm_means is not None:
            lines.append(
                f"norm of rows     mean {self.norm_means[0]:.4g} in A, {self.norm_means[1]:.4g} in B"
            )
        for name, only in (("A", self.only_in_a), ("B", self.only_in_b)):
            if only:
                more = ", …" if len(only) > 3 else ""
                lines.append(f"only in {name}        {len(only):,}: {', '.join(map(repr, only[:3]))}{more}")
        if self.worst and (self.verdict != "same" or self.differing_lengths):
            lines.append("worst items: mean cosine, least cosine, rows in A, rows in B")
            lines += [item.line() for item in self.worst]
        return lines


@dataclass(slots=True)
class _Counts:
    """Counts over the rows of both files, added batch by batch.

    `equal` counts all equal rows, `equal_finite` the finite ones. Of finite rows, `rounded` (to float16) and
    `aligned` (of one direction) count the equal ones too; the norms of `resized` ones differ.
    """

    ids: list[str]
    means: list[NDArray[np.float64]]
    leasts: list[NDArray[np.float64]]
    norm_sums: NDArray[np.float64]
    not_finite_by_file: NDArray[np.int64]
    rows: int = 0
    equal: int = 0
    equal_finite: int = 0
    rounded: int = 0
    aligned: int = 0
    resized: int = 0
    not_finite: int = 0
    largest: float = 0.0


def compare(a: FeatureSource, b: FeatureSource) -> Comparison:
    """Compare two sources, over the ids that both have; one batch is in memory at a time."""
    common = [item for item in a if item in b]
    counts = _Counts([], [], [], np.zeros(2), np.zeros(2, np.int64))
    if a.width != b.width:
        return _comparison(a, b, {item: (a.length(item), b.length(item)) for item in common}, counts)
    lengths: dict[str, tuple[int, int]] = {}
    for batch in item_batches(_pairs(a, b, common, lengths)):
        _add_batch(counts, batch)
    return _comparison(a, b, lengths, counts)


def _pairs(
    a: FeatureSource, b: FeatureSource, common: list[str], lengths: dict[str, tuple[int, int]]
) -> Iterator[tuple[str, tuple[Rows, Rows]]]:
    """The rows of both, cut to the shorter; adds their uncut lengths to `lengths`."""
    for item in common:
        rows_a, rows_b = a.get(item), b.get(item)
        lengths[item] = len(rows_a), len(rows_b)
        least = min(lengths[item])
        yield item, (rows_a[:least], rows_b[:least])


def _comparison(
    a: FeatureSource, b: FeatureSource, lengths: dict[str, tuple[int, int]], counts: _Counts
) -> Comparison:
    only_in_a = tuple(item for item in a if item not in b)
    only_in_b = tuple(item for item in b if item not in a)
    differing = sum(x != y for x, y in lengths.values())
    verdict = _verdict(a, b, len(lengths), counts)
    sentence = _sentence(verdict, a, b, counts, len(lengths))
    finite = counts.rows - counts.not_finite
    means = np.concatenate(counts.means) if counts.means else np.empty(0)
    leasts = np.concatenate(counts.leasts) if counts.leasts else np.empty(0)
    finite_means = means[np.isfinite(means)]
    percentiles = np.percentile(finite_means, PERCENTILES).tolist() if len(finite_means) else ()
    in_a, in_b = counts.not_finite_by_file.tolist()
    return Comparison(
        a=a.path,
        b=b.path,
        verdict=verdict,
        sentence=sentence + _notes(only_in_a, only_in_b, differing, counts),
        widths=(a.width, b.width),
        items_compared=len(counts.ids),
        rows_compared=counts.rows,
        rows_equal=counts.equal,
        rows_not_finite=counts.not_finite,
        rows_not_finite_by_file=(in_a, in_b),
        cosine_mean=float(finite_means.mean()) if len(finite_means) else None,
        cosine_min=float(np.nanmin(leasts)) if len(finite_means) else None,
        percentiles=dict(zip(PERCENTILES, percentiles, strict=False)),
        largest_difference=counts.largest if finite else None,
        norm_means=(float(counts.norm_sums[0] / finite), float(counts.norm_sums[1] / finite))
        if finite
        else None,
        differing_lengths=differing,
        only_in_a=only_in_a,
        only_in_b=only_in_b,
        worst=_worst(counts.ids, means, leasts, lengths),
        fingerprints=_fingerprints(a.fingerprint, b.fingerprint),
    )


def _add_batch(counts: _Counts, batch: ItemBatch) -> None:
    """Add a batch: cosines per item, and counts of rows."""
    cosines = np.empty(len(batch.arrays[0]))
    for cut, (rows_a, rows_b) in batch.slices():
        cosines[cut] = _compare_rows(counts, rows_a, rows_b)
    good = np.isfinite(cosines)
    with np.errstate(invalid="ignore"):
        sums = batch.per_item(np.add, np.where(good, cosines, 0))
        counts.means.append(sums / batch.per_item(np.add, good.astype(np.float64)))
    counts.leasts.append(batch.per_item(np.fmin, cosines))
    counts.ids += batch.ids
    counts.rows += len(cosines)


def _compare_rows(counts: _Counts, a: Rows, b: Rows) -> NDArray[np.float64]:
    """(T,) cosines; 1 where both rows are equal, NaN where one is not finite."""
    equal = np.logical_and.reduce(a == b, axis=1)
    norms_a = row_norms(a)
    norms_b = norms_a if equal.all() else row_norms(b)
    good = np.isfinite(norms_a) & np.isfinite(norms_b)
    broken, agreeing = ~good, int((equal & good).sum())
    counts.not_finite += int(broken.sum())
    counts.equal += agreeing
    if broken.any():
        same = (a[broken] == b[broken]) | (np.isnan(a[broken]) & np.isnan(b[broken]))
        counts.equal += int(np.logical_and.reduce(same, axis=1).sum())
        counts.not_finite_by_file += [int((~np.isfinite(norms)).sum()) for norms in (norms_a, norms_b)]
    counts.norm_sums += (norms_a[good].sum(), norms_b[good].sum())
    other = good & ~equal
    counts.equal_finite += agreeing
    counts.rounded += agreeing
    counts.aligned += agreeing
    cosines = np.where(good, 1.0, np.nan)
    if other.any():
        cosines[other] = _compare_unequal(counts, a[other], b[other], norms_a[other], norms_b[other])
    return cosines


def _compare_unequal(
    counts: _Counts, a: Rows, b: Rows, norms_a: NDArray[np.float64], norms_b: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(T,) cosines of rows that are finite and not equal."""
    with np.errstate(over="ignore"):
        gap = np.abs(a - b)
    step = np.maximum(np.abs(a), np.abs(b)) * _HALF_STEP + _HALF_LEAST
    scale = norms_a * norms_b
    dots = np.vecdot(a.astype(np.float64), b.astype(np.float64))
    cosines = np.clip(dots / np.where(scale > 0, scale, 1), -1, 1)
    counts.rounded += int(np.logical_and.reduce(gap <= step, axis=1).sum())
    counts.aligned += int((1 - cosines <= _SAME_DIRECTION).sum())
    counts.resized += int((np.abs(norms_a - norms_b) > _SAME_NORM * np.maximum(norms_a, norms_b)).sum())
    counts.largest = max(counts.largest, float(gap.max()))
    return np.asarray(cosines, dtype=np.float64)


def _verdict(a: FeatureSource, b: FeatureSource, common: int, counts: _Counts) -> Verdict:
    if not common:
        return "incomparable"
    if a.width != b.width:
        return "different"
    finite = counts.rows - counts.not_finite
    if counts.equal == counts.rows:
        return "same"
    if not finite:
        return "incomparable"
    if counts.equal_finite == finite:
        return "same_where_finite"
    # Before "rounded", which very small numbers always are: they differ by less than a step of float16.
    if counts.aligned == finite and counts.resized:
        return "normalised"
    return "rounded" if finite in (counts.rounded, counts.aligned) else "different"


def _sentence(verdict: Verdict, a: FeatureSource, b: FeatureSource, counts: _Counts, common: int) -> str:
    where = f"in the {counts.rows:,} rows of the {common:,} items that both have"
    if not common:
        return f"Nothing can be compared: no id is in both (A has {next(iter(a))!r}, B has {next(iter(b))!r})"
    if a.width != b.width:
        return f"These are different features: A is {a.width} wide and B {b.width}"
    if verdict == "incomparable":
        return f"Nothing can be compared: no row is finite {where}"
    if verdict == "same":
        return f"These are the same features: every number is equal {where}"
    if verdict == "same_where_finite":
        return f"These are the same features where both are finite: all finite rows are equal {where}"
    if verdict == "rounded":
        fine = counts.rounded == counts.rows - counts.not_finite
        how = "rounded (float16)" if fine else "rounded more coarsely than to float16"
        return f"These are the same features, {how}: the largest difference is {counts.largest:.3g} {where}"
    if verdict == "normalised":
        return f"These are the same features up to normalisation: only the norms of rows differ {where}"
    turned = counts.rows - counts.not_finite - counts.aligned
    return f"These are different features: {turned:,} rows have another direction {where}"


def _notes(only_in_a: tuple[str, ...], only_in_b: tuple[str, ...], differing: int, counts: _Counts) -> str:
    notes = [f"{len(only):,} only in {name}" for name, only in (("A", only_in_a), ("B", only_in_b)) if only]
    if differing:
        notes.append(f"{differing:,} differ in their number of rows (the shorter counts)")
    if counts.not_finite:
        in_a, in_b = counts.not_finite_by_file.tolist()
        notes.append(f"{counts.not_finite:,} rows are not finite ({in_a:,} in A, {in_b:,} in B)")
    return "".join(f"; {note}" for note in notes) + "."


def _worst(
    ids: list[str],
    means: NDArray[np.float64],
    leasts: NDArray[np.float64],
    lengths: dict[str, tuple[int, int]],
) -> tuple[ItemDifference, ...]:
    """The ten items of lowest mean cosine; equal ones by descending difference of lengths, then by id."""
    gaps = [abs(lengths[item][0] - lengths[item][1]) for item in ids]
    order = sorted(range(len(ids)), key=lambda i: (np.nan_to_num(means[i], nan=-2.0), -gaps[i], ids[i]))
    return tuple(
        ItemDifference(ids[i], float(means[i]), float(leasts[i]), *lengths[ids[i]]) for i in order[:_WORST]
    )


def _fingerprints(a: Fingerprint, b: Fingerprint) -> str:
    try:
        unknown = require_same(a, b, ("A", "B"))
    except FeatureMismatch as mismatch:
        return f"fingerprints differ: {mismatch.differences}"
    if not unknown:
        return "fingerprints: the same"
    return f"fingerprints: all known facts agree; unknown for one or both: {', '.join(unknown)}"
