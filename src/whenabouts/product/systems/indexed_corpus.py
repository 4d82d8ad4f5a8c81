"""One's own videos as a trained system keeps them in the index, brought up to date; its queries encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.encoders import TextEncoder, encode_tokens, token_fingerprint
from whenabouts.models.protocol import QueryEncoding, VideoEncoding
from whenabouts.models.trained import Trained
from whenabouts.product.index.keys import KeptVideo, Keys, open_keys, system_of
from whenabouts.product.index.lock import CorpusBusy
from whenabouts.product.index.records import ClipHits, EncoderMismatch
from whenabouts.product.index.store import Store
from whenabouts.product.systems.search_keys import (
    bring_up_to_date,
    check_features,
    check_fit,
    key_seconds,
    stale_videos,
    unpacked,
)
from whenabouts.ranking.encoded_corpus import (
    Floats,
    Indices,
    Mask,
    MemoryCorpus,
    Progress,
    device_of,
    evaluating,
)
from whenabouts.ranking.opened_system import OpenedModel
from whenabouts.types import UsageError, number_of

if TYPE_CHECKING:
    from whenabouts.product.encoder_registry import EncoderRegistry

Names = NDArray[np.str_]
Vectors = Mapping[str, NDArray[np.float32]]

WAIT_SECONDS = 2.0
"""How long a search waits for another writer before it answers from what is encoded so far."""
NEAREST_KEYS = 800
"""Keys asked of the index, for each stream; more where they belong to few videos, or segments."""
_MORE_KEYS, _MOST_KEYS = 4, 12_800
_SEGMENT_SECONDS = 4.0
# Videos of so many times more clips than a system has places for are noted.
_FAR = 4


class IndexedCorpus:
    """What the index keeps of a corpus for one system; an `EncodedCorpus` whose units are whole videos.

    `complete` (V,) is which videos may be answered: those whose encoding is not out of date. Of a corpus by
    segments keys alone are kept, and units are numbered in their video (`nearest_segments`).
    """

    def __init__(self, keys: Keys, trained: Trained, stale: Sequence[str] = ()) -> None:
        self.keys, self.trained, self._stale = keys, trained, frozenset(stale)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The videos, sorted."""
        return tuple(sorted(self.keys.marks()))

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """The row of each video."""
        return {name: row for row, name in enumerate(self.ids)}

    def allowed(self, video_ids: Sequence[str] | None) -> Mask:
        """(V,) bool: those of some videos (None: all) that may be answered."""
        if video_ids is None:
            allowed = np.ones(len(self.ids), bool)
        else:
            allowed = np.zeros(len(self.ids), bool)
            allowed[self.rows_of(video_ids)] = True
        allowed[self.rows_of(self._stale)] = False
        return allowed

    def take(self, rows: ArrayLike) -> VideoEncoding:
        """Some videos as one encoding, in the order of `rows`."""
        return self.select(np.asarray(rows, np.int64)).blocks[0]

    def select(self, rows: Indices) -> MemoryCorpus:
        """Some videos read into memory, where the system's model is; those that are silent are left out.

        Raises UsageError where none is left.
        """
        kept = self.kept(rows)
        if not kept:
            raise UsageError("no videos were asked for")
        videos = unpacked(kept).to(device_of(self.trained.model))
        seconds = [
            key_seconds(self.trained, count, video.rows, video.duration)
            for count, video in zip(videos.mask.sum(1).tolist(), kept, strict=True)
        ]
        return MemoryCorpus.of_block(
            [video.video_id for video in kept], videos, seconds, [video.duration for video in kept]
        )

    def kept(self, rows: Indices, *, with_keys: bool = True) -> list[KeptVideo]:
        """What is kept of some videos, as bytes; those that are silent are left out."""
        return self.keys.encodings([self.ids[row] for row in rows.tolist()], with_keys=with_keys)

    def nearest(self, vectors: Vectors, k: int, allowed: Mask | None = None) -> tuple[Indices, Floats]:
        """About k videos whose best keys are nearest, best first: rows, and the mean over their streams."""
        names, _, scores = nearest_units(self.keys, vectors, k, self.names(allowed), whole=True)
        there = np.array([name in self.row_of for name in names.tolist()], bool)
        rows = [self.row_of[name] for name in names[there].tolist()]
        return np.array(rows, np.int64), scores[there]

    def nearest_segments(
        self, vectors: Vectors, k: int, allowed: Mask | None = None
    ) -> tuple[list[str], Indices]:
        """As `nearest`, of segments: ids of videos, numbers (N,) in these."""
        names, number, _ = nearest_units(self.keys, vectors, k, self.names(allowed), whole=False)
        return names.tolist(), number

    def rows_of(self, video_ids: Iterable[str]) -> Indices:
        """The rows of those of some videos that are here."""
        rows = [self.row_of[name] for name in video_ids if name in self.row_of]
        return np.array(rows, np.int64)

    def names(self, allowed: Mask | None) -> list[str] | None:
        """The videos of a mask; None where these are all."""
        if allowed is None or allowed.all():
            return None
        return [self.ids[row] for row in np.flatnonzero(allowed).tolist()]


class IndexedSystem:
    """A trained system on a corpus; `segment_clips`: it keeps segments of so many clips (0: whole videos)."""

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
        self._described: tuple[int, list[str], list[str]] | None = None

    @property
    def name(self) -> str:
        """What people call the system."""
        return self.model.name

    @property
    def is_kept(self) -> bool:
        """Whether the corpus holds anything of it."""
        return open_keys(self._store, self._system) is not None

    def encode(self, text: str) -> QueryEncoding:
        """A query, encoded."""
        model, inputs = self.trained.model, self.trained.inputs
        if inputs.tokenizer:
            batch = inputs.sentences([text])
        else:
            batch = inputs.queries(encode_tokens(self.encoder, [text]), ["the query"])
        with evaluating(model):
            encoded: QueryEncoding = model.encode_queries(batch.to(device_of(model)))
        return encoded

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> IndexedCorpus:
        """Encode the videos that are new or changed; the corpus. Raises CorpusBusy, UsageError."""
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
        """The corpus, up to date unless another program is writing; then a note says what is left out."""
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
        """A note on the videos in which the system reads nothing."""
        return self._notes_on(corpus)[0]

    def notes_on_long(self, corpus: IndexedCorpus) -> list[str]:
        """A note on the videos that are far longer than the system has places for."""
        return self._notes_on(corpus)[1]

    def _notes_on(self, corpus: IndexedCorpus) -> tuple[list[str], list[str]]:
        if self._described is None or self._described[0] != self._store.version:
            rows = corpus.keys.rows()
            self._described = self._store.version, self._unread(rows), self._long(rows)
        return self._described[1:]

    def _unread(self, rows: Indices) -> list[str]:
        if not (count := int(np.count_nonzero(rows == 0))):
            return []
        streams = " or ".join(self.trained.inputs.streams)
        return [f"{count:,} of {len(rows):,} videos have no {streams} and cannot be found by {self.name}"]

    def _long(self, rows: Indices) -> list[str]:
        inputs = self.trained.inputs
        places, clip = inputs.max_clips, inputs.clip_seconds
        cut = inputs.long_videos == "cut"
        if not (count := int(np.count_nonzero(rows > (places if cut else _FAR * places)))):
            return []
        they = f"{count:,} of {len(rows):,} videos are"
        how = f"--segments {max(_SEGMENT_SECONDS, clip):g}"
        if cut:
            return [
                f"{they} read by {self.name} up to {places * clip:g} s only; {how} looks into all of them"
            ]
        longest = int(rows.max()) * clip / places
        return [
            f"{they} long for {self.name}, which reads them as {places} clips, of up to {longest:.0f} s "
            f"each; {how} looks into them in clips of {clip:g} s"
        ]

    def _current(self) -> IndexedCorpus | None:
        """The corpus where no video has come, changed or gone since it was encoded; else None."""
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
    """A system with the encoder of its queries.

    Raises UsageError, EncoderUnavailable; EncoderMismatch, naming both, where the encoder of that name has
    other weights or another width than the one that the system was trained with.
    """
    trained, name = model.trained, model.name
    query = trained.inputs.query
    encoder, notes = registry.by_name(query.encoder or None), []
    if not trained.inputs.tokenizer:  # else words become vectors inside the system
        width = encode_tokens(encoder, ["a"])[0].shape[1]
        problem, note = check_features(query, encoder.name, token_fingerprint(encoder), width)
        if problem:
            raise EncoderMismatch(
                f"{name} reads queries of another encoder: {problem}; install that encoder, or train on "
                "`whenabouts features tokens` made with this one"
            )
        notes = [f"{name}: queries: {note}"] if note else []
    return IndexedSystem(store, model, encoder, notes, segment_clips)


# The nearest keys, as the videos or the segments that they belong to --------------------------------


def nearest_units(
    keys: Keys, vectors: Vectors, count: int, video_ids: Sequence[str] | None = None, *, whole: bool
) -> tuple[Names, Indices, Floats]:
    """About `count` units whose best keys are nearest: names (N,) of videos, numbers (N,) of segments (0 of
    `whole` videos), scores (N,), best first.

    A system's score is the mean, over the streams that a unit has, of its best key. What has no words is so
    compared by its pictures alone, and its pictures may all be farther than those of what has words and is
    retrieved by neither. So each kind (`Keys.kinds`: which streams there are) is searched by itself; within a
    kind a stream that does not retrieve a unit gives it what its last key scored: it cannot score more there.
    """
    parts = [(np.zeros(0, np.str_), np.zeros(0, np.int64), np.zeros(0))]
    for kind in keys.kinds():
        hits = [_enough_keys(keys, stream, vectors[stream], count, video_ids, kind, whole) for stream in kind]
        parts.append(_means(hits, whole))
    names, number, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((number, names, -scores))[:count]
    return names[order], number[order], scores[order]


def _enough_keys(
    keys: Keys,
    stream: str,
    vector: NDArray[np.float32],
    count: int,
    video_ids: Sequence[str] | None,
    kind: Sequence[str],
    whole: bool,
) -> ClipHits:
    """The nearest keys, so many that they are of `count` different units or there are no more."""
    most = NEAREST_KEYS
    while True:
        hits = keys.nearest(stream, vector, most, video_ids, kind=kind)
        if len(hits) < most or most >= _MOST_KEYS or len(_units([hits], whole)[1]) >= count:
            return hits
        most *= _MORE_KEYS


def _means(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Floats]:
    """What the nearest keys of each stream are of, with the mean over the streams of the best key."""
    names, units, at = _units(hits, whole)
    floors = [[float(nearest.score[-1]) if len(nearest) else 0.0] for nearest in hits]
    best = np.repeat(floors, len(units), axis=1)
    stream = np.repeat(np.arange(len(hits)), [len(nearest) for nearest in hits])
    scores = np.concatenate([nearest.score for nearest in hits]).astype(np.float64)
    np.maximum.at(best, (stream, at), scores)
    return names[units[:, 0]], units[:, 1], best.mean(0)


def _units(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Indices]:
    """Names of videos, the different units (N, 2) as video and number, and that of each hit, in order."""
    ids = np.concatenate([np.asarray(nearest.video_ids, np.str_) for nearest in hits])
    number = np.concatenate([nearest.index for nearest in hits]).astype(np.int64)
    names, video = np.unique(ids, return_inverse=True)
    pairs = np.stack([video.reshape(-1).astype(np.int64), np.zeros_like(number) if whole else number], 1)
    units, at = np.unique(pairs, axis=0, return_inverse=True)
    return names, units, at.reshape(-1)
