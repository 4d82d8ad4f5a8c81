"""Open a trained system, with its retriever and its calibration, to search a corpus with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.encoders import (
    EncoderUnavailable,
    TextEncoder,
    TokenEncoder,
    encode_tokens,
    token_fingerprint,
)
from whenabouts.index.keys import open_keys, system_of
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import EncoderMismatch, StreamInfo
from whenabouts.index.store import Store
from whenabouts.streams import all_streams
from whenabouts.types import UsageError, number_of
from whenabouts_systems.models import staged
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import QueryEncoding
from whenabouts_systems.models.trained import CALIBRATION, CONFIG, IMPORTED_FROM, WEIGHTS, Trained
from whenabouts_systems.ranking.candidates import can_retrieve
from whenabouts_systems.ranking.confidence import TrainedConfidence, load_confidence
from whenabouts_systems.ranking.encoded_corpus import Progress, device_of, evaluating
from whenabouts_systems.ranking.localize import can_localize
from whenabouts_systems.trained_search.even_grid import check_stream
from whenabouts_systems.trained_search.indexed_corpus import IndexedCorpus
from whenabouts_systems.trained_search.search_keys import bring_up_to_date, stale_videos
from whenabouts_systems.trained_search.stored_footage import transcript_of

if TYPE_CHECKING:
    from whenabouts.encoder_registry import EncoderRegistry

WAIT_SECONDS = 2.0
"""The time that a search waits for another writer before it answers from the videos encoded so far."""
_SEGMENT_SECONDS = 4.0
# Videos with more than this many times the clips that the system has positions for get a note.
_FAR = 4


@dataclass(frozen=True)
class OpenedModel:
    """An opened trained system: its `name` for users, and its folder or hub name (`place`).

    `opened` is the given folder (None for a system from Python or a hub), `files` are the files read from it,
    and `stamp` changes when these are replaced. `confidence` is its calibration, if it was measured
    (`whenabouts calibrate --checkpoint`). `retriever` is the system that chooses the videos for it.
    """

    trained: Trained
    name: str
    place: str
    files: tuple[Path, ...] = ()
    stamp: tuple[int, ...] = ()
    confidence: TrainedConfidence | None = None
    retriever: OpenedModel | None = None
    opened: Path | None = None

    @property
    def is_current(self) -> bool:
        """Whether its files are unchanged since they were read."""
        is_unchanged = self.stamp == _stamp_of(self.files)
        return is_unchanged and (self.retriever is None or self.retriever.is_current)


def open_model(model: str | Path | Trained, retriever: str | Path | Trained | None = None) -> OpenedModel:
    """Open a trained system by its folder or its name on a hub, and a staged run with its retriever.

    A given `retriever` replaces that of a staged run. The folder's calibration is then not read, because it
    was measured with other answers. Raises UsageError and FormatError as `Trained.from_pretrained`,
    `staged.read_stages` and `load_confidence`; UsageError if a system cannot do its part.
    """
    staged_retriever, localizer = (None, model) if isinstance(model, Trained) else staged.stages_of(model)
    if retriever is not None and not isinstance(retriever, Trained):
        retriever = staged.retriever_of(retriever)
    chooser = staged_retriever if retriever is None else retriever
    opened = _opened(localizer)
    if not isinstance(model, Trained) and staged.is_staged(model):
        folder = Path(model).expanduser()
        files = _files_of(folder)
        stamp = _stamp_of(files)
        opened = replace(opened, name=folder.name or str(model), files=files, stamp=stamp, opened=folder)
    if chooser is not None:
        opened = replace(opened, retriever=_chooser(chooser, opened))
    if isinstance(model, Trained) or retriever is not None:
        return opened
    first = None if opened.retriever is None else opened.retriever.trained.fingerprint
    fingerprint = staged.fingerprint_of(opened.trained.fingerprint, first)
    calibration = load_confidence(opened.opened or opened.place, fingerprint, opened.trained.calibration)
    return replace(opened, confidence=calibration)


def _chooser(place: str | Path | Trained, localizer: OpenedModel) -> OpenedModel:
    """Open the retriever of `localizer`. Raises UsageError if one of them cannot do its part."""
    chooser = _opened(place)
    if not can_retrieve(chooser.trained.model):
        raise UsageError(f"{chooser.name} ({chooser.trained.system}) cannot choose videos; name a retriever")
    if not can_localize(localizer.trained.model):
        raise UsageError(
            f"{localizer.name} ({localizer.trained.system}) cannot find moments in the videos that "
            f"{chooser.name} chooses; name a localizer, or leave out the retriever"
        )
    return chooser


def _opened(model: str | Path | Trained) -> OpenedModel:
    """One system, without its calibration."""
    if isinstance(model, Trained):
        return OpenedModel(model, model.system, f"python:{model.fingerprint}")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return OpenedModel(Trained.from_pretrained(model), folder.name or str(model), str(model))
    files = _files_of(folder)
    stamp = _stamp_of(files)
    trained = Trained.from_pretrained(folder)
    return OpenedModel(trained, folder.name or str(model), str(folder.resolve()), files, stamp, opened=folder)


def _files_of(folder: Path) -> tuple[Path, ...]:
    """The files that a system may have; for a staged run those of both systems."""
    places = [folder / name for name in (WEIGHTS, CONFIG, CALIBRATION, staged.SYSTEM)]
    if staged.is_staged(folder):
        stages = staged.read_stages(folder)
        places += [stages.localizer / name for name in (WEIGHTS, CONFIG)]
        places += [stages.retriever / name for name in (WEIGHTS, CONFIG) if stages.retriever is not None]
    return tuple(places)


def _stamp_of(files: Iterable[Path]) -> tuple[int, ...]:
    """Sizes and times of the files that exist; they change when a file is replaced."""
    stats = [path.stat() for path in files if path.is_file()]
    return tuple(number for stat in stats for number in (stat.st_size, stat.st_mtime_ns))


# On a corpus ------------------------------------------------------------------------------------------


class IndexedSystem:
    """A trained system on a corpus. The index holds segments of `segment_clips` clips (0: whole videos)."""

    def __init__(
        self,
        store: Store,
        model: OpenedModel,
        encoder: TextEncoder,
        notes: Sequence[str] = (),
        segment_clips: int = 0,
    ) -> None:
        self.model, self.trained, self.encoder = model, model.trained, encoder
        self.segment_clips = segment_clips
        self.notes = [*notes, *check_fit(store, model.trained, model.name)]
        self._store = store
        self._system = system_of(self.trained.fingerprint, segment_clips)
        self._checked: int | None = None
        self._corpus: IndexedCorpus | None = None

    @property
    def name(self) -> str:
        """The system's name for users."""
        return self.model.name

    @property
    def is_kept(self) -> bool:
        """Whether the index holds its keys."""
        return open_keys(self._store, self._system) is not None

    def encode(self, text: str) -> QueryEncoding:
        """The encoding of one query."""
        model, inputs = self.trained.model, self.trained.inputs
        if inputs.tokenizer:
            batch = inputs.sentences([text])
        else:
            assert isinstance(self.encoder, TokenEncoder)  # `open_indexed` checked it
            batch = inputs.queries(self.encoder.encode_tokens([text]), ["the query"])
        with evaluating(model):
            encoded: QueryEncoding = model.encode_queries(batch.to(device_of(model)))
        return encoded

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> IndexedCorpus:
        """The corpus, after new and changed videos are encoded. Raises CorpusBusy, UsageError."""
        corpus = self._current()
        if corpus is None:
            keys = bring_up_to_date(
                self._store,
                self.trained,
                self.name,
                self.model.place,
                segment_clips=self.segment_clips,
                wait=wait,
                progress=progress,
            )
            self._corpus = corpus = IndexedCorpus(keys, self.trained)
            self._checked = self._store.version
        return corpus

    def corpus(self) -> tuple[IndexedCorpus, list[str]]:
        """The corpus, up to date; if another program is writing, its older state and a note on that."""
        try:
            return self.prepare(), []
        except CorpusBusy as error:
            keys = open_keys(self._store, self._system)
            if keys is None:
                raise
            stale, _ = stale_videos(self._store, keys)
            corpus = IndexedCorpus(keys, self.trained, [record.video_id for record in stale])
            note = f"{number_of(len(stale), 'video')} not yet encoded with {self.name}: not searched"
            return corpus, [f"{note} ({error})"] if stale else []

    def notes_on_unread(self, corpus: IndexedCorpus) -> list[str]:
        """A note on videos without features for the system."""
        rows = corpus.rows
        if not (count := int(np.count_nonzero(rows == 0))):
            return []
        streams = " or ".join(self.trained.inputs.streams)
        return [f"{count:,} of {len(rows):,} videos have no {streams} and cannot be found by {self.name}"]

    def notes_on_long(self, corpus: IndexedCorpus) -> list[str]:
        """A note on videos that are far longer than the system's positions."""
        rows, inputs = corpus.rows, self.trained.inputs
        places, clip = inputs.max_clips, inputs.clip_seconds
        cut = inputs.long_videos == "cut"
        if not (count := int(np.count_nonzero(rows > (places if cut else _FAR * places)))):
            return []
        they = f"{count:,} of {len(rows):,} videos are"
        how = f"--segments {max(_SEGMENT_SECONDS, clip):g}"
        if cut:
            return [f"{they} longer than the {places * clip:g} s that {self.name} reads; {how} reads all"]
        longest = int(rows.max()) * clip / places
        return [
            f"{they} long for {self.name}, which reads each as {places} clips of up to {longest:.0f} s; "
            f"{how} searches them in clips of {clip:g} s"
        ]

    def _current(self) -> IndexedCorpus | None:
        """The corpus, if no video was added, changed or removed since it was encoded; else None."""
        version = self._store.version
        if self._corpus is None or self._checked != version:
            keys = open_keys(self._store, self._system)
            if keys is None or keys.info.ledger != version:
                return None
            self._corpus, self._checked = IndexedCorpus(keys, self.trained), version
        return self._corpus


def open_indexed(
    store: Store, registry: EncoderRegistry, model: OpenedModel, segment_clips: int = 0
) -> IndexedSystem:
    """A system on a corpus, with its query encoder: the one that it names, else one of the corpus that fits.

    Raises UsageError and EncoderUnavailable. Raises EncoderMismatch, naming the encoders, if the named one
    has other weights or another width than in training, or if none fits.
    """
    inputs, name, notes = model.trained.inputs, model.name, []
    if inputs.tokenizer:  # words become vectors inside the system
        encoder = registry.by_name(inputs.query.encoder or None)
    elif inputs.query.encoder:
        encoder = _named(registry, inputs, name)
    else:
        encoder = _of_corpus(registry, inputs, name)
        _, note = _fit_of(inputs.query, encoder)
        notes = [f"{name}: queries: {note}"] if note else []
    return IndexedSystem(store, model, encoder, notes, segment_clips)


_NAME_IT = "name the one it was trained with (`import-checkpoint … --encoder query=NAME`)"


def _named(registry: EncoderRegistry, inputs: Inputs, name: str) -> TextEncoder:
    """The encoder that a system names; if it is not installed, one of the corpus with the same weights."""
    query = inputs.query
    try:
        encoder = registry.by_name(query.encoder)
    except EncoderUnavailable:
        of_corpus = registry.of_tokens(inputs.streams) if query.fingerprint else ()
        for encoder in of_corpus:
            if not _fit_of(query, encoder)[0]:
                return encoder
        raise
    # Without a hash of weights the name decides, so an alias must become the encoder's name.
    problem, _ = _fit_of(replace(query, encoder=encoder.name), encoder)
    if problem:
        remedy = "install that encoder" if query.fingerprint else _NAME_IT
        raise EncoderMismatch(
            f"{name} was trained with another query encoder: {problem}; {remedy}, or train on "
            "`whenabouts features tokens` made with this one"
        )
    return encoder


def _of_corpus(registry: EncoderRegistry, inputs: Inputs, name: str) -> TextEncoder:
    """For a system without a named encoder: the first that fits of the corpus's encoders and the default."""
    tried: list[TextEncoder] = []
    default = map(registry.by_name, [None])  # lazy: opened only if needed
    for encoder in chain(registry.of_tokens(inputs.streams), default):
        if not _fit_of(inputs.query, encoder)[0]:
            return encoder
        tried.append(encoder)
    widths = ", ".join(f"{encoder.name} ({_token_width(encoder)})" for encoder in tried)
    raise EncoderMismatch(
        f"{name} reads {inputs.query.width} values a token and does not say which encoder makes them; "
        f"available are {widths}; {_NAME_IT}"
    )


def _token_width(encoder: TextEncoder) -> int:
    return int(encode_tokens(encoder, ["a"])[0].shape[1])


def _fit_of(query: StreamInput, encoder: TextEncoder) -> tuple[str, str]:
    """`check_features` for an encoder's tokens."""
    return check_features(query, encoder.name, token_fingerprint(encoder), _token_width(encoder))


def _remedy(lacking: Sequence[str]) -> str:
    """A remedy for streams that a corpus lacks."""
    streams = all_streams()
    if not streams.keys() >= set(lacking):
        return (
            "the system's streams must have the corpus's names: train on the features that `whenabouts "
            f"features export` writes, named {' and '.join(streams)}"
        )
    return f"{', '.join(streams[name].remedy for name in lacking)}, or use a system trained without them"


def check_fit(store: Store, trained: Trained, name: str) -> list[str]:
    """Check that a system fits a corpus; return notes on what could not be checked.

    Raises UsageError for a stream that the corpus lacks or that has clips of another length, and for a
    system that reads speech if the corpus has no words. Raises EncoderMismatch, naming both encoders of each
    such stream, if the corpus's vectors come from other encoders than those of the training.
    """
    inputs = trained.inputs
    lacking = [stream for stream in inputs.streams if stream not in store.streams]
    if lacking:
        raise UsageError(
            f"{name} reads the streams {', '.join(inputs.streams)}; {store.place} has "
            f"{', '.join(sorted(store.streams)) or 'none'} and lacks {', '.join(lacking)}; {_remedy(lacking)}"
        )
    transcript_of(store, inputs)  # raises if there are no words
    wrong, notes = [], []
    for stream, trained_on in inputs.streams.items():
        info = check_stream(store, stream, inputs.clip_seconds)
        problem, note = check_features(trained_on, info.encoder, info.fingerprint, info.dimension)
        if problem and not trained_on.fingerprint and trained_on.width == info.dimension:
            problem += f" (if both are the same, import with --encoder {stream}={info.encoder})"
        wrong += [f"stream {stream}: {problem}"] if problem else []
        note = note or _first_frames(trained, info)
        notes += [f"{name}: stream {stream}: {note}"] if note else []
    if wrong:
        raise EncoderMismatch(
            f"{name} does not fit {store.place}: {'; '.join(wrong)}. Index the videos into a new corpus with "
            "the encoders of the system, or train on `whenabouts features export` of this corpus"
        )
    return notes


def _first_frames(trained: Trained, info: StreamInfo) -> str:
    """A note if a released system gets the first frames of clips, as old corpora have them; else ""."""
    is_old = "clip_seconds" in info.settings and not {"frame_at", "clip_frames"} & info.settings.keys()
    if not is_old or IMPORTED_FROM not in trained.about:
        return ""
    return (
        "its clips have the vectors of their first frames, but released features those of middle frames, so "
        "borders come half a clip late; index the videos into a new corpus"
    )


def check_features(trained_on: StreamInput, encoder: str, fingerprint: str, width: int) -> tuple[str, str]:
    """(problem, note) about features for a system: why they do not fit, and what could not be checked.

    Both are "" if the features fit. The hashes of the weights decide if both sides have one, else the names
    of the encoders.
    """
    trained_weights, weights = _weights_of(trained_on.fingerprint), _weights_of(fingerprint)
    trained_with = f"{trained_on.encoder or 'an encoder without a name'} ({trained_on.width} wide"
    trained_with += f", weights {trained_weights[:12]}…)" if trained_weights else ")"
    corpus_encoder = f"{encoder} ({width} wide" + (f", weights {weights[:12]}…)" if weights else ")")
    both = f"trained on {trained_with}, here it is {corpus_encoder}"
    if trained_on.width != width:
        return both, ""
    if trained_on.fingerprint and trained_on.fingerprint == fingerprint:
        return "", ""
    if trained_weights and weights:
        return ("", "") if trained_weights == weights else (both, "")
    if trained_on.encoder:
        return ("", "") if trained_on.encoder == encoder else (both, "")
    return "", f"the system does not say which encoder it was trained with; taken for {encoder}"


def _weights_of(fingerprint: str) -> str:
    """The hash of the weights in a fingerprint, which is an encoder's line or JSON; "" if it has none."""
    try:
        facts = json.loads(fingerprint)
    except ValueError:
        parts = fingerprint.removesuffix(":tokens").split()
        facts = dict(part.split("=", 1) for part in parts if "=" in part)
    if not isinstance(facts, dict):
        return ""
    return str(facts.get("weights_sha256") or facts.get("weights") or "")
