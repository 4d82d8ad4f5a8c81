"""Videos that any program ranked for queries: a retriever that is a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuepoint.formats.columns import RunSource
from cuepoint.ranking.corpus import CorpusEncoding
from cuepoint.types import UsageError


@dataclass(frozen=True, eq=False)
class VideoRun:
    """Ranked videos by query: id -> (video ids, scores), best first, each video once.

    A localizer that is paired with it adds `video_weight` times these scores to those of its spans, as with
    any retriever; what is not listed is not looked into.
    """

    name: str
    ranked: Mapping[str, tuple[tuple[str, ...], NDArray[np.float64]]]

    @classmethod
    def of(cls, source: RunSource) -> VideoRun:
        """A run as a retriever: its list of videos, else of moments, where a video's best stands for it.

        Raises UsageError for a run that ranks moments of given videos alone.
        """
        task = next((one for one in ("VR", "VCMR") if one in source.tasks), None)
        if task is None:
            raise UsageError(
                f"{source.name}: ranks moments in given videos alone; a retriever ranks videos (VR) or "
                "moments of all of them (VCMR)"
            )
        ranked: dict[str, tuple[tuple[str, ...], NDArray[np.float64]]] = {}
        for block in source.blocks("VR" if task == "VR" else "VCMR"):
            for number, query_id in enumerate(block.query_ids):
                rows = slice(int(block.offsets[number]), int(block.offsets[number + 1]))
                codes, first = np.unique(block.video[rows], return_index=True)
                order = np.argsort(first)
                names = tuple(block.video_ids[code] for code in codes[order].tolist())
                ranked[query_id] = (names, block.score[rows][first[order]])
        return cls(source.name, ranked)

    def scores(self, query_ids: Sequence[str], corpus: CorpusEncoding) -> Tensor:
        """(Q, V) what each video of the corpus scores; minus infinity where it is not listed.

        Raises UsageError for a query that the run does not have, and for a video that the corpus does not.
        """
        scores = torch.full((len(query_ids), len(corpus)), -torch.inf)
        for at, query_id in enumerate(query_ids):
            if query_id not in self.ranked:
                raise UsageError(
                    f"{self.name}: has no videos for query {query_id!r}; a retriever's run must rank videos "
                    f"for every query (it has {len(self.ranked)} queries)"
                )
            names, said = self.ranked[query_id]
            try:
                rows = corpus.rows_of(names)
            except UsageError as error:
                raise UsageError(f"{self.name}: query {query_id!r}: {error}") from None
            scores[at, torch.from_numpy(rows)] = torch.from_numpy(said).float()
        return scores
