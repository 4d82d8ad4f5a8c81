"""What can be wrong with a training's data, found before the first step: an error, or a rule with a count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import same_instant
from whenabouts.features import FeatureSource, Fingerprint, require_same
from whenabouts.formats.annotations import Annotations
from whenabouts.models.inputs import Inputs, StreamInput
from whenabouts.types import Query, UsageError, Video

_SHOWN = 3
_KEPT = ("weights_sha256", "frame_rate", "normalisation", "version")
"""What a stream's `fingerprint` keeps beside encoder and width."""
_ROWS_APART, _SHARE_APART = 2, 0.1
_MOST_CLIPS_A_ROW = 1.5


def refuse_missing(source: FeatureSource, needed: Sequence[str], kind: str, split: str) -> None:
    """UsageError where a file lacks the features of some videos or queries, naming file, number and ids."""
    missing = [item for item in needed if item not in source]
    if missing:
        examples = ", ".join(repr(item) for item in source.ids()[:_SHOWN])
        raise UsageError(
            f"{source.path}: has no features of {len(missing):,} of the {len(needed):,} {kind} of {split}, "
            f"{_some(missing)}; it holds {len(source):,} items such as {examples}"
        )


def refuse_other_files(sources: Sequence[FeatureSource]) -> None:
    """FeatureMismatch where files of one stream (of train and of test) were made by different encoders."""
    for other in sources[1:]:
        first = sources[0]
        require_same(_comparable(first), _comparable(other), (str(first.path), str(other.path)))


def stream_input(source: FeatureSource, normalise: bool) -> StreamInput:
    """What a checkpoint keeps of the features it was trained on."""
    fingerprint = source.fingerprint
    facts = {name: value for name in _KEPT if (value := getattr(fingerprint, name)) is not None}
    return StreamInput(
        source.width, normalise, fingerprint.encoder or "", json.dumps(facts, sort_keys=True) if facts else ""
    )


def refuse_other_encoder(expected: StreamInput, source: FeatureSource, stream: str) -> None:
    """Raise where a file's features are not those a checkpoint was trained on.

    UsageError for another width; FeatureMismatch, naming both, for another encoder, weights, frame rate or
    normalisation, as far as both say.
    """
    if source.width != expected.width:
        raise UsageError(
            f"{source.path}: rows of {stream} are {source.width} wide; the checkpoint expects "
            f"{expected.width}" + (f" ({expected.encoder})" if expected.encoder else "")
        )
    trained_on = Fingerprint(encoder=expected.encoder or None, **_facts(expected.fingerprint))
    require_same(trained_on, _comparable(source, clip_seconds=False), ("the checkpoint", str(source.path)))


def refuse_ambiguous(splits: Mapping[str, Annotations]) -> None:
    """UsageError where one query id stands for two sentences in two splits: features are found by id."""
    texts: dict[str, tuple[str, str]] = {}
    for split, judged in splits.items():
        for query in judged.queries:
            text, first_split = texts.setdefault(query.id, (query.text, split))
            if text != query.text:
                raise UsageError(
                    f"query {query.id!r} is {text[:60]!r} in {first_split} and {query.text[:60]!r} in "
                    f"{split}; expected ids that differ, because features are found by id"
                )


def one_clip_length(given: float | None, sources: Mapping[str, Sequence[FeatureSource]]) -> float:
    """The length of a clip in seconds, the same in all streams' files.

    Raises UsageError where neither the experiment nor a file says it, or two files say different ones.
    """
    length = None if given is None else float(given)
    where = "the experiment"
    for source in (source for files in sources.values() for source in files):
        seconds = source.clip_seconds
        if seconds is None:
            continue
        if length is not None and not same_instant(seconds, length):
            raise UsageError(
                f"{source.path}: its clips are {seconds:g} s long; {where} says {length:g} s; "
                "expected one length for all streams"
            )
        length, where = seconds, str(source.path)
    if length is None:
        paths = ", ".join(str(source.path) for files in sources.values() for source in files)
        raise UsageError(
            f"{paths}: how many seconds a row covers stands nowhere in the files; give clip_seconds under "
            "[features], as the release's page says it"
        )
    return length


def refuse_uneven(ids: Sequence[str], lengths: Mapping[str, NDArray[np.int64]]) -> None:
    """UsageError where two streams of a video have very different numbers of rows: other clips, or videos.

    `lengths` are (V,) rows by stream, 0 where a video has none.
    """
    names = list(lengths)
    for other in names[1:]:
        first, second = lengths[names[0]], lengths[other]
        apart = np.abs(first - second)
        wrong = np.flatnonzero(
            (first > 0)
            & (second > 0)
            & (apart > np.maximum(_ROWS_APART, _SHARE_APART * np.maximum(first, second)))
        )
        if len(wrong):
            at = wrong[0]
            raise UsageError(
                f"video {ids[at]!r}: has {first[at]} rows in stream {names[0]!r} and {second[at]} in "
                f"{other!r} (and {len(wrong) - 1:,} more videos like it); expected one grid of clips"
            )


def refuse_without_time(videos: Sequence[Video], name: str) -> None:
    """UsageError for a video that lasts 0 s: no moment of it could be found. `name` is the file's."""
    without = [video.id for video in videos if video.duration == 0]
    if without:
        raise UsageError(
            f"{name}: the duration of {len(without):,} of {len(videos):,} videos is 0, "
            f"{_some(without)}; expected seconds above 0; where they are not known leave the duration out, "
            "and that of the features' rows is taken"
        )


def refuse_without_rows(ids: Sequence[str], rows: NDArray[np.int64], split: str) -> None:
    """UsageError for a video that none of the streams, all of them optional, has."""
    without = np.flatnonzero(rows == 0)
    if len(without):
        raise UsageError(
            f"video {ids[without[0]]!r} of {split} is in none of the feature files (and {len(without) - 1:,} "
            "more like it); expected rows in one stream at least"
        )


def refuse_short_clips(paths: Iterable[Path], rows: NDArray[np.int64], expected: NDArray[np.int64]) -> None:
    """UsageError where most videos have far fewer rows than clips: `clip_seconds` is then too small.

    `rows` and `expected` (clips in the video's duration) are (V,). That some end early is usual.
    """
    share = float(np.median(expected / np.maximum(rows, 1)))
    if share > _MOST_CLIPS_A_ROW:
        raise UsageError(
            f"{', '.join(map(str, paths))}: the middle one of {len(rows):,} videos has 1 row for {share:.2g} "
            "clips of its duration; expected about 1 row a clip: is clip_seconds right?"
        )


def count_videos(
    inputs: Inputs,
    rows: NDArray[np.int64],
    expected: NDArray[np.int64],
    is_zero: Mapping[str, NDArray[np.bool_]],
) -> dict[str, int]:
    """How many videos each rule applies to; `rows` (V,) before pooling, `expected` clips by duration."""
    long = "pooled to" if inputs.long_videos != "cut" else "cut at"
    short = int((rows < inputs.max_clips).sum()) if inputs.is_even else 0
    return {
        f"videos of more than {inputs.max_clips} clips are {long} {inputs.max_clips}": int(
            (rows > inputs.max_clips).sum()
        ),
        f"videos of fewer than {inputs.max_clips} clips are spread over {inputs.max_clips}": short,
        "videos have one clip": int((rows == 1).sum()),
        "videos have fewer rows than clips; their last clips are left out": int((rows < expected).sum()),
        **{
            f"videos have nothing in stream {stream!r} (zeros)": int(zero.sum())
            for stream, zero in is_zero.items()
        },
        "videos have nothing in any stream and are not found (scored only where they are given)": int(
            np.all(list(is_zero.values()), axis=0).sum()
        ),
    }


def count_queries(inputs: Inputs, queries: Sequence[Query], lengths: NDArray[np.int64]) -> dict[str, int]:
    """How many queries have no words in the annotations, and how many are cut; `lengths` (Q,) tokens."""
    return {
        "queries have no words in the annotations; their features are taken as they are": sum(
            not query.text.strip() for query in queries
        ),
        f"queries of more than {inputs.max_tokens} tokens are cut": int((lengths > inputs.max_tokens).sum()),
    }


def _comparable(source: FeatureSource, clip_seconds: bool = True) -> Fingerprint:
    """What made the rows; not how they are stored, for all become float32."""
    fingerprint = replace(source.fingerprint, dtype=None, content=None)
    return fingerprint if clip_seconds else replace(fingerprint, clip_seconds=None, width=None)


def _facts(text: str) -> dict[str, Any]:
    """What `stream_input` kept; nothing where the text is of another kind."""
    try:
        facts = json.loads(text) if text else {}
    except ValueError:
        return {}
    return {name: facts[name] for name in _KEPT if name in facts} if isinstance(facts, dict) else {}


def _some(ids: Sequence[str]) -> str:
    more = ", ..." if len(ids) > _SHOWN else ""
    return "such as " + ", ".join(repr(item) for item in ids[:_SHOWN]) + more
