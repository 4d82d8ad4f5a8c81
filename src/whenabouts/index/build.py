"""The way of a video: path -> frames, cues -> clips -> encoder -> vectors -> index.

Readers run in processes of their own and hand over pictures and words; this process encodes and writes.
A video is written whole or not at all: its clips first, then its row in the ledger, so that a run that
is killed anywhere between is finished by the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.encoders import encode_passages
from whenabouts.encoders.protocol import ImageEncoder, TextEncoder
from whenabouts.index.interrupts import uninterrupted
from whenabouts.index.naming import failed_id_for, spoken_name, video_id_for
from whenabouts.index.passages import passage_vectors, passages_of
from whenabouts.index.plan import NO_SOUND, Plan, Work
from whenabouts.index.progress import Meter, Progress, Summary, named
from whenabouts.index.reading import FileRead, Pictures, Reached, ReadTask, read_file
from whenabouts.index.records import ClipColumns, StoreError, VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.transcripts import Speech
from whenabouts.index.workers import Failed, Message, Part, ReaderPool, available_cores
from whenabouts.video.cues import Cue, CueTrack
from whenabouts.video.files import printable

_log = logging.getLogger(__name__)

WORDS, VISION = "subtitle", "vision"
# A write costs some 20 ms whatever its size, so small videos wait for each other, but not for long.
# Of a file that ends before its last picture, by what it says itself, that picture lasts so long.
_SHORTEST_CLIP = 0.01
_WRITE_VIDEOS = 64
_WRITE_ROWS = 20_000
_WRITE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Encoders:
    """What turns words and pictures into vectors; None where it cannot be had."""

    text: TextEncoder | None
    vision: ImageEncoder | None


def build(
    store: Store,
    plan: Plan,
    encoders: Encoders,
    speech: Speech,
    *,
    processes: int,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Carry out a plan on a store that this process may write to.

    Ctrl-C ends it: what is finished is written, and the summary says that it was interrupted. Raises
    StoreError (DiskFull, …) where nothing more can be written; what was written before is kept.
    """
    started = time.monotonic()
    summary = Summary(
        renamed=len(plan.renamed),
        described=plan.described,
        unchanged=plan.unchanged,
        left_out=list(plan.problems),
    )
    desk = _Desk(store, plan, encoders, speech, summary)
    meter = Meter(plan, progress)
    try:
        with uninterrupted():
            store.put_records(plan.records)
            store.remove_videos(plan.obsolete)
        with ReaderPool(read_file, processes) as pool:
            for message in pool.run(_tasks(plan, processes)):
                desk.take(message)
                meter.take(message)
    except KeyboardInterrupt:
        summary.interrupted = True
    try:
        with uninterrupted():
            desk.write()
    except KeyboardInterrupt:
        summary.interrupted = True
    summary.seconds = time.monotonic() - started
    return summary


def _tasks(plan: Plan, processes: int) -> list[ReadTask]:
    """What the readers are given; they share the cores among them."""
    threads = max(1, available_cores() // max(1, min(processes, len(plan.work))))
    return [replace(work.task, threads=threads) for work in plan.work]


@dataclass(slots=True)
class _Sheet:
    """What has come in of one video so far."""

    clips: list[int] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)
    read: FileRead | None = None


class _Desk:
    """Takes the readers' messages, encodes them, and writes finished videos in batches."""

    def __init__(
        self, store: Store, plan: Plan, encoders: Encoders, speech: Speech, summary: Summary
    ) -> None:
        self._store, self._plan, self._encoders, self._speech = store, plan, encoders, speech
        self._summary = summary
        self._sheets: dict[int, _Sheet] = {}
        self._given_up: set[int] = set()
        self._taken = set(plan.taken)
        self._waiting: list[tuple[VideoRecord, dict[str, ClipColumns]]] = []
        self._failures: list[VideoRecord] = []
        self._obsolete: list[str] = []
        self._rows = 0
        self._written = time.monotonic()

    def take(self, message: Message) -> None:
        """Work off one message."""
        if message.number not in self._given_up:
            try:
                self._handle(message)
            except StoreError:
                raise
            except Exception as error:
                # Whatever one file's words or pictures do to an encoder, the other files come to no harm.
                work = self._plan.work[message.number]
                _log.exception("%s", printable(work.task.path))
                self._fail(message.number, " ".join(f"{type(error).__name__}: {error}".split()))
        late = time.monotonic() - self._written > _WRITE_SECONDS
        many = len(self._waiting) + len(self._failures) >= _WRITE_VIDEOS or self._rows >= _WRITE_ROWS
        if late or many:
            self.write()

    def _handle(self, message: Message) -> None:
        if isinstance(message, Failed):
            self._fail(message.number, message.error)
        elif isinstance(message, Part):
            self._take_part(message)
        else:
            self._finish(self._plan.work[message.number], self._sheets.pop(message.number))

    def _take_part(self, part: Part) -> None:
        sheet = self._sheets.setdefault(part.number, _Sheet())
        if isinstance(part.content, Pictures):
            assert self._encoders.vision is not None
            sheet.clips.extend(part.content.clips)
            sheet.vectors.append(self._encoders.vision.encode_images(part.content.images))
        elif isinstance(part.content, FileRead):
            sheet.read = part.content
        else:
            assert isinstance(part.content, Reached)

    def _fail(self, number: int, error: str) -> None:
        work = self._plan.work[number]
        self._given_up.add(number)
        self._sheets.pop(number, None)
        _log.warning("%s", named(work.task.path, error))
        self._summary.failed.append((work.task.path, error))
        found, known = work.found, work.known
        # What an earlier run found stays searchable; only the state says that the file is now broken.
        row = known or VideoRecord(failed_id_for(work.task.path), str(work.task.path), kind=found.kind)
        self._failures.append(
            replace(row, size=found.size, modified_ns=found.modified_ns, state="failed", error=error)
        )

    def _finish(self, work: Work, sheet: _Sheet) -> None:
        read = sheet.read
        assert read is not None
        known = None if work.known is None or _was_never_read(work.known) else work.known
        video_id = known.video_id if known else video_id_for(work.task.path, read.content_hash, self._taken)
        self._taken.add(video_id)
        record = _record(work, read, video_id, known)
        columns: dict[str, ClipColumns] = {}
        if read.tracks is not None:
            record, columns[WORDS] = self._words(work, read, record)
        if work.task.pictures is not None:
            columns[VISION] = _picture_columns(sheet, work.task.pictures.clip_seconds, read.end)
            record = replace(record, streams={**record.streams, VISION: self._plan.wanted.vision})
        # In this order: Ctrl-C between the two may leave a row too many, but never one too few.
        self._waiting.append((record, columns))
        self._obsolete += [work.known.video_id] if work.known and not known else []
        self._obsolete += work.supersedes
        self._rows += sum(len(column) for column in columns.values())
        self._count(work, record, columns, is_new=known is None)

    def _words(self, work: Work, read: FileRead, record: VideoRecord) -> tuple[VideoRecord, ClipColumns]:
        """The words' passages with their vectors; an empty set where nothing is said or known."""
        track = self._track(work, read)
        cues: Sequence[Cue] = track.cues if track else ()
        if read.probe is not None and record.duration:
            cues = self._inside(work, cues, record.duration)
        passages = passages_of(cues, record.duration)
        texts = [passage.text for passage in passages]
        encoder = self._encoders.text
        columns = ClipColumns(
            start=np.array([passage.start for passage in passages], np.float64),
            end=np.array([passage.end for passage in passages], np.float64),
            text=texts,
            context=[passage.context for passage in passages],
            vectors=passage_vectors(passages, partial(encode_passages, encoder))
            if encoder and texts
            else None,
        )
        streams = {**record.streams, WORDS: self._plan.wanted.words}
        return replace(record, words=track.source if track else "", streams=streams), columns

    def _inside(self, work: Work, cues: Sequence[Cue], duration: float) -> list[Cue]:
        """The cues of a recording cut off where it ends: nobody can be sent to a place behind it."""
        inside = [replace(cue, end=min(cue.end, duration)) for cue in cues if cue.start < duration]
        if len(inside) < len(cues):
            behind = len(cues) - len(inside)
            note = f"{behind} of {len(cues)} cues start behind the end of the recording ({duration:.1f} s)"
            self._summary.notes.append(named(work.task.path, note))
        return inside

    def _track(self, work: Work, read: FileRead) -> CueTrack | None:
        """Whose words count: subtitles, or else speech; without cues where nobody speaks."""
        tracks = read.tracks or ()
        notes = [note for track in tracks for note in track.notes]
        chosen = next((track for track in tracks if track.cues), None)
        if chosen is None and read.probe is not None:
            if read.probe.has_audio:
                chosen = self._speech.track_of(work.task.path, read.content_hash)
                notes += chosen.notes if chosen else ()
            elif self._speech.model:
                chosen = CueTrack((), NO_SOUND)
        if notes:
            self._summary.notes.append(named(work.task.path, "; ".join(notes)))
        return chosen

    def _count(
        self, work: Work, record: VideoRecord, columns: Mapping[str, ClipColumns], *, is_new: bool
    ) -> None:
        summary = self._summary
        summary.added += is_new
        summary.updated += not is_new
        summary.hours += (record.duration or 0.0) / 3600
        rows = sum(len(column) for column in columns.values())
        summary.clips += rows
        if record.damage:
            summary.damaged.append((work.task.path, record.damage))
        if not rows and is_new:
            summary.silent.append(work.task.path)

    def write(self) -> None:
        """Write what is finished: clips first, then the ledger."""
        with uninterrupted():
            self._store.put_videos(self._waiting)
            self._store.put_records(self._failures)
            self._store.remove_videos(self._obsolete)
            self._waiting, self._failures, self._obsolete, self._rows = [], [], [], 0
        self._written = time.monotonic()


def _was_never_read(known: VideoRecord) -> bool:
    """Whether a ledger row only says that a file failed: its id is not yet that of a video.

    A row that a crash left while its clips were being written has no content hash either, but is done.
    """
    return known.state == "failed" and not known.content_hash


def _record(work: Work, read: FileRead, video_id: str, known: VideoRecord | None) -> VideoRecord:
    """The ledger's row, without words. Where only a part was read again, the rest stays as it is known."""
    said = dict(known.metadata) if known else {}
    tags = dict(read.probe.metadata) if read.probe else {}
    # What a person said of a video outlives a second look at it; a changed file speaks for itself.
    metadata = {**said, **tags, **work.metadata} if work.is_whole else {**tags, **said, **work.metadata}
    kept = None if work.is_whole else known
    return VideoRecord(
        video_id=video_id,
        path=str(work.task.path),
        size=work.found.size,
        modified_ns=work.found.modified_ns,
        content_hash=read.content_hash,
        kind=work.found.kind,
        duration=kept.duration if kept and not read.looked else read.end or None,
        streams=dict(kept.streams) if kept else {},
        words=kept.words if kept else "",
        words_signature=work.words_signature,
        title=str(metadata.get("title") or spoken_name(work.task.path)),
        metadata=metadata,
        has_picture=bool(read.probe and read.probe.picture),
        shots=kept.shots if kept and read.shots is None else read.shots,
        damage=kept.damage if kept and not read.looked else read.damage or "",
        indexed_at=time.time(),
    )


def _picture_columns(sheet: _Sheet, clip_seconds: float, end: float) -> ClipColumns:
    """One row a clip; where no new frame is shown, the picture is still the one before."""
    if not sheet.clips:
        return ClipColumns(np.zeros(0), np.zeros(0), [], None)
    vectors = np.concatenate(sheet.vectors)
    grid = ClipGrid(clip_seconds, max(end, sheet.clips[-1] * clip_seconds + _SHORTEST_CLIP))
    indices = np.arange(sheet.clips[0], len(grid))
    shown = np.searchsorted(np.asarray(sheet.clips), indices, side="right") - 1
    bounds = np.array([grid.bounds(int(index)) for index in (indices[0], indices[-1])])
    starts = bounds[0, 0] + clip_seconds * np.arange(len(indices))
    ends = np.minimum(starts + clip_seconds, bounds[-1, 1])
    return ClipColumns(starts, ends, [""] * len(indices), vectors[shown])
