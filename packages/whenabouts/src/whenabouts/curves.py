"""Match curves: each stream's scores for a query over the clips of one video, and the moments on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.records import unambiguous
from whenabouts.search.candidates import Allowed
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.searcher import Searcher
from whenabouts.search.understand import checked_query
from whenabouts.types import ScoredMoment

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One stream's curve: clip n is [start, end) seconds and has `score`; all columns are (n,).

    `chance_percentile` is the percentile of each score among unrelated queries, None without calibration.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    score: NDArray[np.float64]
    chance_percentile: NDArray[np.float64] | None

    def to_json(self) -> dict[str, list[float]]:
        return {
            "start": [round(value, 3) for value in self.start.tolist()],
            "end": [round(value, 3) for value in self.end.tolist()],
            "score": self.score.tolist(),
            "chance_percentile": [] if self.chance_percentile is None else self.chance_percentile.tolist(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A query's curves over a video by stream, and each stream's moments on them, best first."""

    query: str
    video_id: str
    curves: Mapping[str, Curve]
    moments: Mapping[str, Sequence[ScoredMoment]]

    def to_json(self) -> dict[str, Any]:
        pairs = [(scored, stream) for stream, moments in self.moments.items() for scored in moments]
        pairs.sort(key=lambda pair: pair[0].sort_key)
        return {
            "query": self.query,
            "video_id": self.video_id,
            "curves": {stream: curve.to_json() for stream, curve in self.curves.items()},
            "moments": [
                {
                    "stream": stream,
                    "start": round(scored.moment.start, 3),
                    "end": round(scored.moment.end, 3),
                    "score": scored.score,
                    "chance_percentile": scored.chance_percentile,
                }
                for scored, stream in pairs
            ],
        }


def curves_of(corpus: Corpus, query: str, video: str, streams: str | Sequence[str] = ()) -> Curves:
    """The curves of a query over one video for some streams (none: all); `video` as in `resolve`.

    A stream without clips in the video, or without any of the query's words there, has an empty curve. Raises
    UsageError for an empty query or an unknown stream.
    """
    corpus.refresh()
    searcher, video_id = corpus.searcher(), corpus.resolve(video).video_id
    words, _ = checked_query(query, 1, 0.0)
    chosen = searcher.understanding.chosen((streams,) if isinstance(streams, str) else streams)
    encoded = searcher.understanding.encode(words, chosen)
    answers = {stream: searcher.search_stream(stream, encoded, Allowed([video_id])) for stream in chosen}
    return Curves(
        unambiguous(query),
        video_id,
        {stream: _curve(searcher, answer, video_id) for stream, answer in answers.items()},
        {stream: searcher.rank(words, [answer]) for stream, answer in answers.items()},
    )


def _curve(searcher: Searcher, answer: StreamAnswer, video_id: str) -> Curve:
    chance = searcher.measured.chance(answer.stream, video_id)
    percentiles = None if chance is None else np.array(list(map(chance.confidence, answer.scores.tolist())))
    return Curve(answer.block.start, answer.block.end, answer.scores, percentiles)
