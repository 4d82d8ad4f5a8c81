"""Speech that was recognised once, kept with the corpus: it takes hours to make and is never made twice.

A table `transcripts` beside the others, one row for the content of a file and a model, so that a rename,
another sentence encoder or a run that failed later costs no second recognition.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from whenabouts.product.index.lance import connect, is_remote, open_table, speaking
from whenabouts.product.index.lock import uninterrupted
from whenabouts.product.index.lookup import among, literal
from whenabouts.video.cues import Cue, CueTrack, Word

_TABLE = "transcripts"
_MOST_FRAGMENTS = 64


class Transcripts:
    """The transcripts of one corpus. Whoever keeps or forgets one holds the corpus's writer lock."""

    def __init__(self, place: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._place = place
        self._options = storage_options
        self._db: Any = None
        self._opened: Any = None

    def find(self, content_hash: str, model: str = "") -> CueTrack | None:
        """The transcript that `model` made of this content (where none is named: the last one made)."""
        if self._table() is None:
            return None
        condition = f"content_hash = {literal(content_hash)}"
        if model:
            condition += f" AND model = {literal(model)}"
        with speaking(self._place, "read transcripts"):
            rows = self._table().search().where(condition).limit(None).to_arrow().to_pylist()
        return _track_of(max(rows, key=lambda row: row["made_at"])) if rows else None

    def keep(self, content_hash: str, model: str, track: CueTrack) -> None:
        """Keep a transcript; it replaces the one of the same model."""
        import pyarrow as pa

        with speaking(self._place, "write transcripts"), uninterrupted():
            if self._table() is None:
                self._opened = self._database().create_table(_TABLE, schema=_schema(), exist_ok=True)
            rows = pa.Table.from_pylist([_row(content_hash, model, track)], schema=_schema())
            merge = self._opened.merge_insert("id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def forget(self, content_hashes: Iterable[str]) -> None:
        """Drop the transcripts of these contents."""
        hashes = [name for name in content_hashes if name]
        if hashes and self._table() is not None:
            with speaking(self._place, "remove transcripts"), uninterrupted():
                self._table().delete(among("content_hash", hashes))
                # What was removed must not stay readable in old versions of the table.
                self._tidy()

    def tidy(self) -> None:
        """Merge what single writes left, once there is much of it."""
        if self._table() is None:
            return
        with speaking(self._place, "optimize transcripts"):
            if self._table().stats()["fragment_stats"]["num_fragments"] >= _MOST_FRAGMENTS:
                self._tidy()

    def _tidy(self) -> None:
        from whenabouts.product.index.upkeep import tidy

        tidy(self._table(), alone=not is_remote(self._place))

    def _database(self) -> Any:
        if self._db is None:
            self._db = connect(self._place, self._options)
        return self._db

    def _table(self) -> Any:
        if self._opened is None:
            with speaking(self._place, "read transcripts"):
                self._opened = open_table(self._database(), _TABLE)
        return self._opened


class Speech:
    """The words that are spoken in a file: those that were kept, or else recognised now.

    `model` is "" where none is to be recognised; `recognise` is `video.speech.transcribe`.
    """

    def __init__(
        self, kept: Transcripts, model: str = "", recognise: Callable[[Path, str], CueTrack] | None = None
    ) -> None:
        self.kept = kept
        self.model = model
        self._recognise = recognise

    def track_of(self, path: Path, content_hash: str) -> CueTrack | None:
        """The words of a file with sound; None where nobody ever listened to it."""
        kept = self.kept.find(content_hash, self.model)
        if kept is not None or not self.model or self._recognise is None:
            return kept
        track = self._recognise(path, self.model)
        self.kept.keep(content_hash, self.model, track)
        return track


def _schema() -> Any:
    import pyarrow as pa

    text = [(name, pa.string()) for name in ("id", "content_hash", "model", "language", "source", "track")]
    return pa.schema([*text, ("made_at", pa.float64())])


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
        "track": json.dumps({"cues": cues, "notes": list(track.notes)}, ensure_ascii=False),
        "made_at": time.time(),
    }


def _track_of(row: Mapping[str, Any]) -> CueTrack:
    track = json.loads(row["track"])
    cues = tuple(
        Cue(start, end, text, tuple(Word(*word) for word in words))
        for start, end, text, words in track["cues"]
    )
    return CueTrack(cues, row["source"], row["language"], tuple(track["notes"]))
