"""Every place where something is said: a complete list in order of time, unlike a search's best few.

A place has everything in the query: each phrase exactly, and each other word in any form (by the stemmer of
the video's language, if there is one). It is the shortest range of neighbouring clips with all of it, at most
a minute. For a single phrase or word, it is each clip in which one begins, plus the next if it continues
there. Places share no clip, except when a phrase continues into a clip that has it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whenabouts.budget import check_budget
from whenabouts.index.records import ClipBlock, VideoRecord, natural_key
from whenabouts.index.spans import Spans
from whenabouts.index.stemming import has_stems
from whenabouts.index.store import Store
from whenabouts.overlap import Floats
from whenabouts.search.phrases import ParsedQuery, mentions_of
from whenabouts.search.word_units import folded, units_of
from whenabouts.types import Moment

TOGETHER_SECONDS = 60.0
"""Everything in the query must be said within this time, or in one clip."""

# Videos whose words are read at a time.
_BATCH = 200


@dataclass(frozen=True)
class PlaceList:
    """Options of a list of places.

    `all` lists every place with everything in a query, by video and time, after the first `skip`: up to `k`,
    or 10,000.
    """

    all: bool = False
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A range of a video: its first and last clip, counted in the video, and the words of each clip.

    `recognised` is the recogniser's certainty of the words, None for written words.
    """

    moment: Moment
    stream: str
    first: int
    last: int
    texts: tuple[str, ...]
    recognised: float | None = None


def places_in(
    store: Store, stream: str, query: ParsedQuery, video_ids: Sequence[str] | None, spans: Spans | None
) -> Iterator[Place]:
    """All places of a stream with everything in a query, by video and time (2 before 10).

    Reads all words of these videos and time ranges (None: all), at about 0.3 s for 227 hours.
    """
    for video, block, clips, texts in _videos(store, stream, video_ids, spans):
        spoken = _Spoken(texts, video.language)
        for first, last in _stretches(query, spoken, block.start[clips], block.end[clips]):
            rows = slice(clips.start + first, clips.start + last + 1)
            moment = Moment(video.video_id, float(block.start[rows.start]), float(block.end[rows].max()))
            if spans is not None:
                moment = spans.cut(moment) or moment
            words = tuple(texts[first : last + 1])
            yield Place(moment, stream, first, last, words, block.recognised_at(rows))


def _videos(
    store: Store, stream: str, video_ids: Sequence[str] | None, spans: Spans | None
) -> Iterator[tuple[VideoRecord, ClipBlock, slice, list[str]]]:
    """Videos (2 before 10), each with a block that contains its clips, their rows in it, and their words.

    Clips outside the time ranges count as silent.
    """
    records = {record.video_id: record for record in store.videos()}
    if video_ids is None:
        video_ids = [video_id for video_id, record in records.items() if stream in record.streams]
    ordered = sorted(records.keys() & set(video_ids), key=natural_key)
    for at in range(0, len(ordered), _BATCH):
        block = store.clips_of(stream, ordered[at : at + _BATCH], vectors=False)
        for position, video_id in enumerate(block.video_ids):
            check_budget()
            clips = block.rows(position)
            texts = block.text[clips]
            if spans is not None:
                is_allowed = spans.touch_in(video_id, block.start[clips], block.end[clips]).tolist()
                texts = [text if allowed else "" for text, allowed in zip(texts, is_allowed, strict=True)]
            yield records[video_id], block, clips, texts


class _Spoken:
    """The words of a video's clips, prepared for phrases and for single words."""

    def __init__(self, texts: Sequence[str], language: str) -> None:
        self._texts = texts
        self._language = language if has_stems(language) else ""
        self.folded = [folded(text) for text in texts]

    def units(self, words: str) -> list[str]:
        """The distinct units of some words."""
        return list(dict.fromkeys(units_of(words, self._language)))

    def may_say(self, units: Sequence[str]) -> bool:
        """Whether all units may be said; a hundred times faster than `by_clip` in ruling this out."""
        whole = " ".join(self.folded)
        # A stem may end in another letter than its word ("essayer" has the stem "essai").
        return all((unit[:2] if self._language else unit) in whole for unit in units)

    def by_clip(self) -> list[set[str]]:
        """The units of each clip."""
        texts = self._texts if self._language else self.folded
        return [set(units_of(text, self._language)) for text in texts]


def never_said(
    store: Store, stream: str, query: ParsedQuery, video_ids: Sequence[str] | None, spans: Spans | None
) -> list[str]:
    """The phrases and words of a query that are said in no place, even alone.

    Only these videos and time ranges count (None: all).
    """
    parts = [ParsedQuery((phrase,), "") for phrase in query.phrases]
    parts += [ParsedQuery((), word) for word in dict.fromkeys(query.other_words.split()) if units_of(word)]
    absent = {f"“{part.phrases[0]}”" if part.phrases else part.other_words: part for part in parts}
    for video, _, _, texts in _videos(store, stream, video_ids, spans):
        spoken = _Spoken(texts, video.language)
        absent = {name: part for name, part in absent.items() if not all(_mentions(part, spoken))}
        if not absent:
            break
    return list(absent)


def _stretches(query: ParsedQuery, spoken: _Spoken, start: Floats, end: Floats) -> list[tuple[int, int]]:
    """First and last clip of each place in one video, by time."""

    def lasts(first: int, last: int) -> float:
        return float(end[last] - start[first])

    mentions = _mentions(query, spoken)
    if not mentions or not all(mentions):
        return []
    near = [
        [mention for mention in of_part if mention[0] == mention[1] or lasts(*mention) <= TOGETHER_SECONDS]
        for of_part in mentions
    ]
    if len(near) == 1:  # of several that begin in one clip, the first
        return sorted(dict(reversed(near[0])).items())
    shortest = sorted(_windows(near), key=lambda window: (lasts(*window), window))
    taken: set[int] = set()
    stretches = []
    for first, last in shortest:
        rows = range(first, last + 1)
        if (first == last or lasts(first, last) <= TOGETHER_SECONDS) and taken.isdisjoint(rows):
            taken.update(rows)
            stretches.append((first, last))
    return sorted(stretches)


def _windows(mentions: Sequence[Sequence[tuple[int, int]]]) -> set[tuple[int, int]]:
    """For each mention, the shortest range that ends with it and has one of each list."""
    in_order = sorted((*mention, number) for number, some in enumerate(mentions) for mention in some)
    latest: dict[int, tuple[int, int]] = {}
    windows = set()
    for first, last, number in in_order:
        latest[number] = first, last
        if len(latest) == len(mentions):
            ranges = latest.values()
            windows.add((min(begin for begin, _ in ranges), max(end for _, end in ranges)))
    return windows


def _mentions(query: ParsedQuery, spoken: _Spoken) -> list[list[tuple[int, int]]]:
    """For each phrase and each other word, the first and last clip of each mention, by time.

    The lists are empty if one of them is never said.
    """
    units = spoken.units(query.other_words)
    if not spoken.may_say(units):
        return [[]]
    mentions = [mentions_of(phrase, spoken.folded) for phrase in query.phrases]
    if not all(mentions) or not units:
        return mentions
    by_clip = spoken.by_clip()
    return [
        *mentions,
        *([(row, row) for row, present in enumerate(by_clip) if unit in present] for unit in units),
    ]
