"""Exports features of a corpus and of queries into feature stores, on which systems can be trained.

The package `whenabouts` finds this module through the entry point `layouts` of `whenabouts.features`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import TextEncoder, encode_tokens, token_fingerprint
from whenabouts.index.store import Store
from whenabouts.intake.files import write_atomically
from whenabouts.streams import stream as stream_named
from whenabouts.types import Query, UsageError, number_of
from whenabouts_systems.features import open_features
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import WrittenStore, write_store
from whenabouts_systems.trained_search.even_grid import check_stream, sentences_in, videos_on_grid

__all__ = [
    "Exported",
    "encoder_fingerprint",
    "export_sentences",
    "export_stream",
    "open_features",
    "queries_of",
    "write_token_features",
]

_HALF: np.dtype[Any] = np.dtype(np.float16)
_QUERIES_AT_A_TIME = 2048
_VIDEOS_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export from a corpus; `left_out` counts videos with neither duration nor clips."""

    written: WrittenStore
    left_out: int

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object."""
        return self.written.to_json() | {"left_out": self.left_out}

    def lines(self) -> list[str]:
        """The summary as lines of text."""
        lines = self.written.lines()
        if self.left_out:
            lines.append(f"{number_of(self.left_out, 'video')} left out: neither a duration nor clips")
        return lines


def encoder_fingerprint(name: str, fingerprint: str, **facts: Any) -> Fingerprint:
    """The fingerprint of features from an encoder of `whenabouts`, given by name and fingerprint.

    `extra["fingerprint"]` is the given one, as a corpus stores it for each stream; `facts` are more fields.
    """
    parts = dict(part.split("=", 1) for part in fingerprint.split(":")[0].split() if "=" in part)
    weights = parts.get("weights", "")
    return Fingerprint(
        encoder=name,
        weights_sha256=weights if len(weights) == 64 else None,
        extra={"fingerprint": fingerprint},
        **facts,
    )


def write_token_features(queries: Sequence[Query], encoder: TextEncoder, path: Path) -> WrittenStore:
    """Write token features, query id -> (L, D) float16, as a store; return a summary.

    Raises UsageError for an id with two texts, EncoderUnavailable for an encoder without token features.
    """
    texts: dict[str, str] = {}
    for query in queries:
        if texts.setdefault(query.id, query.text) != query.text:
            raise UsageError(
                f"query {query.id!r} has two texts, {texts[query.id]!r} and {query.text!r}; ids must differ"
            )
    made_by = encoder_fingerprint(encoder.name, token_fingerprint(encoder), normalisation="none")
    return write_store(path, _tokens(list(texts.items()), encoder), made_by, _HALF)


def _tokens(
    queries: Sequence[tuple[str, str]], encoder: TextEncoder
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for begin in range(0, len(queries), _QUERIES_AT_A_TIME):
        part = queries[begin : begin + _QUERIES_AT_A_TIME]
        rows = encode_tokens(encoder, [text for _, text in part])
        yield from zip((name for name, _ in part), rows, strict=True)


def export_stream(store: Store, stream: str, clip_seconds: float, path: Path) -> Exported:
    """Write a corpus's stream as one row every `clip_seconds`: video id -> (T, D) float16.

    `trained_search/even_grid.py` describes the grid. Failed videos are skipped. Raises UsageError for a
    stream that is missing, has no vectors, or has clips of another length.
    """
    info = check_stream(store, stream, clip_seconds)
    records = [record for record in store.videos() if record.state != "failed"]
    made_by = encoder_fingerprint(
        info.encoder, info.fingerprint, clip_seconds=clip_seconds, normalisation="none"
    )
    rows = (
        (video.record.video_id, video.streams[stream])
        for video in videos_on_grid(store, [stream], clip_seconds, records)
    )
    written = write_store(path, rows, made_by, _HALF)
    return Exported(written, len(records) - written.items)


def export_sentences(store: Store, path: Path) -> int:
    """Write the speech of a corpus, passage by passage, for `features.sentences`; return the count of videos.

    Raises UsageError for a corpus without speech, and for a file that already exists.
    """
    if path.exists():
        raise UsageError(f"{path}: exists already; give a new file")
    stream = next((name for name in store.streams if stream_named(name).transcript), None)
    if stream is None:
        raise UsageError(f"{store.place}: has no speech; index files with subtitles, or with --transcribe")
    records = [record for record in store.videos() if record.state != "failed"]
    with write_atomically(path) as lines:
        for begin in range(0, len(records), _VIDEOS_AT_A_TIME):
            ids = [record.video_id for record in records[begin : begin + _VIDEOS_AT_A_TIME]]
            words = store.clips_of(stream, ids, vectors=False)
            for place, video in enumerate(ids):
                sentences = [msgspec.to_builtins(sentence) for sentence in sentences_in(words, place)]
                line = json.dumps({"video_id": video, "sentences": sentences}, ensure_ascii=False)
                lines.write(f"{line}\n".encode())
    return len(records)


def queries_of(sources: Iterable[Sequence[Query]]) -> list[Query]:
    """The queries of several splits as one list, without repetitions of the same id and words."""
    return list({(query.id, query.text): query for source in sources for query in source}.values())
