"""Stores recognised speech, and the subtitle tracks of videos with several, with the corpus.

The table `transcripts` has one row per content of a file and model (or track). So a rename, another sentence
encoder or a failed run needs no second recognition, which takes hours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from whenabouts.index.lance import connect, open_table, speaking
from whenabouts.index.lock import uninterrupted
from whenabouts.index.lookup import among, literal
from whenabouts.index.records import natural_key
from whenabouts.index.upkeep import tidy
from whenabouts.video.cue import Cue, Word
from whenabouts.video.cues import CueTrack
from whenabouts.video.speech import PartialTranscript

_TABLE = "transcripts"
_MOST_FRAGMENTS = 64
# Prefixes in the column `model`: of a track's source, and of a model that has only begun a file.
_TRACK, _PART = "track:", "part:"
_IS_TRACK = f"model LIKE '{_TRACK}%'"
# Separates a model's name from the sound track that it heard.
_SOUND = "#sound:"


def heard_by(model: str, sound_track: str) -> str:
    """The key of a transcript: its model, and the sound track if one was chosen."""
    return f"{model}{_SOUND}{sound_track}" if sound_track else model


class Transcripts:
    """The transcripts of one corpus. Writing needs the corpus's writer lock."""

    def __init__(self, place: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._place = place
        self._options = storage_options
        self._opened: Any = None

    def find(self, content_hash: str, model: str = "", sound_track: str = "") -> CueTrack | None:
        """The transcript that `model` ("": the latest) made of this content's `sound_track`, or None."""
        rows = [row for row in self._rows_of(content_hash) if not row["model"].startswith((_TRACK, _PART))]
        rows = [row for row in rows if row["model"].partition(_SOUND)[2] == sound_track]
        rows = [row for row in rows if not model or row["model"] == heard_by(model, sound_track)]
        return _track_of(max(rows, key=lambda row: row["made_at"])) if rows else None

    def tracks(self, content_hash: str) -> list[CueTrack]:
        """The subtitle tracks of a video that has several, in the order of their files and streams."""
        rows = [row for row in self._rows_of(content_hash) if row["model"].startswith(_TRACK)]
        return [_track_of(row) for row in sorted(rows, key=_place)]

    def languages_of_tracks(self) -> dict[str, dict[str, str]]:
        """For each content with several subtitle tracks, their languages by source ("": unnamed)."""
        kept = self._rows(_IS_TRACK, ["content_hash", "source", "language"])
        tracks: dict[str, dict[str, str]] = {}
        for row in sorted(kept, key=_place):
            tracks.setdefault(row["content_hash"], {})[row["source"]] = row["language"] or ""
        return tracks

    def _rows_of(self, content_hash: str) -> list[dict[str, Any]]:
        return self._rows(f"content_hash = {literal(content_hash)}")

    def _rows(self, condition: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """The rows that fulfil an SQL condition, or columns of them; none if there is no table yet."""
        if (table := self._table()) is None:
            return []
        with speaking(self._place, "read transcripts"):
            query = table.search().where(condition).limit(None)
            rows: list[dict[str, Any]] = (query.select(columns) if columns else query).to_arrow().to_pylist()
        return rows

    def keep(self, content_hash: str, model: str, track: CueTrack) -> None:
        """Store a transcript in place of an earlier or partial one of the same model."""
        self._write([_row(content_hash, model, track)])
        with speaking(self._place, "write transcripts"), uninterrupted():
            self._table().delete(f"id = {literal(f'{content_hash}:{_PART}{model}')}")

    def keep_part(self, content_hash: str, model: str, part: PartialTranscript) -> None:
        """Store what a model has recognised so far, until the whole is stored."""
        state = json.dumps([part.seconds, part.dropped, part.guess])
        track = CueTrack(part.cues, f"speech:{model}", part.language, (state,))
        self._write([_row(content_hash, _PART + model, track)])

    def part(self, content_hash: str, model: str) -> PartialTranscript | None:
        """The partial transcript of an interrupted recognition, or None."""
        rows = [row for row in self._rows_of(content_hash) if row["model"] == _PART + model]
        if not rows:
            return None
        track = _track_of(rows[0])
        seconds, dropped, guess = json.loads(track.notes[0])
        return PartialTranscript(seconds, tuple(track.cues), dropped, track.language, guess)

    def keep_tracks(self, content_hash: str, tracks: Sequence[CueTrack]) -> None:
        """Store the subtitle tracks of a video in place of its earlier ones."""
        condition = f"content_hash = {literal(content_hash)} AND {_IS_TRACK}"
        if self._rows(condition, ["id"]):
            with speaking(self._place, "write transcripts"), uninterrupted():
                self._table().delete(condition)
        if tracks:
            self._write([_row(content_hash, _TRACK + track.source, track) for track in tracks])

    def _write(self, values: list[dict[str, Any]]) -> None:
        import pyarrow as pa

        with speaking(self._place, "write transcripts"), uninterrupted():
            if self._table() is None:
                self._opened = self._db.create_table(_TABLE, schema=_schema(), exist_ok=True)
            rows = pa.Table.from_pylist(values, schema=_schema())
            merge = self._opened.merge_insert("id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def forget(self, content_hashes: Iterable[str]) -> None:
        """Erase the transcripts of these contents from disk."""
        import pyarrow as pa

        hashes = [name for name in content_hashes if name]
        if hashes and (table := self._table()) is not None:
            with speaking(self._place, "remove transcripts"), uninterrupted():
                if table.count_rows(gone := among("content_hash", hashes)):
                    # A deletion alone leaves words in a file while most of it stays.
                    kept = table.search().where(f"NOT ({gone})").limit(None).to_batches()
                    table.add(pa.RecordBatchReader.from_batches(table.schema, kept), mode="overwrite")
                tidy(table, self._place)

    def tidy(self) -> None:
        """Merge the table's fragments, once there are many."""
        if (table := self._table()) is None:
            return
        with speaking(self._place, "optimize transcripts"):
            if table.stats()["fragment_stats"]["num_fragments"] >= _MOST_FRAGMENTS:
                tidy(table, self._place)

    @cached_property
    def _db(self) -> Any:
        return connect(self._place, self._options)

    def _table(self) -> Any:
        """The table in its newest version, because other processes write too; None if there is none yet."""
        with speaking(self._place, "read transcripts"):
            if self._opened is None:
                self._opened = open_table(self._db, _TABLE)
            else:
                self._opened.checkout_latest()
        return self._opened


class Recognise(Protocol):
    """A speech recogniser: `video.speech.transcribe`."""

    def __call__(
        self,
        path: Path,
        model: str,
        *,
        marked_as: str | None = None,
        progress: Callable[[float], None] | None = None,
        earlier: PartialTranscript | None = None,
        keep: Callable[[PartialTranscript], None] | None = None,
        sound_track: str = "",
    ) -> CueTrack:
        """The words of a file; `marked_as` is the language that the file states for its sound.

        `progress` gets the seconds done. Continues from `earlier`, and passes partial transcripts to `keep`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Speech:
    """The stored transcripts, and the recogniser for other files; `model` is "" if there is none."""

    kept: Transcripts
    model: str
    recognise: Recognise


def _schema() -> Any:
    import pyarrow as pa

    text = [(name, pa.string()) for name in ("id", "content_hash", "model", "language", "source", "track")]
    return pa.schema([*text, ("made_at", pa.float64())])


def _place(row: Mapping[str, Any]) -> str:
    """The key by which rows of tracks are in order: "embedded:2" comes before "embedded:10"."""
    return natural_key(str(row["source"]))


def _row(content_hash: str, model: str, track: CueTrack) -> dict[str, Any]:
    cues = [
        [cue.start, cue.end, cue.text, [[word.start, word.end, word.text] for word in cue.words]]
        for cue in track.cues
    ]
    return {
        "id": f"{content_hash}:{model}",
        "content_hash": content_hash,
        "model": model,
        "language": track.language,
        "source": track.source,
        "track": json.dumps(
            {"cues": cues, "notes": list(track.notes), "confidence": [cue.confidence for cue in track.cues]},
            ensure_ascii=False,
        ),
        "made_at": time.time(),
    }


def _track_of(row: Mapping[str, Any]) -> CueTrack:
    track = json.loads(row["track"])
    # Older versions stored no confidence.
    confidence = track.get("confidence") or [None] * len(track["cues"])
    cues = tuple(
        Cue(start, end, text, tuple(Word(*word) for word in words), sure)
        for (start, end, text, words), sure in zip(track["cues"], confidence, strict=True)
    )
    return CueTrack(cues, row["source"], row["language"], tuple(track["notes"]))
