"""Chooses the unrelated sentences that calibrate each stream, in the languages of its videos' words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whenabouts.confidence.background import language_of, languages
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder
from whenabouts.search.query_language import ALIGNED, name_of, understands
from whenabouts.streams import stream as stream_named
from whenabouts.video.language import LEAST_LETTERS, SEVERAL

# Videos sampled per language.
_VIDEOS = 20
_ENGLISH = "en"
LEANING = 3.0
"""Factor by which a cosine counts less if the encoder does not know the language."""


@dataclass(frozen=True, slots=True)
class Bank:
    """The unrelated sentences for one group of a stream: the videos whose words are in one language.

    `foreign`: the stream's encoder does not know the language. `withheld`: why there are no sentences in the
    language; then English ones stand in, which measure only the encoder.
    """

    sentences: tuple[str, ...]
    foreign: bool = False
    withheld: str = ""


@dataclass(frozen=True, slots=True)
class Banks:
    """The banks of a stream by group; groups are named by language.

    `of_language` maps the language of a video's words to its group, `main` is the group of all others.
    """

    groups: Mapping[str, Bank]
    of_language: Mapping[str, str] = field(default_factory=dict)
    main: str = _ENGLISH


def banks_of(store: Store, encoders: Mapping[str, QueryEncoder]) -> dict[str, Banks]:
    """The banks of each stream that words can search; pictures have no language and use English ones."""
    by_words = [name for name in store.streams if "text" in stream_named(name).meets]
    return {name: _banks(store, name, encoders.get(name)) for name in by_words}


def note_of(banks: Mapping[str, Banks]) -> tuple[str, tuple[str, ...]]:
    """A note on the languages that no encoder knows, and these languages."""
    foreign = {group: None for each in banks.values() for group, bank in each.groups.items() if bank.foreign}
    if not foreign:
        return "", ()
    names = " and ".join(map(name_of, foreign))
    it = "it" if len(foreign) == 1 else "them"
    note = f"the sentence model does not know {names}: what is said in {it} is found by words, not meaning"
    return note, tuple(foreign)


def _banks(store: Store, stream: str, encoder: QueryEncoder | None) -> Banks:
    english = languages()[_ENGLISH]
    if stream_named(stream).has_words is False:
        return Banks({_ENGLISH: Bank(english.sentences)})
    of_language, main = _groups(store, stream)
    groups = {group: _bank(group, encoder) for group in dict.fromkeys([main, *of_language.values()])}
    return Banks(groups, of_language, main)


def _bank(group: str, encoder: QueryEncoder | None) -> Bank:
    language, english = languages().get(group), languages()[_ENGLISH]
    if language is None:
        return Bank(
            english.sentences[:ALIGNED],
            withheld="how sure an answer is cannot be said: whenabouts has no unrelated sentences in "
            f"the language of these words ({name_of(group)}) to compare with",
        )
    if language is english:
        return Bank(english.sentences)
    is_foreign = encoder is not None and not understands(encoder, language)
    return Bank(language.sentences[:ALIGNED], foreign=is_foreign)


def _groups(store: Store, stream: str) -> tuple[dict[str, str], str]:
    """The group of each language of the videos' words, and the main group, which takes all other videos.

    A language with unrelated sentences is a group. Any other language joins the group whose language its
    words resemble, or forms its own group. If the words are inconclusive, the videos join the main group. The
    main group is the one with most videos, preferably in a language with unrelated sentences.
    """
    by_language: dict[str, list[VideoRecord]] = {}
    for record in store.videos():
        if stream in record.streams:
            by_language.setdefault(record.language, []).append(record)
    groups, weights = dict[str, str](), Counter[str]()
    for language, records in by_language.items():
        group = _group_of(store, stream, language, [record.video_id for record in records])
        groups[language] = group
        weights[group] += len(records) * bool(group)
    supported = [group for group, count in weights.most_common() if count and group in languages()]
    main = next(iter(supported), "") or next((group for group in weights if group), _ENGLISH)
    return {language: group or main for language, group in groups.items()}, main


def _group_of(store: Store, stream: str, language: str, video_ids: Sequence[str]) -> str:
    """The group of the videos in a language; "" if language and words are inconclusive."""
    if language in languages():
        return language
    chosen = video_ids[:: max(1, math.ceil(len(video_ids) / _VIDEOS))]
    texts = store.clips_of(stream, chosen, vectors=False).text
    if sum(map(str.isalpha, "".join(texts))) < LEAST_LETTERS:
        return ""
    seen = language_of(texts)
    if seen is not None:
        return seen.code
    return "" if language == SEVERAL else language
