"""Give the moments of a search evidence: in each stream, the clip with the nearest key, and its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from whenabouts.index.store import Store
from whenabouts.search.moments import shortened
from whenabouts.types import Evidence, Moment, ScoredMoment
from whenabouts_systems.models.protocol import QueryEncoding, VideoEncoding
from whenabouts_systems.ranking.encoded_corpus import Floats, Indices, MemoryCorpus
from whenabouts_systems.ranking.rank import Moments

Words = Callable[[str, float, float], str]
"""(video id, start, end) -> the words spoken in that time."""


@dataclass(frozen=True, eq=False)
class Places:
    """The places of M moments in the units of a corpus with search keys; all (M,).

    `row` is the unit, `first` and `last` are the moment's clips in it (inclusive), and `begin` is the second
    of the video at which the unit begins.
    """

    row: Indices
    first: Indices
    last: Indices
    begin: Floats


def with_evidence(
    store: Store,
    transcripts: Sequence[str],
    system: str,
    query: QueryEncoding,
    corpus: MemoryCorpus,
    moments: Moments,
    names: Sequence[str],
    places: Places,
) -> list[ScoredMoment]:
    """The moments of one query with their scores, evidence and words.

    `transcripts` are the streams of speech. `query` and `corpus` are encodings of one system; `names` are the
    ids of the videos that `moments.video` numbers. Without search keys, the evidence names only the `system`.
    """
    if not len(moments):
        return []
    spans = zip(moments.video.tolist(), moments.start.tolist(), moments.end.tolist(), strict=True)
    named = [Moment(names[video], start, end) for video, start, end in spans]
    words = _words_of(store, transcripts, sorted({moment.video_id for moment in named}))
    units, row = np.unique(places.row, return_inverse=True)
    videos, seconds = corpus.take(units), corpus.clip_seconds[places.row]
    streams = [stream for stream in query.search if stream in videos.keys]
    scored = []
    for at, (moment, score) in enumerate(zip(named, moments.score.tolist(), strict=True)):
        clips = slice(int(places.first[at]), int(places.last[at]) + 1)
        begin, clip = float(places.begin[at]), float(seconds[at])
        pieces = (
            _best_clip(
                stream,
                query,
                videos,
                int(row[at]),
                clips,
                moment,
                begin,
                clip,
                words if stream in transcripts else None,
            )
            for stream in streams
        )
        evidence = {piece.stream: piece for piece in pieces if piece is not None}
        if not evidence:
            evidence = {system: Evidence(system, score, moment.start, moment.end)}
        text = shortened(words(moment.video_id, moment.start, moment.end))
        scored.append(ScoredMoment(moment, score, None, evidence, text))
    return scored


def _words_of(store: Store, transcripts: Sequence[str], video_ids: Sequence[str]) -> Words:
    """A function that gives the words spoken in a time range of one of the videos."""
    if not transcripts:
        return lambda video_id, start, end: ""
    block = store.clips_of(transcripts[0], video_ids, vectors=False)
    places = {name: at for at, name in enumerate(block.video_ids)}

    def words(video_id: str, start: float, end: float) -> str:
        rows = block.rows(places[video_id])
        inside = (block.start[rows] < end) & (block.end[rows] > start)
        return " ".join(block.text[rows.start + at] for at in np.flatnonzero(inside).tolist())

    return words


def _best_clip(
    stream: str,
    query: QueryEncoding,
    videos: VideoEncoding,
    row: int,
    clips: slice,
    moment: Moment,
    begin: float,
    seconds: float,
    words: Words | None,
) -> Evidence | None:
    """The clip of a moment with the nearest key, or the whole moment if keys do not belong to clips.

    None if none of its clips has a key.
    """
    keys, real = videos.keys[stream][row], videos.key_masks[stream][row].bool()
    scores = (keys @ query.search[stream][0]).masked_fill(~real, -np.inf)
    start, end = moment.start, moment.end
    inside = scores[clips]
    if len(keys) == videos.mask.shape[1] and len(inside):
        scores = inside
        clip = begin + (clips.start + int(inside.argmax())) * seconds
        # The end of a moment may be clipped to the video's end; clip the evidence as well.
        start = min(max(start, clip), end)
        end = max(min(end, clip + seconds), start)
    if (score := float(scores.max())) == -np.inf:
        return None
    text = "" if words is None else words(moment.video_id, start, end)
    return Evidence(stream, score, start, end, shortened(text))
