"""Titled transcripts: transcripts of long recordings, and the titles that people gave to their parts.

`write_titled_transcripts` makes the data set from a folder with transcripts (`NAME.vtt`), `recordings.jsonl`
and `queries.jsonl`. A title is a query; its moment is the part that it names. The recordings are assigned to
three folds, and each fold has its own training, validation and test split: a title is tested once, by systems
that were trained on other recordings. The split "test" has all titles, for untrained systems.
`python -m benchmarks.titled_transcripts` makes the features and measures systems.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from whenabouts.intake.files import FormatError, read_json, sibling_file, write_atomically
from whenabouts.video.cues import read_cue_file
from whenabouts_bench import formats
from whenabouts_bench.datasets import tvr
from whenabouts_bench.datasets.declaration import Declaration, SideFile, Split, made_features
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import NotNegative, Origin, Positive, Words, read_records
from whenabouts_bench.formats.sentences import Sentence, write_sentences

WORDS_FILE = "titled_transcripts_said.jsonl"
VIDEOS_FILE = "titled_transcripts_videos.json"
FOLDS = (1, 2, 3)
ALL = "test"
"""The split of all titles, for systems that are not trained on them. Names of all test splits begin so."""
PIECE_SECONDS = 9_000.0
"""Recordings longer than this (in this data set only whole days of radio) are cut into equal pieces."""
VALIDATION_EVERY = 5
"""Every fifth recording with titles (`folds_of`) is for validation in the folds that do not test it."""


_Name = Annotated[str, Meta(pattern=r"^[\w.-]+$", title="the name of a file without its suffix")]


class _Recording(msgspec.Struct):
    recording: _Name
    set: str
    seconds: Positive


class _Title(msgspec.Struct):
    query: Words
    recording: Words
    start: NotNegative
    end: Positive


@dataclass(frozen=True)
class Piece:
    """A recording, or a piece of a long one: [start, end) seconds of it."""

    id: str
    recording: str
    start: float
    end: float


def pieces_of(recording: str, seconds: float) -> tuple[Piece, ...]:
    """Cut a recording into pieces of equal length; a short one stays whole."""
    count = math.ceil(seconds / PIECE_SECONDS)
    if count == 1:
        return (Piece(recording, recording, 0.0, seconds),)
    ends = [seconds * number / count for number in range(count + 1)]
    return tuple(
        Piece(f"{recording}_{number}", recording, start, end)
        for number, (start, end) in enumerate(pairwise(ends), 1)
    )


def folds_of(sets: Mapping[str, str], titles: Mapping[str, int]) -> dict[str, int]:
    """Map each recording to its fold; `sets` has each one's set, `titles` its number of titles.

    The recordings of a set, those with most titles first, are assigned to the folds in turn.
    """
    order = sorted(sets, key=lambda name: (sets[name], -titles.get(name, 0), name))
    return {name: FOLDS[place % len(FOLDS)] for place, name in enumerate(order)}


def split_names(fold: int) -> tuple[str, str, str]:
    """The training, validation and test split of a fold."""
    return f"train-{fold}", f"val-{fold}", f"test-{fold}"


def write_titled_transcripts(source: str | Path, out: str | Path) -> dict[str, Annotations]:
    """Write the data set into a folder; return its splits by name.

    Raises FormatError for a malformed record, a title of an unknown recording or one that starts after its
    recording ends, and a recording without transcript.
    """
    source, out = Path(source), Path(out)
    recordings = _recordings(source / "recordings.jsonl")
    titles = _titles(source / "queries.jsonl", recordings)
    spoken = {name: _spoken_in(source, recording) for name, recording in recordings.items()}
    counts = Counter(title.recording for title in titles)
    folds = folds_of({name: recording.set for name, recording in recordings.items()}, counts)
    out.mkdir(parents=True, exist_ok=True)
    of_pieces = chain.from_iterable(pieces.items() for pieces in spoken.values())
    write_sentences(out / WORDS_FILE, {piece.id: sentences for piece, sentences in of_pieces})
    lengths = {piece.id: piece.end - piece.start for pieces in spoken.values() for piece in pieces}
    with write_atomically(out / VIDEOS_FILE) as stream:
        stream.write(json.dumps(lengths, indent=1).encode())
    parts = {ALL: set(recordings)}
    for fold in FOLDS:
        parts |= zip(split_names(fold), _parts(folds, counts, fold), strict=True)
    made = {}
    for split, part in parts.items():
        made[split] = _judged(split, [title for title in titles if title.recording in part], spoken)
        formats.write_annotations(made[split], out / file_name(split), "tvr")
    return made


def _recordings(path: Path) -> dict[str, _Recording]:
    recordings: dict[str, _Recording] = {}
    pieces: set[str] = set()
    for origin, record in read_records(path, "a recording a line"):
        recording = origin.convert(record, _Recording)
        name = recording.recording
        names = {name, *(piece.id for piece in pieces_of(name, recording.seconds))}
        if not pieces.isdisjoint(names):
            raise origin.at("recording").error("is a recording, or a piece of one, before:", name)
        pieces |= names
        recordings[name] = recording
    return recordings


def _titles(path: Path, recordings: Mapping[str, _Recording]) -> list[_Title]:
    titles = []
    for origin, record in read_records(path, "a title a line"):
        title = origin.convert(record, _Title)
        if title.recording not in recordings:
            raise origin.at("recording").error("is not in recordings.jsonl:", title.recording)
        origin.at("start").check_span(title.start, min(title.end, recordings[title.recording].seconds))
        titles.append(title)
    return titles


def _spoken_in(source: Path, recording: _Recording) -> dict[Piece, list[Sentence]]:
    """The pieces in which somebody speaks, with their cues; a cue belongs to the piece in which it starts.

    Cues that start after the end of the recording are left out.
    """
    path = source / f"{recording.recording}.vtt"
    if not path.is_file():
        raise FormatError(source / "recordings.jsonl", f"there is no {path.name} beside it")
    cues = read_cue_file(path).cues
    spoken = {
        piece: [
            Sentence(cue.start - piece.start, min(cue.end, piece.end) - piece.start, cue.text)
            for cue in cues
            if piece.start <= cue.start < piece.end
        ]
        for piece in pieces_of(recording.recording, recording.seconds)
    }
    return {piece: sentences for piece, sentences in spoken.items() if sentences}


def _parts(
    folds: Mapping[str, int], titles: Mapping[str, int], fold: int
) -> tuple[set[str], set[str], set[str]]:
    """The training, validation and test recordings of a fold.

    Recordings without titles are in none of them, but test splits search them.
    """
    titled = [name for name in folds if titles.get(name)]
    tested = {name for name in titled if folds[name] == fold}
    validation = set(titled[::VALIDATION_EVERY]) - tested
    return set(titled) - tested - validation, validation, tested


def _judged(
    split: str, titles: Sequence[_Title], spoken: Mapping[str, Mapping[Piece, Sequence[Sentence]]]
) -> Annotations:
    """The titles as queries. A moment is the overlap of a title's part and one piece, that with the longest.

    Only pieces with words count. A title whose part touches no such piece is left out.
    """
    builder = AnnotationBuilder(f"{DATASET.name} {split}")
    numbers: Counter[str] = Counter()
    for title in titles:
        query = f"{title.recording}#{numbers[title.recording]}"
        numbers[title.recording] += 1
        shared = {
            piece: (max(title.start, piece.start), min(title.end, piece.end))
            for piece in spoken[title.recording]
            if title.start < piece.end and piece.start < title.end
        }
        if shared:
            piece = max(shared, key=lambda place: shared[place][1] - shared[place][0])
            start, end = shared[piece]
            builder.add_video(piece.id, piece.end - piece.start)
            builder.add_query(query, title.query.strip())
            builder.judge(query, piece.id, start - piece.start, end - piece.start)
    return builder.annotations()


def complete(annotations: Annotations, path: Path, split: str) -> Annotations:
    """A test split with all videos of the side file, which are the corpus to search; others are unchanged."""
    videos = sibling_file(path, VIDEOS_FILE)
    if videos is None or not split.startswith("test"):
        return annotations
    whole = Origin(videos)
    rows = whole.object(read_json(videos), "an object, video -> seconds")
    return tvr.with_corpus(
        annotations, {name: whole.at(name).convert(row, NotNegative) for name, row in rows.items()}
    )


def file_name(split: str) -> str:
    """The name of a split's file."""
    return f"titled_transcripts_{split}.jsonl"


DATASET = Declaration(
    name="titled-transcripts",
    title="Titled transcripts",
    tasks=("VCMR", "SVMR", "VR"),
    citation=(
        "Transcripts and titles of four public repositories: bitcointranscripts/bitcointranscripts, "
        "devtools-fm/devtools.fm, Atcold/NYU-DLSP20 and bfeist/Apollo_13."
    ),
    licence=(
        "MIT (bitcointranscripts, devtools.fm), CC BY-NC-SA 4.0 (NYU-DLSP20), GPL-3.0 (Apollo_13; the words "
        "are NASA's)."
    ),
    how=(
        "Run python -m benchmarks.titled_transcripts write DIR OUT in a checkout. DIR holds transcripts "
        "NAME.vtt, recordings.jsonl (recording, set, seconds) and queries.jsonl (query, recording, start, "
        "end)."
    ),
    mark=rb'"desc_id"',
    splits=tuple(
        Split.made(name, file_name(name), videos, queries)
        for name, videos, queries in (
            (ALL, 141, 639),
            ("train-1", 43, 319),
            ("val-1", 7, 76),
            ("test-1", 141, 244),
            ("train-2", 43, 327),
            ("val-2", 17, 110),
            ("test-2", 141, 202),
            ("train-3", 46, 318),
            ("val-3", 16, 128),
            ("test-3", 141, 193),
        )
    ),
    beside=(
        SideFile(WORDS_FILE, "what is said, with times"),
        SideFile(VIDEOS_FILE, "the length of each video; all of them are searched"),
    ),
    features=made_features("titled_transcripts", "the passages of whenabouts' own index", 60.0),
    notes=(
        "It shows whether training on some recordings helps to find parts of others by what is said, and "
        "nothing on pictures, or on training with many titles.",
        "Titles are short, and written for readers who know the recording: a title may fit parts of other "
        "recordings, too. The end of a part is where the next title begins.",
        "Train, validate and test within one fold: the splits of another fold have the same recordings. The "
        'split "test" has all titles, for systems that are not trained.',
    ),
    # "test" shares queries with all splits. Splits of different folds share some, except test with test and
    # training with validation, because each fold validates on recordings of the same list.
    shared_query_ids=tuple(
        (first, second)
        for first, second in combinations([ALL, *(name for fold in FOLDS for name in split_names(fold))], 2)
        if first == ALL
        or (first[-1] != second[-1] and {first[:-2], second[:-2]} not in ({"test"}, {"train", "val"}))
    ),
    complete=complete,
)
