"""Draw figures 4 to 7 of TVR-Ranking's paper (004) for any set of graded judgements.

Similarities come with the judgements (`Annotations.similarity`); annotators' raw grades are a CSV file with
the columns `pair_id`, `worker` and `relevance`, as in TVR-Ranking. Needs matplotlib.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whenabouts.drawing import BLUE, COLOURS, GREY, ORANGE, new_figure, save_both
from whenabouts.intake.files import FormatError, read_document
from whenabouts.lines import one_line
from whenabouts.overlap import place_in_group
from whenabouts.times import format_time
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.matching import (
    Truth,
    matched_one_to_one,
    pairs_of,
    passes,
    rows_of,
    truth_of,
)
from whenabouts_bench.evaluation.metrics import Metric, parse_metric
from whenabouts_bench.evaluation.protocols import find_protocol
from whenabouts_bench.formats.annotations import Annotations, Floats, Indices
from whenabouts_bench.formats.runs import RunSource

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRADES = 5
_BINS = 20
_SHOWN = 10
"""Queries of figure 4, and moments of a query in figures 6 and 7."""
_COLUMNS = "pair_id, worker and relevance"


def similarities_of(annotations: Annotations) -> Floats:
    """(N,) similarities of judgements. Raises UsageError if they have none."""
    if annotations.similarity is None:
        raise UsageError(
            f"{annotations.name}: has no similarity of query and caption, which figures 4 and 6 show; give "
            "judgements with `similarity`, as `whenabouts relevance ranked` and TVR-Ranking write them"
        )
    return annotations.similarity


def draw_similarity(annotations: Annotations, stem: Path, seed: int = 0) -> list[Path]:
    """Draw figure 4 as SVG and PNG: relevance against similarity, and against the rank by similarity.

    Ten queries are sampled from those with at least the median number of judgements. Each has its colour, and
    points are jittered. The line is the mean of all judgements.
    """
    similarity = similarities_of(annotations)
    compared = np.isfinite(similarity)
    order = np.lexsort((-np.where(compared, similarity, -np.inf), annotations.query))
    rank = np.empty(len(order))
    rank[order] = place_in_group(annotations.query[order])
    counts = np.bincount(annotations.query[compared], minlength=len(annotations.queries))
    most = np.flatnonzero(counts >= np.quantile(counts[counts > 0], 0.5))
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.permutation(most)[:_SHOWN])
    with new_figure(8.4, 3.4) as figure:
        shown = {"similarity of query and caption": similarity, "rank by similarity": rank + 1}
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (label, values) in zip(panels, shown.items(), strict=True):
            for number, query in enumerate(chosen.tolist()):
                rows = np.flatnonzero((annotations.query == query) & compared)
                jittered = annotations.relevance[rows] + draw.uniform(-0.16, 0.16, len(rows))
                axes.scatter(values[rows], jittered, s=7, color=COLOURS[number % len(COLOURS)], alpha=0.7)
            mean = _binned(values[compared], annotations.relevance[compared])
            axes.plot(*mean, color="black", linewidth=1.2)
            axes.set(xlabel=label, yticks=range(_GRADES))
        figure.axes[0].set_ylabel("relevance")
        figure.suptitle(
            f"{len(chosen)} of {len(annotations.queries):,} queries; line: mean of all", fontsize=9
        )
        return save_both(figure, stem)


def _binned(values: Floats, relevance: Floats) -> tuple[Floats, Floats]:
    """(centres, mean relevance) of the non-empty bins of equal width."""
    count, edges = np.histogram(values, _BINS, (values.min(), values.max() + 1e-9))
    total, _ = np.histogram(values, edges, weights=relevance)
    filled = count > 0
    return ((edges[1:] + edges[:-1]) / 2)[filled], total[filled] / count[filled]


@dataclass(frozen=True)
class RawGrades:
    """Lowest and highest grades (P,) of pairs with two or more; annotators and grades of the whole file."""

    lowest: Indices
    highest: Indices
    workers: int
    grades: int

    @property
    def cells(self) -> Floats:
        """(5, 5) share of pairs by lowest and highest grade: figure 5 (a)."""
        counts = np.bincount(self.lowest * _GRADES + self.highest, minlength=_GRADES * _GRADES)
        return counts.reshape(_GRADES, _GRADES) / max(1, len(self.lowest))


def read_raw_table(path: Path) -> tuple[dict[str, list[int]], set[str]]:
    """(pair id -> its grades, annotators) of a CSV file. Raises FormatError, with the line of a bad grade."""
    try:
        text = read_document(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start})") from None
    reader = csv.DictReader(io.StringIO(text))
    if not {"pair_id", "worker", "relevance"} <= set(reader.fieldnames or ()):
        raise FormatError(path, "holds no grades of annotators", line=1, accepted=f"columns {_COLUMNS}")
    grades: dict[str, list[int]] = {}
    workers: set[str] = set()
    try:
        for row in reader:
            line, grade = reader.line_num, (row["relevance"] or "").strip()
            if grade not in ("0", "1", "2", "3", "4"):
                raise FormatError(path, "is not a grade:", line=line, value=grade, accepted="0 to 4")
            grades.setdefault(row["pair_id"], []).append(int(grade))
            workers.add(row["worker"])
    except csv.Error as error:
        raise FormatError(path, f"is not a table: {error}", line=reader.line_num) from None
    return grades, workers


def read_raw_grades(path: Path) -> RawGrades:
    """Annotators' grades from CSV. Raises FormatError if no pair has two."""
    grades, workers = read_raw_table(path)
    several = [of_pair for of_pair in grades.values() if len(of_pair) > 1]
    if not several:
        raise FormatError(path, "has no pair that two annotators judged", accepted=f"columns {_COLUMNS}")
    lowest, highest = (np.array([pick(of_pair) for of_pair in several]) for pick in (min, max))
    return RawGrades(lowest, highest, len(workers), sum(map(len, grades.values())))


def draw_agreement(annotations: Annotations, raw: RawGrades | None, stem: Path) -> list[Path]:
    """Figure 5: (a) lowest and highest grade of each pair, if `raw` is given; (b) final grades."""
    counts = np.bincount(np.round(annotations.relevance).astype(np.int64), minlength=_GRADES)
    shares = counts / max(1, counts.sum())
    with new_figure(7.4 if raw else 3.8, 3.2) as figure:
        panels = figure.subplots(1, 2 if raw else 1, squeeze=False)[0]
        if raw is not None:
            _draw_cells(panels[0], raw)
        bars = panels[-1].bar(range(len(shares)), shares, color=BLUE)
        panels[-1].bar_label(bars, [f"{share:.1%}" for share in shares], fontsize=7)
        panels[-1].set(xlabel="final relevance", ylabel="share of the pairs", xticks=range(len(shares)))
        panels[-1].set_title(f"{int(counts.sum()):,} judged pairs", fontsize=9)
        return save_both(figure, stem)


def _draw_cells(axes: Axes, raw: RawGrades) -> None:
    cells = raw.cells
    axes.imshow(np.where(cells.T > 0, cells.T, np.nan), origin="lower", cmap="Blues", vmin=0)
    for low in range(_GRADES):
        for high in range(low, _GRADES):
            colour = "white" if cells[low, high] > 0.6 * cells.max() else "black"
            share = f"{cells[low, high]:.2%}"
            axes.text(low, high, share, ha="center", va="center", fontsize=6.5, color=colour)
    axes.set(xlabel="lowest grade", ylabel="highest grade", xticks=range(_GRADES), yticks=range(_GRADES))
    axes.set_title(f"{len(raw.lowest):,} pairs, {raw.grades:,} grades, {raw.workers} annotators", fontsize=9)


def queries_named(annotations: Annotations, names: Sequence[str]) -> list[int]:
    """Rows of queries by text or id. Raises UsageError for an unknown one."""
    places = {query.text.strip().lower().rstrip("."): row for row, query in enumerate(annotations.queries)}
    places |= {query.id: row for row, query in enumerate(annotations.queries)}
    rows = []
    for name in names:
        row = places.get(name, places.get(name.strip().lower().rstrip(".")))
        if row is None:
            raise UsageError(
                f"--query {name!r}: {annotations.name} has no such query; give the text or the id of one, "
                f"such as {annotations.queries[0].text!r}"
            )
        rows.append(row)
    return rows


def draw_candidates(annotations: Annotations, queries: Sequence[int], stem: Path) -> list[Path]:
    """Figure 6: the most similar moments of queries, with similarity as a line and relevance as bars."""
    similarity = similarities_of(annotations)
    with new_figure(7.6, 0.6 + (0.5 + 0.32 * _SHOWN) * len(queries)) as figure:
        for axes, query in zip(figure.subplots(len(queries), 1, squeeze=False)[:, 0], queries, strict=True):
            rows = np.flatnonzero((annotations.query == query) & np.isfinite(similarity))
            rows = rows[np.argsort(-similarity[rows], kind="stable")][:_SHOWN]
            places = np.arange(len(rows))
            axes.barh(places, annotations.relevance[rows], color=BLUE, height=0.5, alpha=0.75)
            for place, row in enumerate(rows.tolist()):
                grade = annotations.relevance[row]
                axes.text(grade + 0.05, place, f"{grade:g}", fontsize=7, va="center", color=BLUE)
            axes.set(yticks=places, xlim=(0, 4.5), ylim=(len(rows) - 0.4, -0.6), xticks=range(_GRADES))
            axes.set_yticklabels([_caption(annotations, row) for row in rows.tolist()], fontsize=7)
            axes.set_title(one_line(annotations.queries[query].text, 90), fontsize=9, loc="left")
            beside = axes.twiny()
            beside.plot(similarity[rows], places, "o-", color=ORANGE, markersize=3, linewidth=1)
            beside.set(xlim=(0, 1.125))  # so that similarity 1 is above grade 4
            beside.tick_params(labelsize=7, colors=ORANGE)
            axes.tick_params(axis="x", labelsize=7, colors=BLUE)
        figure.supxlabel("relevance (bars, below) and similarity (line, above)", fontsize=8)
        return save_both(figure, stem)


def _caption(annotations: Annotations, row: int) -> str:
    if annotations.captions is not None and annotations.captions[row]:
        return one_line(annotations.captions[row], 52)
    video = annotations.videos[int(annotations.video[row])].id
    return f"{video} {format_time(annotations.start[row], 1)}-{format_time(annotations.end[row], 1)}"


_Span = tuple[str, float, float]
"""Video, start, end."""
Picture = Callable[[str, float], NDArray[np.uint8] | None]
"""(video id, seconds) -> a frame (height, width, 3), or None without a recording."""


@dataclass(frozen=True)
class Case:
    """A query with its judged moments and its first answers: a row of figure 7.

    `truth` are (moment, grade, whether an answer matched it), highest grades first; `answers` are (moment,
    grade or None if unmatched). Moments are texts; `spans` has the spans of both lists by text.
    """

    query: str
    value: float
    truth: tuple[tuple[str, float, bool], ...]
    answers: tuple[tuple[str, float | None], ...]
    spans: Mapping[str, _Span] = field(default_factory=dict, compare=False)


def cases_of(
    annotations: Annotations,
    run: RunSource,
    names: Sequence[str] = (),
    *,
    metric: str = "nDCG@10,IoU=0.3",
    count: int = 3,
) -> tuple[Case, ...]:
    """Rows of figure 7: the named queries, or `count` of them, evenly from the best answered to the worst.

    Answers are matched as the metric does. An answer that matches a moment of grade 0 has grade 0, not None.
    Raises UsageError for other metrics than nDCG, and as `evaluate` does.
    """
    parsed = parse_metric(metric)
    if (parsed.measure, parsed.task) != ("nDCG", "VCMR"):
        raise UsageError(f"--metric {metric}: answers are matched as nDCG@K,IoU=m does; give such a metric")
    evaluation = evaluate(annotations, run, [metric], protocol=find_protocol("rvmr"))
    values = dict(zip(evaluation.query_ids, evaluation.column(parsed.name).tolist(), strict=True))
    chosen = [annotations.queries[row].id for row in queries_named(annotations, names)]
    if not chosen:
        answered = sorted(set(values) - set(evaluation.missing), key=lambda query: (-values[query], query))
        # One query without hits is enough: they all look the same.
        order = answered[: 1 + sum(values[query] > 0 for query in answered)]
        chosen = [order[round(place * (len(order) - 1) / max(1, count - 1))] for place in range(count)]
    truth, matched = _matched(annotations, run, set(chosen), parsed)
    return tuple(
        _case(annotations, truth, query, values.get(query, 0.0), matched.get(query, []))
        for query in dict.fromkeys(chosen)
    )


_Answer = tuple[str, float, float, int]
"""Video, start, end, and the matched row of the truth, or -1."""


def _matched(
    annotations: Annotations, run: RunSource, ids: set[str], metric: Metric
) -> tuple[Truth, dict[str, list[_Answer]]]:
    """(the truth, query id -> first answers with the judged moments that they match)."""
    protocol = find_protocol("rvmr")
    truth = truth_of(annotations, protocol)
    matched: dict[str, list[_Answer]] = {}
    for block in run.blocks("VCMR"):
        rows = rows_of(block, truth).upto(metric.depth)
        names = {code: name for name, code in truth.video_codes.items()}
        names |= {len(truth.video_codes) + number: name for number, name in enumerate(block.video_ids)}
        pairs = pairs_of(rows, truth, protocol)
        moments = matched_one_to_one(rows.rank, pairs, passes(pairs.iou, metric.iou or 0.0, protocol))
        for number, code in enumerate(rows.queries.tolist()):
            if truth.query_ids[code] in ids:
                of_query = rows.query == number
                columns = (column[of_query].tolist() for column in (rows.start, rows.end, moments))
                videos = [names[video] for video in rows.video[of_query].tolist()]
                matched[truth.query_ids[code]] = list(zip(videos, *columns, strict=True))
    return truth, matched


def _case(
    annotations: Annotations, truth: Truth, query_id: str, value: float, answers: Sequence[_Answer]
) -> Case:
    number = truth.query_codes[query_id]
    met = {place for *_, place in answers}
    spans: dict[str, _Span] = {}

    def named(video: str, start: float, end: float) -> str:
        text = f"{video} {format_time(start, 1)}-{format_time(end, 1)}"
        spans.setdefault(text, (video, start, end))
        return text

    judged = [
        (
            named(annotations.videos[int(truth.video[row])].id, truth.start[row], truth.end[row]),
            float(truth.relevance[row]),
            row in met,
        )
        for row in np.flatnonzero(truth.query == number).tolist()
    ]
    return Case(
        annotations.queries[number].text,
        value,
        tuple(sorted(judged, key=lambda moment: (-moment[1], not moment[2], moment[0]))),
        tuple(
            (named(video, start, end), None if place < 0 else float(truth.relevance[place]))
            for video, start, end, place in answers
        ),
        spans,
    )


def draw_cases(cases: Sequence[Case], metric: str, stem: Path, picture: Picture | None = None) -> list[Path]:
    """Figure 7: judged moments beside the first answers, unmatched ones marked; SVG and PNG.

    With `picture`, each moment shows the frame in its middle.
    """
    row_inches = 0.17 if picture is None else 0.42
    with new_figure(9.6, 0.5 + (0.55 + row_inches * _SHOWN) * len(cases)) as figure:
        panels = figure.subplots(len(cases), 2, squeeze=False)
        for (left, right), case in zip(panels, cases, strict=True):
            left.set_title(one_line(case.query, 70), fontsize=9, loc="left")
            right.set_title(f"{metric} = {case.value:.3f}", fontsize=9, loc="left")
            truth = [(text, f"{grade:g}", "black" if met else "#b9bec2") for text, grade, met in case.truth]
            given = [
                (text, "no match" if grade is None else f"{grade:g}", GREY if grade is None else BLUE)
                for text, grade in case.answers
            ]
            for axes, moments, more in ((left, truth, len(truth) - _SHOWN), (right, given, 0)):
                _write_list(axes, moments[:_SHOWN], more)
                if picture is not None:
                    _show_frames(axes, [case.spans[text] for text, *_ in moments[:_SHOWN]], picture)
        return save_both(figure, stem)


def _write_list(axes: Axes, moments: Sequence[tuple[str, str, str]], more: int) -> None:
    axes.set(xlim=(0, 1), ylim=(_SHOWN + 0.6, 0), xticks=[], yticks=[])
    axes.set_frame_on(False)
    for place, (text, grade, colour) in enumerate(moments, 1):
        axes.text(0.0, place, f"{place}", fontsize=7, color=GREY, va="center")
        video, _, times = text.rpartition(" ")
        shown = f"{one_line(video, 26)} {times}"
        axes.text(0.06, place, shown, fontsize=7, color=colour, va="center", family="monospace")
        axes.text(0.86, place, grade, fontsize=7, color=colour, va="center", weight="bold")
    if more > 0:
        axes.text(0.06, _SHOWN + 0.8, f"and {more} more", fontsize=6.5, color=GREY, va="center")


def _show_frames(axes: Axes, spans: Sequence[_Span], picture: Picture) -> None:
    """The middle frame of each moment, between its text and its grade."""
    for place, (video, start, end) in enumerate(spans, 1):
        frame = picture(video, (start + end) / 2)
        if frame is not None:
            beside = axes.inset_axes((0.66, place - 0.45, 0.18, 0.9), transform=axes.transData)
            beside.imshow(frame)
            beside.set(xticks=[], yticks=[])
