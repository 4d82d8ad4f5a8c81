"""Videos of a corpus that hold the same material: copies compressed anew, transcripts beside their video.

Videos are compared at a few fixed seconds alone, by the passage that is said or the frame that is seen there.
Words are looked up in an index of the phrases of earlier videos, frames are compared with those of videos of
about the same length, so that the cost grows with the number of videos and not with that of pairs.
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
# Of the passages at these seconds, so many must say the same.
_LEAST_SHARE = 2 / 3
# Less is said in jingles, and in videos of which one sentence is known.
_LEAST_LETTERS = 50
_LEAST_FRAMES = 3
# A copy is as long as its original, but for what a container rounds.
_MOST_SECONDS_APART = 1.0
_PHRASE_WORDS = 5
# The last so many passages: the first ones may be an introduction that all videos of a series have.
_PHRASES_OF = 2
# So many videos are remembered by a phrase, and so many that share the most phrases are compared.
_MOST_BY_PHRASE, _MOST_COMPARED = 8, 3
_NEIGHBOURS, _BLOCK = 8, 256

Passages = Mapping[float, str]


@dataclass(frozen=True, slots=True)
class Double:
    """A video whose material an `original` has too, told by what it "says" or "shows"."""

    video: VideoRecord
    original: VideoRecord
    by: Literal["says", "shows"]


def doubles_of(corpus: OpenedCorpus) -> list[Double]:
    """The videos of a corpus that are there twice, each with one original."""
    ledger = corpus.store.ledger().records
    records = sorted((record for record in ledger if record.state != "failed"), key=_age)
    passages = _passages(corpus, records)
    doubles = list(_by_words(records, passages))
    copies = {double.video.video_id for double in doubles}
    others = [record for record in records if record.video_id not in copies]
    return doubles + list(_by_frames(corpus, others, passages))


def _passages(corpus: OpenedCorpus, records: Sequence[VideoRecord]) -> dict[str, dict[float, str]]:
    """What each video says at each of the seconds; nothing of videos that say nothing there."""
    passages: dict[str, dict[float, str]] = {}
    for name in corpus.store.streams:
        stream = stream_named(name)
        if stream.transcript and (holding := [own.video_id for own in records if stream.holds(own)]):
            block = corpus.store.clips_at(name, _SECONDS, holding)
            for video_id, rows in _rows_at(block).items():
                passages[video_id] = {second: block.text[row] for second, row in rows.items()}
    return passages


def _rows_at(block: ClipBlock) -> dict[str, dict[float, int]]:
    """The first row of each video at each of the seconds at which it has one."""
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
    """Doubles that say the same as an earlier video, which later ones are compared with in its stead."""
    with_phrase: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, record in enumerate(records):
        own = passages.get(record.video_id, {})
        phrases = _phrases(own)
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
    """Each few neighbouring words of the last passages of a video; all of a passage that has fewer."""
    texts = dict.fromkeys(passages[second] for second in sorted(passages, reverse=True))
    words = [words_of(text) for text in list(texts)[:_PHRASES_OF]]
    return {
        tuple(own[first : first + _PHRASE_WORDS])
        for own in words
        if own
        for first in range(max(1, len(own) - _PHRASE_WORDS + 1))
    }


def _say_the_same(video: VideoRecord, other: VideoRecord, passages: Mapping[str, Passages]) -> bool:
    """Whether mostly the same is said in two videos at the same seconds.

    Recordings must be equally long. A recogniser may have left out something of one of them, so that they are
    compared where both have words.
    """
    own, theirs = passages[video.video_id], passages[other.video_id]
    both = own.keys() & theirs.keys()
    if video.kind == other.kind == "media":
        if not _are_as_long(video, other):
            return False
        own, theirs = ({second: some[second] for second in both} for some in (own, theirs))
    same = {second for second in both if says_the_same(own[second], theirs[second])}
    words = {word for second in same for word in words_of(own[second])}
    return sum(map(len, words)) >= _LEAST_LETTERS and all(
        len({some[second] for second in same}) >= _LEAST_SHARE * len(set(some.values()))
        for some in (own, theirs)
    )


def _are_as_long(video: VideoRecord, other: VideoRecord) -> bool:
    return abs((video.duration or 0.0) - (other.duration or 0.0)) <= _MOST_SECONDS_APART


def _by_frames(
    corpus: OpenedCorpus, records: Sequence[VideoRecord], passages: Collection[str]
) -> Iterator[Double]:
    """Doubles that show the same as one of about their length, where not both have words to be compared."""
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
            own, theirs = (rows.get(record.video_id, {}) for record in (video, original))
            if video.video_id not in copies and _show_the_same(block.vectors, own, theirs):
                copies.add(video.video_id)
                yield Double(video, original, "shows")


def _as_long(
    records: Sequence[VideoRecord], passages: Collection[str]
) -> list[tuple[VideoRecord, VideoRecord]]:
    """Pairs of videos of about the same length, the earlier first, of which one at least has no words."""
    in_order = sorted(records, key=lambda record: record.duration or 0.0)
    return [
        (video, other) if _age(video) < _age(other) else (other, video)
        for place, video in enumerate(in_order)
        for other in in_order[place + 1 : place + 1 + _NEIGHBOURS]
        if _are_as_long(video, other) and not {video.video_id, other.video_id} <= set(passages)
    ]


def _age(record: VideoRecord) -> tuple[bool, bool, float, str]:
    """Films come before sound, recordings before transcripts, and earlier ones before later ones."""
    return record.kind != "media", not record.has_picture, record.indexed_at, record.video_id


def _show_the_same(
    vectors: NDArray[np.float32], own: Mapping[float, int], theirs: Mapping[float, int]
) -> bool:
    """Whether two videos look alike at all seconds; `own` and `theirs` are their rows at these."""
    both = own.keys() & theirs.keys()
    if len(both) < _LEAST_FRAMES or own.keys() != theirs.keys():
        return False
    return all(float(vectors[own[second]] @ vectors[theirs[second]]) >= LEAST for second in both)
