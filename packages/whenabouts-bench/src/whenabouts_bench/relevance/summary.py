"""Summarise relevant pairs: counts, most frequent parts, examples, a figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.drawing import BLUE, check_picture, new_figure, save_figure
from whenabouts.types import number_of
from whenabouts_bench.relevance.pairs import ListedPairs, RelevantPairs
from whenabouts_bench.relevance.units import Units

_BINS = 20
_SAMPLE = 400


@dataclass(frozen=True)
class Example:
    """Two captions, their confidence, and their two nearest parts."""

    first: str
    second: str
    confidence: float
    part_of_first: str
    part_of_second: str
    cosine: float


@dataclass(frozen=True)
class Summary:
    """Counts of relevant pairs.

    Among `captions` distinct captions, `pairs` pairs are relevant, a `share` of all; `query_pairs` counts
    pairs of queries, equal captions included. `per_caption` are mean, median and maximum. `sampled` numbers
    are estimated from some captions. `confidence` are counts in bins of equal width from 0 to 1, `common` the
    parts shared by most captions.
    """

    queries: int
    captions: int
    parts: int
    pairs: int
    query_pairs: int
    share: float
    per_caption: tuple[float, float, int]
    sampled: bool
    confidence: tuple[int, ...]
    degrees: tuple[int, ...]
    common: tuple[tuple[str, int], ...]
    examples: tuple[Example, ...]

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "degrees"}

    def lines(self) -> Iterator[str]:
        mean, median, most = self.per_caption
        about = "about " if self.sampled else ""
        yield (
            f"{number_of(self.queries, 'query')}, {number_of(self.captions, 'different caption')}, "
            f"{number_of(self.parts, 'part')} to compare"
        )
        yield (
            f"{about}{self.pairs} pairs of captions are relevant, {100 * self.share:.2f} % of all "
            f"({about}{self.query_pairs} pairs of queries); "
            f"per caption mean {mean:.1f}, median {median:.0f}, most {most}"
        )
        if self.common:
            yield "parts that occur in most captions (each makes all of them relevant to one another):"
            yield from (f"  {count:6}  {text}" for text, count in self.common)
        if self.examples:
            yield "examples (confidence; the two parts that are nearest, and their cosine):"
        for example in self.examples:
            yield f"  {example.confidence:.2f}  {example.first}  |  {example.second}"
            yield f"        {example.part_of_first}  ~  {example.part_of_second}  {example.cosine:.2f}"


def summarise(pairs: RelevantPairs, units: Units, *, examples: int = 8) -> Summary:
    """Counts, and pairs drawn evenly over the range of confidence."""
    captions = len(units.captions)
    weight = np.bincount(units.caption_of, minlength=captions)
    rows, sampled = np.arange(captions), not isinstance(pairs.kept, ListedPairs)
    if isinstance(pairs.kept, ListedPairs):
        first = np.repeat(rows, np.diff(pairs.kept.starts))
        second, confidence = pairs.kept.columns, np.asarray(pairs.kept.confidence, np.float32)
        degrees = np.bincount(first, minlength=captions) + np.bincount(second, minlength=captions)
        factor = 1.0
    else:
        rows = np.sort(np.random.default_rng(0).choice(captions, min(_SAMPLE, captions), replace=False))
        relevant = [pairs.kept.of(int(row)) for row in rows]
        degrees = np.array([len(others) for others, _ in relevant])
        first, second = np.repeat(rows, degrees), np.concatenate([others for others, _ in relevant])
        confidence = np.concatenate([values for _, values in relevant])
        factor = captions / len(rows) / 2
    possible = max(1, captions * (captions - 1) // 2)
    equal_pairs = int((weight * (weight - 1) // 2).sum())
    return Summary(
        queries=len(units.query_ids),
        captions=captions,
        parts=len(units.texts),
        pairs=round(len(first) * factor),
        query_pairs=round(float((weight[first] * weight[second]).sum()) * factor) + equal_pairs,
        share=len(first) * factor / possible,
        per_caption=(float(degrees.mean()), float(np.median(degrees)), int(degrees.max())),
        sampled=sampled,
        confidence=tuple(np.histogram(confidence, _BINS, (0.0, 1.0))[0].tolist()),
        degrees=tuple(degrees.tolist()),
        common=_common(units),
        examples=tuple(_examples(units, first, second, confidence, examples)),
    )


def _common(units: Units, count: int = 8) -> tuple[tuple[str, int], ...]:
    captions = np.bincount(units.units, minlength=len(units.texts))
    most = np.argsort(-captions, kind="stable")[:count]
    return tuple((units.texts[row], int(captions[row])) for row in most.tolist() if captions[row] > 1)


def _examples(
    units: Units,
    first: NDArray[Any],
    second: NDArray[Any],
    confidence: NDArray[np.float32],
    count: int,
) -> Iterator[Example]:
    """One random pair from each of `count` confidence intervals."""
    draw = np.random.default_rng(0)
    edges = np.linspace(0, 1, count + 1)
    for low, high in pairwise(edges.tolist()):
        rows = np.flatnonzero((confidence >= low) & (confidence < high if high < 1 else confidence <= 1))
        if not len(rows):
            continue
        row = int(rows[draw.integers(len(rows))])
        left, right = int(first[row]), int(second[row])
        parts = [units.units[units.starts[caption] : units.starts[caption + 1]] for caption in (left, right)]
        cosines = units.vectors[parts[0]] @ units.vectors[parts[1]].T
        place = np.unravel_index(int(cosines.argmax()), cosines.shape)
        a, b = (units.texts[part[index]] for part, index in zip(parts, place, strict=True))
        captions = (units.captions[left], units.captions[right])
        yield Example(*captions, float(confidence[row]), a, b, float(cosines[place]))


def draw_summary(summary: Summary, title: str, path: Path) -> None:
    """Draw the distributions of confidence and of relevant captions per caption; PNG, SVG or PDF by suffix.

    Raises UsageError as `check_picture` does, FormatError if the file cannot be written.
    """
    check_picture(path)
    with new_figure(9.2, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        edges = np.linspace(0, 1, len(summary.confidence) + 1)
        left.bar(edges[:-1], summary.confidence, np.diff(edges), align="edge", color=BLUE)
        left.set(xlabel="confidence of a relevant pair", ylabel="pairs of captions", xlim=(0, 1))
        right.hist(np.array(summary.degrees), 40, color=BLUE)
        right.set(xlabel="captions that are relevant to one", ylabel="captions", yscale="log")
        right.yaxis.set_major_formatter("{x:g}")  # formulas are off, and so are powers of ten
        figure.suptitle(f"{title}: {100 * summary.share:.2f} % of all pairs", fontsize=10)
        save_figure(figure, path)
