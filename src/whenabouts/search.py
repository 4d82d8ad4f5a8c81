"""The way of a query: text -> encoder -> index (nearest clips) -> model (moments in them) -> rank.

Everything that answers a question comes through `Searcher.search`: the command line, Python, a server,
and the evaluation of a run on a corpus.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote_from_bytes

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.chance import FIXED, MATCH_AT, Chance, Thresholds, answer_for
from whenabouts.index.filters import Filter
from whenabouts.index.passages import query_words, says
from whenabouts.index.records import ClipBlock, ClipHits, VideoRecord
from whenabouts.index.store import Store
from whenabouts.models.fusion import COSINE_WEIGHT, Scale, fuse
from whenabouts.models.peaks import find_peaks
from whenabouts.models.zero_shot import Config, Curves, Moments, ZeroShotLocalizer, snap
from whenabouts.types import Answer, Evidence, Moment, ScoredMoment, UsageError

_log = logging.getLogger(__name__)

# Passages or pictures asked of the index; videos whose clips are then looked at one by one. Within some
# videos every match counts, over all of them the best few hundred find the same moments (docs/finding.md).
NEAREST_CLIPS = 200
MATCHED_CLIPS = 1000
MATCHED_CLIPS_WITHIN = 1000
CANDIDATE_VIDEOS = 40
# A sentence encoder reads 256 word pieces; what is longer costs time and adds nothing.
MOST_QUERY_WORDS = 256
MOST_K = 1000
# Seen moments; spoken ones have settings of their own (`models/peaks.py`).
SEEN = Config()
# Moments of different streams that share this much (IoU) are one moment with two reasons.
_SAME_MOMENT = 0.5
_MOST_TEXT = 600
_UNCALIBRATED = "uncalibrated: this corpus is too small to say how sure an answer is"


class Encodes(Protocol):
    """What a query is encoded with."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors."""
        ...


@dataclass(frozen=True, slots=True)
class RankedMoments:
    """What another way of finding moments answers: moments, best first, and what is to be said of them."""

    moments: Sequence[ScoredMoment]
    notes: Sequence[str] = ()
    thresholds: Thresholds | None = None


class Finder(Protocol):
    """Another way to find moments than the streams' own: a trained system (`trained/search.py`)."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def find(self, text: str, k: int, allowed: Sequence[str] | None, searcher: Searcher) -> RankedMoments:
        """At most `k` moments for a query in the videos that are allowed (None: all)."""
        ...


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query: ranked moments, best first, and in a word whether there is one.

    `doubt` says why the answer is "unsure", "" where it is not. `calibration` says how often the three
    answers are wrong on this corpus (`calibration/`: `Report.summary`), None where that was not measured.
    """

    query: str
    answer: Answer
    moments: tuple[ScoredMoment, ...]
    videos: Mapping[str, VideoRecord] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    doubt: str = ""
    calibration: Mapping[str, Any] | None = None

    def name(self, found: ScoredMoment) -> str:
        """What to call a moment's video: its file's name, or its id where the file has none."""
        return printable(self.videos[found.moment.video_id].path).rsplit("/", 1)[-1] or found.moment.video_id

    def link(self, found: ScoredMoment) -> str:
        """A link that opens the video at the moment: a file URI with a media fragment (W3C)."""
        moment = found.moment
        path = self.videos[moment.video_id].path.encode("utf-8", "surrogateescape")
        return f"file://{quote_from_bytes(path)}#t={moment.start:.3f},{moment.end:.3f}"

    def to_json(self) -> dict[str, Any]:
        """The answer for programs; times are float seconds, spans half-open."""
        return {
            "query": self.query,
            "answer": self.answer,
            "moments": [self._moment(rank, found) for rank, found in enumerate(self.moments, 1)],
            "notes": [*self.notes, *([self.doubt] if self.doubt else [])],
            "calibration": None if self.calibration is None else dict(self.calibration),
        }

    def _moment(self, rank: int, found: ScoredMoment) -> dict[str, Any]:
        moment = found.moment
        return {
            "rank": rank,
            "video_id": moment.video_id,
            "path": printable(self.videos[moment.video_id].path),
            "start": round(moment.start, 3),
            "end": round(moment.end, 3),
            "score": found.score,
            "confidence": found.confidence,
            "evidence": {
                name: {
                    "score": piece.score,
                    "start": round(piece.start, 3),
                    "end": round(piece.end, 3),
                    "text": piece.text,
                }
                for name, piece in found.evidence.items()
            },
            "text": found.text,
            "link": self.link(found),
        }


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query made ready: its words, and its vector for each stream that has an encoder."""

    text: str
    vectors: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class StreamAnswer:
    """What one stream has to say: the clips that were retrieved, the candidates' clips, the moments in them.

    `scores` (n,) is what each clip of `block` scored: the curve that the moments were found on.
    """

    stream: str
    nearest: ClipHits | None
    matched: ClipHits | None
    block: ClipBlock
    scores: NDArray[np.float64]
    moments: Moments

    def moment(self, row: int) -> Moment:
        """A moment as a noun."""
        found = self.moments
        video_id = self.block.video_ids[int(found.video[row])]
        return Moment(video_id, float(found.start[row]), float(found.end[row]))

    def scored(self, row: int) -> ScoredMoment:
        """A moment as the stream scores it, with its evidence."""
        score = float(self.moments.score[row])
        return ScoredMoment(
            self.moment(row), score, evidence={self.stream: self.evidence(row)}, text=self.text(row)
        )

    def says(self, row: int, words: Collection[str]) -> bool:
        """Whether each of some words is said in a moment, as it is."""
        return says(" ".join(self.block.text[self._clips(row)]), words)

    def says_near(self, row: int, query: str, seconds: float) -> bool:
        """Whether each word of a query is said in a moment or within some seconds of it."""
        words, place, block = set(query_words(query)[0]), int(self.moments.video[row]), self.block
        own = block.rows(place)
        low, high = float(self.moments.start[row]) - seconds, float(self.moments.end[row]) + seconds
        near = own.start + np.flatnonzero((block.start[own] < high) & (block.end[own] > low))
        return bool(words) and says(" ".join(block.text[i] for i in near.tolist()), words)

    def evidence(self, row: int) -> Evidence:
        """The moment's strongest clip."""
        clips = self._clips(row)
        best = clips.start + int(np.argmax(self.scores[clips]))
        block = self.block
        # A soft border may cut through the clip.
        start = max(float(block.start[best]), float(self.moments.start[row]))
        end = min(float(block.end[best]), float(self.moments.end[row]))
        return Evidence(self.stream, float(self.scores[best]), start, end, block.text[best])

    def text(self, row: int) -> str:
        """The words inside the moment, cut off where they become many."""
        return shortened(" ".join(text for text in self.block.text[self._clips(row)] if text))

    def _clips(self, row: int) -> slice:
        offset = int(self.block.offsets[int(self.moments.video[row])])
        return slice(
            offset + int(self.moments.first_clip[row]), offset + int(self.moments.last_clip[row]) + 1
        )


class Searcher:
    """Answers queries on one store; asking changes nothing.

    `encoders` maps streams to what queries are encoded with; a stream without one is searched by its
    words only, or not at all. `scales` and `chances` are what has been measured of the streams
    (`calibration/`); without them scores are still ordered, but no confidence is told. `thresholds` part
    the three answers; `rates` say how often these are wrong, and are handed on with each answer.
    """

    def __init__(
        self,
        store: Store,
        encoders: Mapping[str, Encodes],
        scales: Mapping[str, Scale] = MappingProxyType({}),
        chances: Mapping[str, Chance] = MappingProxyType({}),
        thresholds: Thresholds = FIXED,
        rates: Mapping[str, Any] | None = None,
    ) -> None:
        self._store = store
        self._scales = dict(scales)
        self._encoders = dict(encoders)
        self._chances = dict(chances)
        self._thresholds = thresholds
        self._rates = rates

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that can be asked."""
        return tuple(self._store.streams)

    def chance(self, stream: str) -> Chance | None:
        """What unrelated sentences score in a stream, None where that was not measured."""
        return self._chances.get(stream)

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        filter: Filter | None = None,
        streams: Sequence[str] = (),
        min_confidence: float = 0.0,
        model: Finder | None = None,
    ) -> SearchResult:
        """At most `k` moments for a sentence, best first; found by `model` where one is given.

        Raises UsageError for an empty query, a `k` that is no number of moments, or an unknown stream.
        """
        words, notes = checked_query(text, k, min_confidence)
        allowed, said_of_filter = self._allowed(filter)
        notes += said_of_filter
        if model is not None:
            found = model.find(words, k, allowed, self)
            ranked = list(found.moments)
            answer, doubt = _judged_by(found, model)
            notes += found.notes
        else:
            answers = self._find_in(words, allowed, streams)
            ranked = self.rank(answers)
            answer, doubt = _judged(words, ranked, answers, self._thresholds)
        kept = [found for found in ranked if (found.confidence or 0.0) >= min_confidence][:k]
        if min_confidence and ranked and not kept and ranked[0].confidence is None:
            notes.append(f"{doubt or _UNCALIBRATED}; ask without a least confidence")
        ids = sorted({found.moment.video_id for found in kept})
        videos = {record.video_id: record for record in self._store.videos(ids)}
        # A video may be taken out between the two reads; what is gone is no answer.
        moments = tuple(found for found in kept if found.moment.video_id in videos)
        if not moments:
            answer, doubt = "no_match", ""
        rates = self._rates if model is None else None
        return SearchResult(printable(text), answer, moments, videos, tuple(notes), doubt, rates)

    def find_all(
        self, text: str, filter: Filter | None = None, streams: Sequence[str] = ()
    ) -> list[StreamAnswer]:
        """What each stream has to say to a query."""
        return self._find_in(text, self._allowed(filter)[0], streams)

    def _allowed(self, filter: Filter | None) -> tuple[list[str] | None, list[str]]:
        """Ids of the videos that a filter leaves (None: all), and what is to be said of it."""
        if filter is None or filter.is_empty:
            return None, []
        videos = self._store.videos()
        allowed, notes = filter.choose(videos), filter.notes(videos)
        if not allowed and not notes:
            notes = [f"none of the {len(videos)} videos of this corpus passes the filters"]
        return allowed, notes

    def _find_in(
        self, text: str, allowed: Sequence[str] | None, streams: Sequence[str]
    ) -> list[StreamAnswer]:
        chosen = [self._store.stream(name).name for name in dict.fromkeys(streams)] or list(
            self._store.streams
        )
        encoded = self.encode(text, chosen)
        return [self.search_stream(stream, encoded, allowed) for stream in chosen]

    def encode(self, text: str, streams: Iterable[str]) -> EncodedQuery:
        """Encode a query, once for each stream that has an encoder."""
        vectors = {s: self._encoders[s].encode_text([text])[0] for s in streams if s in self._encoders}
        return EncodedQuery(text, vectors)

    def search_stream(
        self, stream: str, query: EncodedQuery, allowed: Sequence[str] | None = None
    ) -> StreamAnswer:
        """Moments of one stream: nearest and matching clips -> candidate videos -> curves -> moments."""
        store, vector = self._store, query.vectors.get(stream)
        nearest = (
            store.nearest(stream, vector, NEAREST_CLIPS, video_ids=allowed) if vector is not None else None
        )
        most = MATCHED_CLIPS if allowed is None else MATCHED_CLIPS_WITHIN
        matched = store.match_text(stream, query.text, most, video_ids=allowed)
        block = store.clips_of(stream, _candidates(nearest, matched))
        spoken = bool(block.text and block.text[0])
        bm25 = _bm25(block, matched) if spoken or vector is None else None
        cosine = block.vectors @ vector if vector is not None else None
        scores = fuse(cosine, bm25, self._scales.get(stream))
        moments = _localize(block, scores, spoken=spoken)
        if not spoken and len(moments):
            moments = snap(moments, *self._shots(block.video_ids), SEEN.snap_seconds)
        return StreamAnswer(stream, nearest, matched, block, scores, moments)

    def candidates(
        self, text: str, streams: Iterable[str], allowed: Sequence[str] | None = None
    ) -> list[str]:
        """Videos worth a closer look for a query, best first: those of the streams' nearest clips."""
        query, found = self.encode(text, streams), []
        for stream in streams:
            vector = query.vectors.get(stream)
            if vector is not None:
                found.append(self._store.nearest(stream, vector, NEAREST_CLIPS, video_ids=allowed))
            found.append(self._store.match_text(stream, text, MATCHED_CLIPS, video_ids=allowed))
        return _candidates(*found)

    def _shots(self, video_ids: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Where shots of some videos begin, in seconds (B,), and where each video's begin in that."""
        known = {record.video_id: record.shots or () for record in self._store.videos(video_ids)}
        rows = [known.get(video_id, ()) for video_id in video_ids]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return np.array([border for row in rows for border in row], np.float64), offsets

    def rank(self, answers: Sequence[StreamAnswer]) -> list[ScoredMoment]:
        """Moments of all streams in one order; those that streams agree on are one moment.

        See `ranked`, which says how.
        """
        found = (answer.scored(row) for answer in answers for row in range(len(answer.moments)))
        return ranked(found, self._chances, len(answers))

    def clips_in(self, stream: str, moment: Moment) -> int:
        """How many clips of a stream share time with a moment."""
        block = self._store.clips_of(stream, [moment.video_id], vectors=False)
        return int(np.count_nonzero((block.start < moment.end) & (block.end > moment.start)))


def ranked(found: Iterable[ScoredMoment], chances: Mapping[str, Chance], streams: int) -> list[ScoredMoment]:
    """What `streams` streams found, as each scores it (`StreamAnswer.scored`), in one order.

    Each stream's scores are first turned into how surprising they are among what unrelated sentences
    score there (`Chance.surprise`), which puts streams on one scale. A moment that several streams
    found gets the sum of its surprises, and the span of the stream that is surer. With m streams
    asked, an unrelated sentence has m chances, so a confidence is (1 - exp(-surprise)) ** m. Where a stream
    that found something has no chance, no confidence is told.
    """
    scored = [(next(iter(one.evidence)), one) for one in found]
    calibrated = all(stream in chances for stream, _ in scored)
    known = [(stream, _surprising(one, chances.get(stream))) for stream, one in scored]
    known.sort(key=lambda item: item[1].sort_key)
    joined: list[ScoredMoment] = []
    for stream, one in known:
        twin = _twin(joined, one, stream) if streams > 1 else None
        if twin is None:
            joined.append(one)
        else:
            joined[twin] = _joined(joined[twin], one)
    joined.sort(key=lambda one: one.sort_key)
    if not calibrated:
        return joined
    return [replace(one, confidence=(-math.expm1(-one.score)) ** streams) for one in joined]


def _surprising(found: ScoredMoment, chance: Chance | None) -> ScoredMoment:
    return replace(found, score=chance.surprise(found.score)) if chance else found


def said_in(query: str, answers: Iterable[StreamAnswer]) -> StreamAnswer | None:
    """The first stream whose best moment has every word of the query, as the query has it."""
    words = set(query_words(query)[0])
    return next((one for one in answers if words and len(one.moments) and one.says(0, words)), None)


def _judged_by(found: RankedMoments, model: Finder) -> tuple[Answer, str]:
    """The answer of a trained system in one word, and why it is "unsure" where it is."""
    confidence = found.moments[0].confidence if found.moments else None
    thresholds = found.thresholds or FIXED
    answer = answer_for(confidence, found=bool(found.moments), thresholds=thresholds)
    if answer != "unsure":
        return answer, ""
    name = printable(model.name)
    if confidence is None:
        return answer, f"how sure an answer of {name} is, has not been measured on this corpus"
    return answer, f"{name} is about as sure of queries that have no answer"


def _judged(
    query: str, ranked: Sequence[ScoredMoment], answers: Sequence[StreamAnswer], thresholds: Thresholds
) -> tuple[Answer, str]:
    """The answer in one word, and why it is "unsure" where it is.

    Where a stream's best moment has every word of the query, as the query has it, "no match" would mislead:
    what was asked for is there. It scores low because its words are common in this corpus, or few.
    """
    confidence = ranked[0].confidence if ranked else None
    said = said_in(query, answers)
    answer = answer_for(confidence, found=bool(ranked), said=said is not None, thresholds=thresholds)
    if answer != "unsure":
        return answer, ""
    if confidence is None:
        return answer, _UNCALIBRATED
    if said is not None and confidence < MATCH_AT:
        return answer, _doubt_of_said(said, set(query_words(query)[0]))
    if confidence >= MATCH_AT:
        return answer, "questions whose video is taken out find about as much"
    return answer, "unrelated sentences find about as much"


def _doubt_of_said(answer: StreamAnswer, words: Collection[str]) -> str:
    """What to say of words that the best moment has and that yet prove little."""
    looked_at = len(answer.moments)
    places = sum(answer.says(row, words) for row in range(looked_at))
    said = f"its words are all said in {places} of the {looked_at} places looked at"
    if places > max(2, looked_at / 2):
        return f"{said}, too often to tell places apart"
    return f"{said}, but unrelated sentences find about as much"


def _bm25(block: ClipBlock, matched: ClipHits) -> NDArray[np.float64]:
    """What full text scored for each clip of a block, 0 where it did not match."""
    scores = np.zeros(len(block))
    first = {
        video_id: int(offset) for video_id, offset in zip(block.video_ids, block.offsets[:-1], strict=True)
    }
    owner = np.array([first.get(video_id, -1) for video_id in matched.video_ids], np.int64)
    known = owner >= 0
    scores[owner[known] + matched.index[known]] = matched.score[known]
    return scores


def _localize(block: ClipBlock, scores: NDArray[np.float64], *, spoken: bool) -> Moments:
    """Moments on the curves of a block's videos, best first.

    What a passage scores already counts the minute around it, so spoken moments stand by their peak, and
    those of one video keep apart. A picture is one glance, so seen moments gain by lasting.
    """
    if spoken:
        return _moments_at_peaks(block, scores)
    background = {"level": 0.0, "spread": COSINE_WEIGHT}
    return ZeroShotLocalizer(SEEN).localize(
        Curves(scores, block.start, block.end, block.offsets, **background)
    )


def _moments_at_peaks(block: ClipBlock, scores: NDArray[np.float64]) -> Moments:
    """Spoken moments, best first: what a passage scores is what its moment scores."""
    found = find_peaks(scores, block.start, block.end, block.offsets)
    edges = np.stack([found.first, found.last + 1], axis=1).ravel()
    ends = np.maximum.reduceat(np.append(block.end, -np.inf), edges)[::2] if len(found) else np.zeros(0)
    video = np.searchsorted(block.offsets, found.peak, side="right") - 1
    first = block.offsets[video]
    return Moments(
        video, block.start[found.first], ends, scores[found.peak], found.first - first, found.last - first
    )


def checked_query(text: str, k: int, min_confidence: float) -> tuple[str, list[str]]:
    """The query as it is asked, with notes on what was changed."""
    if not 1 <= k <= MOST_K:
        raise UsageError(f"k is {k}; ask for 1 to {MOST_K} moments")
    if not 0 <= min_confidence <= 1:
        raise UsageError(f"the least confidence is {min_confidence}; give a number from 0 to 1")
    words = printable(text).split()
    if not words:
        raise UsageError("the query is empty; say in a few words what to look for")
    notes = []
    if len(words) > MOST_QUERY_WORDS:
        notes.append(f"only the first {MOST_QUERY_WORDS} of the query's {len(words)} words were used")
    if not any(letter.isalnum() for word in words for letter in word):
        notes.append("the query has no letters or digits, so it can only be compared by meaning")
    return " ".join(words[:MOST_QUERY_WORDS]), notes


def _candidates(*found: ClipHits | None) -> list[str]:
    """Videos to look into: those of the best hits of each list in turn, best first."""
    lists = [list(dict.fromkeys(hits.video_ids)) for hits in found if hits is not None]
    chosen: dict[str, None] = {}
    for rank in range(max((len(one) for one in lists), default=0)):
        for one in lists:
            if rank < len(one) and len(chosen) < CANDIDATE_VIDEOS:
                chosen.setdefault(one[rank])
    return list(chosen)


def shortened(words: str) -> str:
    """Words to show, cut off where they become many."""
    return words if len(words) <= _MOST_TEXT else words[: _MOST_TEXT - 1].rstrip() + "…"


def _twin(ranked: Sequence[ScoredMoment], found: ScoredMoment, stream: str) -> int | None:
    """Where another stream has already found the same moment."""
    for place, other in enumerate(ranked):
        if stream not in other.evidence and other.moment.iou(found.moment) >= _SAME_MOMENT:
            return place
    return None


def _joined(first: ScoredMoment, second: ScoredMoment) -> ScoredMoment:
    """One moment of two streams' findings; `first` is the surer and keeps its span."""
    return replace(
        first,
        score=first.score + max(0.0, second.score),
        evidence={**first.evidence, **second.evidence},
        text=first.text or second.text,
    )


def printable(text: str) -> str:
    """Text without the bytes that no encoding can show."""
    return text.encode("utf-8", "backslashreplace").decode()
