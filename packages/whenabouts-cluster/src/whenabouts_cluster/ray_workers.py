"""What runs on a cluster's machines: workers that read files, and workers that encode what was read.

A file is read in a process below its reading worker, as on one machine (`ReaderPool`): limits of time and
memory hold, and a file that crashes the decoder costs only itself.
"""

from __future__ import annotations

import os
import platform
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import whenabouts
from whenabouts.index.executor import Clips, FileEncoder, SpeechTask, failure, recognised
from whenabouts.index.reading import FrameBatch, ReadTask, ReadVideo, SoundBatch, read_file
from whenabouts.index.work import Work
from whenabouts.index.workers import Failed, Finished, Message, Part, ReaderPool
from whenabouts.types import WhenaboutsError
from whenabouts.video.files import printable
from whenabouts.video.speech import transcribe
from whenabouts.video.speech_models import load_recogniser

if TYPE_CHECKING:
    from whenabouts.index.stream import StreamRun

# Batches that wait between a reader and its encoder: with them, memory is bounded by the number of readers.
_BATCHES_AHEAD = 2


class About(NamedTuple):
    """What a worker says of itself; `problem` is "" where it can work."""

    node: str
    version: str
    python: str
    problem: str = ""


class Lost(NamedTuple):
    """Stands for a message: the reader of a file is gone."""

    why: str


def reason(error: Exception) -> str:
    """Why Ray has no result, in one line: the death of a worker, or what its code raised."""
    cause = getattr(error, "cause", None)
    return (
        type(error).__name__ if cause is None else f"{type(cause).__name__}: {' '.join(str(cause).split())}"
    )


def about(problem: str = "") -> About:
    """What this process is."""
    node = f"{socket.gethostname()} (process {os.getpid()})"
    return About(node, whenabouts.__version__, platform.python_version(), problem)


@dataclass(frozen=True, slots=True)
class ShippedRun:
    """A stream as a run makes it, without its encoder and reader: workers open these by name.

    The fingerprints are those of the driver, "" where it has none.
    """

    run: StreamRun
    encoder: str
    reader: str

    @classmethod
    def of(cls, run: StreamRun) -> ShippedRun:
        """What is sent of a run."""
        encoder = "" if run.encoder is None else str(run.encoder.fingerprint)
        reader = "" if run.reader is None else str(run.reader.fingerprint)
        return cls(replace(run, encoder=None, reader=None), encoder, reader)

    def opened(self, encoders: dict[str, Any]) -> StreamRun:
        """The run with its models. Raises WhenaboutsError where they are not here, or are others."""
        run, encoder, reader = self.run, None, None
        if self.encoder:
            if self.encoder not in encoders:
                encoders[self.encoder] = run.stream.open_encoder(run.info.encoder)
            encoder = encoders[self.encoder]
            _check_same(f"{run.info.encoder} for the stream {run.name}", self.encoder, encoder.fingerprint)
        if self.reader:
            reader = run.stream.open_reader()
            _check_same(f"the reader of the stream {run.name}", self.reader, reader.fingerprint)
        return replace(run, encoder=encoder, reader=reader)


def _check_same(what: str, expected: str, actual: str) -> None:
    if expected != actual:
        raise WhenaboutsError(
            f"{what} is another model here ({actual}) than where the run was started ({expected}); "
            "copy the same files to all machines"
        )


class ReadingWorker:
    """Reads one file at a time."""

    def __init__(self, environment: dict[str, str]) -> None:
        os.environ.update(environment)
        self._pool = ReaderPool(read_file, 1)

    def about(self) -> About:
        """What this worker is."""
        return about()

    def read(self, task: ReadTask) -> Iterator[Message]:
        """The messages of one file, as a reader process sends them."""
        status = _seen(task)
        if isinstance(status, Failed):
            yield status
            return
        # The number of a device is each machine's own, so a file is told from others by what is seen here.
        here = replace(task, identity=(status.st_dev, status.st_ino), threads=1)
        is_whole = False
        try:
            for message in self._pool.run([here]):
                is_whole = not isinstance(message, Part)
                yield message
        finally:
            if not is_whole:  # nobody wants the rest: the process that still reads must not speak later
                self._pool.__exit__()


def _seen(task: ReadTask) -> os.stat_result | Failed:
    """What this machine says of a file, or that it does not see the one that was planned."""
    try:
        status = task.path.stat()
        if not task.size or status.st_size == task.size:
            return status
        why = f"has {status.st_size} bytes there, not {task.size}"
    except OSError as error:
        why = error.strerror or str(error)
    refusal = (
        f"{printable(task.path)}: the node {about().node} does not see the file as it was planned ({why}); "
        "give paths that all machines of the cluster see, and run the same command again"
    )
    return Failed(task.number, refusal, again=True)


class EncodingWorker:
    """Encodes what reading workers read; several files at once, one batch at a time.

    It recognises the speech of one file at a time meanwhile, with a model ("": none).
    """

    def __init__(self, streams: list[ShippedRun], environment: dict[str, str], speech: str) -> None:
        os.environ.update(environment)
        self._streams, self._speech = streams, speech
        self._encoder = FileEncoder([])
        self._lock, self._hearing = threading.Lock(), threading.Lock()

    def about(self) -> About:
        """What this worker is; its models are opened."""
        encoders: dict[str, Any] = {}
        try:
            self._encoder = FileEncoder([shipped.opened(encoders) for shipped in self._streams])
            if self._speech:
                load_recogniser(self._speech)
        except WhenaboutsError as error:
            return about(" ".join(str(error).split()))
        return about()

    def read(self, work: Work, reader: Any) -> Iterator[Message | Lost]:
        """Have a file read; frames and sound stay here, all else is told."""
        import ray

        ahead = {"num_returns": "streaming", "_generator_backpressure_num_objects": _BATCHES_AHEAD}
        self._encoder.drop(work.task.number)
        try:
            for reference in reader.read.options(**ahead).remote(work.task):
                message: Message = ray.get(reference)
                if isinstance(message, Part) and isinstance(message.content, FrameBatch | SoundBatch):
                    if (failed := self._take(work, message.content)) is not None:
                        yield failed
                        return
                elif not isinstance(message, Finished):
                    yield message
        except ray.exceptions.RayError as error:
            yield Lost(reason(error))

    def _take(self, work: Work, batch: FrameBatch | SoundBatch) -> Failed | None:
        try:
            with self._lock:
                self._encoder.take(work, batch)
        except Exception as error:
            self._encoder.drop(work.task.number)
            return failure(work, error)
        return None

    def speech(self, work: Work, task: SpeechTask) -> Iterator[Message]:
        """The speech of a file, as `Executor.speech` says."""
        number = work.task.number
        messages: SimpleQueue[Message | None] = SimpleQueue()

        def hear() -> None:
            try:
                seen = _seen(work.task)
                if isinstance(seen, Failed):
                    messages.put(seen)
                    return
                with self._hearing:
                    track = recognised(transcribe, work, task, lambda now: messages.put(Part(number, now)))
                messages.put(Part(number, track))
            except Exception as error:
                messages.put(failure(work, error))
            finally:
                messages.put(None)

        threading.Thread(target=hear, daemon=True).start()
        while (message := messages.get()) is not None:
            yield message

    def clips(self, work: Work, video: ReadVideo) -> Message:
        """The clips of a file that was read here."""
        try:
            with self._lock:
                return Part(work.task.number, Clips(self._encoder.clips(work, video)))
        except Exception as error:
            return failure(work, error)
