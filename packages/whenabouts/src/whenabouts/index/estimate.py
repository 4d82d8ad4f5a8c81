"""Estimates how long an index run takes, from a sample of its files timed on this machine.

The cost of a stream depends on the files (how much is spoken, how often the picture changes) and on the
machine. So a plan times a twentieth or a tenth of the work, a few seconds at most. If that is too little to
time, the costs that the streams declare are used.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whenabouts.index.reading import FrameBatch, ReadVideo, clip_frames
from whenabouts.index.records import VideoRecord
from whenabouts.index.workers import Part, ReaderPool, available_cores
from whenabouts.video.cues import last_time, read_cue_file
from whenabouts.video.probe import probe
from whenabouts.video.shots import finder_named
from whenabouts.video.sound import SAMPLE_RATE, SoundPiece, sound_pieces
from whenabouts.video.speech import try_out
from whenabouts.video.speech_models import speech_seconds

if TYPE_CHECKING:
    from whenabouts.index.sampling import FrameSettings
    from whenabouts.index.stream import StreamRun
    from whenabouts.index.work import Work

_log = logging.getLogger(__name__)

# At most this many media files are probed, or transcripts read; others are estimated from their bytes.
_PROBED_FILES = 200
_DATED_TRANSCRIPTS = 2000
_FILES_WORTH_A_PROCESS = 50
# Timed shares of the words, and of pictures and sound; most processor seconds of a sample.
_TIMED_WORDS, _TIMED_MEDIA, _MOST_SECONDS = 0.05, 0.1, 2.5
# One sample: letters of a transcript, consecutive clips of a video, or seconds of sound.
_LETTERS, _LEAST_LETTERS, _SOUND_SECONDS = 6000, 2500, 60.0
_CLIPS, _FEWEST_CLIPS = 8, 3
_PLACES = 8
_FRAME_LENGTH = 0.04
# Sound is always decoded from its beginning, so samples start early.
_MOST_SKIPPED = 600.0
# A corpus is measured anew once its clips have changed by a tenth (`calibration.measuring`).
_REMEASURED_SHARE = 0.1
# Talks have 45,000 to 65,000 letters an hour; about three in four bytes of a transcript are letters.
_LETTERS_AN_HOUR, _LETTERS_A_BYTE = 50_000, 0.75
# Measured on two cores (benchmarks/ingest.py, benchmarks/plan.py).
_READ_BYTES_PER_SECOND = 150e6
_DECODE_SPEED = 30.0
_START_SECONDS, _PROCESS_SECONDS, _MODEL_SECONDS, _FILE_SECONDS = 1.5, 0.5, 1.2, 0.03
# Merging and measuring confidence, for each stream searched by words. The number of questions grows up to a
# thousand passages (some four hours), and each question takes longer in a larger corpus.
_AFTER_SECONDS, _MORE_SECONDS, _MORE_UNTIL_HOURS, _AFTER_SECONDS_AN_HOUR = 3.2, 2.0, 4.0, 0.125


class Contents(NamedTuple):
    """Hours of a file: in all, with pictures, with sound, and with sound but no subtitles."""

    hours: float = 0.0
    pictures: float = 0.0
    sound: float = 0.0
    wordless: float = 0.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """The parts of a file that a run reads: bytes, letters, and hours in all, of frames, sound and speech."""

    bytes: int
    hours: float
    pictures: float
    sound: float
    speech: float
    letters: float

    def hours_of(self, run: StreamRun) -> float:
        """Hours of the file that a stream reads; letters are converted at the usual rate of speech."""
        if run.reads.frames:
            return self.pictures
        if run.reads.sound:
            return self.sound
        return self.letters / _LETTERS_AN_HOUR if run.reads.cues else self.hours


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated cost of a run.

    `hours` of recordings; processor seconds for each of `files`, `before` the first and `after` the last;
    `disk_bytes`. `speech` is the part of each file's seconds that speech recognition takes; empty: none.
    `speech_hours` have sound and no subtitles; without a speech model, what is said there stays unknown.
    """

    hours: float = 0.0
    files: tuple[float, ...] = ()
    before: float = 0.0
    after: float = 0.0
    disk_bytes: float = 0.0
    speech: tuple[float, ...] = ()
    speech_hours: float = 0.0

    @property
    def processor_seconds(self) -> float:
        """All cores together, with the work before and after the files."""
        return self.before + sum(self.files) + self.after

    @property
    def seconds(self) -> float:
        """Wall-clock seconds on an otherwise idle machine: files share all cores."""
        return self.before + sum(self.files) / available_cores() + self.after


@dataclass(frozen=True, slots=True)
class _Rates:
    """Processor seconds per hour of a stream (by name), of speech, and of decoding frames.

    `once`: seconds that a stream (by name) takes for the first frame of each file.
    """

    streams: dict[str, float]
    once: dict[str, float]
    speech: float
    decoding: float


def estimated(
    work: Sequence[Work], streams: Sequence[StreamRun], transcribe: str, *, in_corpus: int
) -> Estimate:
    """The cost of a run. `in_corpus` files are indexed already; `transcribe` is the speech model or ""."""
    if not work:
        return Estimate()
    runs = {run.name: run for run in streams}
    amounts = [_amounts(each, held, transcribe) for each, held in zip(work, _contents(work), strict=True)]
    made = [run for run in streams if any(run.name in each.streams for each in work)]
    of_speech = speech_seconds(transcribe) if transcribe else 0.0
    rates = _Rates({run.name: run.cost.seconds for run in made}, {}, of_speech, 3600 / _DECODE_SPEED)
    rates = _timed(work, amounts, made, transcribe, rates)
    files = []
    for each, amount in zip(work, amounts, strict=True):
        seconds = _FILE_SECONDS + amount.bytes / _READ_BYTES_PER_SECOND
        seconds += amount.pictures * rates.decoding + amount.speech * rates.speech
        if each.task.shots:
            seconds += amount.pictures * float(finder_named(each.task.shots).SECONDS_AN_HOUR)
        for name in each.streams:
            hours = amount.hours_of(runs[name])
            seconds += hours * rates.streams[name] + (rates.once.get(name, 0.0) if hours else 0.0)
        files.append(seconds)
    hours = sum(amount.hours for amount in amounts)
    by_text = [run for run in streams if "text" in run.stream.meets]
    is_measured = len(work) > _REMEASURED_SHARE * in_corpus
    speech_hours = sum(amount.speech for amount in amounts)
    models = sum(run.reader is not None for run in made) + (of_speech * speech_hours > 0)
    readers = min(available_cores(), len(work))
    return Estimate(
        hours=hours,
        files=tuple(files),
        speech=tuple(amount.speech * rates.speech for amount in amounts),
        speech_hours=speech_hours,
        before=_START_SECONDS + _MODEL_SECONDS * models + _PROCESS_SECONDS * readers,
        after=sum(_measuring(sum(amount.hours_of(run) for amount in amounts)) for run in by_text)
        * is_measured,
        disk_bytes=sum(
            amount.hours_of(runs[name]) * runs[name].cost.bytes
            for each, amount in zip(work, amounts, strict=True)
            for name in each.streams
        ),
    )


def _measuring(hours: float) -> float:
    """Seconds of merging and measuring a stream of that length."""
    more = _MORE_SECONDS * min(1.0, hours / _MORE_UNTIL_HOURS)
    return _AFTER_SECONDS + more + _AFTER_SECONDS_AN_HOUR * hours


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """A file whose contents are to be read from its headers."""

    number: int
    path: Path
    # A file without a length is read to its end; an estimate does not wait long for that.
    quiet_seconds: float = 20.0


def contents_of(task: ProbeTask) -> Iterator[Contents]:
    """The contents of a media file by its headers (run in a reader process)."""
    probed = probe(task.path)
    hours = (probed.duration or 0.0) / 3600
    has_words = any(track.is_text for track in probed.subtitle_tracks)
    yield Contents(
        hours=hours,
        pictures=hours if probed.picture else 0.0,
        sound=hours if probed.has_audio else 0.0,
        wordless=hours if probed.has_audio and not has_words else 0.0,
    )


def _contents(work: Sequence[Work]) -> list[Contents]:
    """The contents of each file: of a sample by headers or last times, of the others by their bytes.

    Headers are read in reader processes, because a file may crash the decoder.
    """
    by_file: dict[int, Contents] = {}
    transcripts = [each for each in work if each.task.kind == "transcript"]
    media = [each for each in work if each.task.kind == "media"]
    dated = _every(transcripts, _DATED_TRANSCRIPTS)
    by_file |= {each.task.number: Contents(last_time(each.task.path) / 3600) for each in dated}
    probed = _every(media, _PROBED_FILES)
    if any(each.file.size for each in probed):
        tasks = [ProbeTask(each.task.number, each.task.path) for each in probed]
        with ReaderPool(contents_of, 1 + len(tasks) // _FILES_WORTH_A_PROCESS) as pool:
            by_file |= {part.number: part.content for part in pool.run(tasks) if isinstance(part, Part)}
    for of_kind, sample in ((transcripts, dated), (media, probed)):
        size = sum(each.file.size for each in sample)
        contents = [by_file.setdefault(each.task.number, Contents()) for each in sample]
        a_byte = [sum(amounts) / max(1, size) for amounts in zip(*contents, strict=True)]
        others = [each for each in of_kind if each.task.number not in by_file]
        by_file |= {
            each.task.number: Contents(*(amount * each.file.size for amount in a_byte)) for each in others
        }
    return [by_file[each.task.number] for each in work]


def _every(work: Sequence[Work], most: int) -> Sequence[Work]:
    """At most `most` of the files, evenly chosen."""
    return work[:: max(1, -(-len(work) // most))]


def _amounts(work: Work, contents: Contents, transcribe: str) -> Amounts:
    """The parts of a file that are read, without speech that an earlier run recognised with this model."""
    task = work.task
    words = "" if work.is_whole or work.record is None else work.record.words
    is_kept = words == f"speech:{transcribe}" if transcribe else bool(words)
    letters = speech = 0.0
    if task.kind == "transcript":
        letters = work.file.size * _LETTERS_A_BYTE
    elif task.cues and task.sidecars:
        letters = _largest(task.sidecars)[1] * _LETTERS_A_BYTE
    elif task.cues:
        speech = 0.0 if is_kept else contents.wordless
        subtitled = contents.sound - contents.wordless + (contents.wordless if transcribe else 0.0)
        letters = subtitled * _LETTERS_AN_HOUR
    return Amounts(
        bytes=work.file.size,
        hours=contents.hours,
        pictures=contents.pictures if task.frames or task.shots else 0.0,
        sound=contents.sound if task.sound else 0.0,
        speech=speech,
        letters=letters,
    )


def _largest(sidecars: Sequence[Path]) -> tuple[Path, int]:
    """The largest file and its size: usually the subtitles that are used."""

    def size_of(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0

    size, path = max((size_of(path), path) for path in sidecars)
    return path, size


def _timed(
    work: Sequence[Work],
    amounts: Sequence[Amounts],
    made: Sequence[StreamRun],
    transcribe: str,
    declared: _Rates,
) -> _Rates:
    """The timed rates; those that cannot be timed, or fail on a file, stay as declared."""
    rates = declared
    varying = [run for run in made if run.cost.varies]
    for run in varying:
        reads_words = run.reads.cues and not (run.reads.frames or run.reads.sound)
        if reads_words and (rate := _tried(_words_rate, work, amounts, run)):
            rates = replace(rates, streams={**rates.streams, run.name: rate})
    rates = _tried(_frame_rates, work, amounts, varying, rates) or rates
    if transcribe and (rate := _tried(_speech_rate, work, amounts, transcribe)):
        rates = replace(rates, speech=rate)
    return rates


def _tried(time_sample: Callable[..., Any], *args: Any) -> Any:
    """The result of a sample; None if it fails, because the run will report the cause."""
    try:
        return time_sample(*args)
    except Exception as error:
        _log.info("no sample could be timed (%s)", error)
        return None


def _spent(work: Callable[[], Any]) -> float:
    """Processor seconds of this process, on all its threads, that some work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _places(shares: Sequence[float], count: int) -> Iterator[tuple[int, float]]:
    """`count` places, evenly over items of these sizes: the item, and the position in it (0 to 1).

    The order is random but fixed, so that the first ones are representative if time runs out.
    """
    ends = np.cumsum(shares)
    for number in random.Random(0).sample(range(count), count):
        at = (number + 0.5) / count * ends[-1]
        item = int(np.searchsorted(ends, at))
        yield item, float(1 - (ends[item] - at) / shares[item])


def _words_rate(work: Sequence[Work], amounts: Sequence[Amounts], run: StreamRun) -> float | None:
    """Seconds for the words of an hour, from pieces of transcripts; None for too few words."""
    written = [
        (_largest(each.task.sidecars)[0] if each.task.sidecars else each.task.path, amount.letters)
        for each, amount in zip(work, amounts, strict=True)
        if run.name in each.streams and (each.task.sidecars or each.task.kind == "transcript")
    ]
    letters = _TIMED_WORDS * sum(amount for _, amount in written)
    if letters < _LEAST_LETTERS:
        return None
    places = max(1, min(_PLACES, int(letters / _LETTERS)))
    spent = done = 0.0
    for number, at in _places([amount for _, amount in written], places):
        path, estimated_letters = written[number]
        cues = read_cue_file(path).cues
        in_all = sum(len(cue.text) for cue in cues)
        first, size = int(at * len(cues)), 0
        # Cues before the place come first, because the transcript may end soon after the place.
        while first > 0 and size < min(letters, _LETTERS) / 2:
            first -= 1
            size += len(cues[first].text)
        last = int(at * len(cues))
        while last < len(cues) and size < min(letters, _LETTERS):
            size += len(cues[last].text)
            last += 1
        record = VideoRecord("sample", str(path), duration=cues[-1].end)
        video = ReadVideo(record, cues[-1].end, cues[first:last])
        if not done:  # warm up
            run.stream.clips(replace(video, cues=video.cues[:1]), [], run)
        spent += _spent(partial(run.stream.clips, video, [], run))
        # In estimated letters, so that an error of the estimate cancels out.
        done += size * estimated_letters / max(1, in_all)
        if spent > _MOST_SECONDS:
            break
    return spent / done * _LETTERS_AN_HOUR if done else None


@dataclass(frozen=True, slots=True)
class SampleTask:
    """A piece of a media file to read: frames for some clips, or sound."""

    number: int
    path: Path
    frames: tuple[FrameSettings, ...] = ()
    start: float = 0.0
    seconds: float = 0.0
    quiet_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Decoded:
    """Frames of a piece of a video, and the processor seconds of decoding them."""

    batches: tuple[FrameBatch, ...]
    spent: float


def sample_of(task: SampleTask) -> Iterator[Decoded | SoundPiece]:
    """The frames or the sound of a sample (run in a reader process)."""
    if task.frames:
        clip_frames(task.path, task.frames, task.start, task.start + _FRAME_LENGTH)  # warm up
        began = time.process_time()
        batches = clip_frames(task.path, task.frames, task.start, task.start + task.seconds)
        yield Decoded(tuple(batches), time.process_time() - began)
        return
    yield next(piece for piece in sound_pieces(task.path, task.seconds) if piece.start >= task.start)


def _samples(tasks: Sequence[SampleTask]) -> Iterator[tuple[SampleTask, Any]]:
    """Each task with its result; tasks that cannot be read are left out."""
    with ReaderPool(sample_of, 1) as pool:
        for message in pool.run(tasks):
            if isinstance(message, Part):
                yield tasks[message.number], message.content


def _frame_rates(
    work: Sequence[Work], amounts: Sequence[Amounts], varying: Sequence[StreamRun], rates: _Rates
) -> _Rates | None:
    """The rates, with those of decoding and of streams that read frames timed; None for too few frames."""
    seen = [(each, amount) for each, amount in zip(work, amounts, strict=True) if each.task.frames]
    hours = [amount.pictures for _, amount in seen]
    if not sum(hours):
        return None
    clip_seconds = max(frames.clip_seconds for each, _ in seen for frames in each.task.frames)
    most = _TIMED_MEDIA * sum(hours) * 3600 / clip_seconds
    clips = min(_CLIPS, max(_FEWEST_CLIPS, int(most / _PLACES)))
    seconds, places = clips * clip_seconds, min(_PLACES, int(most / clips))
    tasks = []
    for row, (number, at) in enumerate(_places(hours, places)):
        task, length = seen[number][0].task, 3600 * hours[number]
        start = max(0.0, min(at * length, length - seconds))
        tasks.append(SampleTask(row, task.path, task.frames, start, min(seconds, length)))
    spent = done = 0.0
    timed = {run.name: _FrameTimes(run) for run in varying if run.reads.frames}
    for sample, decoded in _samples(tasks):
        spent += decoded.spent
        done += sample.seconds
        for batch in decoded.batches:
            for times in timed.values():
                times.take(batch)
        if spent > _MOST_SECONDS:
            break
    timed = {name: times for name, times in timed.items() if times.following}
    if not done:
        return None
    return replace(
        rates,
        decoding=3600 * spent / done,
        streams={**rates.streams, **{name: times.an_hour for name, times in timed.items()}},
        once={name: times.once for name, times in timed.items()},
    )


class _FrameTimes:
    """Times how long a stream takes for consecutive frames."""

    def __init__(self, run: StreamRun) -> None:
        self._run = run
        self._first: list[float] = []
        self._spent = 0.0
        self.following = 0

    def take(self, batch: FrameBatch) -> None:
        """Time the frames of a batch, until the time is used up."""
        if batch.settings != self._run.reads.frames:
            return
        kept: list[Any] = []

        def encode(single: FrameBatch) -> None:
            kept.append(self._run.stream.encode(single, self._run, tuple(kept)))

        for clip, image in zip(batch.clips, batch.images, strict=True):
            if self._spent + sum(self._first) > _MOST_SECONDS and self.following:
                return
            single = FrameBatch(batch.settings, (clip,), (image,))
            if not self._first:  # warm up: a model is opened
                encode(single)
                kept.clear()
            is_first = not kept
            spent = _spent(partial(encode, single))
            if is_first:
                self._first.append(spent)
            else:
                self._spent += spent
                self.following += 1

    @property
    def once(self) -> float:
        """Mean seconds for the first frame of a sample, which is encoded whole."""
        return sum(self._first) / len(self._first)

    @property
    def an_hour(self) -> float:
        """Seconds for an hour of frames.

        Half a new picture is added, because samples of a video that stands still for a minute miss changes.
        """
        assert self._run.reads.frames is not None
        return (self._spent + self.once / 2) / self.following * 3600 / self._run.reads.frames.clip_seconds


def _speech_rate(work: Sequence[Work], amounts: Sequence[Amounts], model: str) -> float | None:
    """Seconds of recognising an hour of speech; None for little sound or a slow model."""
    with_speech = [
        (each, 3600 * amount.speech)
        for each, amount in zip(work, amounts, strict=True)
        if 3600 * amount.speech >= _SOUND_SECONDS
    ]
    seconds = [length for _, length in with_speech]
    places = min(_PLACES // 2, int(_TIMED_MEDIA * sum(seconds) / _SOUND_SECONDS))
    if not places or speech_seconds(model) * _SOUND_SECONDS / 3600 > 3 * _MOST_SECONDS:
        return None
    tasks = [
        SampleTask(
            row,
            with_speech[number][0].task.path,
            start=max(0.0, min(at * seconds[number] - _SOUND_SECONDS, _MOST_SKIPPED)),
            seconds=_SOUND_SECONDS,
        )
        for row, (number, at) in enumerate(_places(seconds, places))
    ]
    spent = done = 0.0
    for _, piece in _samples(tasks):
        if not done:  # warm up: the model is loaded
            try_out(replace(piece, samples=piece.samples[:1600]), model)
        spent += _spent(partial(try_out, piece, model))
        done += len(piece.samples) / SAMPLE_RATE
        if spent > _MOST_SECONDS:
            break
    return 3600 * spent / done if done else None
