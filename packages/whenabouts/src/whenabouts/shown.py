"""The output of `show` and `stats` for a corpus, a video and a moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np

from whenabouts.confidence.rates import Rate
from whenabouts.index.filters import recorded
from whenabouts.index.records import StoreStats, VideoRecord, unambiguous
from whenabouts.index.store import Store
from whenabouts.search.coverage import Coverage, coverage_of, streams_with_clips, with_clips
from whenabouts.search.query_language import name_of
from whenabouts.search.stored_calibration import Calibration
from whenabouts.streams import stream as stream_named
from whenabouts.times import format_time
from whenabouts.types import Moment, UsageError, number_of
from whenabouts.video.cues import CueTrack, speaks

_DATE_SOURCES = {
    "recorded": "from its metadata",
    "creation_time": "stated by the camera or program that made the file",
    "date": "from a tag of the file",
    "modified": "last change of the file, because nothing else states a date",
}
# Lines with a lower certainty of the recogniser are marked.
_SURE = 0.7


@dataclass(frozen=True, slots=True)
class Line:
    """Words with their start and end in seconds; `recognised` as in `Evidence`."""

    start: float
    end: float
    text: str
    recognised: float | None = None

    def is_mostly_in(self, moment: Moment) -> bool:
        """Whether half of the line, or of the moment, lies in the other."""
        return bool(mostly_in(self.start, self.end, moment))


def mostly_in(start: Any, end: Any, moment: Moment) -> Any:
    """`Line.is_mostly_in` for times of lines, numbers or arrays."""
    common = np.minimum(end, moment.end) - np.maximum(start, moment.start)
    return 2 * common >= np.minimum(end - start, moment.duration)


@dataclass(frozen=True, slots=True)
class Track:
    """One of several subtitle tracks of a video, and whether it is the searched one."""

    language: str | None
    source: str
    is_searched: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A video's record, its words (or those in a moment), and its shots.

    `words` are spoken; `texts` are read in the pictures, by stream. `streams` have clips of the video.
    """

    record: VideoRecord
    moment: Moment | None
    words: tuple[Line, ...]
    shots: Sequence[float] | None
    streams: Sequence[str] = ()
    tracks: tuple[Track, ...] = ()
    texts: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        record = self.record
        return {
            "video_id": record.video_id,
            "path": unambiguous(record.path),
            "duration": record.duration,
            "state": record.state,
            "error": record.error,
            "damage": record.damage,
            "title": record.title,
            "recorded": recorded(record)[0].isoformat(),
            "recorded_from": recorded(record)[1],
            "metadata": dict(record.metadata),
            "words_from": record.words,
            "streams": {name: made for name, made in record.streams.items() if name in self.streams},
            "streams_indexed_at": indexed_at(record, self.streams),
            "moment": [self.moment.start, self.moment.end] if self.moment else None,
            "words": [asdict(line) for line in self.words],
            "texts": {name: [asdict(line) for line in lines] for name, lines in self.texts.items()},
            "shots": None if self.shots is None else list(self.shots),
            "tracks": [
                {"language": track.language, "source": track.source, "searched": track.is_searched}
                for track in self.tracks
            ],
        }

    @property
    def _sureness(self) -> str:
        """Mean certainty of the speech recogniser; "" for written words."""
        sure = [line.recognised for line in self.words if line.recognised is not None]
        return f" (recognised, {int(100 * sum(sure) / len(sure))} % sure on average)" if sure else ""

    @property
    def _source(self) -> str:
        """Where the words are from, and how sure a recogniser was of them."""
        if self.words or self.moment or any(stream_named(name).transcript for name in self.streams):
            return f"{self.record.words or 'none'}{self._sureness}"
        return f"none ({self.record.words})" if self.record.words else "none"

    def lines(self) -> list[str]:
        record = self.record
        length = "unknown length" if record.duration is None else format_time(record.duration)
        lines = [f"{record.video_id}  {length}", f"  file      {unambiguous(record.path)}"]
        when, source = recorded(record)
        lines.append(f"  recorded  {when:%Y-%m-%d %H:%M} ({_DATE_SOURCES.get(source, source)})")
        lines += [f"  {key:<9} {value}" for key, value in sorted(record.metadata.items())]
        lines.append(f"  words     {self._source}")
        for track in self.tracks:
            mark = " (searched)" if track.is_searched else ""
            lines.append(f"  track     {track.language or 'no language named'}: {track.source}{mark}")
        made = [f"{name} ({_indexed(record, name)})" for name in self.streams]
        lines.append(f"  streams   {', '.join(made) or 'none'}")
        without = coverage_of([record], (), list(record.streams)).not_searched
        lines += [f"  without   {without}"] if without else []
        if record.is_gone:
            lines.append("  gone      the file is missing; `whenabouts index PATH --prune` removes the entry")
        if record.error:
            lines.append(f"  failed    {record.error}")
        if record.damage:
            lines.append(f"  damage    {record.damage}")
        if self.shots:
            lines.append(f"  shots at  {', '.join(format_time(border) for border in self.shots)}")
        lines += [f"  {format_time(line.start):>12}  {line.text}{_doubt(line)}" for line in self.words]
        for name, texts in self.texts.items():
            lines.append(f"  {stream_named(name).title}:")
            lines += [
                f"  {format_time(line.start):>12}  {' / '.join(line.text.splitlines())}{_doubt(line)}"
                for line in texts
            ]
        return [unambiguous(line) for line in lines]


def indexed_at(record: VideoRecord, streams: Iterable[str]) -> dict[str, float | None]:
    """When some streams of a video were indexed, in seconds since 1970; None: by an earlier version."""
    return {name: record.stream_times.get(name) for name in streams}


def _indexed(record: VideoRecord, stream: str) -> str:
    """When a stream was indexed: "since" a day, or "by" that of the video if its own is unknown."""
    at = record.stream_times.get(stream)
    return f"since {_day(at)}" if at is not None else f"by {_day(record.indexed_at)}"


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _doubt(line: Line) -> str:
    """A mark after words of low certainty."""
    if line.recognised is None or line.recognised >= _SURE:
        return ""
    return f"  ({int(100 * line.recognised)} % sure)"


def show_track(shown: Shown, tracks: Sequence[CueTrack], language: str | None = None) -> Shown:
    """`shown` with all subtitle tracks, and with the words of the track in a `language`, if one is given.

    `tracks` are empty if there is only one. Raises UsageError if none is in the language.
    """
    searched = shown.record.words
    listed = tuple(Track(track.language, track.source, track.source == searched) for track in tracks)
    if language is None:
        return replace(shown, tracks=listed)
    chosen = next((track for track in tracks if speaks(track, language)), None)
    if chosen is None:
        existing = ", ".join(sorted({track.language or "?" for track in tracks}))
        raise UsageError(
            f"{shown.record.video_id} has no subtitles in {language!r}; it has {existing}"
            if tracks
            else f"{shown.record.video_id} has one subtitle track at most; leave out {language!r}"
        )
    moment = shown.moment
    words = tuple(
        Line(cue.start, cue.end, cue.text)
        for cue in chosen.cues
        if moment is None or (cue.start < moment.end and cue.end > moment.start)
    )
    return replace(shown, record=replace(shown.record, words=chosen.source), tracks=listed, words=words)


def show(store: Store, record: VideoRecord, moment: Moment | None) -> Shown:
    """A video with its words and shots; if a moment is given, those inside it."""
    words, texts = (lines_of(store, record, moment, spoken=spoken) for spoken in (True, False))
    shots = record.shots
    if shots is not None and moment is not None:
        shots = tuple(border for border in shots if moment.start <= border < moment.end)
    streams = streams_with_clips(store, [record])[record.video_id]
    return Shown(record, moment, tuple(chain(*words.values())), shots, streams, texts=texts)


def lines_of(
    store: Store, record: VideoRecord, moment: Moment | None, *, spoken: bool
) -> dict[str, tuple[Line, ...]]:
    """Stream -> the words spoken in a video or a moment; without `spoken`, the words in its pictures."""
    by_stream = {}
    for name in record.streams:
        stream = stream_named(name)
        if not stream.has_words or stream.transcript != spoken:
            continue
        block = store.clips_of(name, [record.video_id], vectors=False)
        times = zip(block.start.tolist(), block.end.tolist(), strict=True)
        by_stream[name] = tuple(
            Line(start, end, block.text[row], block.recognised_at(slice(row, row + 1)))
            for row, (start, end) in enumerate(times)
            if moment is None or (start < moment.end and end > moment.start)
        )
    return {name: lines for name, lines in by_stream.items() if lines}


def _first_and_last(records: Sequence[VideoRecord]) -> dict[str, tuple[float, float]]:
    """When each stream was first and last indexed, as far as the ledger records it."""
    times: dict[str, list[float]] = {}
    for record in records:
        # A row keeps the time of a stream that was dropped.
        for name in record.streams.keys() & record.stream_times.keys():
            times.setdefault(name, []).append(record.stream_times[name])
    return {name: (min(dates), max(dates)) for name, dates in times.items()}


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a corpus; `not_measured` says why some error rates could not be measured, or ""."""

    location: str
    store: StoreStats
    encoders: Mapping[str, str]
    calibrated: Collection[str]
    rates: Mapping[str, Any] | None
    not_measured: str
    failed: tuple[VideoRecord, ...]
    gone: tuple[VideoRecord, ...]
    indexed_at: float
    coverage: Coverage
    languages: Mapping[str, int]
    stream_times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, location: str, store: Store, calibration: Calibration) -> Stats:
        """The statistics of a store; `rates` are the measured error rates of answers, None if unmeasured."""
        records, rates = store.videos(), calibration.rates
        return cls(
            location=location,
            store=store.stats(),
            encoders={name: info.encoder for name, info in store.streams.items()},
            calibrated=calibration.calibrated,
            rates=rates,
            not_measured=calibration.withheld if rates is None else rates.get("not_measured") or "",
            failed=tuple(record for record in records if record.state == "failed"),
            gone=tuple(record for record in records if record.state == "gone"),
            indexed_at=max((record.indexed_at for record in records), default=0.0),
            coverage=coverage_of(records, (), list(store.streams), with_clips(store, store.streams)),
            stream_times=_first_and_last(records),
            languages={name_of(code): count for code, count in store.ledger().languages.items() if code},
        )

    @property
    def summary(self) -> str:
        """Number of videos, hours and bytes on disk in one line."""
        videos = number_of(self.store.videos - self.store.failed, "video")
        disk = "" if self.store.bytes is None else f", {self.store.bytes / 1e6:.1f} MB on disk"
        return f"{videos}, {self.store.hours:.2f} hours{disk}"

    def to_json(self) -> dict[str, Any]:
        return {
            "corpus": self.location,
            "videos": self.store.videos - self.store.failed,
            "hours": self.store.hours,
            "bytes": self.store.bytes,
            "streams": {
                name: {
                    "encoder": self.encoders[name],
                    "clips": stream.clips,
                    "videos": self.coverage.streams.get(name, 0),
                    "vector_index": stream.vector_index,
                    "vector_index_recall": stream.recall,
                    "narrows_by": stream_named(name).filter_key or None,
                    "calibrated": name in self.calibrated,
                    "first_indexed_at": self.stream_times.get(name, (None, None))[0],
                    "last_indexed_at": self.stream_times.get(name, (None, None))[1],
                }
                for name, stream in self.store.streams.items()
            },
            "calibration": None if self.rates is None else dict(self.rates),
            "not_measured": self.not_measured or None,
            "searched": self.coverage.to_json(),
            "languages": dict(self.languages),
            "failed": [{"path": unambiguous(r.path), "error": r.error} for r in self.failed],
            "gone": [unambiguous(r.path) for r in self.gone],
            "indexed_at": self.indexed_at,
            "choices": dict(self.choices),
        }

    def lines(self) -> list[str]:
        when = datetime.fromtimestamp(self.indexed_at, UTC)
        lines = [f"{self.location}: {self.summary}"]
        if self.indexed_at:
            lines.append(f"last indexed {when:%Y-%m-%d %H:%M} UTC")
        for name, stream in sorted(self.store.streams.items()):
            made = f"  {name}: {number_of(stream.clips, 'clip')} by {self.encoders[name]}"
            if name in self.stream_times:
                first, last = map(_day, self.stream_times[name])
                made += f", indexed {first}" + (f" to {last}" if last != first else "")
            if key := stream_named(name).filter_key:
                lines.append(f"{made}, to narrow a search by (--where {key}=NAME)")
                continue
            how = "by vector index" if stream.vector_index else "exactly"
            if stream.recall is not None:
                how += f" (finds {100 * stream.recall:.0f} of the best 100)"
            sure = (
                "" if name in self.calibrated else ", confidence not calibrated yet (too little to judge by)"
            )
            lines.append(f"{made}, searched {how}{sure}")
        if self.coverage.videos:
            lines.append(f"  {self.coverage.line}")
        if self.languages:
            spoken = ", ".join(f"{name} ({count})" for name, count in self.languages.items())
            lines.append(f"  languages of words: {spoken}")
        if self.rates is not None:
            alarms, misses = (Rate.from_json(self.rates[key]) for key in ("false_alarm_rate", "miss_rate"))
            lines.append(
                f"  answers: false alarms {alarms}, misses {misses} (`whenabouts calibrate` says more)"
            )
        if self.not_measured:
            lines.append(f"  the reliability of confidences was not measured: {self.not_measured}")
        lines += [f"  {line}" for kind, line in self.choices.items() if kind != "gone" or not self.gone]
        if self.gone:
            which = number_of(len(self.gone), "file is", "files are")
            lines.append(f"{which} gone (`whenabouts index PATH --prune` removes their entries):")
            lines += [f"  {unambiguous(r.path)}" for r in self.gone]
        if self.failed:
            lines.append(
                f"{number_of(len(self.failed), 'file')} could not be read "
                "(`whenabouts index --retry` tries again):"
            )
            lines += [
                f"  {r.error if r.path in r.error else f'{unambiguous(r.path)}: {r.error}'}"
                for r in self.failed
            ]
        return lines
