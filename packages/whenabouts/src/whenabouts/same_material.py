"""Find videos of a corpus with the same material: re-encoded copies, and transcripts beside their video.

Videos are compared only at a few fixed times, by the passage said or the frame shown there. Words are looked
up in an index of earlier videos' phrases, and frames are compared between videos of similar length, so the
cost grows with the number of videos, not of pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.duplicates import LEAST, frames_of
from whenabouts.index.lookup import words_of
from whenabouts.index.records import ClipBlock, VideoRecord
from whenabouts.search.answer_probability import says_the_same
from whenabouts.streams import stream as stream_named

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus

_SECONDS = (1.0, 2.0, 3.0, 5.0, *(round(10 * 1.5**step, 1) for step in range(18)))
# Least share of the passages at these times that must be equal.
_LEAST_SHARE = 2 / 3
# Least letters of the shared words. Two videos with the same jingle or standard sentence share fewer.
_LEAST_LETTERS = 50
_LEAST_FRAMES = 3
# A copy is as long as its original, up to a container's rounding.
_MOST_SECONDS_APART = 1.0
_PHRASE_WORDS = 5
# Number of last passages to index; first ones may be the introduction of a whole series.
_PHRASES_OF = 2
# Most videos stored per phrase, and most videos (with the most shared phrases) to compare.
_MOST_BY_PHRASE, _MOST_COMPARED = 8, 3
_NEIGHBOURS, _BLOCK = 8, 256

Passages = Mapping[float, str]


@dataclass(frozen=True, slots=True)
class Double:
    """A `video` that "says" or "shows" the same as an `original`."""

    video: VideoRecord
    original: VideoRecord
    by: Literal["says", "shows"]


def doubles_of(corpus: OpenedCorpus) -> list[Double]:
    """The videos of a corpus that repeat another one, each with its original."""
    records = sorted(corpus.store.ledger().listed, key=_age)
    passages = _passages(corpus, records)
    doubles = list(_by_words(records, passages))
    copies = {double.video.video_id for double in doubles}
    unmatched = [record for record in records if record.video_id not in copies]
    return doubles + list(_by_frames(corpus, unmatched, passages))


def _passages(corpus: OpenedCorpus, records: Sequence[VideoRecord]) -> dict[str, dict[float, str]]:
    """Video -> time -> the passage said then; without videos that say nothing at these times."""
    passages: dict[str, dict[float, str]] = {}
    for name in corpus.store.streams:
        stream = stream_named(name)
        if stream.transcript and (holding := [record.video_id for record in records if stream.holds(record)]):
            block = corpus.store.clips_at(name, _SECONDS, holding)
            for video_id, rows in _rows_at(block).items():
                passages[video_id] = {second: block.text[row] for second, row in rows.items()}
    return passages


def _rows_at(block: ClipBlock) -> dict[str, dict[float, int]]:
    """Video -> time -> the first row that covers it."""
    starts, ends = block.start.tolist(), block.end.tolist()
    rows_of: dict[str, dict[float, int]] = {}
    for position, video_id in enumerate(block.video_ids):
        rows = block.rows(position)
        for row in range(rows.start, rows.stop):
            for second in _SECONDS:
                if starts[row] <= second < ends[row]:
                    rows_of.setdefault(video_id, {}).setdefault(second, row)
    return rows_of


def _by_words(records: Sequence[VideoRecord], passages: Mapping[str, Passages]) -> Iterator[Double]:
    """Videos that say the same as an earlier one. Later videos are compared only with originals."""
    with_phrase: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, record in enumerate(records):
        phrases = _phrases(passages.get(record.video_id, {}))
        shared = Counter(earlier for phrase in phrases for earlier in with_phrase.get(phrase, ()))
        likeliest = (records[earlier] for earlier, _ in shared.most_common(_MOST_COMPARED))
        original = next((other for other in likeliest if _say_the_same(record, other, passages)), None)
        if original is not None:
            yield Double(record, original, "says")
            continue
        for phrase in phrases:
            if len(with_phrase[phrase]) < _MOST_BY_PHRASE:
                with_phrase[phrase].append(number)


def _phrases(passages: Passages) -> set[tuple[str, ...]]:
    """Phrases of the last passages: every few neighbouring words, or the whole of a shorter passage."""
    texts = dict.fromkeys(passages[second] for second in sorted(passages, reverse=True))
    words = [words_of(text) for text in list(texts)[:_PHRASES_OF]]
    return {
        tuple(text[first : first + _PHRASE_WORDS])
        for text in words
        if text
        for first in range(max(1, len(text) - _PHRASE_WORDS + 1))
    }


def _say_the_same(video: VideoRecord, other: VideoRecord, passages: Mapping[str, Passages]) -> bool:
    """Whether two videos mostly say the same at the same times.

    Recordings must have equal length. A recogniser may have missed words of one of them, so recordings
    are compared only where both have words.
    """
    said_here, said_there = passages[video.video_id], passages[other.video_id]
    both = said_here.keys() & said_there.keys()
    if video.kind == other.kind == "media":
        if not _are_as_long(video, other):
            return False
        said_here, said_there = (
            {second: each[second] for second in both} for each in (said_here, said_there)
        )
    same = {second for second in both if says_the_same(said_here[second], said_there[second])}
    words = {word for second in same for word in words_of(said_here[second])}
    return sum(map(len, words)) >= _LEAST_LETTERS and all(
        len({each[second] for second in same}) >= _LEAST_SHARE * len(set(each.values()))
        for each in (said_here, said_there)
    )


def _are_as_long(video: VideoRecord, other: VideoRecord) -> bool:
    return abs((video.duration or 0.0) - (other.duration or 0.0)) <= _MOST_SECONDS_APART


def _by_frames(
    corpus: OpenedCorpus, records: Sequence[VideoRecord], passages: Collection[str]
) -> Iterator[Double]:
    """Videos that look like one of about their length, unless both have words to compare."""
    if (name := frames_of(corpus)) is None:
        return
    pairs = _as_long([record for record in records if stream_named(name).holds(record)], passages)
    copies = set[str]()
    for start in range(0, len(pairs), _BLOCK):
        some = pairs[start : start + _BLOCK]
        names = list(dict.fromkeys(record.video_id for pair in some for record in pair))
        block = corpus.store.clips_at(name, _SECONDS, names, vectors=True)
        rows = _rows_at(block)
        for original, video in some:
            rows_of_video, rows_of_original = (rows.get(record.video_id, {}) for record in (video, original))
            if video.video_id not in copies and _show_the_same(
                block.vectors, rows_of_video, rows_of_original
            ):
                copies.add(video.video_id)
                yield Double(video, original, "shows")


def _as_long(
    records: Sequence[VideoRecord], passages: Collection[str]
) -> list[tuple[VideoRecord, VideoRecord]]:
    """Pairs of videos of about the same length, earlier first, of which at least one has no words."""
    in_order = sorted(records, key=lambda record: record.duration or 0.0)
    return [
        (video, other) if _age(video) < _age(other) else (other, video)
        for place, video in enumerate(in_order)
        for other in in_order[place + 1 : place + 1 + _NEIGHBOURS]
        if _are_as_long(video, other) and not (video.video_id in passages and other.video_id in passages)
    ]


def _age(record: VideoRecord) -> tuple[bool, bool, float, str]:
    """Sort key: films before sound, recordings before transcripts, earlier before later."""
    return record.kind != "media", not record.has_picture, record.indexed_at, record.video_id


def _show_the_same(
    vectors: NDArray[np.float32], rows: Mapping[float, int], other_rows: Mapping[float, int]
) -> bool:
    """Whether two videos look alike at all times; `rows` and `other_rows` map times to rows of vectors."""
    if len(rows) < _LEAST_FRAMES or rows.keys() != other_rows.keys():
        return False
    return all(float(vectors[row] @ vectors[other_rows[second]]) >= LEAST for second, row in rows.items())
