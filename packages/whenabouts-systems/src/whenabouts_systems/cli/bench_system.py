"""A trained system for `whenabouts bench`: a checkpoint, with the feature files that its experiment names.

The bench finds this module through the entry point `trained` of `whenabouts.systems`, and calls `make`. Its
queries and videos are those of a split with features; a task's queries must be among them, with the same ids
and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts_bench.formats.runs import Task
    from whenabouts_bench.harness.system import BenchQuery, BenchVideo

NAME = "trained"
SUMMARY = "a checkpoint; --set checkpoint=RUN, features=DIR, split=NAME, data=DIR, retriever=RUN, device=NAME"


class TrainedSystem:
    """Answers with a trained system; it has only the methods that the checkpoint supports.

    Raises UsageError, FormatError.
    """

    def __init__(
        self,
        checkpoint: str,
        features: str,
        split: str | None = None,
        data: str | None = None,
        retriever: str | None = None,
        device: str | None = None,
    ) -> None:
        from whenabouts_systems.cli.splits import SplitOptions, stages_named
        from whenabouts_systems.ranking.candidates import can_retrieve
        from whenabouts_systems.ranking.localize import can_localize
        from whenabouts_systems.training.devices import open_device

        chooser, localizer = stages_named(checkpoint, retriever)
        how = SplitOptions(split, features, data, open_device(device or "auto").device)
        self._files = ExitStack()
        self._system = how.opened(self._files, localizer)
        self._retriever = how.retriever(self._files, chooser, self._system) if chooser else None
        trained = self._system.trained
        self.name, self.revision = trained.system, trained.fingerprint[:12]
        localizes = can_localize(trained.model)
        if self._retriever is not None or can_retrieve(trained.model):
            self.rank_videos = self._rank_videos
            if localizes:
                self.search = self._search
        if localizes:
            self.ground = self._ground

    def index(self, videos: Sequence[BenchVideo]) -> None:
        """Encode the videos of the split. Raises UsageError for a video that is not in it."""
        from whenabouts_systems.ranking.split_run import RunOptions, run_of_split

        split = self._system.split
        video_ids = {video.id for video in split.videos}
        lost = [video.id for video in videos if video.id not in video_ids]
        if lost:
            raise UsageError(
                f"the {split.name} split of the features has no video {lost[0]!r} "
                f"({len(lost):,} of {len(videos):,} are missing); name the task's split: --set split=NAME"
            )
        self._run = run_of_split(self._system, split, RunOptions(), self._retriever)
        self._rows = {query.id: row for row, query in enumerate(split.queries)}

    def _search(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        pools = {str(at): query.videos for at, query in enumerate(queries) if query.videos}
        return self._answers(queries, "VCMR", pools=pools or None)

    def _ground(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        given = {str(at): query.videos[0] for at, query in enumerate(queries)}
        return self._answers(queries, "SVMR", given=given)

    def _rank_videos(self, queries: Sequence[BenchQuery], k: int) -> list[list[Any]]:
        return [[(video, score) for video, _, _, score in rows] for rows in self._answers(queries, "VR")]

    def _answers(self, queries: Sequence[BenchQuery], task: Task, **more: Any) -> list[list[Any]]:
        import numpy as np

        from whenabouts_bench.formats.runs import rows_of

        rows = np.array([self._row(query) for query in queries], np.int64)
        # Queries are named by their places, because a query may be asked once for each video of its pool.
        names = [str(at) for at in range(len(queries))]
        split, retrieval = self._run.split, self._run.retrieval_split
        lists = self._run.ranker.answers(
            names,
            lambda some: split.query_batch(rows[some]),
            (task,),
            retrieval_queries=None if retrieval is None else lambda some: retrieval.query_batch(rows[some]),
            **more,
        )
        rows_by_name = {name: answers for blocks in lists for name, answers in rows_of(blocks[task])}
        # Windows after the end of their video are empty. Videos listed without a moment have NaN times.
        return [[row for row in rows_by_name.get(name, ()) if not row[1] >= row[2]] for name in names]

    def _row(self, query: BenchQuery) -> int:
        from whenabouts_bench.relevance.units import comparable

        row = self._rows.get(query.id)
        words = "" if row is None else self._run.split.queries[row].text
        if row is None or (words and comparable(words) != comparable(query.text)):
            raise UsageError(
                f"query {query.id!r} ({query.text!r}) is not in the {self._run.split.name} split of the "
                "features; name the split of the task: --set split=NAME"
            )
        return row


make = TrainedSystem
