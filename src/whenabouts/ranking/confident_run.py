"""The answers of a calibrated system, each query's first one with its confidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.formats.runs import RunBlock, Task
from whenabouts.ranking.confidence import TrainedConfidence
from whenabouts.ranking.pools import PoolScorer
from whenabouts.ranking.rank import Ranker
from whenabouts.ranking.split import SplitRun
from whenabouts.ranking.trials import UNRELATED, Chooser, Unrelated, judged_videos
from whenabouts.types import UsageError

Floats = NDArray[np.float64]

# Numbers that are held at once while what chance scores in pools is taken.
_NUMBERS = 1 << 24


@dataclass(frozen=True)
class ConfidentRun:
    """A run of moments whose lines tell how sure the first answer is.

    What chance scores is told by queries of the split itself, asked of the same videos (`trials.Unrelated`);
    None where the calibration does not need it.
    """

    run: SplitRun[Ranker]
    known: TrainedConfidence
    chance: Unrelated | None

    @classmethod
    def of(
        cls, run: SplitRun[Ranker], known: TrainedConfidence, seed: int = 0, *, of_pair: bool = False
    ) -> ConfidentRun:
        """A run with confidences. Raises UsageError where they would mean nothing.

        That is where another system chooses videos than when it was measured (`of_pair`: the ranker's
        retriever chose them then too), or spans may have other lengths.
        """
        ranker = run.ranker
        own, measured = ranker.decoding, ranker.trained.decoding
        lengths = ("ends", "min_clips", "max_clips")
        changed = next((name for name in lengths if getattr(own, name) != getattr(measured, name)), None)
        if ranker.video_weight is not None:
            changed = changed or "weight of the video's score"
        if (ranker.retriever is not None and not of_pair) or changed is not None:
            what = "a retriever" if changed is None else f"another {changed}"
            raise UsageError(
                f"confidence was measured for the checkpoint as it is, not with {what}; leave out either"
            )
        if run.tasks != ("VCMR",):
            raise UsageError(
                f"confidence is told of moments of many videos (VCMR), not of {', '.join(run.tasks)}"
            )
        chance = None
        if known.definition == "margin":
            scorer = PoolScorer(ranker.trained.model, ranker.corpus, ranker.decoding)
            judged = judged_videos(run.split.annotations)
            chance = Unrelated.drawn(scorer, run.split, judged, seed, _chooser(run))
        return cls(run, known, chance)

    @property
    def name(self) -> str:
        """What to call it."""
        return self.run.name

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The lists it holds."""
        return self.run.tasks

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list."""
        for block in self.run.blocks(task):
            yield replace(block, confidence=self._confidence(block))

    def _confidence(self, block: RunBlock) -> Floats:
        found = np.diff(block.offsets) > 0
        top = np.full(len(block), np.nan)
        top[found] = block.score[block.offsets[:-1][found]]
        raw = top if self.chance is None else self._margins(block, top)
        return np.where(np.isfinite(raw), self.known.calibrator(np.nan_to_num(raw)), np.nan)

    def _margins(self, block: RunBlock, top: Floats) -> Floats:
        assert self.chance is not None
        pools = self.run.split.annotations.pools
        if not pools:
            return self.chance.margins_in_all(top, block.query_ids)
        rows_of = self.run.ranker.corpus.rows_of
        rows = [rows_of(pools[name]) for name in block.query_ids]
        width = max(map(len, rows))
        size = max(1, _NUMBERS // (UNRELATED * width))
        margins = []
        for low in range(0, len(rows), size):
            some = rows[low : low + size]
            real = np.arange(width) < np.array([len(own) for own in some])[:, None]
            padded = np.zeros(real.shape, np.int64)
            padded[real] = np.concatenate(some)
            names = block.query_ids[low : low + size]
            margins.append(self.chance.margins(top[low : low + size], padded, real, names))
        return np.concatenate(margins)


def _chooser(run: SplitRun[Ranker]) -> Chooser | None:
    """What chooses the videos of a run in place of its system."""
    retriever = run.ranker.retriever
    if not isinstance(retriever, Ranker):
        return None
    return Chooser(retriever.trained.model, retriever.corpus, run.retrieval_split or run.split)
