"""A comparison of runs: means, differences and verdicts, as a table, JSON, or LaTeX."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whenabouts.types import number_of
from whenabouts_bench.evaluation.metrics import without_nan
from whenabouts_bench.evaluation.significance import Correction

Verdict = Literal["better", "worse", "no difference shown"]
Limits = tuple[float, float]
"""Bounds of a difference of means."""

_STUDENT = "Student's t, random effects of training and video"
_MOST_METRIC_COLUMNS = 5
_WIDTH = 100
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference of means, as a fraction, with its confidence interval."""

    value: float
    low: float
    high: float

    def to_json(self, name: str) -> dict[str, float]:
        return {name: self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class System:
    """A compared run."""

    name: str
    """Short and unique."""
    run: str
    missing: int
    """The number of judged queries without an answer."""
    means: Mapping[str, Estimate]


@dataclass(frozen=True)
class Difference:
    """The difference of a system from a baseline by a metric, and whether it is significant.

    `p` is uncorrected, `p_corrected` after the correction. `exact`: all patterns of signs were counted.
    `differing_videos` is the number of videos in which the two differ. `verdict` is about the system.
    """

    metric: str
    system: str
    baseline: str
    difference: Estimate
    p: float
    p_corrected: float
    exact: bool
    differing_videos: int
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        names = ("p", "p_corrected", "exact", "differing_videos", "verdict")
        return self.difference.to_json("difference") | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison of runs.

    Intervals cover 1 - `alpha`; a difference is significant if its corrected p is at most `alpha`.
    `baseline`: "first" compares each other run with the first, "each-pair" all pairs. `trainings`: the number
    of consecutive runs of one system; with several, `several_trainings.py` replaces resampling.
    """

    baseline: Literal["first", "each-pair"] = "first"
    trainings: int = 1
    correction: Correction = "holm"
    resamples: int = 10_000
    seed: int = 0
    alpha: float = 0.05


@dataclass(frozen=True)
class Comparison:
    """Runs compared under one protocol.

    `differences` are ordered by `metrics`, then by pairs. `counts` has, for each metric, the number of
    queries that it applies to, and of their videos.
    """

    protocol: str
    metrics: tuple[str, ...]
    counts: Mapping[str, tuple[int, int]]
    queries: int
    videos: int
    clustered_by: Literal["video", "query"]
    systems: tuple[System, ...]
    differences: tuple[Difference, ...]
    settings: Settings
    missing_as_zero: bool = True
    """Whether judged queries without an answer count as 0; else they are left out for all runs."""
    notes: tuple[str, ...] = ()
    """Caveats for readers of the numbers."""
    unjudged: PooledComparison | None = None
    """The effect of unjudged answers, if the judgements come from pools."""
    not_answered: tuple[str, ...] = ()
    """Metrics without a value, because not every run answers their task."""

    @property
    def family(self) -> int:
        """The number of comparisons corrected together: all pairs of runs by one metric."""
        return len(self.differences) // len(self.metrics)

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "queries": self.queries,
            "videos": self.videos,
            "clustered_by": self.clustered_by,
            "trainings": self.settings.trainings,
            "test": "paired randomisation (sign flips), two-sided" if self._drawn else _STUDENT,
            "interval": "bootstrap, expanded percentile" if self._drawn else _STUDENT,
            "resamples": self.settings.resamples,
            "seed": self.settings.seed,
            "alpha": self.settings.alpha,
            "correction": self.settings.correction,
            "family": {"of": "pairs of runs, each metric by itself", "size": self.family},
            "missing_as_zero": self.missing_as_zero,
            "metrics": {
                name: {"queries": queries, "videos": videos}
                for name, (queries, videos) in self.counts.items()
            }
            | dict.fromkeys(self.not_answered),
            "systems": [
                {
                    "name": system.name,
                    "run": system.run,
                    "missing_queries": system.missing,
                    "metrics": {name: mean.to_json("mean") for name, mean in system.means.items()},
                }
                for system in self.systems
            ],
            "comparisons": [
                {
                    "system": system,
                    "baseline": baseline,
                    "metrics": {
                        d.metric: d.to_json()
                        for d in self.differences
                        if (d.system, d.baseline) == (system, baseline)
                    },
                }
                for system, baseline in dict.fromkeys((d.system, d.baseline) for d in self.differences)
            ],
            **({} if self.unjudged is None else {"unjudged": self.unjudged.to_json()}),
            "notes": list(self.notes),
        }

    @property
    def _drawn(self) -> bool:
        """Whether videos were resampled: if each system has one run."""
        return self.settings.trainings == 1

    @property
    def _units(self) -> str:
        return "videos" if self.clustered_by == "video" else "queries"

    def table(self) -> list[str]:
        """A block per metric, then explanations."""
        lines = [f"{self.protocol}: {self._about(self.queries, self.videos)}"]
        lines += [f"  {line}" for line in self._missing()]
        for metric in self.metrics:
            lines += ["", *self.block(metric)]
            lines += [] if self.unjudged is None else self.unjudged.block(metric)
        lines += ["", *(f"{metric}  -" for metric in self.not_answered)] if self.not_answered else []
        pools = () if self.unjudged is None else (self.unjudged.sentence(),)
        for sentence in (*self._explained(), *pools, *self.notes):
            lines += ["", *textwrap.wrap(sentence, _WIDTH)]
        return lines

    def _about(self, queries: int, videos: int) -> str:
        return number_of(queries, "query") + (
            f" about {number_of(videos, 'video')}" if self.clustered_by == "video" else ""
        )

    def _missing(self) -> list[str]:
        missing = [f"{system.missing:,} by {system.name}" for system in self.systems if system.missing]
        then = "they count as 0" if self.missing_as_zero else "they are left out"
        return [f"Judged queries not answered: {', '.join(missing)}; {then}"] if missing else []

    def _correction(self) -> str:
        if self.family == 1:
            return "one comparison for each metric, so no correction"
        of = f"the {self.family} comparisons of each metric"
        if self.settings.correction == "none":
            return f"not corrected for {of}"
        return f"{self.settings.correction.capitalize()}'s correction for {of}"

    def block(self, metric: str) -> list[str]:
        """The lines of one metric: its name, then a table of runs."""
        queries, videos = self.counts[metric]
        applies = "" if queries == self.queries else f"  (applies to {self._about(queries, videos)})"
        level = f"{100 * (1 - self.settings.alpha):g} %"
        rows = [("run", "mean %", f"[{level}]", "against", "difference", f"[{level}]", "p", "")]
        for system in self.systems:
            mean = system.means[metric]
            first = (system.name, f"{100 * mean.value:.2f}", _interval(mean))
            differences = [d for d in self.differences if (d.metric, d.system) == (metric, system.name)]
            rows += [(*first, "", "", "", "", "")] if not differences else []
            for number, d in enumerate(differences):
                cells = (d.baseline, f"{100 * d.difference.value:+.2f}", _interval(d.difference, signed=True))
                rows.append((*(first if number == 0 else ("",) * 3), *cells, _p(d.p_corrected), d.verdict))
        return [metric + applies, *_lined_up(rows, right=(1, 4, 6))]

    def _explained(self) -> list[str]:
        settings = self.settings
        verdicts = (
            f'"better" and "worse": p is at most {settings.alpha:g}. "no difference shown" means that '
            "these queries do not tell the two runs apart, not that the runs are equal."
        )
        if not self._drawn:
            return [
                f"Each system was trained {settings.trainings} times. [ ]: confidence interval, not "
                f"corrected; p: two-sided, {self._correction()}; no correction for the number of metrics. "
                f"Both: {_STUDENT} (variance of trainings and of {self._units} together).",
                verdicts,
            ]
        return [
            f"[ ]: confidence interval, from {settings.resamples:,} bootstrap draws of whole "
            f"{self._units}. It is not corrected for several comparisons.",
            f"p: two-sided paired randomisation test. The sign of each {self.clustered_by}'s difference is "
            f"flipped at random, {settings.resamples:,} times (all patterns if there are fewer); "
            f"{self._correction()}; no correction for the number of metrics.",
            verdicts,
        ]

    def to_latex(self) -> str:
        r"""A booktabs table with intervals; letters mark significant improvements.

        Runs are rows, or columns if there are many metrics. Needs `\usepackage{booktabs}`.
        """
        letters = {system.name: _letter(number) for number, system in enumerate(self.systems)}
        runs = [f"({letters[s.name]})~{escaped(s.name)}" for s in self.systems]
        metrics = [escaped(metric) for metric in (*self.metrics, *self.not_answered)]
        dashes = ["--"] * len(self.not_answered)
        cells = [
            [*(self._cell(s, metric, letters) for metric in self.metrics), *dashes] for s in self.systems
        ]
        if len(metrics) > _MOST_METRIC_COLUMNS:
            head, names, cells = runs, metrics, [list(row) for row in zip(*cells, strict=True)]
        else:
            head, names = metrics, runs
        return booktabs(
            ["", *head],
            [[name, *row] for name, row in zip(names, cells, strict=True)],
            caption=self._caption(letters),
            label="tab:comparison",
            before=[r"needs \usepackage{booktabs}", *(escaped(note) for note in self.notes)],
        )

    def _cell(self, system: System, metric: str, letters: Mapping[str, str]) -> str:
        differences = [d for d in self.differences if d.metric == metric]
        beaten = [d.baseline for d in differences if (d.system, d.verdict) == (system.name, "better")]
        beaten += [d.system for d in differences if (d.baseline, d.verdict) == (system.name, "worse")]
        marks = ",".join(letters[s.name] for s in self.systems if s.name in beaten)
        mean = system.means[metric]
        above = f"{100 * mean.value:.2f}" + (f"$^{{{marks}}}$" if marks else "")
        return rf"\shortstack{{{above}\\{{\scriptsize {_interval(mean)}}}}}"

    def _caption(self, letters: Mapping[str, str]) -> str:
        settings, trained, drawn, test = self.settings, "", "", f"a system that this one beats: {_STUDENT}"
        if self._drawn:
            drawn = f" from {settings.resamples:,} bootstrap draws of whole {self._units}"
            test = (
                "a run that this one beats significantly: two-sided paired randomisation test that flips the "
                f"signs of whole {self._units}, {settings.resamples:,} times (all patterns if fewer)"
            )
        else:
            trained = f" and {settings.trainings} trainings"
        tested = f" Only differences to ({letters[self.systems[0].name]}) were tested."
        missing = "".join(f" {escaped(sentence)}." for sentence in self._missing())
        return (
            f"Means in percent over {self._about(self.queries, self.videos)}{trained} (protocol "
            f"{escaped(self.protocol)}), with {100 * (1 - settings.alpha):g}\\,\\% confidence intervals"
            f"{drawn}.{missing} A superscript letter names {test}, $p \\le {settings.alpha:g}$, "
            f"{self._correction()}.{tested if settings.baseline == 'first' else ''}"
        )


def _interval(estimate: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"[{100 * estimate.low:{sign}.2f}, {100 * estimate.high:{sign}.2f}]"


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 0.00005 else f"{p:.1e}"


def _letter(number: int) -> str:
    """a, b, ... z, aa, ab, as in spreadsheets."""
    return (_letter(number // 26 - 1) if number >= 26 else "") + "abcdefghijklmnopqrstuvwxyz"[number % 26]


def _lined_up(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def escaped(text: str) -> str:
    r"""Text escaped for LaTeX; control characters become blanks.

    >>> print(escaped("50%_of {a}"))
    50\%\_of \{a\}
    """
    return "".join(_ESCAPED.get(letter, letter) for letter in _CONTROLS.sub(" ", text))


def booktabs(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    label: str,
    before: Sequence[str] = (),
) -> str:
    """A floating table of LaTeX cells: first column left-aligned, the others centred.

    `before` are comment lines above it, such as required packages.
    """
    lines = [f"% {line}" for line in before]
    lines += [r"\begin{table}", r"  \centering", f"  \\caption{{{caption}}}", f"  \\label{{{label}}}"]
    lines += [f"  \\begin{{tabular}}{{l{'c' * (len(head) - 1)}}}", r"    \toprule"]
    lines += [f"    {' & '.join(head)} \\\\", r"    \midrule"]
    lines += [f"    {' & '.join(row)} \\\\" for row in rows]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class PooledComparison:
    """A comparison by judgements from pools, with the changes that unjudged answers could make.

    `condensed` is the comparison on condensed lists; `runs` has `Unjudged.means` by run and metric, `limits`
    has the bounds of the difference of means over all grades of unjudged answers (`possible_difference`) by
    metric, system and baseline.
    """

    judged_iou: float
    condensed: Comparison
    runs: Mapping[str, Mapping[str, Mapping[str, float]]]
    limits: Mapping[tuple[str, str, str], Limits]

    def settled(self, metric: str, system: str, baseline: str) -> bool:
        """Whether unjudged answers cannot change the sign of the difference."""
        least, greatest = self.limits[metric, system, baseline]
        return least > 0 or greatest < 0

    def block(self, metric: str) -> list[str]:
        """The lines of one metric."""
        counts = [
            f"{int(run[metric]['unjudged']):,} of {int(run[metric]['answers']):,} answers of {name}"
            for name, run in self.runs.items()
            if run[metric]["unjudged"]
        ]
        if not counts:
            return ["  all answers that it reads were judged"]
        differences = (d for d in self.condensed.differences if d.metric == metric)
        return [
            f"  not judged: {', '.join(counts)}; without these:",
            *self.condensed.block(metric)[1:],
            *(f"  {self._possible_in_words(d)}" for d in differences),
        ]

    def _possible_in_words(self, d: Difference) -> str:
        least, greatest = self.limits[d.metric, d.system, d.baseline]
        settled = self.settled(d.metric, d.system, d.baseline)
        return f"{d.system} - {d.baseline}: {100 * least:+.2f} to {100 * greatest:+.2f} possible: " + (
            "its sign is the same for any grades of the unjudged answers"
            if settled
            else "NO VERDICT, judge more: the unjudged answers could turn it"
        )

    def sentence(self) -> str:
        """An explanation of the blocks."""
        return (
            "Judgements from pools: an answer is judged from IoU "
            f"{self.judged_iou:g} with a judged moment (or what the metric asks, if that is less). The first "
            "lines of a metric count unjudged answers as wrong, the second leave them out (condensed "
            'lists). "possible": differences of the means over all grades of the unjudged answers; by R@K '
            "and mIoU an answer of both runs has one grade, by other metrics each run is bounded "
            "separately, and the limits may be narrower."
        )

    def to_json(self) -> dict[str, Any]:
        condensed = self.condensed.to_json()
        for pair in condensed["comparisons"]:
            for metric, numbers in pair["metrics"].items():
                names = (metric, pair["system"], pair["baseline"])
                least, greatest = self.limits[names]
                numbers |= {"lower": least, "upper": greatest, "settled": self.settled(*names)}
        return {
            "judged_iou": self.judged_iou,
            "systems": [
                {"name": name, "metrics": {metric: without_nan(numbers) for metric, numbers in run.items()}}
                for name, run in self.runs.items()
            ],
            "condensed": {key: condensed[key] for key in ("systems", "comparisons")},
        }
