"""Questions with known answers: made from the words of a corpus, or read from a file.

A corpus comes without labels, but its words make questions: some of the rarer words of a passage, in another
order. The true moment is the passage. Users ask in their own words, so made questions are easier than theirs;
`docs/confidence.md` says by how much.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whenabouts.index.lookup import query_words
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.intake.files import loads
from whenabouts.intake.opening import read_lines
from whenabouts.search.understand import words_of_query
from whenabouts.search.word_units import SPACELESS
from whenabouts.streams import answering
from whenabouts.types import Moment, UsageError, number_of

FEWEST_WORDS, MOST_WORDS = 4, 8
"""Number of words in a made question. With these numbers, made questions and titles that people wrote are
answered "match", "unsure" and "no match" about equally often (docs/confidence.md)."""

# Least number of distinct words in a stretch, so that some can be left out.
_WORDS_OF_STRETCH = 12
# Videos that questions are taken from; each is read whole.
_MOST_VIDEOS = 200
# A given end is cut without a note if it is at most this far past the end of the video (rounded up).
_PAST_END_SECONDS = 1.0
# In scripts without spaces a longer "word" may be a sentence; it is cut into pieces of `_SIGNS` characters.
_LONGEST_WORD = 10
_SIGNS = 4
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class CalibrationQuestion:
    """A question and the moment that answers it."""

    text: str
    answer: Moment


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Neighbouring passages with enough words: their time range and distinct words."""

    moment: Moment
    words: tuple[str, ...]


def made_from(store: Store, count: int, seed: int = 0) -> list[CalibrationQuestion]:
    """At most `count` questions from the corpus's words, over as many videos as possible; shuffled.

    The same corpus and seed give the same questions.
    """
    rng = random.Random(seed)
    stretches = _stretches(store, rng)
    common = Counter(word for of_video in stretches for stretch in of_video for word in set(stretch.words))
    made: list[CalibrationQuestion] = []
    for of_video in stretches:
        rng.shuffle(of_video)
    for turn in range(max(map(len, stretches), default=0)):
        for stretch in (of_video[turn] for of_video in stretches if turn < len(of_video)):
            if len(made) < count:
                made.append(CalibrationQuestion(_question(stretch.words, common, rng), stretch.moment))
    rng.shuffle(made)
    return made


def _stretches(store: Store, rng: random.Random) -> list[list[_Stretch]]:
    """The stretches of at most `_MOST_VIDEOS` videos, drawn at random: a list for each stream and video."""
    ids = [record.video_id for record in store.videos() if record.streams]
    chosen = rng.sample(ids, min(len(ids), _MOST_VIDEOS))
    stretches: list[list[_Stretch]] = []
    for stream in answering(store.streams):
        for video_id in chosen:
            block = store.clips_of(stream, [video_id], vectors=False)
            if any(block.text):
                rows = zip(block.start.tolist(), block.end.tolist(), block.text, strict=True)
                stretches.append(list(_stretches_of(video_id, rows)))
    return [of_video for of_video in stretches if of_video]


def _stretches_of(video_id: str, passages: Iterator[tuple[float, float, str]]) -> Iterator[_Stretch]:
    """Passages gathered until they have enough words; leftovers at the end are dropped."""
    words: dict[str, None] = {}
    begin, latest = 0.0, 0.0
    for start, end, text in passages:
        begin, latest = (start, end) if not words else (begin, max(latest, end))
        words.update(dict.fromkeys(_words(text)))
        if len(words) >= _WORDS_OF_STRETCH:
            yield _Stretch(Moment(video_id, begin, latest), tuple(words))
            words = {}


def _words(text: str) -> Iterator[str]:
    for word in query_words(text)[0]:
        is_cut = len(word) > _LONGEST_WORD and SPACELESS.search(word)
        step = _SIGNS if is_cut else len(word)
        yield from (word[i : i + step] for i in range(0, len(word), step))


def _question(words: Sequence[str], common: Counter[str], rng: random.Random) -> str:
    """Some of the rarer half of the words, in another order than in the passage."""
    count = rng.randint(FEWEST_WORDS, MOST_WORDS)
    rarer = sorted(words, key=lambda word: (common[word], word))[: max(count, len(words) // 2)]
    chosen = rng.sample(rarer, count)
    if chosen == [word for word in words if word in set(chosen)]:
        chosen.reverse()
    return " ".join(chosen)


def read_questions(
    path: Path, resolve: Callable[[str], VideoRecord]
) -> tuple[list[CalibrationQuestion], list[str]]:
    """Questions from a file of JSON lines (`query`, `video`, `start`, `end` in seconds), and notes for users.

    `resolve` finds a line's video by its name; its UsageError is raised again with the line. Ends are clipped
    to the video; questions that start after its end or that came before are left out; the notes count all.
    Raises UsageError for an unreadable file, a malformed line, or no question inside a video.
    """
    try:
        lines = read_lines(path, _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; give a text file of JSON lines") from error
    questions: dict[CalibrationQuestion, None] = {}
    cut, behind, again = [], [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        question, duration = _parsed(line, f"{path}, line {number}", resolve)
        answer = question.answer
        if answer.start >= duration:
            behind.append(number)
            continue
        if answer.end > duration:
            cut += [number] if answer.end > duration + _PAST_END_SECONDS else []
            question = replace(question, answer=replace(answer, end=duration))
        if question in questions:
            again.append(number)
        questions[question] = None
    notes = [
        *_note(cut, "cut off at the end of the video"),
        *_note(behind, "left out: behind the end of the video"),
        *_note(again, "left out: asked before"),
    ]
    if not questions:
        why = "".join(f" ({note})" for note in notes)
        raise UsageError(
            f"{path} holds no questions{why}; write a JSON line of query, video, start, end for each"
        )
    return list(questions), notes


def _note(lines: Sequence[int], done: str) -> list[str]:
    """A list with one note on the questions of these lines; [] if `lines` is empty."""
    if not lines:
        return []
    first = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
    return [f"{number_of(len(lines), 'question')} {done} (line {first})"]


def _parsed(
    line: str, where: str, resolve: Callable[[str], VideoRecord]
) -> tuple[CalibrationQuestion, float]:
    """A question, and the duration of its video in seconds (infinite: unknown)."""
    try:
        value: Any = loads(line)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where}: {line[:60]!r} is not an object; write query, video, start and end")
    missing = [key for key in ("query", "video", "start", "end") if key not in value]
    if missing:
        raise UsageError(f"{where}: lacks {', '.join(missing)}; a line has query, video, start and end")
    query, video = value["query"], value["video"]
    if not isinstance(query, str) or not query.strip():
        raise UsageError(f"{where}: query is {query!r}; give the words to ask")
    times = [value["start"], value["end"]]
    if not isinstance(video, str) or any(
        isinstance(t, bool) or not isinstance(t, int | float) for t in times
    ):
        raise UsageError(
            f"{where}: video is {video!r}, start and end are {times}; give a name and two seconds"
        )
    try:
        record = resolve(video)
        answer = Moment(record.video_id, float(times[0]), float(times[1]))
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    duration = math.inf if record.duration is None else record.duration
    return CalibrationQuestion(words_of_query(query), answer), duration
