"""One trained system on one corpus: queries encoded, and what it keeps of the videos brought up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whenabouts.encoders import TextEncoder, encode_tokens, token_fingerprint
from whenabouts.index.keys import Keys, open_keys, system_of
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import EncoderMismatch
from whenabouts.index.store import Store
from whenabouts.models.protocol import QueryEncoding
from whenabouts.models.trained import Trained
from whenabouts.ranking.encoded_corpus import device_of, evaluating
from whenabouts.trained.keys import Progress, bring_up_to_date, check_fit, held_against, stale_videos
from whenabouts.trained.loaded import LoadedModel

if TYPE_CHECKING:
    from whenabouts.encoder_registry import EncoderRegistry

WAIT_SECONDS = 2.0
"""How long a search waits for another writer before it answers from what is encoded so far."""
_SEGMENT_SECONDS = 4.0
# Videos of so many times more clips than a system has places for are told of.
_FAR = 4


def query_encoder(trained: Trained, name: str, registry: EncoderRegistry) -> tuple[TextEncoder, list[str]]:
    """What makes the tokens that a system reads, and notes on what could not be checked of it.

    Raises EncoderMismatch, naming both, where the encoder of that name has other weights or another width.
    """
    told = trained.inputs.query
    encoder = registry.by_name(told.encoder or None)
    if trained.inputs.tokenizer:  # words become vectors inside the system
        return encoder, []
    width = encode_tokens(encoder, ["a"])[0].shape[1]
    problem, note = held_against(told, encoder.name, token_fingerprint(encoder), width)
    if problem:
        raise EncoderMismatch(
            f"{name} reads queries of another encoder: {problem}; install that encoder, or train on "
            "`whenabouts features tokens` made with this one"
        )
    return encoder, [f"{name}: queries: {note}"] if note else []


class KeptSystem:
    """A trained system on a corpus; `segment_clips`: it keeps segments of so many clips (0: whole videos)."""

    def __init__(
        self,
        store: Store,
        loaded: LoadedModel,
        encoder: TextEncoder,
        notes: Sequence[str] = (),
        segment_clips: int = 0,
    ):
        self.loaded, self.trained, self.encoder = loaded, loaded.trained, encoder
        self.segment_clips = segment_clips
        self.notes = [*notes, *check_fit(store, loaded.trained, loaded.name)]
        self.usable: frozenset[str] | None = None
        """The videos that may be answered, while others are not yet encoded; None: all."""
        self._store = store
        self._system = system_of(self.trained.fingerprint, segment_clips)
        self._checked: int | None = None
        self._keys: Keys | None = None
        self._told: tuple[int, list[str], list[str]] | None = None

    @property
    def name(self) -> str:
        """What people call the system."""
        return self.loaded.name

    @property
    def is_kept(self) -> bool:
        """Whether the corpus holds anything of it."""
        return open_keys(self._store, self._system) is not None

    def asked(self, text: str) -> QueryEncoding:
        """The query, encoded."""
        model, inputs = self.trained.model, self.trained.inputs
        if inputs.tokenizer:
            batch = inputs.sentences([text])
        else:
            batch = inputs.queries(encode_tokens(self.encoder, [text]), ["the query"])
        with evaluating(model):
            encoded: QueryEncoding = model.encode_queries(batch.to(device_of(model)))
        return encoded

    def prepare(self, *, wait: float = WAIT_SECONDS, progress: Progress | None = None) -> Keys:
        """Encode the videos that are new or changed; the keys. Raises CorpusBusy, UsageError."""
        keys = self._current()
        if keys is None:
            self._keys = keys = bring_up_to_date(
                self._store,
                self.trained,
                self.name,
                self.loaded.place,
                segment_clips=self.segment_clips,
                wait=wait,
                progress=progress,
            )
            self._checked, self.usable = self._store.version, None
        return keys

    def fresh(self) -> tuple[Keys, list[str]]:
        """The keys, up to date unless somebody else is writing; then a note says what is left out."""
        try:
            return self.prepare(), []
        except CorpusBusy as error:
            keys = open_keys(self._store, self._system)
            if keys is None:
                raise
            stale, _ = stale_videos(self._store, keys)
            self.usable = frozenset(keys.marks()) - {record.video_id for record in stale}
            note = f"{len(stale):,} videos are not yet encoded with {self.name} and were not searched"
            return keys, [f"{note} ({error})"] if stale else []

    def allowed(self, video_ids: Sequence[str] | None) -> Sequence[str] | None:
        """Those of some videos (None: all) that may be answered."""
        if self.usable is None:
            return video_ids
        wanted = sorted(self.usable) if video_ids is None else video_ids
        return [name for name in wanted if name in self.usable]

    def unread(self, keys: Keys) -> list[str]:
        """A note on the videos in which the system reads nothing."""
        return self._notes_on(keys)[0]

    def coarse(self, keys: Keys) -> list[str]:
        """A note on the videos that are far longer than the system has places for."""
        return self._notes_on(keys)[1]

    def _notes_on(self, keys: Keys) -> tuple[list[str], list[str]]:
        if self._told is None or self._told[0] != self._store.version:
            rows = keys.rows()
            self._told = self._store.version, self._unread(rows), self._coarse(rows)
        return self._told[1:]

    def _unread(self, rows: np.ndarray) -> list[str]:
        if not (count := int(np.count_nonzero(rows == 0))):
            return []
        streams = " or ".join(self.trained.inputs.streams)
        return [f"{count:,} of {len(rows):,} videos have no {streams} and cannot be found by {self.name}"]

    def _coarse(self, rows: np.ndarray) -> list[str]:
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

    def _current(self) -> Keys | None:
        """The keys where no video has come, changed or gone since they were made; else None."""
        version = self._store.version
        if self._keys is None or self._checked != version:
            keys = open_keys(self._store, self._system)
            if keys is None or keys.info.ledger != version:
                return None
            self._keys, self._checked, self.usable = keys, version, None
        return self._keys


def open_kept(
    store: Store, registry: EncoderRegistry, loaded: LoadedModel, segment_clips: int = 0
) -> KeptSystem:
    """A system with the encoder of its queries. Raises UsageError, EncoderMismatch, EncoderUnavailable."""
    return KeptSystem(store, loaded, *query_encoder(loaded.trained, loaded.name, registry), segment_clips)
