"""Open and check the annotations and features of an experiment, and make training examples of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import clip_counts, same_instant
from whenabouts.intake.hub import is_name
from whenabouts.types import Query, UsageError, Video, WhenaboutsError
from whenabouts_bench.datasets import declaration_named, open_dataset
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.sentences import Transcripts, read_sentences
from whenabouts_bench.relevance.pairs import RelevantPairs
from whenabouts_systems.features import FeatureSource, Fingerprint, open_features, require_same
from whenabouts_systems.features.cache import CachedRows, open_cached_copy
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.parts.text_encoder import tokenizer_files, tokens_of
from whenabouts_systems.training.examples import Examples, ItemRows
from whenabouts_systems.training.experiment import DataSettings, FeatureSettings

__all__ = ["SPLITS", "DataSettings", "Examples", "ExperimentData", "FeatureSettings"]

SPLITS = ("train", "validation", "test")

_QUERY = ""
"""The name of the queries' tokens among the streams of videos."""
_Sources = dict[str, dict[str, FeatureSource]]
"""Stream -> split -> file."""
_SHOWN_IDS = 3
_FACTS = ("weights_sha256", "frame_rate", "normalisation", "version")
"""The facts in a stream's `fingerprint`, beside encoder and width."""
_ROWS_TOLERANCE, _SHARE_TOLERANCE = 2, 0.1
_MAX_CLIPS_PER_ROW = 1.5


class ExperimentData(AbstractContextManager["ExperimentData"]):
    """Annotations and features of an experiment; a context manager that closes the files.

    `inputs` are the settings by which features become batches, with their encoders. `folder` has the files.
    """

    def __init__(
        self, inputs: Inputs, examples: Mapping[str, Examples], files: ExitStack, folder: Path
    ) -> None:
        self.inputs, self.folder = inputs, folder
        self._examples = dict(examples)
        self._files = files

    @classmethod
    def open(
        cls,
        data: DataSettings,
        features: FeatureSettings,
        features_dir: str | Path,
        *,
        inputs: Inputs | None = None,
        splits: Sequence[str] = SPLITS,
    ) -> Self:
        """Open and check all files that the experiment names.

        `inputs` are those of a checkpoint that is resumed or evaluated; features of other encoders are then
        refused. `splits` are read as far as the experiment names them.

        Raises UsageError, FormatError or FeatureMismatch for every fault that would stop a training later;
        the message names the file, the id, the value and what was expected.
        """
        folder = _folder(features_dir)
        annotations = _annotations(data, folder, splits)
        with _opened(features, folder, annotations) as (files, sources, stack):
            if inputs is None:
                inputs = _inputs(features, sources, folder)
            else:
                _refuse_others(inputs, features, sources)
            rows = files.rows_of(sources, annotations)
            has_pairs = data.pairs and "train" in annotations  # only a training reads them
            pairs = RelevantPairs.open(data.beside(folder, data.pairs)) if has_pairs else None
            transcripts = _transcripts(features, folder, annotations)
            examples = {
                split: _examples(
                    split,
                    judged,
                    inputs,
                    rows,
                    data,
                    pairs if split == "train" else None,
                    transcripts.get(split),
                )
                for split, judged in annotations.items()
            }
            if "train" in examples and not len(examples["train"]):
                raise _nothing_to_learn(data, examples["train"])
            return cls(inputs, examples, stack.pop_all(), folder)

    @staticmethod
    def check(
        data: DataSettings,
        features: FeatureSettings,
        features_dir: str | Path,
        splits: Sequence[str] = SPLITS,
    ) -> Inputs:
        """The inputs that `open` would have, read from the files' tables of contents without any rows.

        It serves to check early a training that starts hours later. Raises the errors of `open` about files,
        ids, encoders, widths and lengths of clips.
        """
        folder = _folder(features_dir)
        annotations = _annotations(data, folder, splits)
        if data.pairs:
            RelevantPairs.open(data.beside(folder, data.pairs))
        _transcripts(features, folder, annotations)
        with _opened(features, folder, annotations) as (files, sources, _):
            for stream, by_split in sources.items():
                for split, source in by_split.items():
                    files.refuse_missing(stream, split, source, annotations[split])
            return _inputs(features, sources, folder)

    def split(self, name: str) -> Examples:
        """A split by its name: "train", "validation" or "test"."""
        if name not in self._examples:
            raise UsageError(
                f"the experiment's [data] names no {name!r}; it names {', '.join(self._examples) or 'none'}"
            )
        return self._examples[name]

    def to_json(self) -> dict[str, Any]:
        """The summary and digest of each split, for `run.json`."""
        splits = self._examples.items()
        return {name: {**asdict(split.summary), "digest": split.digest} for name, split in splits}

    def summary(self) -> list[str]:
        """Lines of text on each split: what it holds, and how often each rule for odd data applied."""
        return [line for examples in self._examples.values() for line in examples.summary.lines()]

    def close(self) -> None:
        """Close the feature files."""
        self._files.close()

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _opened(
    features: FeatureSettings, folder: Path, annotations: Mapping[str, Annotations]
) -> Iterator[tuple[_Files, _Sources, ExitStack]]:
    """The feature files, also by stream and split, and the stack that closes them after the block."""
    _refuse_ambiguous(annotations)
    with ExitStack() as stack:
        files = _Files(features, folder, stack)
        yield files, {name: files.of(name, path, annotations) for name, path in _named(features)}, stack


class _Files:
    """Feature files in a folder; a file that several splits share is opened and read once."""

    def __init__(self, settings: FeatureSettings, folder: Path, stack: ExitStack) -> None:
        self._settings, self._folder, self._stack = settings, folder, stack
        self._opened: dict[Path, FeatureSource] = {}

    def of(self, stream: str, path: str, splits: Iterable[str]) -> dict[str, FeatureSource]:
        """The file of a stream for each split. Raises FeatureMismatch if their encoders differ."""
        clip_seconds = None if stream == _QUERY else self._settings.clip_seconds
        sources = {
            split: self._open(self._folder / path.replace("{split}", split), clip_seconds) for split in splits
        }
        first, *others = dict.fromkeys(sources.values())
        for other in others:
            require_same(_comparable(first), _comparable(other), (str(first.path), str(other.path)))
        return sources

    def rows_of(
        self, sources: _Sources, annotations: Mapping[str, Annotations]
    ) -> dict[str, dict[str, ItemRows]]:
        """Stream -> split -> the rows of its videos or queries. Every item is read once."""
        bytes_left = self._settings.memory_mb << 20
        rows_of: dict[str, dict[str, ItemRows]] = {}
        for stream, files in sources.items():
            ids = {split: _ids(stream, annotations[split]) for split in files}
            for split, source in files.items():
                self.refuse_missing(stream, split, source, annotations[split])
            read: dict[FeatureSource, tuple[CachedRows, dict[str, int]]] = {}
            for source in dict.fromkeys(files.values()):
                of_splits = (item for split, file in files.items() if file is source for item in ids[split])
                items = [item for item in dict.fromkeys(of_splits) if item in source]
                rows = CachedRows(source, items, bytes_left)
                bytes_left -= rows.bytes_held
                read[source] = rows, {item: number for number, item in enumerate(items)}
            rows_of[stream] = {}
            for split, source in files.items():
                rows, number_of = read[source]
                numbers = np.array([number_of.get(item, -1) for item in ids[split]], np.int64)
                rows_of[stream][split] = ItemRows(rows, numbers)
        return rows_of

    def refuse_missing(self, stream: str, split: str, source: FeatureSource, judged: Annotations) -> None:
        """Raise UsageError if a file lacks videos or queries of a split, unless the stream is optional."""
        needed = [] if stream in self._settings.optional else _ids(stream, judged)
        if missing := [item for item in needed if item not in source]:
            examples = ", ".join(repr(item) for item in source.ids()[:_SHOWN_IDS])
            remedy = (
                "" if stream == _QUERY else f"; if videos may lack it, set features.optional=[{stream!r}]"
            )
            raise UsageError(
                f"{source.path}: has no features for {len(missing):,} of the {len(needed):,} "
                f"{'queries' if stream == _QUERY else 'videos'} of {split}, {_some(missing)}; it holds "
                f"{len(source):,} items such as {examples}{remedy}"
            )

    def _open(self, path: Path, clip_seconds: float | None) -> FeatureSource:
        if path not in self._opened:
            source = open_features(path, clip_seconds=clip_seconds)
            if self._settings.cache:
                # Compute the fingerprint now: the cached copy stores it.
                _ = source.fingerprint
                source = open_cached_copy(source, self._folder / Path(self._settings.cache).expanduser())
            self._opened[path] = self._stack.enter_context(source)
        return self._opened[path]


def _folder(features_dir: str | Path) -> Path:
    folder = Path(features_dir).expanduser()
    if not folder.is_dir():
        raise UsageError(f"{folder}: not a folder; give the folder of the feature files (--features)")
    return folder


def _named(features: FeatureSettings) -> list[tuple[str, str]]:
    """(stream, file name) of all feature files, the queries' file first."""
    if not features.query:
        raise UsageError(
            "[features] names no query; accepted: the file of the queries' token features, or tokenizer:NAME"
        )
    if not features.streams:
        raise UsageError("[features.streams] is empty; accepted: stream = file, such as video = 'video.h5'")
    query = [] if features.tokenizer else [(_QUERY, features.query)]
    return [*query, *features.streams.items()]


def _ids(stream: str, annotations: Annotations) -> list[str]:
    return [item.id for item in (annotations.queries if stream == _QUERY else annotations.videos)]


def _transcripts(features: FeatureSettings, folder: Path, splits: Iterable[str]) -> dict[str, Transcripts]:
    """The sentences of the videos of each split, if the experiment names their file, which must exist."""
    if not features.sentences:
        return {}
    paths = {split: folder / features.sentences.replace("{split}", split) for split in splits}
    for path in paths.values():
        if not path.is_file():
            raise UsageError(f"{path}: no such file; [features] sentences must name a file of sentences")
    read = {path: read_sentences(path) for path in dict.fromkeys(paths.values())}
    return {split: read[path] for split, path in paths.items()}


def _annotations(data: DataSettings, folder: Path, splits: Sequence[str]) -> dict[str, Annotations]:
    """Split -> annotations, for the splits that the experiment names.

    Raises UsageError if it names none of them, or if a training's validation split has no labels.
    """
    named = {split: getattr(data, split) for split in splits if getattr(data, split)}
    if not named:
        others = [split for split in SPLITS if getattr(data, split)]
        raise UsageError(
            f"[data] names no judgements for {' or '.join(splits)}, only for "
            f"{', '.join(others) or 'no split'}; choose one of these, or name the missing file"
        )
    if data.dataset:
        dataset = open_dataset(data.dataset, data.beside(folder, ""))
        by_split = {split: dataset.annotations(name) for split, name in named.items()}
    else:  # two splits may share a file, which is then read once
        paths = {split: file_of_split(data, folder, split) for split in named}
        read = {path: read_annotations(path) for path in dict.fromkeys(paths.values())}
        by_split = {split: read[path] for split, path in paths.items()}
    if by_split.keys() >= {"train", "validation"} and not _is_judged(by_split["validation"]):
        raise UsageError(
            f"data.validation = {data.validation!r}: none of its queries has a relevant moment, so it cannot "
            f"choose the best weights{_without_labels(data, data.validation)}. Name a split "
            'with labels, or "" to keep the last weights'
        )
    for split, judged in by_split.items():
        if not judged.videos:
            raise UsageError(
                f"data.{split} = {named[split]!r}: names no video, so there is nothing to search; name the "
                "videos in its lines, or give a folder with videos.jsonl (docs/formats.md)"
            )
    return by_split


def _is_judged(annotations: Annotations) -> bool:
    return bool((annotations.relevance > 0).any())


def file_of_split(data: DataSettings, folder: Path, split: str) -> Path:
    """The file of a split's judgements; if `dataset` is given, the one found in its folder."""
    name = getattr(data, split)
    if data.dataset:
        return open_dataset(data.dataset, data.beside(folder, "")).file(name).path
    return data.beside(folder, name)


def _without_labels(data: DataSettings, split: str) -> str:
    """The data set's note on a split without public labels, for an error."""
    if not data.dataset:
        return ""
    declared = declaration_named(data.dataset).split(split)
    note = declared.note if declared else ""
    return f": this split of {data.dataset} has no public labels. {note}".rstrip(". ")


def _tokenizer(features: FeatureSettings, folder: Path) -> str:
    """The tokenizer of [features] query: the full path of its folder, or a hub's name; "" if not named.

    A folder is looked up below `folder`, then as given. Raises UsageError if neither the folder nor such a
    hub's model is on this machine.
    """
    if not features.tokenizer:
        return ""
    given = Path(features.tokenizer).expanduser()
    place = next((place for place in (folder / given, given) if place.is_dir()), None)
    name = features.tokenizer if place is None else str(place.resolve())
    try:
        tokenizer_files(name)
    except UsageError:
        raise
    except WhenaboutsError:
        fetch = f", or fetch that model: `whenabouts models get {name}`" if is_name(name) else ""
        raise UsageError(
            f"[features] query = {features.query!r}: there is no folder {folder / given}, no folder "
            f"{given.absolute()}, and no such hub model on this machine; give the folder of the "
            f"tokenizer{fetch}"
        ) from None
    return name


def _inputs(features: FeatureSettings, sources: _Sources, folder: Path) -> Inputs:
    """The settings by which the features become batches, with their encoders."""
    files = {name: list(dict.fromkeys(by_split.values())) for name, by_split in sources.items()}
    query = files.pop(_QUERY, None)
    return Inputs(
        query=_stream_input(query[0], features.normalise_query) if query else StreamInput(1, False),
        streams={
            name: _stream_input(source, features.normalises(name)) for name, (source, *_) in files.items()
        },
        clip_seconds=_one_clip_length(features.clip_seconds, files),
        max_clips=features.max_clips,
        max_tokens=features.max_tokens,
        long_videos=features.long_videos,
        tef=features.tef,
        clips_per_cell=features.clips_per_cell,
        tokenizer=_tokenizer(features, folder),
        reads_sentences=bool(features.sentences),
    )


def _refuse_others(inputs: Inputs, features: FeatureSettings, sources: _Sources) -> None:
    """Raise UsageError or FeatureMismatch if the features do not fit a checkpoint's inputs."""
    if inputs.reads_sentences and not features.sentences:
        raise UsageError('the checkpoint reads speech; name its file in [features] sentences = "FILE"')
    if bool(inputs.tokenizer) == (_QUERY in sources):
        expected = (
            f"query = 'tokenizer:{inputs.tokenizer}'" if inputs.tokenizer else "a file of features of words"
        )
        raise UsageError(f"[features] query is of the wrong kind: the checkpoint needs {expected}")
    files = {name: list(dict.fromkeys(by_split.values())) for name, by_split in sources.items()}
    for source in files.pop(_QUERY, []):
        _refuse_other_encoder(inputs.query, source, "the queries")
    if set(files) != set(inputs.streams):
        raise UsageError(
            f"[features.streams] are {', '.join(sorted(files))}; the checkpoint expects "
            f"{', '.join(sorted(inputs.streams))}"
        )
    for stream, of_stream in files.items():
        for source in of_stream:
            _refuse_other_encoder(inputs.streams[stream], source, f"stream {stream!r}")
    _one_clip_length(inputs.clip_seconds, files)


def _examples(
    split: str,
    annotations: Annotations,
    inputs: Inputs,
    rows_of: Mapping[str, Mapping[str, ItemRows]],
    data: DataSettings,
    pairs: RelevantPairs | None,
    transcripts: Transcripts | None,
) -> Examples:
    """Check the data of a split, count the odd cases, and make its examples."""
    streams = {name: by_split[split] for name, by_split in rows_of.items() if name != _QUERY}
    tokens = rows_of[_QUERY][split] if _QUERY in rows_of else None
    videos, ids = annotations.videos, _ids("videos", annotations)
    lengths = {name: items.lengths for name, items in streams.items()}
    rows = np.max(list(lengths.values()), axis=0)
    has_duration = np.array([video.duration is not None for video in videos], bool)
    by_duration = clip_counts([video.duration or 0.0 for video in videos], inputs.clip_seconds)
    expected = np.where(has_duration, by_duration, rows)
    _refuse_without_time(videos, annotations.name)
    _refuse_uneven(ids, lengths)
    _refuse_without_rows(ids, rows, split)
    _refuse_short_clips([items.cached.source.path for items in streams.values()], rows, expected)
    counts = {
        **_count_videos(inputs, rows, expected, {name: items.is_zero for name, items in streams.items()}),
        "videos have no sentences": 0
        if transcripts is None
        else sum(not transcripts.get(name) for name in ids),
        "videos have no known duration; their rows give it": int((~has_duration).sum()),
        **_count_queries(inputs, annotations.queries, None if tokens is None else tokens.lengths),
    }
    return Examples(split, annotations, inputs, tokens, streams, data, pairs, counts, transcripts)


def _nothing_to_learn(data: DataSettings, examples: Examples) -> UsageError:
    """The error for a training split without examples, with the cause."""
    why = ""
    if not _is_judged(examples.annotations):
        why = _without_labels(data, data.train) or ": none of its moments are judged"
    counts = "; ".join(f"{n:,} {rule}" for rule, n in examples.summary.counts.items())
    return UsageError(f"{data.train}: has no example to train on{why} ({counts})")


# Checks before the first step. A fault raises an error, or a rule handles it and is counted.


def _stream_input(source: FeatureSource, normalise: bool) -> StreamInput:
    """The description of a stream's features that a checkpoint stores."""
    fingerprint = source.fingerprint
    facts = {name: value for name in _FACTS if (value := getattr(fingerprint, name)) is not None}
    return StreamInput(
        source.width, normalise, fingerprint.encoder or "", json.dumps(facts, sort_keys=True) if facts else ""
    )


def _refuse_other_encoder(expected: StreamInput, source: FeatureSource, stream: str) -> None:
    """Refuse a file whose features differ from those that a checkpoint was trained on.

    Raises UsageError for another width. Raises FeatureMismatch, naming both sides, for another encoder,
    weights, frame rate or normalisation, as far as both are known.
    """
    if source.width != expected.width:
        raise UsageError(
            f"{source.path}: rows of {stream} are {source.width} wide; the checkpoint expects "
            f"{expected.width}" + (f" ({expected.encoder})" if expected.encoder else "")
        )
    trained_on = Fingerprint(encoder=expected.encoder or None, **_facts(expected.fingerprint))
    require_same(trained_on, _comparable(source, clip_seconds=False), ("the checkpoint", str(source.path)))


def _refuse_ambiguous(splits: Mapping[str, Annotations]) -> None:
    """Raise UsageError if a query id has different texts in two splits: features are looked up by id."""
    texts: dict[str, tuple[str, str]] = {}
    for split, judged in splits.items():
        for query in judged.queries:
            text, first_split = texts.setdefault(query.id, (query.text, split))
            if text != query.text:
                raise UsageError(
                    f"query {query.id!r} is {text[:60]!r} in {first_split} and {query.text[:60]!r} in "
                    f"{split}; give them different ids, because features are looked up by id"
                )


def _one_clip_length(given: float | None, sources: Mapping[str, Sequence[FeatureSource]]) -> float:
    """The length of a clip in seconds, equal in all streams' files.

    Raises UsageError if neither the experiment nor a file gives it, or if two files differ.
    """
    length = None if given is None else float(given)
    where = "the experiment"
    for source in (source for files in sources.values() for source in files):
        seconds = source.clip_seconds
        if seconds is None:
            continue
        if length is not None and not same_instant(seconds, length):
            raise UsageError(
                f"{source.path}: its clips are {seconds:g} s long, but {where} says {length:g} s; "
                "all streams need clips of one length"
            )
        length, where = seconds, str(source.path)
    if length is None:
        paths = ", ".join(str(source.path) for files in sources.values() for source in files)
        raise UsageError(
            f"{paths}: the files do not say how many seconds a row covers; give clip_seconds under "
            "[features], as the release's page says"
        )
    return length


def _refuse_uneven(ids: Sequence[str], lengths: Mapping[str, NDArray[np.int64]]) -> None:
    """Raise UsageError if two streams of a video differ much in rows: the clips, or the video, differ.

    `lengths` is stream -> (V,) numbers of rows, 0 if a video has none.
    """
    names = list(lengths)
    for other in names[1:]:
        first, second = lengths[names[0]], lengths[other]
        difference = np.abs(first - second)
        wrong = np.flatnonzero(
            (first > 0)
            & (second > 0)
            & (difference > np.maximum(_ROWS_TOLERANCE, _SHARE_TOLERANCE * np.maximum(first, second)))
        )
        if len(wrong):
            at = wrong[0]
            raise UsageError(
                f"video {ids[at]!r}: has {first[at]} rows in stream {names[0]!r} and {second[at]} in "
                f"{other!r} (and {len(wrong) - 1:,} more videos like it); all streams need one grid of "
                "clips: extract clips of one length, or fill and cut rows with `on_grid` (docs/features.md)"
            )


def _refuse_without_time(videos: Sequence[Video], name: str) -> None:
    """Raise UsageError for a video of 0 s, in which no moment can be found. `name` is the file's."""
    without = [video.id for video in videos if video.duration == 0]
    if without:
        raise UsageError(
            f"{name}: the duration of {len(without):,} of {len(videos):,} videos is 0, "
            f"{_some(without)}; expected seconds above 0. If a duration is unknown, leave it out: the "
            "features' rows then give it"
        )


def _refuse_without_rows(ids: Sequence[str], rows: NDArray[np.int64], split: str) -> None:
    """Raise UsageError for a video without rows in any stream, which can happen if all are optional."""
    without = np.flatnonzero(rows == 0)
    if len(without):
        raise UsageError(
            f"video {ids[without[0]]!r} of {split} is in none of the feature files (and {len(without) - 1:,} "
            "more like it); expected rows in at least one stream"
        )


def _refuse_short_clips(paths: Iterable[Path], rows: NDArray[np.int64], expected: NDArray[np.int64]) -> None:
    """Raise UsageError if most videos have far fewer rows than clips: `clip_seconds` is then too small.

    `rows` and `expected` (clips in the video's duration) are (V,). Single videos often end early.
    """
    share = float(np.median(expected / np.maximum(rows, 1)))
    if share > _MAX_CLIPS_PER_ROW:
        raise UsageError(
            f"{', '.join(map(str, paths))}: the median of {len(rows):,} videos has 1 row for {share:.2g} "
            "clips of its duration; expected about 1 row a clip: is clip_seconds right?"
        )


def _count_videos(
    inputs: Inputs,
    rows: NDArray[np.int64],
    expected: NDArray[np.int64],
    is_zero: Mapping[str, NDArray[np.bool_]],
) -> dict[str, int]:
    """The number of videos that each rule applies to; `rows` (V,) before pooling, `expected` by duration."""
    long = "pooled to" if inputs.long_videos != "cut" else "cut at"
    most, silent = inputs.max_clips, np.all(list(is_zero.values()), axis=0)
    rules = {
        f"videos of more than {most} clips are {long} {most}": rows > most,
        f"videos of fewer than {most} clips are spread over {most}": inputs.is_even & (rows < most),
        "videos have one clip": rows == 1,
        "videos have fewer rows than clips; their last clips are dropped": rows < expected,
        **{f"videos have only zeros in stream {stream!r}": zero for stream, zero in is_zero.items()},
        "videos have only zeros in all streams and are never retrieved (scored only if given)": silent,
    }
    return {rule: int(applies.sum()) for rule, applies in rules.items()}


def _count_queries(
    inputs: Inputs, queries: Sequence[Query], lengths: NDArray[np.int64] | None
) -> dict[str, int]:
    """The numbers of queries without text and of truncated queries.

    `lengths` (Q,) count the rows of features of tokens; None counts token ids.
    """
    if lengths is None:
        lengths = np.array(tokens_of(inputs.tokenizer).lengths([query.text for query in queries]), np.int64)
    return {
        "queries have no text in the annotations; their features are used": sum(
            not query.text.strip() for query in queries
        ),
        f"queries of more than {inputs.max_tokens} tokens are cut": int((lengths > inputs.max_tokens).sum()),
    }


def _comparable(source: FeatureSource, clip_seconds: bool = True) -> Fingerprint:
    """The fingerprint of a file's rows without type and content, since all rows become float32."""
    fingerprint = replace(source.fingerprint, dtype=None, content=None)
    return fingerprint if clip_seconds else replace(fingerprint, clip_seconds=None, width=None)


def _facts(text: str) -> dict[str, Any]:
    """The facts that `_stream_input` stored; empty if the text has another form."""
    try:
        facts = json.loads(text) if text else {}
    except ValueError:
        return {}
    return {name: facts[name] for name in _FACTS if name in facts} if isinstance(facts, dict) else {}


def _some(ids: Sequence[str]) -> str:
    more = ", ..." if len(ids) > _SHOWN_IDS else ""
    return "such as " + ", ".join(repr(item) for item in ids[:_SHOWN_IDS]) + more
