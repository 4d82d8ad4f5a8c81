"""ActivityNet, two annotators: queries written by one person, descriptions of the videos by another.

In ActivityNet Captions, val_1 and val_2 are two people's descriptions of the same 4,885 videos. The sentences
of val_2 are the queries. The sentences of val_1, with their times, stand for the words of the videos. People
wrote all of them, and a sentence may fit several videos, as in a real collection. `write_two_annotators`
makes the files from ActivityNet's; `python -m benchmarks.two_annotators` adds features and baselines.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path

from whenabouts_bench import formats
from whenabouts_bench.datasets import activitynet_captions
from whenabouts_bench.datasets.declaration import Declaration, SideFile, Split, made_features
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_bench.formats.sentences import Sentence, write_sentences

WORDS_FILE = "two_annotators_said.jsonl"
SHARES = {"train": 0.6, "val": 0.1, "test": 0.3}
"""Expected shares of the videos."""


def split_of(video_id: str) -> str:
    """The split of a video, which depends only on the hash of its id."""
    place = int(hashlib.sha256(video_id.encode()).hexdigest()[:8], 16) / 2**32
    for name, share in SHARES.items():
        if place < share:
            return name
        place -= share
    return "test"  # for the type checker: the shares add up to 1, so the loop has returned


def write_two_annotators(queries: Annotations, words: Annotations, out: str | Path) -> dict[str, Annotations]:
    """Write the data set into a folder, judgements by split and the words of all videos; return the splits.

    `queries` are val_2 of ActivityNet Captions, `words` val_1. Videos that only one of them has are left out,
    and so are moments of 0 s.
    """
    out = Path(out)
    both = {video.id for video in queries.videos} & {video.id for video in words.videos}
    builders = {name: AnnotationBuilder(f"{DATASET.name} {name}") for name in SHARES}
    for video in queries.videos:
        if video.id in both:
            builders[split_of(video.id)].add_video(video.id, video.duration)
    for number, video_number, start, end, _ in judgement_rows(queries):
        query, name = queries.queries[number], queries.videos[video_number].id
        if name in both and start < end:
            builders[split_of(name)].add_query(query.id, query.text.strip())
            builders[split_of(name)].judge(query.id, name, start, end)
    made = {name: builder.annotations() for name, builder in builders.items()}
    out.mkdir(parents=True, exist_ok=True)
    for name, split in made.items():
        formats.write_annotations(split, out / file_name(name), "tvr")
    spoken: defaultdict[str, list[Sentence]] = defaultdict(list)
    for number, video_number, start, end, _ in judgement_rows(words):
        name = words.videos[video_number].id
        if name in both and start < end:
            spoken[name].append(Sentence(start, end, words.queries[number].text.strip()))
    write_sentences(out / WORDS_FILE, dict(sorted(spoken.items())))
    return made


def file_name(split: str) -> str:
    """The name of a split's file."""
    return f"two_annotators_{split}.jsonl"


DATASET = Declaration(
    name="activitynet-two-annotators",
    title="ActivityNet, two annotators",
    tasks=("VCMR", "SVMR", "VR"),
    citation=activitynet_captions.DATASET.citation,
    licence=activitynet_captions.DATASET.licence,
    how=(
        "In a checkout, python -m benchmarks.two_annotators write DIR OUT makes it from val_1 and val_2 of "
        "ActivityNet Captions in DIR."
    ),
    mark=rb'"desc_id"',
    splits=tuple(
        Split.made(name, file_name(name), videos, queries)
        for name, videos, queries in (("train", 2_981, 10_367), ("val", 460, 1_612), ("test", 1_444, 5_052))
    ),
    beside=(
        SideFile(WORDS_FILE, "the first annotator's sentences with their times: the words of the videos"),
    ),
    features=made_features("two_annotators", "the first annotator's sentences", 4.0),
    notes=(
        "It measures whether one person's sentences find another's, retrieval among similar videos, and "
        "rough localisation. The two people disagree on where events begin and end.",
        "It cannot measure what pictures add, several streams, or speech: its one stream is written "
        "descriptions, with pauses where the first person wrote nothing.",
    ),
)
