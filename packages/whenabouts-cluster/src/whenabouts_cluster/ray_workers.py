"""The workers that `ray_executor` starts on a cluster's machines: some read files, others encode them.

A reading worker reads each file in a child process, as on one machine (`ReaderPool`): the limits of time and
memory hold, and a file that crashes the decoder loses only itself.
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

# Batches that a reader may send ahead of its encoder, so that memory grows only with the number of readers.
_BATCHES_AHEAD = 2


class About(NamedTuple):
    """A worker's machine and versions; `problem` is "" if it can work."""

    node: str
    version: str
    python: str
    problem: str = ""


class Lost(NamedTuple):
    """Sent in place of a message: the reading worker of a file died."""

    why: str


def reason(error: Exception) -> str:
    """Why Ray has no result, in one line: the worker's death, or the exception that its code raised."""
    cause = getattr(error, "cause", None)
    return (
        type(error).__name__ if cause is None else f"{type(cause).__name__}: {' '.join(str(cause).split())}"
    )


def about(problem: str = "") -> About:
    """This process's machine and versions."""
    node = f"{socket.gethostname()} (process {os.getpid()})"
    return About(node, whenabouts.__version__, platform.python_version(), problem)


@dataclass(frozen=True, slots=True)
class ShippedRun:
    """A stream's run without its models, which each worker opens by name.

    `encoder` and `reader` are the fingerprints of the driver's models, "" if it has none.
    """

    run: StreamRun
    encoder: str
    reader: str

    @classmethod
    def of(cls, run: StreamRun) -> ShippedRun:
        """A run ready to send to workers."""
        encoder = "" if run.encoder is None else str(run.encoder.fingerprint)
        reader = "" if run.reader is None else str(run.reader.fingerprint)
        return cls(replace(run, encoder=None, reader=None), encoder, reader)

    def opened(self, encoders: dict[str, Any]) -> StreamRun:
        """The run with this machine's models. Raises WhenaboutsError if one is absent or differs."""
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
            f"{what} differs here ({actual}) from the model where the run was started ({expected}); "
            "copy the same model files to all machines"
        )


class ReadingWorker:
    """Reads one file at a time."""

    def __init__(self, environment: dict[str, str]) -> None:
        os.environ.update(environment)
        self._pool = ReaderPool(read_file, 1)

    def about(self) -> About:
        """This worker's machine and versions."""
        return about()

    def read(self, task: ReadTask) -> Iterator[Message]:
        """The messages of one file, as a reader process sends them."""
        status = _status(task)
        if isinstance(status, Failed):
            yield status
            return
        # Device numbers differ between machines, so the file's identity is the one of this machine.
        here = replace(task, identity=(status.st_dev, status.st_ino), threads=1)
        has_ended = False
        try:
            for message in self._pool.run([here]):
                has_ended = not isinstance(message, Part)
                yield message
        finally:
            if not has_ended:  # the caller stopped early, and the messages must not reach the next file
                self._pool.__exit__()


def _status(task: ReadTask) -> os.stat_result | Failed:
    """A file's status on this machine; Failed if it is absent here or has another size than planned."""
    try:
        status = task.path.stat()
        if not task.size or status.st_size == task.size:
            return status
        why = f"has {status.st_size} bytes there, not {task.size}"
    except OSError as error:
        why = error.strerror or str(error)
    refusal = (
        f"{printable(task.path)}: the node {about().node} sees no such file, or another one ({why}); "
        "give paths that all machines of the cluster see, and run the same command again"
    )
    return Failed(task.number, refusal, again=True)


class EncodingWorker:
    """Encodes the frames and sound of several files at once, one batch at a time.

    Meanwhile it recognises the speech of one file at a time, with the model `speech` ("": none).
    """

    def __init__(self, streams: list[ShippedRun], environment: dict[str, str], speech: str) -> None:
        os.environ.update(environment)
        self._streams, self._speech = streams, speech
        self._encoder = FileEncoder([])
        self._lock, self._speech_lock = threading.Lock(), threading.Lock()

    def about(self) -> About:
        """Open this worker's models, and return its machine and versions."""
        encoders: dict[str, Any] = {}
        try:
            self._encoder = FileEncoder([shipped.opened(encoders) for shipped in self._streams])
            if self._speech:
                load_recogniser(self._speech)
        except WhenaboutsError as error:
            return about(" ".join(str(error).split()))
        return about()

    def read(self, work: Work, reader: Any) -> Iterator[Message | Lost]:
        """Have `reader` read a file. Frames and sound are encoded here; other messages are passed on."""
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
        """Messages of speech recognition for one file, as for `Executor.speech`."""
        number = work.task.number
        messages: SimpleQueue[Message | None] = SimpleQueue()

        def recognise() -> None:
            try:
                status = _status(work.task)
                if isinstance(status, Failed):
                    messages.put(status)
                    return
                with self._speech_lock:
                    track = recognised(transcribe, work, task, lambda now: messages.put(Part(number, now)))
                messages.put(Part(number, track))
            except Exception as error:
                messages.put(failure(work, error))
            finally:
                messages.put(None)

        threading.Thread(target=recognise, daemon=True).start()
        while (message := messages.get()) is not None:
            yield message

    def clips(self, work: Work, video: ReadVideo) -> Message:
        """The clips of a file whose frames and sound this worker encoded."""
        try:
            with self._lock:
                return Part(work.task.number, Clips(self._encoder.clips(work, video)))
        except Exception as error:
            return failure(work, error)
