"""What an evaluation says: a value per query and metric, and how the run and the judgements fit together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuepoint.types import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """The numbers of one run under one protocol.

    `values` is (Q, M): unrounded, fractions in [0, 1], one row per query that counts and one column per
    metric. A query that the run does not answer has zeros (under an `-as-released` protocol that drops such
    queries it has no row). `groups` gives labels of the queries, (Q,) each, such as their type.
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
        """Metric -> mean over the queries, unrounded."""
        return dict(zip(self.metrics, self.values.mean(axis=0).tolist(), strict=True))

    def column(self, metric: str) -> Floats:
        """(Q,) values of a metric. Raises UsageError for one that was not evaluated."""
        if metric not in self.metrics:
            raise UsageError(f"{metric!r} was not evaluated; there are {', '.join(self.metrics)}")
        return np.asarray(self.values[:, self.metrics.index(metric)])

    def means_by(self, group: str) -> dict[str, dict[str, float]]:
        """Label -> metric -> mean over the queries with that label; labels in the order of their names."""
        labels = self.groups[group]
        return {
            str(label): dict(
                zip(self.metrics, self.values[labels == label].mean(axis=0).tolist(), strict=True)
            )
            for label in np.unique(labels)
        }

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
            "metrics": self.means(),
            "by": {group: self.means_by(group) for group in self.groups},
            "notes": list(self.notes),
        }
