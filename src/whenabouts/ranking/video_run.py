"""Videos that any program ranked for queries: a retriever that is a file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.formats.files import lmdb_file_in
from whenabouts.formats.runs import RunBlock, RunSource, count_rising
from whenabouts.ranking.corpus import CorpusEncoding
from whenabouts.types import UsageError

_log = logging.getLogger("whenabouts")


def is_run(place: str | Path) -> bool:
    """Whether a place that is named as a retriever is a file of lists: any file, or a folder with LMDB."""
    path = Path(place).expanduser()
    return path.is_file() or lmdb_file_in(path) is not None


@dataclass(frozen=True, eq=False)
class VideoRun:
    """Ranked videos by query: id -> (video ids, scores), best first, each video once.

    A localizer that is paired with it adds `video_weight` times these scores to those of its spans, as with
    any retriever; what is not listed is not looked into, also where a list has fewer videos than are asked
    for. A query with an empty list has no answers.
    """

    name: str
    ranked: Mapping[str, tuple[tuple[str, ...], NDArray[np.float64]]]

    @classmethod
    def of(cls, source: RunSource, *, logarithm: bool = False) -> VideoRun:
        """A run as a retriever: its list of videos, else of moments, where a video's best stands for it.

        A video that comes twice in a list counts once, with its best score, and where scores contradict the
        order of a list, the scores count; the log says how often. `logarithm` takes the scores' natural
        logarithms: for a list of probabilities, or of exp(20 * cosine) as HERO writes them. Raises UsageError
        for a run that ranks moments of given videos alone, and for a score that has no logarithm.
        """
        task = next((one for one in ("VR", "VCMR") if one in source.tasks), None)
        if task is None:
            raise UsageError(
                f"{source.name}: ranks moments in given videos alone; a retriever ranks videos (VR) or "
                "moments of all of them (VCMR)"
            )
        ranked: dict[str, tuple[tuple[str, ...], NDArray[np.float64]]] = {}
        repeated = contradicting = 0
        for block in source.blocks("VR" if task == "VR" else "VCMR"):
            contradicting += count_rising(block)
            for query_id, names, scores, length in _lists(block):
                repeated += length - len(names) if task == "VR" else 0
                if logarithm:
                    scores = _logarithm(source.name, query_id, names, scores)
                ranked[query_id] = (names, scores)
        for count, what in (
            (repeated, "times a video comes again in a list; its best score counts"),
            (contradicting, "lists have scores that contradict their order; the scores count"),
        ):
            if count:
                _log.warning("%s: %d %s", source.name, count, what)
        return cls(source.name, ranked)

    @property
    def longest(self) -> int:
        """How many videos the longest of its lists has, at least 1."""
        return max((len(names) for names, _ in self.ranked.values()), default=1) or 1

    def scores(self, query_ids: Sequence[str], corpus: CorpusEncoding) -> Tensor:
        """(Q, V) what each video of the corpus scores; minus infinity where it is not listed.

        Raises UsageError for a query that the run does not have, and for a video that the corpus does not.
        """
        scores = torch.full((len(query_ids), len(corpus)), -torch.inf)
        for at, query_id in enumerate(query_ids):
            if query_id not in self.ranked:
                raise UsageError(
                    f"{self.name}: has no videos for query {query_id!r}; a retriever's run must rank videos "
                    f"for every query (it has {len(self.ranked)}, such as {next(iter(self.ranked), '')!r}; "
                    "where these are the queries of a file of pools, name that file with --pools)"
                )
            names, said = self.ranked[query_id]
            try:
                rows = corpus.rows_of(names)
            except UsageError as error:
                raise UsageError(f"{self.name}: query {query_id!r}: {error}") from None
            scores[at, torch.from_numpy(rows)] = torch.from_numpy(said).float()
        return scores


def _lists(block: RunBlock) -> Iterator[tuple[str, tuple[str, ...], NDArray[np.float64], int]]:
    """(query, its videos, best first and each once, their best scores, rows of the list) of a block."""
    for number, query_id in enumerate(block.query_ids):
        rows = slice(int(block.offsets[number]), int(block.offsets[number + 1]))
        codes, score = block.video[rows], block.score[rows]
        best = np.argsort(-score, kind="stable")
        videos, first = np.unique(codes[best], return_index=True)
        order = np.argsort(first)
        names = tuple(block.video_ids[code] for code in videos[order].tolist())
        yield query_id, names, score[best][first[order]], len(codes)


def _logarithm(
    name: str, query_id: str, names: Sequence[str], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(N,) natural logarithms. Raises UsageError for a score that has none."""
    bad = np.flatnonzero(scores <= 0)
    if len(bad):
        raise UsageError(
            f"{name}: query {query_id!r}: video {names[bad[0]]!r} has the score {scores[bad[0]]:g}, which "
            "has no logarithm; take the scores as they are stored"
        )
    return np.log(scores)
