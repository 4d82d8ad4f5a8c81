"""What an evaluation says: a value per query and metric, and how the run and the judgements fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """The numbers of one run under one protocol.

    `values` is (Q, M): unrounded, fractions in [0, 1], one row per query that counts and one column per
    metric, NaN where a metric does not apply to a query (it has no moment of that length). A query that the
    run does not answer has zeros (under an `-as-released` protocol that drops such queries it has no row).
    `groups` gives labels of the queries, (Q,) each, such as their type.
    """

    protocol: str
    """Name and version: "tvr@1"."""
    run: str
    """The run's name, its file."""
    metrics: tuple[str, ...]
    query_ids: tuple[str, ...]
    values: Floats
    missing: tuple[str, ...] = ()
    """Judged queries that the run does not answer."""
    unknown_queries: int = 0
    """Queries of the run that are not judged here."""
    unknown_videos: int = 0
    """Moments of the run (of judged queries) in videos that the truth does not name."""
    left_out: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Judged queries that the protocol leaves out, by reason."""
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    """Sentences a reader of the numbers must know."""

    def means(self) -> dict[str, float]:
        """Metric -> mean over the queries to which it applies, unrounded; NaN where there are none."""
        return dict(zip(self.metrics, _means(self.values).tolist(), strict=True))

    def column(self, metric: str) -> Floats:
        """(Q,) values of a metric. Raises UsageError for one that was not evaluated."""
        if metric not in self.metrics:
            raise UsageError(f"{metric!r} was not evaluated; there are {', '.join(self.metrics)}")
        return np.asarray(self.values[:, self.metrics.index(metric)])

    def means_by(self, group: str) -> dict[str, dict[str, float]]:
        """Label -> metric -> mean over the queries with that label; labels in the order of their names."""
        labels = self.groups[group]
        return {
            str(label): dict(zip(self.metrics, _means(self.values[labels == label]).tolist(), strict=True))
            for label in np.unique(labels)
        }

    def per_query(self) -> Iterator[dict[str, Any]]:
        """One JSON object a query: id, whether the run answers it, values (None: does not apply)."""
        missing = set(self.missing)
        labels = {name: values.tolist() for name, values in self.groups.items()}
        for number, query_id in enumerate(self.query_ids):
            values = dict(zip(self.metrics, self.values[number].tolist(), strict=True))
            yield {
                "query_id": query_id,
                **{name: of_queries[number] for name, of_queries in labels.items()},
                "missing": query_id in missing,
                "metrics": _without_nan(values),
            }

    def lines(self) -> list[str]:
        """What a reader of the numbers must know, for people."""
        told = [f"{len(self.query_ids):,} queries"]
        if self.missing:
            zero = "counted as 0" if set(self.missing) <= set(self.query_ids) else "left out"
            some = ", ".join(self.missing[:3]) + (", …" if len(self.missing) > 3 else "")
            told.append(f"{len(self.missing):,} judged queries are missing from the run, {zero} ({some})")
        told += [f"{times:,} {reason}: left out" for reason, times in self.left_out.items()]
        if self.unknown_queries:
            told.append(f"{self.unknown_queries:,} queries of the run are not judged")
        if self.unknown_videos:
            told.append(f"{self.unknown_videos:,} moments lie in videos that the judgements do not name")
        return [*told, *self.notes]

    def to_json(self) -> dict[str, Any]:
        """As `evaluate --json` prints it."""
        return {
            "protocol": self.protocol,
            "run": self.run,
            "queries": len(self.query_ids),
            "missing_queries": len(self.missing),
            "unknown_queries": self.unknown_queries,
            "unknown_videos": self.unknown_videos,
            "left_out": dict(self.left_out),
            "metrics": _without_nan(self.means()),
            "by": {
                group: {label: _without_nan(means) for label, means in self.means_by(group).items()}
                for group in self.groups
            },
            "notes": list(self.notes),
        }


def _means(values: Floats) -> Floats:
    applies = ~np.isnan(values)
    total = np.where(applies, values, 0.0).sum(axis=0)
    count = applies.sum(axis=0)
    means: Floats = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return means


def _without_nan(means: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if np.isnan(mean) else mean for name, mean in means.items()}
