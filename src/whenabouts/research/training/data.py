"""What a training reads: annotations and features of an experiment, opened, checked, made into examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.features import FeatureSource, open_features
from whenabouts.features.cache import CachedRows, open_cached_copy
from whenabouts.formats import read_annotations
from whenabouts.formats.annotations import Annotations
from whenabouts.models.inputs import Inputs, StreamInput
from whenabouts.research.datasets import open_dataset
from whenabouts.research.relevance.pairs import RelevantPairs
from whenabouts.research.training import checks
from whenabouts.research.training.examples import Examples, ItemRows
from whenabouts.research.training.settings import DataSettings, FeatureSettings
from whenabouts.types import UsageError, Video

__all__ = ["SPLITS", "DataSettings", "Examples", "ExperimentData", "FeatureSettings"]

SPLITS = ("train", "validation", "test")

_QUERY = ""
"""Stands for the tokens of queries among the streams of videos."""
_Sources = dict[str, dict[str, FeatureSource]]
"""Stream -> split -> file."""


class ExperimentData:
    """Annotations and features of an experiment; a context manager that closes the files.

    `inputs` is how features become batches, with what made them; `folder` is that of the feature files.
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
        """Everything that the experiment names, opened and checked; see `checks`.

        `inputs` are those of a checkpoint that goes on or is evaluated: features made by another encoder
        are refused. `splits` are read where the experiment names them.

        Raises UsageError, FormatError or FeatureMismatch, naming file, id, what was found and what was
        expected, for whatever would go wrong later.
        """
        folder = _folder(features_dir)
        annotations = _annotations(data, folder, splits)
        with _opened(features, folder, annotations) as (files, sources, stack):
            if inputs is None:
                inputs = _inputs(features, sources)
            else:
                _refuse_others(inputs, sources)
            rows = files.rows_of(sources, annotations)
            pairs = RelevantPairs.open(data.beside(folder, data.pairs)) if data.pairs else None
            examples = {
                split: _examples(split, judged, inputs, rows, data, pairs if split == "train" else None)
                for split, judged in annotations.items()
            }
            if "train" in examples and not len(examples["train"]):
                counts = "; ".join(f"{n:,} {rule}" for rule, n in examples["train"].summary.counts.items())
                raise UsageError(f"{data.train}: has no example to train on ({counts})")
            return cls(inputs, examples, stack.pop_all(), folder)

    @staticmethod
    def check(
        data: DataSettings,
        features: FeatureSettings,
        features_dir: str | Path,
        splits: Sequence[str] = SPLITS,
    ) -> Inputs:
        """The inputs that `open` would have, from the files' lists of contents: no rows are read.

        For a training that begins hours later. Raises what `open` does of what these lists say: files, ids,
        encoders, widths, lengths of clips.
        """
        folder = _folder(features_dir)
        annotations = _annotations(data, folder, splits)
        if data.pairs:
            RelevantPairs.open(data.beside(folder, data.pairs))
        with _opened(features, folder, annotations) as (files, sources, _):
            for stream, by_split in sources.items():
                for split, source in by_split.items():
                    files.refuse_missing(stream, split, source, annotations[split])
            return _inputs(features, sources)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were opened."""
        return tuple(self._examples)

    def split(self, name: str) -> Examples:
        """A split by its name: "train", "validation" or "test"."""
        if name not in self._examples:
            raise UsageError(
                f"the experiment's [data] names no {name!r}; it has {', '.join(self._examples) or 'none'}"
            )
        return self._examples[name]

    def to_json(self) -> dict[str, Any]:
        """The summary of each split, for `run.json`."""
        return {name: examples.summary.to_json() for name, examples in self._examples.items()}

    def summary(self) -> list[str]:
        """The summary of each split, for people: what it holds, and which rules for odd data applied."""
        return [line for examples in self._examples.values() for line in examples.summary.lines()]

    def close(self) -> None:
        """Close the feature files."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _opened(
    features: FeatureSettings, folder: Path, annotations: Mapping[str, Annotations]
) -> Iterator[tuple[_Files, _Sources, ExitStack]]:
    """The feature files by stream and split, and the stack that closes them when the block ends."""
    checks.refuse_ambiguous(annotations)
    with ExitStack() as stack:
        files = _Files(features, folder, stack)
        yield files, {name: files.of(name, path, annotations) for name, path in _named(features)}, stack


class _Files:
    """Feature files below a folder, each opened and read once however many splits share it."""

    def __init__(self, settings: FeatureSettings, folder: Path, stack: ExitStack) -> None:
        self._settings, self._folder, self._stack = settings, folder, stack
        self._opened: dict[Path, FeatureSource] = {}

    def of(self, stream: str, path: str, splits: Iterable[str]) -> dict[str, FeatureSource]:
        """The file of a stream for each split. Raises where they were made by different encoders."""
        clip_seconds = None if stream == _QUERY else self._settings.clip_seconds
        sources = {
            split: self._open(self._folder / path.replace("{split}", split), clip_seconds) for split in splits
        }
        checks.refuse_other_files(list(dict.fromkeys(sources.values())))
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
            gathered: dict[FeatureSource, tuple[CachedRows, dict[str, int]]] = {}
            for source in dict.fromkeys(files.values()):
                of_splits = (item for split, file in files.items() if file is source for item in ids[split])
                items = [item for item in dict.fromkeys(of_splits) if item in source]
                rows = CachedRows(source, items, bytes_left)
                bytes_left -= rows.bytes_held
                gathered[source] = rows, {item: number for number, item in enumerate(items)}
            rows_of[stream] = {
                split: _item_rows(*gathered[source], ids[split]) for split, source in files.items()
            }
        return rows_of

    def refuse_missing(self, stream: str, split: str, source: FeatureSource, judged: Annotations) -> None:
        """Raise where a file lacks videos or queries of a split that are needed."""
        if stream not in self._settings.optional:
            kind = "queries" if stream == _QUERY else "videos"
            checks.refuse_missing(source, _ids(stream, judged), kind, split)

    def _open(self, path: Path, clip_seconds: float | None) -> FeatureSource:
        if path not in self._opened:
            source = open_features(path, clip_seconds=clip_seconds)
            if self._settings.cache:
                # Read now: the copy in the cache carries the fingerprint of the original.
                _ = source.fingerprint
                source = open_cached_copy(source, self._folder / self._settings.cache)
            self._opened[path] = self._stack.enter_context(source)
        return self._opened[path]


def _folder(features_dir: str | Path) -> Path:
    folder = Path(features_dir).expanduser()
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; give the folder of the feature files (--features)")
    return folder


def _named(features: FeatureSettings) -> list[tuple[str, str]]:
    """Stream and file name of all feature files, the queries' first."""
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


def _item_rows(gathered: CachedRows, number_of: Mapping[str, int], ids: Sequence[str]) -> ItemRows:
    return ItemRows(gathered, np.array([number_of.get(item, -1) for item in ids], np.int64))


def _annotations(data: DataSettings, folder: Path, splits: Sequence[str]) -> dict[str, Annotations]:
    """Annotations by split, of those that the experiment names."""
    named = {split: getattr(data, split) for split in splits if getattr(data, split)}
    if not named:
        others = [split for split in SPLITS if getattr(data, split)]
        raise UsageError(
            f"[data] names no judgements for {' or '.join(splits)}; there are those of "
            f"{', '.join(others) or 'no split'}: name another split, or the file that is missing"
        )
    if data.dataset:
        dataset = open_dataset(data.dataset, data.beside(folder, ""))
        return {split: dataset.annotations(name) for split, name in named.items()}
    # Two splits may be one file, which is then read once.
    paths = {split: data.beside(folder, name) for split, name in named.items()}
    read = {path: read_annotations(path) for path in dict.fromkeys(paths.values())}
    return {split: read[path] for split, path in paths.items()}


def _inputs(features: FeatureSettings, sources: _Sources) -> Inputs:
    """How the features are made ready, with what made them."""
    files = {name: list(dict.fromkeys(by_split.values())) for name, by_split in sources.items()}
    query = files.pop(_QUERY, None)
    return Inputs(
        query=checks.stream_input(query[0], features.normalise_query) if query else StreamInput(1, False),
        streams={
            name: checks.stream_input(source, features.normalises(name))
            for name, (source, *_) in files.items()
        },
        clip_seconds=checks.one_clip_length(features.clip_seconds, files),
        max_clips=features.max_clips,
        max_tokens=features.max_tokens,
        long_videos=features.long_videos,
        tef=features.tef,
        clips_per_cell=features.clips_per_cell,
        tokenizer=features.tokenizer,
    )


def _refuse_others(inputs: Inputs, sources: _Sources) -> None:
    """Raise where the features are not those that a checkpoint's inputs describe."""
    if bool(inputs.tokenizer) == (_QUERY in sources):
        reads = f"ids, query = 'tokenizer:{inputs.tokenizer}'" if inputs.tokenizer else "features of words"
        raise UsageError(f"[features] query names the other kind: the checkpoint reads {reads}")
    files = {name: list(dict.fromkeys(by_split.values())) for name, by_split in sources.items()}
    for source in files.pop(_QUERY, []):
        checks.refuse_other_encoder(inputs.query, source, "the queries")
    if set(files) != set(inputs.streams):
        raise UsageError(
            f"[features.streams] are {', '.join(sorted(files))}; the checkpoint expects "
            f"{', '.join(sorted(inputs.streams))}"
        )
    for stream, of_stream in files.items():
        for source in of_stream:
            checks.refuse_other_encoder(inputs.streams[stream], source, f"stream {stream!r}")
    checks.one_clip_length(inputs.clip_seconds, files)


def _examples(
    split: str,
    annotations: Annotations,
    inputs: Inputs,
    rows_of: Mapping[str, Mapping[str, ItemRows]],
    data: DataSettings,
    pairs: RelevantPairs | None,
) -> Examples:
    """The examples of a split, checked and counted."""
    streams = {name: by_split[split] for name, by_split in rows_of.items() if name != _QUERY}
    tokens = rows_of[_QUERY][split] if _QUERY in rows_of else None
    videos, ids = annotations.videos, _ids("videos", annotations)
    lengths = {name: items.lengths for name, items in streams.items()}
    rows = np.max(list(lengths.values()), axis=0)
    expected = _expected_clips(videos, rows, inputs.clip_seconds)
    checks.refuse_without_time(videos, annotations.name)
    checks.refuse_uneven(ids, lengths)
    checks.refuse_without_rows(ids, rows, split)
    checks.refuse_short_clips([items.gathered.source.path for items in streams.values()], rows, expected)
    counts = {
        **checks.count_videos(
            inputs, rows, expected, {name: items.is_zero for name, items in streams.items()}
        ),
        "videos have no known duration; that of their rows is taken": sum(
            video.duration is None for video in videos
        ),
        **checks.count_queries(
            inputs,
            annotations.queries,
            _token_counts(inputs, annotations) if tokens is None else tokens.lengths,
        ),
    }
    return Examples(split, annotations, inputs, tokens, streams, data, pairs, counts)


def _token_counts(inputs: Inputs, annotations: Annotations) -> NDArray[np.int64]:
    """(Q,) ids of each query, by the tokenizer."""
    from whenabouts.models._parts.text_encoder import tokens_of

    sentences = [query.text for query in annotations.queries]
    return np.array(tokens_of(inputs.tokenizer).lengths(sentences), np.int64)


def _expected_clips(
    videos: Sequence[Video], rows: NDArray[np.int64], clip_seconds: float
) -> NDArray[np.int64]:
    """(V,) clips that the videos' durations have; their rows where a duration is not known."""
    return np.array(
        [
            count if video.duration is None else len(ClipGrid(clip_seconds, video.duration))
            for video, count in zip(videos, rows.tolist(), strict=True)
        ],
        np.int64,
    )
