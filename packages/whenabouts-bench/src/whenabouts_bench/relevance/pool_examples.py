"""Write example pools to read: each video's reason, moment times and, from files, frames.

As in figure 9 of paper 001 (figure 3 of paper 002): the query's source moment, added positives, and
negatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts.drawing import BLUE, GREY, new_figure, save_both
from whenabouts.lines import one_line
from whenabouts.times import format_time
from whenabouts.video.frames import sample_frames
from whenabouts.video.probe import MediaError, probe
from whenabouts_bench.relevance.pool_evidence import nearest_sentences
from whenabouts_bench.relevance.pools import Pool, Pools
from whenabouts_bench.relevance.similarity import SentenceSimilarity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OWN = "#2f7d4f"
_FRAMES, _SHORT_SIDE = 6, 72


@dataclass(frozen=True)
class Described:
    """A video of a pool: the sentence nearest to the query, its similarity and moment in seconds."""

    video: str
    sentence: str
    similarity: float
    start: float
    end: float

    @property
    def line(self) -> str:
        times = f"{format_time(self.start)}-{format_time(self.end)}"
        return f"{self.similarity:.2f} {self.sentence}  ({self.video} {times})"


@dataclass(frozen=True)
class Example:
    """The query with its source moment, positives, and some negatives."""

    query: str
    own: Described
    positives: tuple[Described, ...]
    negatives: tuple[Described, ...]

    def lines(self) -> Iterator[str]:
        source = self.own
        yield f"{self.query}  ({source.video} {format_time(source.start)}-{format_time(source.end)})"
        yield from (f"  + {video.line}" for video in self.positives)
        yield from (f"  - {video.line}" for video in self.negatives)


def examples(
    pools: Pools, similarity: SentenceSimilarity, count: int = 6, shown: int = 3
) -> tuple[Example, ...]:
    """Randomly drawn pools, one for each number of positives in turn, most positives first."""
    groups: dict[int, list[Pool]] = {}
    for pool in pools.full:
        groups.setdefault(len(pool.rows), []).append(pool)
    draw = np.random.default_rng(pools.settings.seed)
    ordered = [groups[number] for number in sorted(groups, reverse=True)]
    chosen = [ordered[n % len(ordered)] for n in range(count)] if ordered else []
    return tuple(_example(pools, similarity, group[draw.integers(len(group))], shown) for group in chosen)


def _example(pools: Pools, similarity: SentenceSimilarity, pool: Pool, shown: int) -> Example:
    moments = zip(pool.rows, pool.similarity, strict=True)
    source, *positives = (_described(pools, row, value) for row, value in moments)
    judged = {int(pools.source.video[row]) for row in pool.rows}
    far = np.array([video for video in pool.videos if video not in judged][:shown], np.int64)
    negatives = []
    if len(far):
        places = nearest_sentences(pools.described, similarity, pool.query, far)
        sentences = pools.described.sentence[places]
        values = similarity.between(np.array([pool.query]), sentences)[0]
        rows = zip(pools.described.row[places].tolist(), values.tolist(), strict=True)
        negatives = [_described(pools, row, value) for row, value in rows]
    return Example(pools.source.queries[pool.query].text, source, tuple(positives), tuple(negatives))


def _described(pools: Pools, row: int, similarity: float) -> Described:
    source = pools.source
    sentence = source.queries[int(source.query[row])].text
    video = source.videos[int(source.video[row])].id
    return Described(video, sentence, similarity, float(source.start[row]), float(source.end[row]))


def draw_examples(shown: Sequence[Example], files: Mapping[str, Path], folder: Path) -> list[list[Path]]:
    """Draw each example as `pool_1` and so on, SVG and PNG; returns the files.

    A video is a row of six frames above a time line with its moment, the source moment in green, positives in
    blue; negatives show their sentence only. Videos without a readable file say so.
    """
    return [
        _draw_example(example, files, folder / f"pool_{number}") for number, example in enumerate(shown, 1)
    ]


def _draw_example(example: Example, files: Mapping[str, Path], stem: Path) -> list[Path]:
    rows = [(example.own, _OWN), *((video, BLUE) for video in example.positives)]
    rows += [(video, "") for video in example.negatives]
    with new_figure(7.4, 1.15 * len(rows) + 0.4) as figure:
        panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        for axes, (video, colour) in zip(panels, rows, strict=True):
            _draw_row(axes, video, colour, files.get(video.video))
        figure.suptitle(one_line(example.query, 110), fontsize=10)
        return save_both(figure, stem)


def _draw_row(axes: Axes, video: Described, colour: str, file: Path | None) -> None:
    images, seconds, problem = _frames(file)
    sign = "+" if colour else "-"
    axes.set_title(
        one_line(f"{sign} {video.similarity:.2f} {video.video} {video.sentence}", 110), fontsize=7, loc="left"
    )
    axes.set(xlim=(0, _FRAMES), ylim=(-0.28, 1), xticks=[], yticks=[])
    axes.set_frame_on(False)
    for place, image in enumerate(images):
        axes.imshow(image, extent=(place, place + 0.98, 0, 1), aspect="auto", interpolation="bilinear")
    if problem:
        axes.text(0, 0.5, problem, fontsize=7, color=GREY)
    if not seconds:
        return
    scale = _FRAMES / seconds
    axes.broken_barh([(0, _FRAMES)], (-0.1, 0.05), color="#e6e8ea", linewidth=0)
    if colour:
        wide = max(scale * (min(video.end, seconds) - video.start), 0.02)
        axes.broken_barh([(scale * video.start, wide)], (-0.12, 0.09), color=colour, linewidth=0)
        times = f"{format_time(video.start)}-{format_time(video.end)}"
        axes.text(min(scale * video.start, _FRAMES - 1), -0.27, times, fontsize=6, color=colour)


def _frames(file: Path | None) -> tuple[list[Any], float, str]:
    """(evenly spaced frames of a video, its seconds, problem)."""
    if file is None:
        return [], 0.0, "no file of this video"
    try:
        seconds = float(probe(file).duration or 0.0)
        if not seconds:
            return [], 0.0, "its length is not known"
        with sample_frames(file, _FRAMES / seconds, size=_SHORT_SIDE, threads=1) as reader:
            return [frame.image for frame in reader][:_FRAMES], seconds, ""
    except MediaError as error:
        return [], 0.0, str(error)
