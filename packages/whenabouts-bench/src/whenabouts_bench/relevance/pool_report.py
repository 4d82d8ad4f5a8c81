"""Write a report on MVMR pools: the paper's table, counts, figures, examples.

Table 1's columns (paper 001); the map and the histograms of figures 3, 4 and 7 (similarity of all sentences
with one, EMScore of source and of far videos); random pools (`pool_evidence.py`); and example pools with the
sentences that made videos positive (`pool_examples.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.drawing import BLUE, DASHED, ORANGE, new_figure, save_both
from whenabouts.intake.files import write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.pool_evidence import cohesiveness, draw_evidence, random_pools_of
from whenabouts_bench.relevance.pool_examples import Example, draw_examples, examples
from whenabouts_bench.relevance.pools import Pools
from whenabouts_bench.relevance.similarity import BINS, VectorSimilarity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

_MAPPED = 3000
"""The limit of sentences on the map; more take minutes and overlap."""


@dataclass(frozen=True)
class PoolCounts:
    """A row of Table 1, and further counts.

    Means are over `queries`; `moment_seconds` over each query's first judgement, `video_seconds` over all
    videos, both 0 if unknown. `moments_per_query` counts all judgements, `positive_videos` their videos: the
    paper's column, as a video there has one moment. `pool_sizes` and `moments` are number -> queries,
    `appearances` the minimum, median and maximum number of pools per video. `same_text` is the share of
    added positives whose sentence equals the query; `same_text_negatives` counts negatives with an equal
    sentence, which should be 0.
    """

    name: str
    queries: int
    videos: int
    moment_seconds: float
    video_seconds: float
    moments_per_query: float
    positive_videos: float
    words_per_query: float
    most_positives: int
    pool_size: int
    pool_sizes: Mapping[int, int]
    moments: Mapping[int, int]
    appearances: tuple[int, float, int]
    same_text: float
    same_text_negatives: int

    def cells(self) -> tuple[str, ...]:
        """The row of Table 1."""
        lengths = [f"{mean:.2f}" if mean else "-" for mean in (self.moment_seconds, self.video_seconds)]
        return (
            self.name,
            f"{self.queries} / {self.videos}",
            " / ".join(lengths),
            f"{self.moments_per_query:.2f}",
            f"{self.positive_videos:.2f}",
            f"{self.words_per_query:.2f}",
            f"{self.most_positives} / {self.pool_size}",
        )


HEADINGS = (
    "dataset",
    "queries / videos",
    "mean moment / video (s)",
    "moments per query",
    "positive videos per query",
    "words per query",
    "most positives / pool",
)


def count_pools(annotations: Annotations, *, full_only: bool = True) -> PoolCounts:
    """Counts of annotations, with or without pools; `full_only` ignores queries with a short pool.

    A full pool is as large as the largest. Raises UsageError without a judged query.
    """
    sizes = np.array([len(annotations.pools.get(query.id, ())) for query in annotations.queries])
    judged = np.bincount(annotations.query, minlength=len(annotations.queries))
    kept = (judged > 0) & ((sizes == sizes.max()) if full_only and len(sizes) else True)
    if not kept.any():
        raise UsageError(f"{annotations.name}: has no query with a judgement to count")
    numbers = np.flatnonzero(kept)
    first = np.searchsorted(annotations.query, numbers)
    spans = (annotations.end - annotations.start)[first]
    durations = [video.duration for video in annotations.videos if video.duration is not None]
    pairs = np.unique(np.stack([annotations.query, annotations.video]), axis=1)
    same, among, wrong = _same_texts(annotations, numbers)
    return PoolCounts(
        name=annotations.name,
        queries=len(numbers),
        videos=len(annotations.videos),
        moment_seconds=float(spans[spans > 0].mean()) if (spans > 0).any() else 0.0,
        video_seconds=float(np.mean(durations)) if durations else 0.0,
        moments_per_query=float(judged[numbers].mean()),
        positive_videos=float(np.bincount(pairs[0])[numbers].mean()),
        words_per_query=float(np.mean([len(annotations.queries[q].text.split()) for q in numbers])),
        most_positives=int(judged[numbers].max()),
        pool_size=max(1, int(sizes.max())),
        pool_sizes=_tally(sizes),
        moments=_tally(judged[numbers]),
        appearances=_appearances(annotations, numbers),
        same_text=same / among if among else 0.0,
        same_text_negatives=wrong,
    )


def _tally(numbers: NDArray[Any]) -> dict[int, int]:
    return dict(sorted(Counter(numbers.tolist()).items()))


def _appearances(annotations: Annotations, numbers: Indices) -> tuple[int, float, int]:
    seen = Counter(
        video for q in numbers.tolist() for video in annotations.pools.get(annotations.queries[q].id, ())
    )
    times = [seen[video.id] for video in annotations.videos]
    return min(times), float(np.median(times)), max(times)


def _same_texts(annotations: Annotations, numbers: Indices) -> tuple[int, int, int]:
    """(added positives with the query's text, all added positives, negatives with that text)."""
    described: dict[str, set[str]] = {}
    judged: dict[int, list[str]] = {}
    names = [video.id for video in annotations.videos]
    for query, video in zip(annotations.query.tolist(), annotations.video.tolist(), strict=True):
        judged.setdefault(query, []).append(names[video])
    for query, videos in judged.items():
        described.setdefault(annotations.queries[query].text, set()).add(videos[0])
    same = among = wrong = 0
    for query in numbers.tolist():
        source, *others = judged[query]
        alike = described[annotations.queries[query].text]
        others = [video for video in others if video != source]
        same += sum(video in alike for video in others)
        among += len(others)
        pool = annotations.pools.get(annotations.queries[query].id, ())
        wrong += sum(video in alike for video in set(pool) - {source, *others})
    return same, among, wrong


def target_query(pools: Pools, named: str | None) -> int:
    """The query of the figures: by text or id (else UsageError), or with the most near sentences."""
    if named is None:
        return int(np.diff(pools.distance.starts).argmax())
    text = named.strip().rstrip(".").lower()
    for number, query in enumerate(pools.source.queries):
        if named == query.id or query.text.strip().rstrip(".").lower() == text:
            return number
    raise UsageError(
        f"--target {named!r}: {pools.source.name} has no such query; give the text or the id of one, such as "
        f"{pools.source.queries[0].text!r}"
    )


def write_report(
    pools: Pools,
    similarity: VectorSimilarity,
    folder: Path,
    *,
    target: str | None = None,
    files: Mapping[str, Path] | None = None,
) -> list[Path]:
    """Write report.md and the figures into a folder, each file atomically; return the files.

    `files` maps video ids to recordings, from which examples get frames. The map needs scikit-learn; without
    it the figure has the histograms only. Raises UsageError without matplotlib, FormatError if a file cannot
    be written.
    """
    number = target_query(pools, target)
    mapped = sentence_map(similarity.vectors, pools.settings.seed)
    pictures = _draw_similarity(pools, similarity, number, mapped, folder / "similarity")
    if pools.visual is not None:
        pictures += _draw_emscore(pools, folder / "emscore")
    random, words = random_pools_of(pools, similarity), cohesiveness(pools, similarity)
    pictures += draw_evidence(random, words, pools.settings.positive, folder / "random_pools")
    shown = examples(pools, similarity)
    strips = draw_examples(shown, files, folder) if files else [[] for _ in shown]
    report = folder / "report.md"
    evidence = [*random.lines(), "", *(f"- {line}" for line in words.lines())]
    with write_atomically(report) as stream:
        for line in report_lines(pools, pictures, mapped is not None, evidence):
            stream.write(f"{line}\n".encode())
        for line in example_lines(shown, strips):
            stream.write(f"{line}\n".encode())
    return [report, *pictures, *(file for both in strips for file in both)]


def report_lines(
    pools: Pools, pictures: Sequence[Path], has_map: bool, evidence: Sequence[str] = ()
) -> Iterator[str]:
    """The report as Markdown, without the examples."""
    yield f"# MVMR pools of {pools.source.name}"
    yield ""
    yield from table_lines([count_pools(pools.source), count_pools(pools.annotations)])
    yield ""
    yield from (f"- {line}" for line in about_lines(pools.about()))
    counts = count_pools(pools.annotations)
    by_count = ", ".join(f"{number} with {moments}" for moments, number in counts.moments.items())
    again = " (the own moment's other spans, by an IoU of 0.5 or more, do not count as positives)"
    beyond = again if counts.most_positives > pools.settings.most_positives else ""
    yield f"- queries by how many moments answer them: {by_count}{beyond}"
    yield (
        f"- pools that a video is in: {counts.appearances[0]} to {counts.appearances[2]}, median "
        f"{counts.appearances[1]:g}; negatives described by the query's own words: "
        f"{counts.same_text_negatives}"
    )
    for picture in pictures:
        if picture.suffix == ".png":
            yield f"\n![{picture.stem}]({picture.name})"
    if not has_map:
        yield "\nThe map of sentences needs scikit-learn: install it, or whenabouts[sentence-transformers]."
    if evidence:
        yield "\n## Random pools\n"
        yield from evidence


def example_lines(shown: Sequence[Example], strips: Sequence[Sequence[Path]]) -> Iterator[str]:
    """The examples as Markdown, with their figures."""
    yield "\n## Pools to read\n"
    yield "`+` a positive, `-` some of the negatives, each with its nearest sentence, similarity and time.\n"
    for example, files in zip(shown, strips, strict=True):
        yield "```"
        yield from map(_on_one_line, example.lines())
        yield "```"
        yield from (f"\n![{file.stem}]({file.name})\n" for file in files if file.suffix == ".png")


def about_lines(about: Mapping[str, Any]) -> Iterator[str]:
    """The settings by which pools were made, one line per entry."""
    for name, value in about.items():
        yield f"{name}: {_in_words(value)}"


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _on_one_line(text: str) -> str:
    """Escape line breaks and control characters, which could end the block."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def table_lines(rows: list[PoolCounts]) -> Iterator[str]:
    """Table 1 as Markdown."""
    yield "| " + " | ".join(HEADINGS) + " |"
    yield "|" + " --- |" * len(HEADINGS)
    for row in rows:
        yield "| " + " | ".join(row.cells()) + " |"


def sentence_map(vectors: Floats, seed: int) -> tuple[Indices, Floats] | None:
    """(rows, (n, 2) positions) of t-SNE on at most 3,000 random vectors; None without scikit-learn."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        return None
    draw = np.random.default_rng(seed)
    rows = np.sort(draw.permutation(len(vectors))[:_MAPPED])
    if len(rows) < 5:
        return rows, np.zeros((len(rows), 2), np.float32)
    reducer = TSNE(perplexity=min(30, (len(rows) - 1) / 3), init="pca", random_state=seed, metric="euclidean")
    return rows, np.asarray(reducer.fit_transform(vectors[rows]), np.float32)


def _draw_similarity(
    pools: Pools, similarity: VectorSimilarity, target: int, mapped: tuple[Indices, Floats] | None, stem: Path
) -> list[Path]:
    """Figures 3/4 (a) and (b): the sentences, and their similarity to one of them."""
    caption = int(similarity.caption_of[target])
    values = similarity.vectors @ similarity.vectors[caption]
    count = 2 if mapped is None else 3
    with new_figure(3.9 * count + 0.6, 3.4) as figure:
        panels = figure.subplots(1, count, squeeze=False)[0]
        if mapped is not None:
            _scatter(panels[0], mapped, values, caption)
        _one_histogram(panels[-2], values, pools)
        _all_histogram(panels[-1], pools)
        figure.suptitle(pools.source.queries[target].text, fontsize=10)
        return save_both(figure, stem)


def _scatter(axes: Axes, mapped: tuple[Indices, Floats], values: Floats, caption: int) -> None:
    rows, places = mapped
    dots = axes.scatter(places[:, 0], places[:, 1], s=3, c=values[rows], cmap="viridis", linewidths=0)
    axes.figure.colorbar(dots, ax=axes, label="similarity")
    here = np.flatnonzero(rows == caption)
    axes.scatter(places[here, 0], places[here, 1], s=60, marker="*", color=ORANGE)
    axes.set(xticks=[], yticks=[], title="sentences, by t-SNE")


def _one_histogram(axes: Axes, values: Floats, pools: Pools) -> None:
    axes.hist(values, BINS // 2, color=BLUE)
    axes.set(xlabel="similarity with this sentence", ylabel="sentences", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    _mark_thresholds(axes, pools)


def _all_histogram(axes: Axes, pools: Pools) -> None:
    edges = np.linspace(-1, 1, BINS + 1)
    share = pools.distance.histogram / max(1, int(pools.distance.histogram.sum()))
    axes.bar(edges[:-1], share, np.diff(edges), align="edge", color=BLUE)
    axes.set(xlabel="similarity of two sentences", ylabel="share of pairs", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    _mark_thresholds(axes, pools)


def _mark_thresholds(axes: Axes, pools: Pools) -> None:
    for threshold, colour, name in (
        (pools.settings.negative, ORANGE, "negative up to"),
        (pools.settings.positive, BLUE, "positive from"),
    ):
        label = f"{name} {threshold:g}"
        axes.axvline(threshold, color=colour, linewidth=0.8, linestyle=DASHED, label=label)
    axes.margins(y=0.25)  # room for the legend
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def _draw_emscore(pools: Pools, stem: Path) -> list[Path]:
    """Figure 4 (c): EMScore of queries with their source videos and with far videos."""
    visual = pools.visual
    assert visual is not None

    with new_figure(4.5, 3.4) as figure:
        axes = figure.subplots()
        both = np.concatenate([visual.own, visual.drawn])
        edges = np.linspace(float(both.min()), float(both.max()) + 1e-6, 61)
        for values, colour, name, mean in (
            (visual.own, ORANGE, "own videos", visual.least_positive),
            (visual.drawn, BLUE, "videos far by words", visual.most_negative),
        ):
            label = f"{name}: {mean:.3f}"
            axes.hist(values, edges.tolist(), color=colour, alpha=0.6, density=True, label=label)
            axes.axvline(mean, color=colour, linewidth=1, linestyle=DASHED)
        axes.set(xlabel="EMScore (full F)", ylabel="density")
        axes.margins(y=0.25)  # room for the legend
        axes.legend(frameon=False, fontsize=8, loc="upper left")
        return save_both(figure, stem)
