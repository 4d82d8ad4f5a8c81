"""Carries out a plan to index videos: path -> frames, sound, cues -> clips of each stream -> tables.

An executor reads and encodes, in processes of this machine or on a cluster; only this process writes. A video
is written whole: its clips first, then its ledger row. If a run is killed, the next one continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whenabouts.index.executor import Clips, Executor, LocalExecutor, Recognised, SpeechTask, failure
from whenabouts.index.lock import uninterrupted
from whenabouts.index.plan import GIVEN_LANGUAGE, NO_SOUND, Plan
from whenabouts.index.progress import Meter, Progress, Summary, named
from whenabouts.index.reading import FileRead, ReadVideo
from whenabouts.index.records import (
    SHOTS_BY,
    SOUND_TRACK,
    SOUND_TRACKS,
    ClipColumns,
    StoreError,
    VideoRecord,
    failed_id_for,
    spoken_name,
    video_id_for,
)
from whenabouts.index.store import Store, unlike_its_file
from whenabouts.index.transcripts import Speech, heard_by
from whenabouts.index.work import Work
from whenabouts.index.workers import Failed, Message, Part
from whenabouts.intake.lacks import MachineLack, check_room, lack_of
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack
from whenabouts.video.language import language_of_track
from whenabouts.video.probe import Probe, chosen_sound
from whenabouts.video.shots import BUILT_IN
from whenabouts.video.speech import PartialTranscript

_log = logging.getLogger(__name__)

# A write costs some 20 ms whatever its size, so small videos are written in batches.
_WRITE_VIDEOS = 64
_WRITE_ROWS = 20_000
_WRITE_SECONDS = 5.0
# LanceDB ends the process if it gets no memory for a write.
_WRITE_ROOM_BYTES = 256 << 20


def build(
    store: Store,
    plan: Plan,
    speech: Speech,
    summary: Summary,
    *,
    processes: int = 1,
    executor: Executor | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Carry out a plan on a store that this process may write to; `summary` tells what was done.

    `executor` reads and encodes the files; the default uses `processes` reader processes on this machine.

    Ctrl-C ends the run: finished videos are written, and the summary says that it was interrupted. Raises
    StoreError (DiskFull, …) if a write fails, and MachineLack; earlier writes are kept.
    """
    meter = Meter(plan, progress)
    executor = executor or LocalExecutor(plan.streams, processes, speech.recognise)
    writer = _Writer(store, plan, speech, summary, meter, executor)
    try:
        with summary.interruptible():
            with uninterrupted():
                store.put_records(plan.records)
                store.remove_videos(plan.obsolete)
            executor.run(plan.work, writer.take)
    except Exception as error:
        lack = lack_of(error)
        if lack is None or isinstance(error, StoreError):
            raise
        with uninterrupted():
            writer.write()
        raise MachineLack(f"{lack}; what was finished is kept: run the same command again") from error
    with summary.interruptible(), uninterrupted():
        writer.write()


@dataclass(slots=True)
class _ReadFile:
    """A file that was read and waits for its clips, with `notes` for users. `is_unheard`: no speech model."""

    read: FileRead
    record: VideoRecord
    earlier: VideoRecord | None
    notes: list[str] = field(default_factory=list)
    is_unheard: bool = False


class _Writer:
    """Takes the messages about each file, asks for its clips, and writes finished videos in batches."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        speech: Speech,
        summary: Summary,
        meter: Meter,
        executor: Executor,
    ) -> None:
        self._store, self._plan, self._speech, self._summary = store, plan, speech, summary
        self._meter, self._executor = meter, executor
        self._read: dict[int, _ReadFile] = {}
        self._given_up: set[int] = set()
        self._taken = set(plan.taken)
        self._waiting: list[tuple[VideoRecord, dict[str, ClipColumns]]] = []
        self._failures: list[VideoRecord] = []
        self._obsolete: list[str] = []
        self._rows = 0
        self._written = time.monotonic()

    def take(self, message: Message) -> None:
        if message.number not in self._given_up:
            work = self._plan.work[message.number]
            try:
                self._handle(work, message)
            except (StoreError, MachineLack):
                raise
            except Exception as error:
                # A fault in one file's data must not stop the others.
                self._fail(work, failure(work, error))
        is_late = time.monotonic() - self._written > _WRITE_SECONDS
        is_full = len(self._waiting) + len(self._failures) >= _WRITE_VIDEOS or self._rows >= _WRITE_ROWS
        if is_late or is_full:
            self.write()
        self._meter.take(message)

    def _handle(self, work: Work, message: Message) -> None:
        match message:
            case Failed():
                self._fail(work, message)
            case Part(content=FileRead() as read):
                self._begin(work, read)
            case Part(content=Recognised(seconds)):
                self._meter.recognise(message.number, self._read[message.number].read.end, seconds)
            case Part(content=PartialTranscript() as part):
                read = self._read[message.number].read
                self._speech.kept.keep_part(read.content_hash, self._heard_by(work, read), part)
            case Part(content=CueTrack() as track):
                # Stored at once, so that after an interruption speech need not be recognised again.
                read = self._read[message.number].read
                self._speech.kept.keep(read.content_hash, self._heard_by(work, read), track)
                self._take_words(work, track)
            case Part(content=Clips(columns)):
                self._finish(work, self._read.pop(message.number), columns)

    def _fail(self, work: Work, message: Failed) -> None:
        error = message.error
        self._given_up.add(work.task.number)
        self._read.pop(work.task.number, None)
        _log.warning("%s", named(work.task.path, error))
        self._summary.failed.append((work.task.path, error))
        if message.lack:
            self._summary.lack = error
            return
        if message.again:
            self._summary.again.append(work.task.path)
        file = work.file
        # Clips of an earlier run stay searchable; only the state says that the file is now broken.
        row = work.record or VideoRecord(failed_id_for(file.path), str(file.path), kind=file.kind)
        failed = replace(row, size=file.size, modified_ns=file.modified_ns, state="failed", error=error)
        self._failures.append(unlike_its_file(failed) if message.again else failed)

    def _begin(self, work: Work, read: FileRead) -> None:
        """Start the row of a file that was read, and find its words."""
        again = self._read.pop(work.task.number, None)
        if again is not None and again.earlier is None:  # the worker that had it is gone
            self._taken.discard(again.record.video_id)
        # A row that only records a failure has no id of a video; one that a crash left is not "failed".
        was_read = work.record and (work.record.state != "failed" or work.record.content_hash)
        earlier = work.record if was_read else None
        video_id = earlier.video_id if earlier else work.video_id
        if not earlier and (not video_id or video_id in self._taken):
            video_id = video_id_for(work.task.path, read.content_hash, self._taken)
        self._taken.add(video_id)
        record = _record(work, read, video_id, earlier)
        self._read[work.task.number] = _ReadFile(read, record, earlier)
        if read.tracks is None:
            self._ask_for_clips(work, ())
            return
        self._keep_tracks(work, read)
        track = next((track for track in read.tracks if track.cues), None)
        if track is None and read.probe is not None:
            if read.probe.has_audio:
                self._hear(work, read, _chosen_sound(work, read.probe)[1] or None)
                return
            track = CueTrack((), NO_SOUND) if self._speech.model else None
        self._take_words(work, track)

    def _keep_tracks(self, work: Work, read: FileRead) -> None:
        """Store the subtitle tracks if there are several, in place of those of an earlier run."""
        readable = [track for track in read.tracks or () if track.cues]
        if len(readable) > 1 or (work.record is not None and work.record.words):
            self._speech.kept.keep_tracks(read.content_hash, readable if len(readable) > 1 else ())

    def _hear(self, work: Work, read: FileRead, marked_as: str | None) -> None:
        """Use the stored transcript of a recording without subtitles, else ask for speech recognition."""
        kept, model = self._speech.kept, self._speech.model
        chosen = _chosen_track(work, read)
        track = kept.find(read.content_hash, model, chosen)
        if track is None and model:
            earlier = kept.part(read.content_hash, self._heard_by(work, read))
            task = SpeechTask(model, marked_as, earlier, chosen)
            self._executor.speech(work, task)
            return
        self._read[work.task.number].is_unheard = track is None
        self._take_words(work, track)

    def _heard_by(self, work: Work, read: FileRead) -> str:
        return heard_by(self._speech.model, _chosen_track(work, read))

    def _take_words(self, work: Work, track: CueTrack | None) -> None:
        """Store a video's words (None: no usable words), then ask for its clips."""
        file = self._read[work.task.number]
        tracks = list(file.read.tracks or ())
        if track is not None and not any(track is each for each in tracks):  # speech
            tracks.append(track)
        if notes := [note for each in tracks for note in each.notes]:
            file.notes.append(named(work.task.path, "; ".join(notes)))
        cues: Sequence[Cue] = track.cues if track else ()
        if file.read.probe is not None and file.record.duration:
            cues = self._inside(work, file, cues, file.record.duration)
        metadata = _with_language(file.record, track)
        file.record = replace(file.record, words=track.source if track else "", metadata=metadata)
        self._ask_for_clips(work, cues)

    def _ask_for_clips(self, work: Work, cues: Sequence[Cue]) -> None:
        file = self._read[work.task.number]
        runs = [run for run in self._plan.streams if run.name in work.streams]
        sources = {name for run in runs for name in run.stream.reads_clips_of} - set(work.streams)
        stored = {name: self._stored_clips(name, file.record) for name in sources}
        self._executor.clips(work, ReadVideo(file.record, file.read.end, cues, stored))

    def _finish(self, work: Work, read: _ReadFile, columns: dict[str, ClipColumns]) -> None:
        made_with = {run.name: run.fingerprint for run in self._plan.streams if run.name in columns}
        record = replace(
            read.record,
            streams={**read.record.streams, **made_with},
            stream_times={**read.record.stream_times, **dict.fromkeys(made_with, read.record.indexed_at)},
        )
        self._store.check_rows(record, columns)
        # In this order, Ctrl-C between the two statements may leave an extra row, but never lose one.
        self._waiting.append((record, columns))
        self._obsolete += [work.record.video_id] if work.record and not read.earlier else []
        self._obsolete += work.supersedes
        rows, is_new, summary = sum(map(len, columns.values())), read.earlier is None, self._summary
        self._rows += rows
        summary.added += is_new
        summary.updated += not is_new
        summary.hours += (record.duration or 0.0) / 3600
        summary.clips += rows
        summary.damaged += [(work.task.path, record.damage)] if record.damage else []
        if not rows and (is_new or record.streams.keys() <= columns.keys()):
            summary.silent.append(work.task.path)
        summary.notes += read.notes
        summary.not_recognised += [work.task.path] if read.is_unheard else []
        if read.is_unheard and read.earlier and read.earlier.words.startswith("speech:"):
            note = "the words that were recognised before are lost; --transcribe recognises what is said now"
            summary.notes.append(named(work.task.path, note))

    def _stored_clips(self, stream: str, record: VideoRecord) -> ClipColumns:
        """The clips of a stream as an earlier run wrote them; empty if there are none."""
        if stream not in record.streams:
            return ClipColumns([], [], [])  # type: ignore[arg-type]
        block = self._store.clips_of(stream, [record.video_id])
        vectors = block.vectors if block.vectors.shape[1] else None
        return ClipColumns(block.start, block.end, block.text, vectors)

    def _inside(self, work: Work, file: _ReadFile, cues: Sequence[Cue], duration: float) -> list[Cue]:
        """The cues clipped to the length of the recording; later ones are dropped with a note."""
        inside = [replace(cue, end=min(cue.end, duration)) for cue in cues if cue.start < duration]
        if len(inside) < len(cues):
            behind = len(cues) - len(inside)
            note = f"{behind} of {len(cues)} cues start behind the end of the recording ({duration:.1f} s)"
            file.notes.append(named(work.task.path, note))
        return inside

    def write(self) -> None:
        """Write finished videos: clips first, then the ledger."""
        check_room(_WRITE_ROOM_BYTES)
        with uninterrupted():
            self._store.put_videos(self._waiting)
            self._store.put_records(self._failures)
            self._store.remove_videos(self._obsolete)
            self._waiting, self._failures, self._obsolete, self._rows = [], [], [], 0
        self._written = time.monotonic()


def _with_language(record: VideoRecord, track: CueTrack | None) -> dict[str, Any]:
    """The metadata with the language of the words, if there are any; one that the user gave stays."""
    if GIVEN_LANGUAGE in record.metadata:
        return dict(record.metadata)
    others = {key: value for key, value in record.metadata.items() if key != "language"}
    language = language_of_track(track) if track is not None and track.cues else ""
    return {**others, "language": language} if language else others


def _chosen_sound(work: Work, probe: Probe) -> tuple[int, str]:
    """The number (from 1) and the language of the sound track to recognise."""
    if not probe.sound_tracks:
        return 1, probe.sound_language or ""
    place = chosen_sound(probe.sound_tracks, work.task.sound_track)
    return place + 1, probe.sound_tracks[place]


def _chosen_track(work: Work, read: FileRead) -> str:
    """The requested sound track, "" if the file has only one."""
    return work.task.sound_track if read.probe and len(read.probe.sound_tracks) > 1 else ""


def _record(work: Work, read: FileRead, video_id: str, earlier: VideoRecord | None) -> VideoRecord:
    """The ledger row from reading the file; fields that were not read again come from `earlier`."""
    before = dict(earlier.metadata) if earlier else {}
    tags: dict[str, Any] = dict(read.probe.metadata) if read.probe else {}
    # Earlier metadata override the tags of an unchanged file; the tags of a changed file override them.
    metadata = {**before, **tags, **work.metadata} if work.is_whole else {**tags, **before, **work.metadata}
    if read.probe:
        metadata = {key: metadata[key] for key in metadata if key not in (SOUND_TRACKS, SOUND_TRACK)}
        if len(tracks := read.probe.sound_tracks) > 1:
            metadata |= {SOUND_TRACKS: list(tracks), SOUND_TRACK: _chosen_sound(work, read.probe)[0]}
    if read.shots is not None:
        metadata.pop(SHOTS_BY, None)
        metadata |= {SHOTS_BY: work.task.shots} if work.task.shots != BUILT_IN else {}
    kept = None if work.is_whole else earlier
    return VideoRecord(
        video_id=video_id,
        path=str(work.task.path),
        size=work.file.size,
        modified_ns=work.file.modified_ns,
        content_hash=read.content_hash,
        kind=work.file.kind,
        duration=kept.duration if kept and not read.decoded else read.end or None,
        streams=dict(kept.streams) if kept else {},
        stream_times=dict(kept.stream_times) if kept else {},
        words=kept.words if kept else "",
        words_signature=work.words_signature,
        title=str(metadata.get("title") or spoken_name(work.task.path)),
        metadata=metadata,
        has_picture=bool(read.probe and read.probe.picture),
        shots=kept.shots if kept and read.shots is None else read.shots,
        damage=kept.damage if kept and not read.decoded else read.damage or "",
        indexed_at=time.time(),
    )
