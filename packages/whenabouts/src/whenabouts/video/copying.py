"""Copy the stored packets of a span, starting at a key frame: quick and without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.types import UsageError
from whenabouts.video.encoding import Span
from whenabouts.video.files import printable
from whenabouts.video.frames import SEEK_EARLIER, seek_margin
from whenabouts.video.headers import edit_starts
from whenabouts.video.opened import packets_of
from whenabouts.video.probe import MediaError, open_media, picture_stream
from whenabouts.video.spans import sound_stream
from whenabouts.video.timecode import HALF_MILLISECOND, border

if TYPE_CHECKING:
    from av.container import InputContainer, OutputContainer

_MICROSECONDS = 1_000_000
# Sound is read from this many seconds before the first picture: streams are not interleaved exactly.
_SOUND_LEAD = Fraction(2)
# Matroska gives the first packets of a stream no decoding times: at most this many (H.264, A.4.2).
_MOST_REORDERED = 16
_SUFFIXES = {
    "mov": (".mp4", ".mov", ".m4v", ".m4a"),
    "matroska": (".mkv", ".webm", ".mka"),
    "avi": (".avi",),
    "mp3": (".mp3",),
    "ogg": (".ogg",),
    "mpegts": (".ts",),
    "wav": (".wav",),
}


@dataclass(frozen=True, slots=True)
class Copied:
    """The copied range: [start, end) seconds of the source, and the number of pictures."""

    start: Fraction
    end: Fraction
    frames: int


def copy_suffix(path: Path) -> str:
    """The suffix of a copy: the source's if it fits the format, .mkv for unknown formats."""
    with open_media(path) as container:
        names = container.format.name.split(",")
    fitting = next((suffixes for name, suffixes in _SUFFIXES.items() if name in names), ())
    return path.suffix.lower() if path.suffix.lower() in fitting else (fitting[0] if fitting else ".mkv")


def copy_packets(span: Span, aside: Path, form: str, progress: Callable[[float], None]) -> Copied:
    """Copy the packets of a span into a new file of a container format.

    Raises UsageError if the container cannot hold them or the source has no times, MediaError if they are
    damaged.
    """
    import av

    with open_media(span.path) as source:
        streams: list[Any] = [
            stream for stream in (picture_stream(source), sound_stream(source)) if stream is not None
        ]
        _check_times(span, source)
        origin = Fraction(source.start_time or 0, _MICROSECONDS)
        options = {"movflags": "+faststart"} if form in ("mp4", "mov") else {}
        with av.open(f"file:{aside.absolute()}", "w", format=form, options=options) as target:
            try:
                twins = {
                    stream.index: target.add_stream_from_template(stream, opaque=True) for stream in streams
                }
            except (ValueError, av.error.FFmpegError) as error:
                codecs = " and ".join(stream.codec_context.name for stream in streams)
                raise UsageError(
                    f"{printable(span.path)}: {codecs} cannot be copied into {form} ({error}); "
                    "give a name that ends in .mkv, or leave out --copy"
                ) from None
            try:
                return _Copying(span, source, streams, origin).run(target, twins, progress)
            except (av.error.ArgumentError, av.error.InvalidDataError) as error:
                raise MediaError(
                    f"{printable(span.path)}: its packets cannot be copied ({error.strerror}); "
                    "leave out --copy"
                ) from error


def _check_times(span: Span, source: InputContainer) -> None:
    if source.start_time is None or "avi" in source.format.name.split(","):
        raise UsageError(
            f"{printable(span.path)}: {source.format.name} stores no times of pictures or sound, "
            "so it cannot be copied in part; leave out --copy"
        )
    if any(sum(start >= 0 for start in starts) > 1 for starts in edit_starts(span.path)):
        raise UsageError(
            f"{printable(span.path)}: an edit list puts several parts together, so what is stored is not "
            "what is shown, and cannot be copied; leave out --copy"
        )


class _Copying:
    """One copy in progress."""

    def __init__(self, span: Span, source: InputContainer, streams: list[Any], origin: Fraction) -> None:
        self._span, self._source, self._streams, self._origin = span, source, streams, origin
        self._leading = streams[0]
        self._frames = 0
        self._last = self._ends = Fraction(-1)

    def run(
        self, target: OutputContainer, twins: dict[int, Any], progress: Callable[[float], None]
    ) -> Copied:
        """Copy, and return the copied range."""
        began = self._seek()
        if began >= self._span.end:
            raise self._nothing_there()
        length = max(Fraction(1, 1000), self._span.end - began)
        for packet in _with_decoding_times(self._taken(began)):
            at = self._time(packet)
            if packet.stream_index == self._leading.index:
                self._frames += self._leading.type == "video"
                # Durations are those in stored order: only the last picture's is its own.
                if at >= self._last:
                    self._last, self._ends = at, at + (packet.duration or 0) * packet.time_base
                progress(max(0.0, min(1.0, float((self._ends - began) / length))))
            shift = round((began + self._origin) / packet.time_base)
            packet.pts -= shift
            packet.dts -= shift
            packet.stream = twins[packet.stream_index]
            target.mux(packet)
        progress(1.0)
        if self._last < 0:
            raise self._nothing_there()
        return Copied(began, self._ends, self._frames)

    def _nothing_there(self) -> MediaError:
        return MediaError(
            f"{printable(self._span.path)}: nothing at {float(self._span.start):.3f} s can be copied; "
            "leave out --copy"
        )

    def _time(self, packet: Any) -> Fraction:
        return Fraction(packet.pts * packet.time_base) - self._origin

    def _seek(self) -> Fraction:
        """Go to the last key frame at or before the start; returns its time."""
        limit = self._span.start + HALF_MILLISECOND
        best: Fraction | None = None
        for earlier in SEEK_EARLIER:
            self._rewind(max(Fraction(0), self._span.start - earlier))
            for packet in packets_of(self._source, self._leading):
                if packet.pts is None:
                    continue
                at = self._time(packet)
                if at > limit and (
                    packet.dts is None or packet.dts * packet.time_base - self._origin > limit
                ):
                    break
                if packet.is_keyframe and at <= limit:
                    best = at if best is None else max(best, at)
            if best is not None:
                return best
        # No key frame before the start: take the first one of the file.
        self._rewind(Fraction(0))
        for packet in packets_of(self._source, self._leading):
            if packet.pts is not None and packet.is_keyframe:
                return self._time(packet)
        raise MediaError(f"{printable(self._span.path)}: has no key frame to begin a copy at")

    def _rewind(self, instant: Fraction) -> None:
        import av

        before = instant - seek_margin(self._source)
        stamp = int((before + self._origin) / self._leading.time_base)
        try:
            self._source.seek(stamp, stream=self._leading, backward=True)
        except av.error.FFmpegError as error:
            raise MediaError(f"{printable(self._span.path)}: cannot be searched by time ({error})") from None

    def _taken(self, began: Fraction) -> Iterator[Any]:
        """The packets of the span from the key frame at `began` on, in stored order."""
        for earlier in SEEK_EARLIER:
            self._rewind(max(Fraction(0), began - _SOUND_LEAD - earlier))
            packets = self._from(began)
            held: list[Any] = []
            for packet in packets:
                held.append(packet)
                if packet.stream_index == self._leading.index:
                    yield from held
                    yield from packets
                    return

    def _from(self, began: Fraction) -> Iterator[Any]:
        """The packets of the span that follow the place of the last seek.

        A seek that ended behind the key frame gives none of the leading stream.
        """
        last = border(self._span.end)
        open_streams = {stream.index for stream in self._streams}
        has_begun = False
        undated = 0
        for packet in packets_of(self._source, self._streams):
            if packet.pts is None or packet.stream_index not in open_streams:
                continue
            at = self._time(packet)
            undated += packet.dts is None
            decoded = at if packet.dts is None else packet.dts * packet.time_base - self._origin
            # Pictures in the span may need one that is shown after it and has no decoding time.
            if decoded >= last and not (packet.dts is None and undated <= _MOST_REORDERED):
                open_streams.discard(packet.stream_index)
                if not open_streams:
                    return
                continue
            if packet.stream_index == self._leading.index:
                has_begun = has_begun or (packet.is_keyframe and at == began)
                # Pictures shown before the key frame but stored after it depend on packets that are not
                # copied.
                if has_begun and at >= began:
                    yield packet
            elif began <= at < last:
                yield packet


def _with_decoding_times(packets: Iterator[Any]) -> Iterator[Any]:
    """The packets, each with a decoding time: Matroska has none for the first ones of a stream."""
    waiting: dict[int, list[Any]] = {}
    for packet in packets:
        held = waiting.setdefault(packet.stream_index, [])
        if packet.dts is None:
            held.append(packet)
            continue
        for back, earlier in enumerate(reversed(held), 1):
            earlier.dts = min(earlier.pts, packet.dts - back * max(1, packet.duration or 1))
        yield from held
        held.clear()
        yield packet
    for held in waiting.values():
        for packet in held:
            packet.dts = packet.pts
            yield packet
