"""Step 6: complete the answer with evidence, paths, notes and coverage.

A clip's score counts its meaning and the words of the minute around it, so the clip with the highest score
may lack the line that the user looks for. The clip to show is chosen by score and by the query's words.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import JOINED_WEIGHT
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.search.coverage import Coverage, coverage_of, with_clips
from whenabouts.search.moments import Localization, StreamAnswer
from whenabouts.search.understand import Understanding
from whenabouts.search.word_units import Rarity, units_of
from whenabouts.types import Evidence, ScoredMoment
from whenabouts.video.sentences import sentences_of

# The snippet begins at the first sentence that has at least this part of the best sentence's share of words.
_GOOD_START = 0.5
# Weight of a clip's score (divided by the highest) beside its share of the query's words, which has weight 1.
_SCORE_WEIGHT = 0.25

Weights = Mapping[str, float]


class Answering:
    """Completes the answers of searches in one store."""

    def __init__(self, store: Store, understanding: Understanding, localization: Localization) -> None:
        self._store, self._understanding, self._localization = store, understanding, localization
        self._covered: dict[tuple[str, ...], Coverage] = {}
        self._indexed: tuple[int, Mapping[str, Collection[str]]] | None = None

    def with_snippets(
        self, query: str, moments: Sequence[ScoredMoment], answers: Sequence[StreamAnswer]
    ) -> list[ScoredMoment]:
        """The moments; evidence of streams with text is moved to the clip that `best_clip` chooses."""
        textual = {a.stream: a for a in answers if self._understanding.streams[a.stream].shows_words(a.block)}
        rarity = self._localization.rarity(textual)
        weights = {name: weights_of(query, rarity[name]) for name in textual}
        evidence = [dict(scored.evidence) for scored in moments]
        for name, answer in textual.items():
            rows = [row for row, pieces in enumerate(evidence) if name in pieces]
            shown = [(moments[row].moment.video_id, evidence[row][name]) for row in rows]
            for row, piece in zip(rows, _snippets_of(answer, shown, weights[name]), strict=True):
                evidence[row][name] = piece
        return [replace(scored, evidence=pieces) for scored, pieces in zip(moments, evidence, strict=True)]

    def with_records(
        self, moments: Iterable[ScoredMoment]
    ) -> tuple[tuple[ScoredMoment, ...], dict[str, VideoRecord]]:
        """(moments with path and title, video id -> record); moments of removed videos are left out."""
        moments = list(moments)
        ids = sorted({scored.moment.video_id for scored in moments})
        # A video may be removed after the search and before its record is read.
        videos = {record.video_id: record for record in self._store.ledger().of(ids)}
        return tuple(
            replace(scored, path=video.path, title=video.title)
            for scored in moments
            if (video := videos.get(scored.moment.video_id)) is not None
        ), videos

    def coverage(self, allowed: Sequence[str] | None = None, streams: Sequence[str] = ()) -> Coverage:
        """The coverage of a search in the `allowed` videos (None: all, cached) and `streams`."""
        version, key = self._store.version, tuple(dict.fromkeys(streams))
        if self._indexed is None or self._indexed[0] != version:
            self._indexed = version, with_clips(self._store, self._understanding.text_streams)
            self._covered.clear()
        if allowed is None and key in self._covered:
            return self._covered[key]
        ledger = self._store.ledger()
        videos = ledger.records if allowed is None else ledger.of(allowed)
        coverage = coverage_of(videos, streams, streams or self._understanding.text_streams, self._indexed[1])
        if allowed is None:
            self._covered[key] = coverage
        return coverage


def gone_notes(records: Iterable[VideoRecord]) -> list[str]:
    """At most one note: the names of missing files, and how to remove their videos from the corpus."""
    names = [record.file_name for record in records if record.is_gone]
    remedy = "`whenabouts index PATH --prune` removes their videos from the corpus"
    return [f"missing files: {', '.join(names)}; {remedy}"] if names else []


def _snippets_of(
    answer: StreamAnswer, pieces: Sequence[tuple[str, Evidence]], weights: Weights
) -> list[Evidence]:
    """For each (video id, evidence), the evidence of the clip of `best_clip`, cut by `from_answer`."""
    moments, block, rows = answer.moments, answer.block, list[int]()
    for video_id, piece in pieces:
        video = block.video_ids.index(video_id)
        inside = (moments.video == video) & (moments.start <= piece.start) & (piece.end <= moments.end)
        overlapping = np.flatnonzero(inside).tolist()
        if len(overlapping) > 1:  # moments of texts on the screen may overlap
            overlapping = [row for row in overlapping if answer.strongest(row) == piece]
        rows.append(overlapping[0])
    clips = [answer.clips(row) for row in rows]
    best = [some.start + best_clip(block.text[some], answer.scores[some], weights) for some in clips]
    shown = [answer.evidence(row, clip) for row, clip in zip(rows, best, strict=True)]
    return [replace(piece, text=from_answer(piece.text, weights)) for piece in shown]


def weights_of(query: str, rarity: Rarity) -> dict[str, float]:
    """Weights by rarity of a query's units and of its pairs of neighbouring units; they sum to 1.

    A pair ("first second") weighs `JOINED_WEIGHT` times the mean of its two units. Empty for a query without
    units, or with only units of weight 0.
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
    """The summed weights (0 to 1) of the query's units and pairs that occur in a text."""
    units = units_of(text)
    if weights.keys().isdisjoint(units):
        return 0
    present = f" {' '.join(units)} "
    return sum(weight for unit, weight in weights.items() if f" {unit} " in present)


def best_clip(texts: Sequence[str], scores: NDArray[np.float64], weights: Weights) -> int:
    """The row of the clip to show, given the `texts` and `scores` (n,) of a moment's clips.

    It has the highest `share_held` + `_SCORE_WEIGHT` * score / highest score. Without weights, or without a
    score above 0, it is the clip with the highest score.
    """
    highest = float(scores.max())
    if not weights or highest <= 0:
        return int(np.argmax(scores))
    return int(np.argmax([share_held(text, weights) for text in texts] + _SCORE_WEIGHT * scores / highest))


def from_answer(text: str, weights: Weights) -> str:
    """The text from its first sentence with at least `_GOOD_START` of the best sentence's share of words."""
    sentences = sentences_of(text)
    if len(sentences) < 2 or not weights:
        return text
    shares = [share_held(sentence, weights) for sentence in sentences]
    first = next(number for number, share in enumerate(shares) if share >= _GOOD_START * max(shares))
    return text if first == 0 else f"… {''.join(sentences[first:]).strip()}"
