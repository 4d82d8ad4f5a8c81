"""Transcripts: sentences spoken in videos, with times. HERO reads them; they can also serve as judgements.

JSON lines of `{"video_id", "sentences": [{"start", "end", "text"}, …]}`; TVR's released subtitles
(`{"vid_name", "sub": […]}`) are accepted. Times are seconds. As judgements, each sentence is a query
`video#i` whose moment is when it is spoken, for pre-training on videos without queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from whenabouts.intake.files import Sign
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import Finite, Id, Text, read_records
from whenabouts_bench.formats.json_writing import write_lines

NAME = "sentences"

SIGNS = {"read_annotations": (Sign("video_id sentences"), Sign("vid_name sub"))}


class Sentence(msgspec.Struct, frozen=True):
    """Words spoken from `start` to `end`, in seconds."""

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
"""Video id -> its sentences by start."""


def read_sentences(path: Path) -> dict[str, tuple[Sentence, ...]]:
    """Video id -> its sentences by start.

    Raises FormatError, with file, line, field and value, for an invalid line, a duplicate video, or a
    sentence that ends before it begins.
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
                place = origin.at("sub" if "vid_name" in record else "sentences", number)
                raise place.error("ends before it begins:", sentence, "start <= end")
        transcripts[name] = in_order(sentences)
    return transcripts


def write_sentences(path: Path, transcripts: Transcripts) -> None:
    """Write what is said in each video, atomically. Raises FormatError if the file cannot be written."""
    write_lines(
        path,
        (
            {"video_id": name, "sentences": msgspec.to_builtins(list(sentences))}
            for name, sentences in transcripts.items()
        ),
    )


def in_order(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """Sentences by start; the sort is stable."""
    return tuple(sorted(sentences, key=lambda sentence: sentence.start))


def read_annotations(path: Path) -> Annotations:
    """A query per non-empty sentence, with its moment, without durations. Raises as `read_sentences`."""
    builder = AnnotationBuilder(str(path))
    for video, sentences in read_sentences(path).items():
        builder.add_video(video, None)
        for number, sentence in enumerate(sentences):
            if words := sentence.text.strip():
                builder.add_query(f"{video}#{number}", words)
                builder.judge(f"{video}#{number}", video, sentence.start, sentence.end)
    return builder.annotations()
