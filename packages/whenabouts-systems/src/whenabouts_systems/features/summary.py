"""Summarise the content of a feature file in numbers: `whenabouts features show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError
from whenabouts.types import number_of
from whenabouts_systems.features._batches import item_batches, row_norms
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import content_hash
from whenabouts_systems.features.source import FeatureSource

_UNIT = 1e-2
"""Rows whose norm differs from 1 by less are unit rows; float16, or programs that add 1e-5, change less."""


@dataclass(frozen=True, slots=True)
class RowCount:
    """Counts over rows: their norms, and how many are zero or not finite."""

    norm_min: float
    norm_mean: float
    norm_max: float
    unit_rows: int
    zero_rows: int
    rows_not_finite: int
    items_not_finite: int
    first_not_finite: str | None


@dataclass(frozen=True, slots=True)
class FeatureSummary:
    """A feature file in numbers; `counted` is None if the rows were not read."""

    path: Path
    layout: str
    items: int
    first_id: str
    is_pooled: bool
    lengths: tuple[int, float, int]  # least, median, most rows of an item
    rows: int
    fingerprint: Fingerprint
    counted: RowCount | None

    def to_json(self) -> dict[str, Any]:
        counted = self.counted
        return {
            "path": str(self.path),
            "layout": self.layout,
            "items": self.items,
            "first_id": self.first_id,
            "rows": self.rows,
            "pooled": self.is_pooled,
            "length": dict(zip(("min", "median", "max"), self.lengths, strict=True)),
            "fingerprint": self.fingerprint.to_json(),
            "unknown": list(self.fingerprint.unknown),
            "measured": None
            if counted is None
            else {name: getattr(counted, name) for name in RowCount.__slots__},
        }

    def lines(self) -> list[str]:
        fingerprint, (least, median, most) = self.fingerprint, self.lengths
        lines = [
            f"{self.path}",
            f"{'layout':16}{self.layout}",
            f"{'items':16}{self.items:,} (the first is {self.first_id!r})",
            f"{'width':16}{fingerprint.width}",
            f"{'dtype':16}{fingerprint.dtype}",
            f"{'rows':16}{self.rows:,}; of an item {least} to {most}, median {median:g}",
        ]
        if self.is_pooled:
            lines.append(f"{'':16}each item is one vector, read as (1, {fingerprint.width})")
        if fingerprint.clip_seconds:
            hours = self.rows * fingerprint.clip_seconds / 3600
            lines.append(f"{'time':16}{hours:,.2f} hours at {fingerprint.clip_seconds:g} s a row")
        return [*lines, *self._counted_lines(), *fingerprint.lines()]

    def _counted_lines(self) -> list[str]:
        counted = self.counted
        if counted is None:
            return [f"{'norms':16}not measured (--quick)"]
        unit = counted.unit_rows + counted.zero_rows == self.rows and counted.unit_rows > 0
        lines = [
            f"{'norms':16}{counted.norm_min:.4g} to {counted.norm_max:.4g}, mean {counted.norm_mean:.4g}"
            + (": unit rows, or zero" if unit and counted.zero_rows else ": unit rows" if unit else "")
        ]
        if counted.zero_rows:
            lines.append(f"{'zero rows':16}{counted.zero_rows:,}")
        if counted.rows_not_finite:
            lines.append(
                f"{'not finite':16}{number_of(counted.rows_not_finite, 'row')} in "
                f"{number_of(counted.items_not_finite, 'item')}, the first is {counted.first_not_finite!r}"
            )
        return lines


def summarise(source: FeatureSource, quick: bool = False) -> FeatureSummary:
    """Summarise a source; with `quick` no rows are read. One batch of items is in memory at a time.

    Raises FormatError if the fingerprint states another hash of the rows, as in our own layout.
    """
    if quick:
        counted, lengths = None, np.array([source.length(item) for item in source], dtype=np.int64)
    else:
        counted, lengths = _count(source)
    expected = source.fingerprint.content
    if expected is not None and not quick:
        actual = content_hash((item, source.get(item)) for item in source)
        if actual != expected:
            raise FormatError(
                source.path, f"its rows were changed or damaged: their hash is {actual}", accepted=expected
            )
    return FeatureSummary(
        path=source.path,
        layout=source.layout,
        items=len(source),
        first_id=next(iter(source)),
        is_pooled=source.is_pooled,
        lengths=(int(lengths.min()), float(np.median(lengths)), int(lengths.max())),
        rows=int(lengths.sum()),
        fingerprint=source.fingerprint,
        counted=counted,
    )


def _count(source: FeatureSource) -> tuple[RowCount, NDArray[np.int64]]:
    """The counts over rows, and the number of rows of each item."""
    norms, lengths, bad_items = [], [], []
    for batch in item_batches((item, (source.get(item),)) for item in source):
        norms_of_batch = np.empty(len(batch.arrays[0]))
        for cut, (rows,) in batch.slices():
            norms_of_batch[cut] = row_norms(rows)
        norms.append(norms_of_batch)
        lengths.append(np.diff(batch.starts, append=len(norms_of_batch)))
        bad = batch.per_item(np.logical_or, ~np.isfinite(norms_of_batch))
        bad_items += [batch.ids[place] for place in np.flatnonzero(bad)]
    joined = np.concatenate(norms)
    finite = joined[np.isfinite(joined)]
    least, mean, most = (finite.min(), finite.mean(), finite.max()) if len(finite) else (np.nan,) * 3
    counted = RowCount(
        norm_min=float(least),
        norm_mean=float(mean),
        norm_max=float(most),
        unit_rows=int((np.abs(finite - 1) < _UNIT).sum()),
        zero_rows=int((finite == 0).sum()),
        rows_not_finite=len(joined) - len(finite),
        items_not_finite=len(bad_items),
        first_not_finite=bad_items[0] if bad_items else None,
    )
    return counted, np.concatenate(lengths)
