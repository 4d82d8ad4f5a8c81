"""Put a run's diagnosis, and the comparison of two runs, into plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from whenabouts.types import number_of
from whenabouts_bench.evaluation.compared import Comparison
from whenabouts_bench.report.diagnosis import (
    BANDS,
    GOOD_FIRST,
    NOT_ANSWERED,
    RANKED_LOW,
    SPAN_WRONG,
    VIDEO_LATE,
    VIDEO_MISSED,
    Diagnosis,
)
from whenabouts_bench.report.groups import Grouping

LEAST_SHARE: Final = 0.03
"""The minimal share of queries in a weak group, which also has `LEAST_QUERIES` and at most half of all."""
LEAST_QUERIES: Final = 20
STANDARD_ERRORS: Final = 2.0
MOST_WEAK: Final = 3


@dataclass(frozen=True)
class Summary:
    """A run in a few sentences: the share of queries found, `verdict` on where it mostly fails, details."""

    headline: str
    verdict: str
    details: tuple[str, ...]

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.headline, self.verdict, *self.details) if part)


@dataclass(frozen=True)
class Verdict:
    """Whether two runs differ: one sentence, and details."""

    headline: str
    details: tuple[str, ...]


def percent(part: float, whole: float) -> str:
    """A share in whole percents, never rounded to 0 % or 100 %.

    >>> percent(1, 3), percent(1, 1000), percent(999, 1000), percent(0, 0)
    ('33 %', 'under 1 %', 'over 99 %', '0 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.5:
        return "under 1 %"
    if 99.5 < share < 100:
        return "over 99 %"
    return f"{share:.0f} %"


def summarize(diagnosis: Diagnosis) -> Summary:
    """The number of queries found, and the kinds of failures, most frequent first."""
    counts = diagnosis.class_counts
    total, first = int(counts.sum()), int(counts[GOOD_FIRST])
    failed = total - first
    what = "are answered at rank 1" if diagnosis.names_moments else "have a right video first"
    if first == 1:
        what = what.replace("are", "is", 1).replace("have", "has", 1)
    headline = f"Of {number_of(total, 'query')}, {first:,} ({percent(first, total)}) {what}."
    if not failed:
        return Summary(headline, "Nothing fails.", ())
    kinds = sorted(_kinds(diagnosis), key=lambda kind: -kind[0])
    details = [f"{percent(number, failed)} of the failures: {what}." for number, what, _ in kinds if number]
    return Summary(headline, f"It fails mostly at {kinds[0][2]}.", (*_first_row(diagnosis), *details))


def _kinds(diagnosis: Diagnosis) -> list[tuple[int, str, str]]:
    """(number of failures, description, short name) of each kind."""
    counts = diagnosis.class_counts
    low = int(counts[RANKED_LOW])
    late, missed = int(counts[VIDEO_LATE]), int(counts[VIDEO_MISSED])
    kinds = [
        (
            late + missed,
            f"retrieval, the right video is not in the list ({missed:,}) or below the first row ({late:,})",
            "retrieval (finding the video)",
        ),
        (int(counts[NOT_ANSWERED]), "not answered, the run has no row for the query", "answering at all"),
    ]
    if diagnosis.names_moments:
        kinds += [
            (
                int(counts[SPAN_WRONG]),
                "localization, the right video comes first, but no good span is in the list",
                "localization (right video, wrong span)",
            ),
            (
                low,
                f"ranking, a good moment is in the list, but not first{_how_low(diagnosis) if low else ''}",
                "ranking (a good moment is in the list, but not first)",
            ),
        ]
    return kinds


def _how_low(diagnosis: Diagnosis) -> str:
    ranks = diagnosis.good_rank[diagnosis.classes == RANKED_LOW] + 1
    bands = zip(BANDS, diagnosis.band_counts.tolist(), strict=True)
    places = ", ".join(f"{number:,} at {band.name}" for band, number in bands if number)
    return f" (median rank {np.median(ranks):,.0f}; ranks: {places})"


def _first_row(diagnosis: Diagnosis) -> list[str]:
    """Whether failing first rows have the wrong video or the wrong span."""
    if not diagnosis.names_moments:
        return ["The run names videos and no moments, so only retrieval can be judged."]
    failed = (diagnosis.classes != GOOD_FIRST) & (diagnosis.rows > 0)
    answered, right = int(failed.sum()), int((diagnosis.video_rank[failed] == 0).sum())
    if not answered:
        return []
    if right == answered:
        return ["The first row always lies in a right video: only spans and their order can fail."]
    return [
        f"Of the first rows that fail, {percent(answered - right, answered)} lie in another video "
        f"(retrieval) and {percent(right, answered)} in a right video with a wrong span (localization)."
    ]


def weak_places(diagnosis: Diagnosis, groupings: Sequence[Grouping]) -> list[str]:
    """The groups found less often than the others by over two standard errors, worst first."""
    first = (diagnosis.classes == GOOD_FIRST).astype(np.float64)
    total, hits = len(first), float(first.sum())
    weak = []
    for grouping in groupings:
        sizes, rates = grouping.counts(), grouping.means(first)
        others = total - sizes
        rate_of_others = np.divide(hits - rates * sizes, others, out=np.zeros(len(sizes)), where=others > 0)
        variance = rate_of_others * (1 - rate_of_others)
        error = np.sqrt(variance * (1 / np.maximum(sizes, 1) + 1 / np.maximum(others, 1)))
        clear = rate_of_others - rates > STANDARD_ERRORS * error
        clear &= (sizes >= max(LEAST_QUERIES, LEAST_SHARE * total)) & (sizes <= total / 2)
        weak += [
            (grouping.what.format(grouping.labels[at]), int(sizes[at]), rates[at], rate_of_others[at])
            for at in np.flatnonzero(clear & (others > 0)).tolist()
        ]
    weak.sort(key=lambda entry: entry[2] - entry[3])
    return [
        f"{what} ({number_of(size, 'query')}): {percent(rate, 1)} found, "
        f"against {percent(others, 1)} of the others"
        for what, size, rate, others in weak[:MOST_WEAK]
    ]


def moved_by(before: Diagnosis, after: Diagnosis) -> str:
    """The queries that only one of two runs finds first, in one sentence."""
    first, second = before.classes == GOOD_FIRST, after.classes == GOOD_FIRST
    won, lost = int((second & ~first).sum()), int((first & ~second).sum())
    return (
        f"B answers {number_of(won, 'query')} at rank 1 that A does not; A answers {lost:,} that B does not."
    )


def verdict_of(comparison: Comparison) -> Verdict:
    """Whether the second run is better by the first metric, and a count of the other metrics."""
    first = comparison.differences[0]
    a, b = (system.name for system in comparison.systems)
    before, after = (system.means[first.metric].value for system in comparison.systems)
    difference = first.difference
    verdict = {
        "better": f"{b} is better than {a}",
        "worse": f"{b} is worse than {a}",
        "no difference shown": f"no difference between {a} and {b} is shown",
    }[first.verdict]
    real = (
        "The observed difference may be chance, which does not mean that the runs are equal."
        if first.verdict == "no difference shown"
        else "That is more than chance."
    )
    level = f"{100 * (1 - comparison.settings.alpha):g} %"
    numbers = (
        f"{a} has {100 * before:.1f} %, {b} {100 * after:.1f} %: {100 * difference.value:+.1f} points "
        f"({level} interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f}, "
        f"{chance(first.p_corrected)})."
    )
    verdicts = [other.verdict for other in comparison.differences]
    better, worse = verdicts.count("better"), verdicts.count("worse")
    others = (
        f"Of {len(verdicts)} metrics, {b} is better by {better} and worse by {worse}; "
        f"{len(verdicts) - better - worse} show no difference."
    )
    details = (f"{numbers} {real}", *((others,) if len(verdicts) > 1 else ()))
    return Verdict(f"By {first.metric}, {verdict}.", details)


def chance(p: float) -> str:
    """A p-value as text.

    >>> chance(0.0421), chance(0.00001)
    ('p = 0.042', 'p < 0.001')
    """
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
