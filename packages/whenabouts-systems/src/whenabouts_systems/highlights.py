"""Highlights: the saliency of each clip of a video, and the best moments on that curve.

Localizers of the DETR family score clips for a sentence, which is called saliency
(`models.protocol.Salient`). Without a query, a clip's score is the mean over forty sentences on many
subjects. (We do not use an empty sentence, because these systems were never trained with one.)
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts.budget import check_budget
from whenabouts.confidence.background import SENTENCES
from whenabouts.intake.files import write_atomically
from whenabouts.moments.peaks import Config, find_peaks
from whenabouts.search.understand import checked_query
from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts_systems.models.protocol import Salient
from whenabouts_systems.ranking.encoded_corpus import Floats, MemoryCorpus, evaluating
from whenabouts_systems.trained_search.search import trained_on

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts_systems.trained_search.opened import IndexedSystem
    from whenabouts_systems.trained_search.search import System

_SENTENCES = SENTENCES[:40]


@dataclass(frozen=True, slots=True, eq=False)
class Highlights:
    """The highlight curve of a video, and its best moments, best first.

    Each clip lasts [start, end) seconds and has the saliency `score`, all (n,). Higher is better; the scale
    has no zero point. A moment's score is its highest saliency. `query` is "" without a query.
    """

    query: str
    video_id: str
    start: Floats
    end: Floats
    score: Floats
    moments: Sequence[ScoredMoment]
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values, with times to the millisecond."""
        return {
            "query": self.query,
            "video_id": self.video_id,
            "curve": {
                "start": self.start.round(3).tolist(),
                "end": self.end.round(3).tolist(),
                "score": self.score.tolist(),
            },
            "moments": [
                {"start": round(scored.start, 3), "end": round(scored.end, 3), "score": scored.score}
                for scored in self.moments
            ],
            "notes": list(self.notes),
        }

    def write_csv(self, path: Path) -> None:
        """Write the curve as CSV (RFC 4180): `start`, `end`, `score` of each clip. Raises FormatError."""
        text = io.StringIO(newline="")
        rows = csv.writer(text, lineterminator="\r\n")
        rows.writerow(("start", "end", "score"))
        for start, end, score in zip(self.start, self.end, self.score, strict=True):
            rows.writerow((f"{start:.3f}", f"{end:.3f}", f"{score:.6f}"))
        with write_atomically(path) as out:
            out.write(text.getvalue().encode())


def highlights_of(corpus: Corpus, video: str, model: System, query: str = "", k: int = 5) -> Highlights:
    """The highlights of a video, given by any name that `Corpus.resolve` accepts, with or without a query.

    Raises UsageError for a system without saliency, and for a video without features for it.
    """
    corpus.refresh()
    words, notes = checked_query(query, k, is_optional=True)
    record = corpus.resolve(video)
    system = trained_on(corpus, model).localizer
    if not isinstance(system.trained.model, Salient):
        raise UsageError(
            f"{system.name} ({system.trained.system}) does not score clips, and so has no highlights; take "
            "a system of the DETR family, such as qd_detr"
        )
    indexed, more = system.corpus()
    rows = indexed.rows_of([record.video_id])
    if not indexed.allowed([record.video_id]).any() or not indexed.rows[rows].all():
        streams = " or ".join(system.trained.inputs.streams)
        raise UsageError("; ".join([f"{video}: {system.name} reads no {streams} in this video", *more]))
    footage = indexed.select(rows)
    score = _curve(system, footage, [words] if words else _SENTENCES)
    edges = np.minimum(np.arange(len(score) + 1) * footage.clip_seconds[0], footage.durations[0])
    moments = _moments(record.video_id, edges, score, k)
    notes = [*system.notes, *notes, *more]
    return Highlights(words, record.video_id, edges[:-1], edges[1:], score, moments, notes)


def _curve(system: IndexedSystem, video: MemoryCorpus, sentences: Sequence[str]) -> Floats:
    """(T,) the mean saliency of a video's clips over the given sentences."""
    model, videos = system.trained.model, video.blocks[0]
    curves = []
    with evaluating(model):
        for text in sentences:
            check_budget()
            curves.append(model.saliency(system.encode(text), videos)[0])
    whole = np.stack([curve.double().cpu().numpy() for curve in curves])
    return np.asarray(whole.mean(0)[videos.mask[0].cpu().numpy()], np.float64)


def _moments(video_id: str, edges: Floats, score: Floats, k: int) -> list[ScoredMoment]:
    """The best k moments on a curve: its peaks, each with its neighbours nearly as high (`Config`)."""
    low, high = score.min(), score.max()
    shares = (score - low) / (high - low) if high > low else np.zeros_like(score)
    peaks = find_peaks(shares, edges[:-1], edges[1:], [0, len(score)], Config(count=k))
    spans = zip(peaks.first.tolist(), peaks.last.tolist(), score[peaks.peak].tolist(), strict=True)
    return [
        ScoredMoment(Moment(video_id, float(edges[first]), float(edges[last + 1])), best)
        for first, last, best in spans
    ]
