"""Step 6: the moments that are shown, with evidence, paths, notes and coverage.

A moment is found by the words of about a minute and by meaning, so its strongest clip may stand beside the
line that a person looks for. The line that is shown is chosen among the moment's own clips by the words that
it holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import JOINED_WEIGHT
from whenabouts.index.records import VideoRecord, unambiguous
from whenabouts.index.store import Store
from whenabouts.search.coverage import Coverage, coverage_of, with_clips
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.understand import Understanding
from whenabouts.search.word_units import Rarity, units_of
from whenabouts.types import Evidence, ScoredMoment
from whenabouts.video.sentences import sentences_of

# A sentence with this share of the best one's words is where the snippet begins.
_GOOD_START = 0.5
# What a clip's score counts beside its share of the words: it decides where both hold about as much.
_SCORE_WEIGHT = 0.25

Weights = Mapping[str, float]


class Answering:
    """Completes the answers of one store."""

    def __init__(self, store: Store, understanding: Understanding, localization: Localization) -> None:
        self._store, self._understanding, self._localization = store, understanding, localization
        self._covered: dict[tuple[str, ...], Coverage] = {}
        self._holding: tuple[int, Mapping[str, Collection[str]]] | None = None

    def with_snippets(
        self, query: str, moments: Sequence[ScoredMoment], answers: Sequence[StreamAnswer]
    ) -> list[ScoredMoment]:
        """The moments with the line that answers as evidence of streams whose clips have words."""
        spoken = {a.stream: a for a in answers if self._understanding.streams[a.stream].shows_words(a.block)}
        rarity = self._localization.rarity(spoken)
        weights = {name: weights_of(query, rarity[name]) for name in spoken}
        evidence = [dict(scored.evidence) for scored in moments]
        for name, answer in spoken.items():
            rows = [row for row, pieces in enumerate(evidence) if name in pieces]
            own = [(moments[row].moment.video_id, evidence[row][name]) for row in rows]
            for row, piece in zip(rows, _snippets_of(answer, own, weights[name]), strict=True):
                evidence[row][name] = piece
        return [replace(scored, evidence=own) for scored, own in zip(moments, evidence, strict=True)]

    def with_records(
        self, moments: Iterable[ScoredMoment]
    ) -> tuple[tuple[ScoredMoment, ...], dict[str, VideoRecord]]:
        """Moments with path and title of their videos, and these; videos that are gone are left out."""
        moments = list(moments)
        ids = sorted({scored.moment.video_id for scored in moments})
        # A video may be taken out between the two reads; what is gone is no answer.
        videos = {record.video_id: record for record in self._store.ledger().of(ids)}
        return tuple(
            replace(scored, path=video.path, title=video.title)
            for scored in moments
            if (video := videos.get(scored.moment.video_id)) is not None
        ), videos

    def coverage(self, allowed: Sequence[str] | None = None, streams: Sequence[str] = ()) -> Coverage:
        """Which videos a search speaks for, and by which streams; of the whole corpus it is kept."""
        version, key = self._store.version, tuple(dict.fromkeys(streams))
        if self._holding is None or self._holding[0] != version:
            self._holding = version, with_clips(self._store, self._understanding.text_streams)
            self._covered.clear()
        if allowed is None and key in self._covered:
            return self._covered[key]
        ledger = self._store.ledger()
        videos = ledger.records if allowed is None else ledger.of(allowed)
        coverage = coverage_of(videos, streams, streams or self._understanding.text_streams, self._holding[1])
        if allowed is None:
            self._covered[key] = coverage
        return coverage


def gone_notes(records: Iterable[VideoRecord]) -> list[str]:
    """What to say of videos whose files are not there any more."""
    names = [unambiguous(record.path).rsplit("/", 1)[-1] for record in records if record.is_gone]
    if not names:
        return []
    return [f"{', '.join(names)}: the file is gone; `whenabouts index PATH --prune` takes it out"]


def _snippets_of(
    answer: StreamAnswer, pieces: Sequence[tuple[str, Evidence]], weights: Weights
) -> list[Evidence]:
    """For each piece of evidence, in a video by its id, the clip to show: with most of a query's words."""
    moments, block, chosen = answer.moments, answer.block, list[tuple[int, int]]()
    for video_id, piece in pieces:
        video = block.video_ids.index(video_id)
        inside = (moments.video == video) & (moments.start <= piece.start) & (piece.end <= moments.end)
        row, offset = int(np.flatnonzero(inside)[0]), int(block.offsets[video])
        clips = slice(offset + int(moments.first_clip[row]), offset + int(moments.last_clip[row]) + 1)
        chosen.append((row, clips.start + best_clip(block.text[clips], answer.scores[clips], weights)))
    shown = answer.evidence_of(chosen)
    return [replace(piece, text=from_answer(piece.text, weights)) for piece in shown]


def weights_of(query: str, rarity: Rarity) -> dict[str, float]:
    """What each unit of a query, and each two neighbours, weigh by rarity; 1 together.

    Two neighbours weigh `JOINED_WEIGHT` of what they weigh by themselves on average. Empty where the query
    has no words, or none that says anything.
    """
    units = units_of(query)
    weights = rarity.of_each(units)
    pairs = {
        f"{first} {second}": JOINED_WEIGHT * (weights[first] + weights[second]) / 2
        for first, second in itertools.pairwise(units)
    }
    total = sum(weights.values()) + sum(pairs.values())
    return {unit: weight / total for unit, weight in (weights | pairs).items()} if total else {}


def share_held(text: str, weights: Weights) -> float:
    """How much of a query's words a text holds, 0 to 1."""
    units = units_of(text)
    if weights.keys().isdisjoint(units):
        return 0
    there = {*units, *(f"{first} {second}" for first, second in itertools.pairwise(units))}
    return sum(weight for unit, weight in weights.items() if unit in there)


def best_clip(texts: Sequence[str], scores: NDArray[np.float64], weights: Weights) -> int:
    """Which of a moment's clips to show: the one with most of the query's words, and scored high.

    Scores count as shares of the greatest, so that among clips that hold little of the query the strongest
    is shown.
    """
    highest = float(scores.max())
    if not weights or highest <= 0:
        return int(np.argmax(scores))
    return int(np.argmax([share_held(text, weights) for text in texts] + _SCORE_WEIGHT * scores / highest))


def from_answer(text: str, weights: Weights) -> str:
    """A text from the first sentence on that holds much of what any of them holds of the query."""
    sentences = sentences_of(text)
    if len(sentences) < 2 or not weights:
        return text
    shares = [share_held(sentence, weights) for sentence in sentences]
    first = next(at for at, share in enumerate(shares) if share >= _GOOD_START * max(shares))
    return text if first == 0 else f"… {''.join(sentences[first:]).strip()}"
