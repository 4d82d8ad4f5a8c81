"""The result file of `whenabouts bench`: metrics with intervals, and the answers that they come from.

It is one JSON object, gzip if the name ends in .gz. `whenabouts evaluate`, `compare` and `report` read it as
a run (`formats/bench_results.py`), so anyone with the data can recompute every number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts_bench.evaluation.comparison import estimates_of
from whenabouts_bench.evaluation.evaluate import Evaluation
from whenabouts_bench.formats.json_records import Finite, NotNegative, Origin, Share, Text, Words

FORM = 1
"""Version of the file's form."""

_Count = Annotated[int, Meta(ge=0, le=1 << 53, title="a count")]
_Value = Share | None


class OfTask(msgspec.Struct):
    """The task of a result."""

    task: Words
    title: Text
    split: Text
    revision: Text
    licence: Text
    protocol: Words
    fingerprint: Words
    headline: list[Words]
    files: list[Text] = []
    how: Text = ""


class OfSystem(msgspec.Struct):
    """The system of a result; `factory` and `settings` have no folders and no hosts."""

    name: Words
    revision: Words
    factory: Text
    methods: list[Text]
    settings: dict[str, Text] = {}


class Measured(msgspec.Struct):
    """A metric: its mean, a 95 % interval, and to how many queries it applies."""

    mean: _Value
    low: _Value
    high: _Value
    queries: _Count = 0


class OfRejection(msgspec.Struct):
    """Measures of queries without an answer (`harness/rejection.py`)."""

    answerable: _Count
    unanswerable: _Count
    metrics: dict[str, Measured | None]


class PerQuery(msgspec.Struct):
    """The value of each query, null if a metric does not apply; `clusters` number their videos."""

    query_ids: list[Words]
    clusters: list[_Count]
    values: dict[str, list[_Value]]

    def videos(self) -> dict[str, int]:
        """Metric -> the number of videos with a value."""
        both = {name: zip(self.clusters, values, strict=True) for name, values in self.values.items()}
        return {name: len({video for video, value in of if value is not None}) for name, of in both.items()}


class Results(msgspec.Struct, kw_only=True):
    """One system on one task."""

    whenabouts_bench: Annotated[int, Meta(ge=FORM, le=FORM, title=f"{FORM}, the form of these files")]
    task: OfTask
    system: OfSystem
    date: Words
    version: Text
    machine: dict[str, str | int | float | None]
    videos: _Count
    queries: _Count
    missing: _Count
    left_out: dict[str, _Count] = {}
    metrics: dict[str, Measured]
    not_honoured: list[str] = []
    rejection: OfRejection | None = None
    cost: dict[str, NotNegative | None] = {}
    unjudged: dict[str, Share] | None = None
    notes: list[Text] = []
    per_query: PerQuery
    answers: dict[str, dict[str, list[tuple[Words, Finite | None, Finite | None, Finite]]]] = {}
    probability: dict[str, Share] = {}
    clip_scores: dict[str, list[Finite]] = {}

    def write(self, path: Path) -> None:
        """Write the file. Raises FormatError."""
        with write_atomically(path) as stream:
            stream.write(msgspec.json.encode(self) + b"\n")


def read_results(path: Path) -> Results:
    """A file of results, checked. Raises FormatError, naming field and value."""
    origin = Origin(path)
    try:
        results = msgspec.convert(read_json(path), Results)
    except msgspec.ValidationError as error:
        raise origin.error(f"is not a file of results: {error}") from None
    counts = {len(results.per_query.query_ids), len(results.per_query.clusters)}
    counts |= {len(values) for values in results.per_query.values.values()}
    if len(counts) > 1:
        raise origin.at("per_query").error(f"has lists of different lengths ({sorted(counts)})")
    if len(set(results.per_query.query_ids)) < len(results.per_query.query_ids):
        raise origin.at("per_query", "query_ids").error("names a query twice")
    for name, values in results.per_query.values.items():
        applies = [value for value in values if value is not None]
        stated, mean = results.metrics.get(name), math.fsum(applies) / len(applies) if applies else None
        if stated is None or (stated.mean is None) != (mean is None):
            raise origin.at("metrics", name).error("does not fit the values per query")
        if mean is not None and not math.isclose(mean, stated.mean or 0.0, abs_tol=1e-9):
            raise origin.at("metrics", name).error(
                f"is {stated.mean!r}, but its values per query have the mean {mean!r}"
            )
    return results


def results_in(places: Iterable[str | Path]) -> list[Results]:
    """All results in files and folders, at any depth. FormatError if a file is broken or none exists."""
    results: list[Results] = []
    for place in map(Path, places):
        files = [place]
        if place.is_dir():
            files = sorted(
                file for file in place.rglob("*.json*") if file.name.endswith((".json", ".json.gz"))
            )
        if not files:
            raise FormatError(place, "holds no results", accepted="files that `whenabouts bench run` wrote")
        results += map(read_results, files)
    return results


def measured_metrics(evaluation: Evaluation, clusters: Mapping[str, int]) -> dict[str, Measured]:
    """Metric -> mean with its interval, from draws of whole videos; `clusters`: query id -> video number."""
    estimates = estimates_of(evaluation, clusters)
    counts = np.count_nonzero(~np.isnan(evaluation.values), axis=0).tolist()
    return {
        name: Measured(estimate.value, estimate.low, estimate.high, count)
        if (estimate := estimates.get(name))
        else Measured(None, None, None)
        for name, count in zip(evaluation.metrics, counts, strict=True)
    }


def per_query_of(evaluation: Evaluation, clusters: Mapping[str, int]) -> PerQuery:
    """The values of each query, for the file."""
    values = {
        name: [None if value != value else value for value in evaluation.values[:, number].tolist()]
        for number, name in enumerate(evaluation.metrics)
    }
    ids = list(evaluation.query_ids)
    return PerQuery(ids, [clusters[query_id] for query_id in ids], values)


def evaluation_of(results: Results, metric: str) -> Evaluation:
    """The evaluation of a metric from a file of results."""
    return Evaluation(
        protocol=results.task.protocol,
        run=f"{results.system.name} {results.system.revision}",
        metrics=(metric,),
        query_ids=tuple(results.per_query.query_ids),
        values=np.array([results.per_query.values[metric]], np.float64).T,
    )


def clusters_in(results: Results) -> Mapping[str, int]:
    """Query id -> the number of its video."""
    return dict(zip(results.per_query.query_ids, results.per_query.clusters, strict=True))


def public(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings without locations: an address becomes its model ("" without one), a path its last name.

    A relative path to nothing stays as it is: it may be the name of a model.
    """
    return {
        name: value.partition("#")[2]
        if "://" in value
        else Path(value).name
        if value.startswith(("/", "~/")) or ("/" in value and Path(value).exists())
        else value
        for name, value in settings.items()
    }
