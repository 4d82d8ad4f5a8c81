"""Choose the similarity thresholds of a sentence encoder from rated pairs: figure 8 of paper 002.

Rated pairs have human ratings from 0 to 5, as in the STS tasks; ratings above 3 count as similar. MVMR chose
t+ = 0.9 and t- = 0.5 for SimCSE on STS16; other encoders need other thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whenabouts.drawing import BLUE, DASHED, ORANGE, new_figure, save_both
from whenabouts.encoders.protocol import TextEncoder
from whenabouts.intake.files import FormatError, loads, open_unpacked
from whenabouts.types import UsageError
from whenabouts_bench.relevance.units import encoded

Floats = NDArray[np.float32]

SIMILAR = 3.0
"""Sentences rated above it are similar (paper 002, section 5.1)."""
_LINE = 'lines "rating<tab>sentence<tab>sentence", or objects with score, sentence1 and sentence2'
_DRAWS = 1000
FEW = 30
"""The minimal number of similar and of other pairs for a reliable threshold."""
_STEPS = np.round(np.arange(0.3, 0.981, 0.02), 2)


@dataclass(frozen=True)
class RatedPairs:
    """Pairs of sentences with human ratings (N,), 0 to 5."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    rating: Floats


@dataclass(frozen=True)
class ThresholdStudy:
    """Statistics per threshold.

    `precision` is the share of similar pairs among those above, `recall` the share of similar pairs that are
    above, `similar_below` the share of similar pairs among those below, `above` the number of pairs above.
    `best` maximises F1 (the middle one of ties); `best_range` is its 95 % interval.
    """

    pairs: int
    similar: int
    encoder: str
    thresholds: tuple[float, ...]
    above: tuple[int, ...]
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    similar_below: tuple[float, ...]
    best: float
    best_range: tuple[float, float]
    correlation: float

    def lines(self) -> Iterator[str]:
        others = self.pairs - self.similar
        yield (
            f"{self.pairs:,} rated pairs, {self.similar:,} similar (rated above {SIMILAR:g}) and {others:,} "
            f"others; {self.encoder}"
        )
        low, high = self.best_range
        yield (
            f"best threshold (F1) {self.best:.2f}; with other pairs of this kind {low:.2f} to {high:.2f} "
            f"(95 %, bootstrap); rank correlation with people {self.correlation:.2f}"
        )
        if min(self.similar, others) < FEW:
            yield (
                f"fewer than {FEW} pairs of a kind are too few to choose a threshold by: give some hundred "
                "of each (STS16 has 1,186 pairs)"
            )
        yield "threshold  pairs above  of these similar  of all similar  of those below similar"
        columns = zip(
            self.thresholds, self.above, self.precision, self.recall, self.similar_below, strict=True
        )
        for step, above, precision, recall, below in columns:
            kept = f"{precision:.1%}" if above else "-"
            left = f"{below:.1%}" if above < self.pairs else "-"
            yield f"{step:9.2f}  {above:11,}  {kept:>16}  {recall:14.1%}  {left:>22}"


def read_rated_pairs(path: Path) -> RatedPairs:
    """Rated pairs of a file (tab-separated lines, those of STS-B included, or JSON lines) or of a folder.

    A folder is a SemEval STS release such as STS16: for each `STS….input.NAME.txt` (sentence, sentence,
    ignored columns; tab-separated) a `STS….gs.NAME.txt` with the rating of each line, blank if unrated.
    Raises FormatError, with file and line, for an invalid pair, a missing file, or files of different
    lengths.
    """
    if path.is_dir():
        rows = list(_rows_of_folder(path))
    else:
        rated = (_rated(path, number, line) for number, line in _lines(path) if line.strip())
        rows = [row for row in rated if row is not None]
    if not rows:
        raise FormatError(path, "holds no rated pairs", accepted=_LINE)
    first, second, rating = zip(*rows, strict=True)
    return RatedPairs(first, second, np.array(rating, np.float32))


def _rows_of_folder(folder: Path) -> Iterator[tuple[str, str, float]]:
    """The pairs of all files of a folder, by file name."""
    inputs = sorted(folder.glob("*.input.*.txt"))
    if not inputs:
        raise FormatError(folder, "holds no rated pairs", accepted="STS….input.NAME.txt and STS….gs.NAME.txt")
    for sentences in inputs:
        ratings = sentences.with_name(sentences.name.replace(".input.", ".gs.", 1))
        if not ratings.is_file():
            raise FormatError(sentences, f"has no ratings beside it: {ratings.name} is missing")
        lines, values = list(_lines(sentences)), list(_lines(ratings))
        if len(lines) != len(values):
            problem = f"has {len(values)} lines and {sentences.name} has {len(lines)}"
            raise FormatError(ratings, problem, accepted="a line for each pair, blank where nobody rated it")
        for (number, pair), (_, rating) in zip(lines, values, strict=True):
            if not rating.strip():
                continue
            cells = [cell.strip() for cell in pair.split("\t")[:2]]
            if len(cells) < 2 or not all(cells):
                accepted = "two sentences, a tab between"
                raise FormatError(sentences, "is not a pair:", line=number, value=pair, accepted=accepted)
            yield cells[0], cells[1], _rating(ratings, number, rating.strip())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with open_unpacked(path) as stream:
        for number, raw in enumerate(stream, 1):
            yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")


def _rating(path: Path, number: int, text: str) -> float:
    rating = _number(text)
    if rating is None or not 0 <= rating <= 5:
        raise FormatError(path, "is not a rating:", line=number, value=text, accepted="0 to 5")
    return rating


def _rated(path: Path, number: int, line: str) -> tuple[str, str, float] | None:
    """A pair; None for a header line and for unrated pairs (STS16 has many)."""
    if line.startswith("{"):
        try:
            values = loads(line)
            cells = [str(values["score"]), values["sentence1"], values["sentence2"]]
        except (ValueError, KeyError):
            cells = []
    else:
        cells = line.split("\t")
        # STS-B has genre, file, year and index before the rating.
        cells = cells[4:7] if len(cells) >= 7 else cells
    if len(cells) < 3 or not all(isinstance(cell, str) and cell.strip() for cell in cells[1:3]):
        raise FormatError(path, "is not a rated pair", line=number, value=line, accepted=_LINE)
    if not cells[0].strip() or (number == 1 and _number(cells[0]) is None):
        return None
    return cells[1].strip(), cells[2].strip(), _rating(path, number, cells[0])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def study_thresholds(pairs: RatedPairs, encoder: TextEncoder) -> tuple[ThresholdStudy, Floats]:
    """(the study, (N,) cosines of the pairs). Raises UsageError if all pairs are similar, or none."""
    similar = pairs.rating > SIMILAR
    if similar.all() or not similar.any():
        raise UsageError(
            f"{len(similar)} pairs, {int(similar.sum())} of them rated above {SIMILAR:g}: a threshold is "
            "chosen by similar pairs and others; give a file with both"
        )
    texts = list(dict.fromkeys((*pairs.first, *pairs.second)))
    place = {text: row for row, text in enumerate(texts)}
    vectors = encoded(texts, encoder)
    left, right = (vectors[[place[text] for text in side]] for side in (pairs.first, pairs.second))
    cosines = np.asarray((left * right).sum(axis=1), np.float32)
    # Count thresholds reached per pair, from which follow pairs reached per threshold.
    reached = np.searchsorted(_STEPS.astype(np.float32), cosines, side="right")
    cells = np.zeros((2, len(_STEPS) + 1), np.int64)
    np.add.at(cells, (similar.astype(np.int64), reached), 1)
    above, hits, scores = _counted(cells[None])
    best = np.flatnonzero(scores[0] >= scores.max() - 1e-12)
    precision, recall = hits[0] / np.maximum(above[0], 1), hits[0] / similar.sum()
    below = (similar.sum() - hits[0]) / np.maximum(len(similar) - above[0], 1)
    study = ThresholdStudy(
        len(cosines), int(similar.sum()), encoder.name, tuple(_STEPS.tolist()), tuple(above[0].tolist()),
        tuple(precision.tolist()), tuple(recall.tolist()), tuple(below.tolist()),
        float(_STEPS[best[len(best) // 2]]), _best_range(cells), _rank_correlation(pairs.rating, cosines),
    )  # fmt: skip
    return study, cosines


def _counted(cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(R, T) pairs and similar pairs above, and F1; `cells` (R, 2, T + 1) count thresholds reached."""
    reaching = cells[..., ::-1].cumsum(-1)[..., ::-1][..., 1:]
    above, hits = reaching.sum(1), reaching[:, 1]
    return above, hits, 2 * hits / np.maximum(above + cells[:, 1].sum(-1, keepdims=True), 1)


def _best_range(cells: NDArray[np.int64]) -> tuple[float, float]:
    """95 % bootstrap interval of the best threshold; of ties the lowest and the highest count."""
    count = int(cells.sum())
    drawn = np.random.default_rng(0).multinomial(count, cells.ravel() / count, _DRAWS)
    _, _, scores = _counted(drawn.reshape(_DRAWS, *cells.shape))
    best = scores >= scores.max(1, keepdims=True) - 1e-12
    lowest, highest = best.argmax(1), len(_STEPS) - 1 - best[:, ::-1].argmax(1)
    low = np.quantile(_STEPS[lowest], 0.025, method="lower")
    high = np.quantile(_STEPS[highest], 0.975, method="higher")
    return float(low), float(high)


def _rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's correlation with mean ranks for ties; 0 if an input is constant."""
    if not np.ptp(a) or not np.ptp(b):
        return 0.0
    return float(np.corrcoef(_mean_ranks(a), _mean_ranks(b))[0, 1])


def _mean_ranks(values: Floats) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place], np.float64)


def draw_study(pairs: RatedPairs, cosines: Floats, marks: tuple[float, float], stem: Path) -> list[Path]:
    """Figure 8: the distribution of cosines per rating as SVG and PNG; widths show the number of pairs."""
    groups = [cosines[np.round(pairs.rating) == rating] for rating in range(6)]
    most = max(len(group) for group in groups)

    with new_figure(4.5, 3.4) as figure:
        axes = figure.subplots()
        for rating, group in enumerate(groups):
            if len(group) > 1 and np.ptp(group) > 0:
                width = max(0.1, 0.9 * len(group) / most)
                shape = axes.violinplot(group, [rating], widths=width, showextrema=False, showmedians=True)
                shape["cmedians"].set_color(BLUE)
                for body in shape["bodies"]:
                    body.set_facecolor(BLUE)
        for mark in marks:
            axes.axhline(mark, color=ORANGE, linewidth=0.8, linestyle=DASHED)
        axes.set(xlabel="people's rating, rounded", ylabel="cosine", xticks=range(6), xlim=(-0.6, 5.6))
        return save_both(figure, stem)
