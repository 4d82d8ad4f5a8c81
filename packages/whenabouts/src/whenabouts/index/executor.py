"""Reads and encodes the files of an index run: the interface `Executor`, and the one for this machine.

The cluster package has the other implementation. Both use `read_file` in a process that a hostile file may
crash, and `FileEncoder` where the models are.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from whenabouts.encoders.protocol import EncoderOutOfMemory
from whenabouts.index.reading import FileRead, FrameBatch, ReadVideo, SoundBatch, read_file
from whenabouts.index.records import ClipColumns
from whenabouts.index.transcripts import Recognise
from whenabouts.index.work import Work
from whenabouts.index.workers import Failed, Finished, Message, Part, ReaderPool, available_cores
from whenabouts.intake.faults import DataFault
from whenabouts.intake.lacks import MachineLack, is_memory, lack_of
from whenabouts.types import WhenaboutsError
from whenabouts.video.cues import CueTrack
from whenabouts.video.files import printable
from whenabouts.video.speech import PartialTranscript

if TYPE_CHECKING:
    from whenabouts.index.stream import StreamRun

_log = logging.getLogger(__name__)

Take = Callable[[Message], None]
"""Receives an executor's messages, in the thread that called `run`."""


@dataclass(frozen=True, slots=True)
class Clips:
    """The answer to `Executor.clips`: a file's clips by stream."""

    columns: dict[str, ClipColumns]


@dataclass(frozen=True, slots=True)
class SpeechTask:
    """Speech to recognise: the model, the language that the sound track names, and the part done earlier."""

    model: str
    marked_as: str | None
    earlier: PartialTranscript | None
    sound_track: str = ""


@dataclass(frozen=True, slots=True)
class Recognised:
    """How far speech recognition has come, in seconds of the file."""

    seconds: float


class Executor(Protocol):
    """Reads and encodes the files of a run."""

    def run(self, work: Sequence[Work], take: Take) -> None:
        """Read all files and pass the messages about each to `take`.

        For each file `take` gets some `Reached` and one `FileRead`, each in a `Part`, and at last `Finished`
        or `Failed`. While it handles the `FileRead`, it may call `speech` or `clips`; while it handles the
        `CueTrack` that `speech` sends, it may call `clips`, which sends `Clips`. An exception from `take`
        ends the run.
        """

    def speech(self, work: Work, task: SpeechTask) -> None:
        """Have the speech of a file recognised; to be called while its `FileRead` is handled.

        Sends `Recognised` and `PartialTranscript` now and then, and one `CueTrack` at the end.
        """

    def clips(self, work: Work, video: ReadVideo) -> None:
        """Have the clips of a file made; to be called while its `FileRead` or `CueTrack` is handled."""


class FileEncoder:
    """Runs the streams on files: frames and sound are encoded as they arrive, clips once a file is read."""

    def __init__(self, streams: Sequence[StreamRun]) -> None:
        self._streams = streams
        self._kept: dict[int, defaultdict[str, list[Any]]] = {}

    def _runs(self, work: Work) -> list[StreamRun]:
        return [run for run in self._streams if run.name in work.streams]

    def take(self, work: Work, batch: FrameBatch | SoundBatch) -> None:
        """Let each stream encode the batch; the results are kept until `clips` or `drop`."""
        of_file = self._kept.setdefault(work.task.number, defaultdict(list))
        for run in self._runs(work):
            reads = run.reads.sound if isinstance(batch, SoundBatch) else run.reads.frames
            if reads == batch.settings:
                kept = of_file[run.name]
                encoded = run.stream.encode(batch, run, tuple(kept))
                kept[-1:] = [run.stream.settled(last) for last in kept[-1:]]
                kept.append(encoded)

    def clips(self, work: Work, video: ReadVideo) -> dict[str, ClipColumns]:
        """The clips of a file by stream; `video.clips` are those that an earlier run wrote."""
        batches = self._kept.pop(work.task.number, defaultdict(list))
        columns: dict[str, ClipColumns] = {}
        for run in self._runs(work):
            clips = {name: (columns | dict(video.clips))[name] for name in run.stream.reads_clips_of}
            columns[run.name] = run.stream.clips(replace(video, clips=clips), batches[run.name], run)
            record = video.record
            streams = {**record.streams, run.name: run.fingerprint}
            video = replace(video, record=replace(record, streams=streams))
        return columns

    def drop(self, number: int) -> None:
        """Forget the vectors kept of a file."""
        self._kept.pop(number, None)


def failure(work: Work, error: Exception) -> Failed:
    """The message for a file with which a stream, an encoder or a table failed.

    Raises MachineLack if the machine lacks open files or threads. A lack of memory is a `Failed`, because
    other files may need less.
    """
    lack = None if isinstance(error, EncoderOutOfMemory) else lack_of(error)
    if lack is not None and is_memory(error):
        return Failed(work.task.number, lack, again=True, lack=True)
    if lack is not None:
        raise MachineLack(lack) from error
    _log.error("%s", printable(work.task.path), exc_info=error)
    cause = error if isinstance(error, WhenaboutsError) else f"{type(error).__name__}: {error}"
    return Failed(work.task.number, " ".join(str(cause).split()), again=not isinstance(error, DataFault))


def recognised(
    recognise: Recognise, work: Work, task: SpeechTask, tell: Callable[[PartialTranscript | Recognised], None]
) -> CueTrack:
    """The speech of a file; progress and partial transcripts go to `tell`."""
    return recognise(
        work.task.path,
        task.model,
        marked_as=task.marked_as,
        progress=lambda seconds: tell(Recognised(seconds)),
        earlier=task.earlier,
        keep=tell,
        **({"sound_track": task.sound_track} if task.sound_track else {}),
    )


class LocalExecutor:
    """The executor of this machine: reads in reader processes; encodes and recognises in this process."""

    def __init__(self, streams: Sequence[StreamRun], processes: int, recognise: Recognise) -> None:
        self._encoder = FileEncoder(streams)
        self._processes, self._recognise = processes, recognise
        self._read: dict[int, FileRead] = {}
        self._ended: set[int] = set()
        self._take: Take = lambda message: None

    def run(self, work: Sequence[Work], take: Take) -> None:
        self._take = take
        # The readers share the cores among them.
        threads = max(1, available_cores() // max(1, min(self._processes, len(work))))
        tasks = [replace(each.task, threads=threads) for each in work]
        with ReaderPool(read_file, self._processes) as pool:
            for message in pool.run(tasks):
                if message.number not in self._ended:
                    self._pass_on(work[message.number], message)

    def _pass_on(self, work: Work, message: Message) -> None:
        number = work.task.number
        if isinstance(message, Part) and isinstance(message.content, FrameBatch | SoundBatch):
            try:
                self._encoder.take(work, message.content)
            except Exception as error:
                self._end(failure(work, error))
        elif isinstance(message, Part) and isinstance(message.content, FileRead):
            self._read[number] = message.content
        elif isinstance(message, Part):
            self._take(message)
        elif isinstance(message, Finished):
            self._take(Part(number, self._read.pop(number)))
            if number not in self._ended:
                self._end(message)
        else:
            self._end(message)

    def _end(self, message: Message) -> None:
        self._ended.add(message.number)
        self._read.pop(message.number, None)
        self._encoder.drop(message.number)
        self._take(message)

    def speech(self, work: Work, task: SpeechTask) -> None:
        def tell(content: CueTrack | PartialTranscript | Recognised) -> None:
            self._take(Part(work.task.number, content))

        tell(recognised(self._recognise, work, task, tell))

    def clips(self, work: Work, video: ReadVideo) -> None:
        try:
            clips = Clips(self._encoder.clips(work, video))
        except Exception as error:
            self._end(failure(work, error))
        else:
            self._take(Part(work.task.number, clips))
