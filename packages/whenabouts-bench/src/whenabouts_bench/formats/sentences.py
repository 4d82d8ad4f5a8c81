"""Sentences that are said in videos, with their times: HERO reads them, and they may be judgements, too.

The file has a JSON object a line, `{"video_id", "sentences": [{"start", "end", "text"}, …]}`; TVR's released
subtitles (`{"vid_name", "sub": […]}`) are read as they are. Times are seconds. As judgements each sentence is
a query `video#i`, true while it is said: what a pre-training on videos without queries learns from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from whenabouts.intake.files import Sign
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import Finite, Id, Text, read_records

NAME = "sentences"
SUMMARY = "what is said in videos, with times; TVR's released subtitles"

SIGNS = {"read_annotations": (Sign("video_id sentences"), Sign("vid_name sub"))}


class Sentence(msgspec.Struct, frozen=True):
    """Words that are said from `start` to `end`, seconds."""

    start: Finite
    end: Finite
    text: Text


class _Ours(msgspec.Struct):
    video_id: Id
    sentences: list[Sentence]


class _Released(msgspec.Struct):
    vid_name: Id
    sub: list[Sentence]


Transcripts = Mapping[str, Sequence[Sentence]]
"""Video id -> its sentences in the order in which they begin."""


def read_sentences(path: Path) -> dict[str, tuple[Sentence, ...]]:
    """The sentences of each video of a file, in the order in which they begin.

    Raises FormatError, naming file, line, field and value, for what is no such line, a video that comes
    twice, and a sentence that ends before it begins.
    """
    transcripts: dict[str, tuple[Sentence, ...]] = {}
    for origin, record in read_records(path, "a line for each video"):
        if "vid_name" in record:
            released = origin.convert(record, _Released)
            name, sentences = str(released.vid_name), released.sub
        else:
            ours = origin.convert(record, _Ours)
            name, sentences = str(ours.video_id), ours.sentences
        if name in transcripts:
            raise origin.error("comes twice: video", name, "each video once")
        for number, sentence in enumerate(sentences):
            if sentence.start > sentence.end:
                raise origin.at(number).error("ends before it begins:", sentence, "start <= end")
        transcripts[name] = in_order(sentences)
    return transcripts


def in_order(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """Sentences in the order in which they begin; those that begin together stay as they were."""
    return tuple(sorted(sentences, key=lambda sentence: sentence.start))


def read_annotations(path: Path) -> Annotations:
    """A query for each sentence that has words, and its moment; videos of unknown length.

    Raises FormatError as `read_sentences` does.
    """
    builder = AnnotationBuilder(str(path))
    for video, sentences in read_sentences(path).items():
        builder.add_video(video, None)
        for number, sentence in enumerate(sentences):
            if words := sentence.text.strip():
                builder.add_query(f"{video}#{number}", words)
                builder.judge(f"{video}#{number}", video, sentence.start, sentence.end)
    return builder.annotations()
