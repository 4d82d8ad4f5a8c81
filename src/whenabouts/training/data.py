"""What a training reads: annotations and features brought together, checked, and handed out in batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np

from whenabouts.clips import ClipGrid
from whenabouts.datasets import open_dataset
from whenabouts.features import FeatureSource, open_features
from whenabouts.features.cache import CachedRows, open_cached_copy
from whenabouts.formats import read_annotations
from whenabouts.formats.annotations import Annotations
from whenabouts.models.inputs import Inputs, LongVideos, StreamInput
from whenabouts.relevance.pairs import RelevantPairs
from whenabouts.training import checks
from whenabouts.training.batches import Labels, Order
from whenabouts.training.examples import BatchOf, Examples, Placed, Positives, Rules
from whenabouts.training.hard_negatives import NegativeSettings
from whenabouts.training.retrieval_negatives import RetrievedSettings
from whenabouts.types import UsageError, Video

__all__ = ["DataSettings", "Examples", "ExperimentData", "FeatureSettings", "Labels"]

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The table `[data]` of an experiment: annotations, and how they become examples.

    `train`, `validation`, `test` are files of judgements in any format that we read, or split names of
    `dataset` where that is given. A relative path lies in `folder`, else beside the features.
    `pairs` is a file of potentially relevant pairs. `weights` "relevance" weighs each example by its
    judgement's relevance (a ranked training set). `labels` is how seconds become clips: see
    `batches.spans_in_clips`. `positives` says which videos are never a query's negatives: "judged", all that
    are judged relevant to it; "sentence", also those of queries of the same words; "similar", also those of
    queries that `pairs` holds as relevant to it (CroCs: sentences of a similarity of 0.9 and more); "own",
    its own alone. `order` "by-length" puts videos of similar length into one batch. `batch_of` "videos":
    `training.batch_size` counts videos, and each comes with all its queries.

    `first_stage` is the folder of a training (CroCs' second stage), or "stage:NAME": this one begins with its
    weights, and has it choose the hard negatives that `negatives` asks for. `retrieved` draws negatives from
    the lists of a retriever instead (PREM, CONQUER).
    """

    train: str = ""
    validation: str = ""
    test: str = ""
    dataset: str = ""
    folder: str = ""
    pairs: str = ""
    weights: Literal["none", "relevance"] = "none"
    labels: Labels = "inclusive"
    positives: Positives = "judged"
    order: Order = "random"
    batch_of: BatchOf = "queries"
    first_stage: str = ""
    negatives: NegativeSettings = field(default_factory=NegativeSettings)
    retrieved: RetrievedSettings = field(default_factory=RetrievedSettings)

    def __post_init__(self) -> None:
        if self.positives == "similar" and not self.pairs:
            raise UsageError(
                "positives is 'similar' and pairs is missing; make them with `whenabouts relevance pairs "
                "--detector sent --threshold 0.9`"
            )
        if self.first_stage and self.retrieved.videos and (self.negatives.videos or self.negatives.queries):
            raise UsageError(
                "first_stage and retrieved both choose negatives; keep one, with retrieved.videos = 0 "
                "or with negatives.videos = 0 and negatives.queries = 0"
            )

    def beside(self, features: Path, name: str) -> Path:
        """A file that is named here: in `folder`, else beside the features."""
        return (Path(self.folder).expanduser() if self.folder else features) / Path(name).expanduser()


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """The table `[features]` of an experiment: files below the features folder, and how rows are made ready.

    `query` is the file of token features, or "tokenizer:NAME" for a system with a text encoder of its own (a
    folder, or a hub's repository). `streams` are stream name -> file; "{split}" in a name stands for
    train, validation or test. A video may lack the streams in `optional` (rows of zeros, counted).
    `clip_seconds` is the length of a row where the files do not tell. `memory_mb` bounds what is held in
    memory; larger files are read as they are needed. `normalise` brings rows to unit length, those of all
    streams, of none, or of the ones it names. `cache` is a folder for copies that open at once, none
    where it is empty. The rest is as in `models.inputs.Inputs`.
    """

    query: str = ""
    streams: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    optional: tuple[str, ...] = ()
    clip_seconds: float | None = None
    max_clips: int = 100
    max_tokens: int = 30
    long_videos: LongVideos = "pool"
    tef: bool = False
    clips_per_cell: int = 1
    normalise: bool | tuple[str, ...] = True
    normalise_query: bool = True
    memory_mb: int = 4096
    cache: str = ""

    def __post_init__(self) -> None:
        if self.memory_mb < 0:
            raise UsageError(f"memory_mb is {self.memory_mb}; accepted: megabytes, 0 or more")
        if self.clip_seconds is not None and not 0 < self.clip_seconds < float("inf"):
            raise UsageError(f"clip_seconds is {self.clip_seconds!r}; accepted: seconds above 0")
        for name in ("max_clips", "max_tokens", "clips_per_cell"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; accepted: a whole number, 1 or more")
        some = () if isinstance(self.normalise, bool) else self.normalise
        named = {"optional": self.optional, "normalise": some}
        for setting, names in named.items():
            strange = sorted(set(names) - set(self.streams))
            if strange:
                there = ", ".join(self.streams) or "none"
                raise UsageError(f"{setting} names the stream {strange[0]!r}; there are {there}")

    def normalises(self, stream: str) -> bool:
        """Whether rows of a stream are brought to unit length."""
        return self.normalise if isinstance(self.normalise, bool) else stream in self.normalise


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
        """All that the experiment names, opened and checked; see `checks`.

        `inputs` are those of a checkpoint that goes on or is evaluated: features made by another encoder
        are refused. `splits` are read where the experiment names them.

        Raises UsageError, FormatError or FeatureMismatch, naming file, id, what was found and what was
        expected, for whatever would go wrong later.
        """
        folder = _folder(features_dir)
        annotations = _annotations(data, folder, splits)
        checks.refuse_ambiguous(annotations)
        with ExitStack() as files:
            opened = _Files(features, folder, files)
            sources = {name: opened.of(name, path, annotations) for name, path in _named(features)}
            found = _inputs(features, sources) if inputs is None else inputs
            if inputs is not None:
                _refuse_others(inputs, sources)
            placed = opened.placed(sources, annotations)
            pairs = RelevantPairs.open(data.beside(folder, data.pairs)) if data.pairs else None
            examples = {
                split: _examples(split, one, found, placed, data, pairs) for split, one in annotations.items()
            }
            if "train" in examples and not len(examples["train"]):
                told = "; ".join(f"{n:,} {what}" for what, n in examples["train"].summary.counts.items())
                raise UsageError(f"{data.train}: has no example to train on ({told})")
            return cls(found, examples, files.pop_all(), folder)

    @staticmethod
    def check(
        data: DataSettings,
        features: FeatureSettings,
        features_dir: str | Path,
        splits: Sequence[str] = SPLITS,
    ) -> Inputs:
        """The inputs that `open` would have, from the files' lists of contents: no rows are read.

        For a training that begins hours later. Raises what `open` does of what can be told so: files, ids,
        encoders, widths, lengths of clips.
        """
        folder = _folder(features_dir)
        annotations = _annotations(data, folder, splits)
        checks.refuse_ambiguous(annotations)
        if data.pairs:
            RelevantPairs.open(data.beside(folder, data.pairs))
        with ExitStack() as files:
            opened = _Files(features, folder, files)
            sources = {name: opened.of(name, path, annotations) for name, path in _named(features)}
            for stream, found in sources.items():
                for split, source in found.items():
                    opened.check_there(stream, split, source, annotations[split])
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
        """What was found, for the run folder: a summary of each split."""
        return {name: one.summary.to_json() for name, one in self._examples.items()}

    def summary(self) -> list[str]:
        """What was found and which rules for odd data applied, for people."""
        return [line for one in self._examples.values() for line in one.summary.lines()]

    def close(self) -> None:
        """Give back the feature files."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_TOKENIZER = "tokenizer:"
QUERY = ""
"""Stands for the tokens of queries among the streams of videos."""

_Sources = dict[str, dict[str, FeatureSource]]
"""Stream -> split -> file."""


class _Files:
    """Feature files below a folder, each opened and read once however many splits share it."""

    def __init__(self, settings: FeatureSettings, folder: Path, files: ExitStack) -> None:
        self._settings, self._folder, self._files = settings, folder, files
        self._opened: dict[Path, FeatureSource] = {}

    def of(self, stream: str, path: str, splits: Iterable[str]) -> dict[str, FeatureSource]:
        """The file of a stream for each split. Raises where they were made by different encoders."""
        told = None if stream == QUERY else self._settings.clip_seconds
        found = {split: self._open(self._folder / path.replace("{split}", split), told) for split in splits}
        checks.refuse_other_files(list(dict.fromkeys(found.values())))
        return found

    def placed(
        self, sources: _Sources, annotations: Mapping[str, Annotations]
    ) -> dict[str, dict[str, Placed]]:
        """Stream -> split -> where the rows of its videos or queries are. Every item is read once."""
        bytes_left = self._settings.memory_mb << 20
        found: dict[str, dict[str, Placed]] = {}
        gathered: dict[FeatureSource, tuple[CachedRows, dict[str, int]]] = {}
        for stream, files in sources.items():
            for split, source in files.items():
                self.check_there(stream, split, source, annotations[split])
            for source in dict.fromkeys(files.values()):
                asked = [_ids(stream, annotations[split]) for split, one in files.items() if one is source]
                wanted = [item for item in dict.fromkeys(i for ids in asked for i in ids) if item in source]
                rows = CachedRows(source, wanted, bytes_left)
                bytes_left -= rows.bytes_held
                gathered[source] = rows, {item: number for number, item in enumerate(wanted)}
            found[stream] = {
                split: _place(*gathered[source], _ids(stream, annotations[split]))
                for split, source in files.items()
            }
        return found

    def check_there(self, stream: str, split: str, source: FeatureSource, found: Annotations) -> None:
        """Raise where a file lacks videos or queries of a split that are needed."""
        if stream not in self._settings.optional:
            kind = "queries" if stream == QUERY else "videos"
            checks.refuse_missing(source, _ids(stream, found), kind, split)

    def _open(self, path: Path, clip_seconds: float | None) -> FeatureSource:
        if path not in self._opened:
            source = open_features(path, clip_seconds=clip_seconds)
            if self._settings.cache:
                _ = source.fingerprint
                source = open_cached_copy(source, self._folder / self._settings.cache)
            self._opened[path] = self._files.enter_context(source)
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
    if features.query.startswith(_TOKENIZER):
        return list(features.streams.items())
    return [(QUERY, features.query), *features.streams.items()]


def _tokenizer(features: FeatureSettings) -> str:
    """The name of the tokenizer of queries; "" where they are features."""
    name = features.query.removeprefix(_TOKENIZER)
    return name if features.query.startswith(_TOKENIZER) else ""


def _ids(stream: str, annotations: Annotations) -> list[str]:
    return [one.id for one in (annotations.queries if stream == QUERY else annotations.videos)]


def _place(gathered: CachedRows, number_of: Mapping[str, int], ids: Sequence[str]) -> Placed:
    return Placed(gathered, np.array([number_of.get(item, -1) for item in ids], np.int64))


def _annotations(data: DataSettings, folder: Path, splits: Sequence[str]) -> dict[str, Annotations]:
    """Annotations by split, of those that the experiment names."""
    named = {split: getattr(data, split) for split in splits if getattr(data, split)}
    if not named:
        others = [split for split in ("train", "validation", "test") if getattr(data, split)]
        raise UsageError(
            f"[data] names no judgements for {' or '.join(splits)}; there are those of "
            f"{', '.join(others) or 'no split'}: name another split, or the file that is missing"
        )
    if data.dataset:
        dataset = open_dataset(data.dataset, data.beside(folder, ""))
        return {split: dataset.annotations(name) for split, name in named.items()}
    read: dict[Path, Annotations] = {}
    for name in named.values():
        path = data.beside(folder, name)
        if path not in read:
            read[path] = read_annotations(path)
    return {split: read[data.beside(folder, name)] for split, name in named.items()}


def _inputs(features: FeatureSettings, sources: _Sources) -> Inputs:
    """How the features are made ready, with what made them."""
    firsts = {stream: next(iter(files.values())) for stream, files in sources.items()}
    streams = {name: one for name, one in firsts.items() if name != QUERY}
    files = {name: list(dict.fromkeys(sources[name].values())) for name in streams}
    tokenizer = _tokenizer(features)
    return Inputs(
        query=StreamInput(1, False)
        if tokenizer
        else checks.stream_input(firsts[QUERY], features.normalise_query),
        streams={name: checks.stream_input(one, features.normalises(name)) for name, one in streams.items()},
        clip_seconds=checks.one_clip_length(features.clip_seconds, files),
        max_clips=features.max_clips,
        max_tokens=features.max_tokens,
        long_videos=features.long_videos,
        tef=features.tef,
        clips_per_cell=features.clips_per_cell,
        tokenizer=tokenizer,
    )


def _refuse_others(inputs: Inputs, sources: _Sources) -> None:
    """Raise where the features are not those that a checkpoint's inputs describe."""
    if bool(inputs.tokenizer) == (QUERY in sources):
        reads = f"ids, query = 'tokenizer:{inputs.tokenizer}'" if inputs.tokenizer else "features of words"
        raise UsageError(f"[features] query names the other kind: the checkpoint reads {reads}")
    named = set(sources) - {QUERY}
    if named != set(inputs.streams):
        raise UsageError(
            f"[features.streams] are {', '.join(sorted(named))}; the checkpoint expects "
            f"{', '.join(sorted(inputs.streams))}"
        )
    for stream, files in sources.items():
        expected, called = (
            (inputs.query, "the queries")
            if stream == QUERY
            else (inputs.streams[stream], f"stream {stream!r}")
        )
        for source in dict.fromkeys(files.values()):
            checks.refuse_other_encoder(expected, source, called)
    files_of = {name: list(dict.fromkeys(files.values())) for name, files in sources.items() if name != QUERY}
    checks.one_clip_length(inputs.clip_seconds, files_of)


def _examples(
    split: str,
    annotations: Annotations,
    inputs: Inputs,
    placed: Mapping[str, Mapping[str, Placed]],
    data: DataSettings,
    pairs: RelevantPairs | None,
) -> Examples:
    """The examples of a split, checked and counted."""
    tokens = placed[QUERY][split] if QUERY in placed else None
    streams = {name: found[split] for name, found in placed.items() if name != QUERY}
    checks.refuse_without_time(annotations.videos, annotations.name)
    lengths = {name: one.lengths for name, one in streams.items()}
    checks.refuse_uneven(_ids("videos", annotations), lengths)
    rows = np.max(list(lengths.values()), axis=0)
    checks.refuse_without_rows(_ids("videos", annotations), rows, split)
    expected = _expected(annotations.videos, rows, inputs.clip_seconds)
    checks.refuse_short_clips([one.gathered.source.path for one in streams.values()], rows, expected)
    counts = {
        **checks.count_videos(inputs, rows, expected, {name: one.is_zero for name, one in streams.items()}),
        "videos have no known duration; that of their rows is taken": sum(
            video.duration is None for video in annotations.videos
        ),
        **checks.count_without_words(annotations.queries),
        **checks.count_tokens(
            inputs, _token_counts(inputs, annotations) if tokens is None else tokens.lengths
        ),
    }
    rules = Rules(data.labels, data.positives, data.weights, data.order, data.batch_of)
    used = pairs if split == "train" else None
    return Examples(split, annotations, inputs, tokens, streams, rules, used, counts)


def _token_counts(inputs: Inputs, annotations: Annotations) -> Any:
    """(Q,) ids of each query, by the tokenizer."""
    from whenabouts.models._parts.text_encoder import tokens_of

    sentences = [query.text for query in annotations.queries]
    return np.array(tokens_of(inputs.tokenizer).lengths(sentences), np.int64)


def _expected(videos: Sequence[Video], rows: Any, clip_seconds: float) -> Any:
    """(V,) clips that the videos' durations have; their rows where a duration is not known."""
    return np.array(
        [
            count if video.duration is None else len(ClipGrid(clip_seconds, video.duration))
            for video, count in zip(videos, rows.tolist(), strict=True)
        ],
        np.int64,
    )
