"""Moments cut out of their videos into new files, exact to the frame or copied without loss.

An exact cut decodes from the key frame before the moment and encodes the moment (H.264 and AAC in MP4). It
keeps size (but no odd line), frame times, pixel aspect and the first sound track (up to six channels), and
turns pictures upright. A copy takes the stored packets as they are, so it must begin at a key frame.
"""

from __future__ import annotations

import contextlib
import errno
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.types import UsageError
from whenabouts.video.aside import check_free, write_error, written_aside
from whenabouts.video.copying import copy_packets, copy_suffix
from whenabouts.video.encoding import MovieWriter, Span, check_media, common_form, container_for, look_at
from whenabouts.video.files import printable
from whenabouts.video.frame_times import frame_rate
from whenabouts.video.headers import lacks_index, missing_bytes
from whenabouts.video.objects import refusals, source_path
from whenabouts.video.probe import MediaError, probe
from whenabouts.video.spans import HELD_SECONDS, PictureSpan, SoundSpan
from whenabouts.video.timecode import exact

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

Progress = Callable[[float], None]
CUT_VERSION = "1"  # part of the keys of cached cuts; raise it when the same cut becomes another file
# Smaller offsets of a copy get no note.
_NOTABLE_SECONDS = 0.001
_LONGEST_NAME = 120  # bytes, so that times and numbers still fit into a name of 255


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut. `path` is the new file; `start`, `end` are the seconds of the source that it really holds.

    `requested` is the requested (start, end); `frames` counts pictures, 0 for sound alone; `duration` is
    `end` - `start`; `notes` explain differences from the request.
    """

    path: Path
    source: Path
    requested: tuple[float, float]
    start: float
    end: float
    frames: int
    duration: float
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "path": printable(self.path),
            "source": printable(self.source),
            "asked": list(self.requested),
            "start": round(self.start, 6),
            "end": round(self.end, 6),
            "frames": self.frames,
            "duration": round(self.duration, 6),
            "notes": list(self.notes),
        }


def cut_name(name: str, start: float, end: float, suffix: str, taken: Collection[str] = ()) -> str:
    """A file name for a cut of the file `name`, safe in every folder and not among `taken`, in any case.

    >>> cut_name("My holiday?/.mp4", 1, 2.5, ".mp4"), cut_name("...", 0, 1, ".m4a", {"video_0.000-1.000.m4a"})
    ('My_holiday_1.000-2.500.mp4', 'video_0.000-1.000-2.m4a')
    >>> cut_name("A.mp4", 0, 1, ".mp4", {"a_0.000-1.000.mp4"})
    'A_0.000-1.000-2.mp4'
    """
    valid = unicodedata.normalize("NFC", name.encode("utf-8", "backslashreplace").decode())
    stem = re.sub(r"(?<=.)\.\w{1,5}$", "", valid)
    safe = re.sub(r"[^\w.-]+", "_", stem).strip("_.-")
    while len(safe.encode()) > _LONGEST_NAME:
        safe = safe[:-1]
    base = f"{safe or 'video'}_{start:.3f}-{end:.3f}"
    chosen, number = f"{base}{suffix}", 1
    used = {each.casefold() for each in taken}
    while chosen.casefold() in used:
        number += 1
        chosen = f"{base}-{number}{suffix}"
    return chosen


def placed_name(name: str, place: int, count: int) -> str:
    """A name that sorts by its place, from 1 to `count`.

    >>> placed_name("friday.mp4", 3, 8), placed_name("friday.mp4", 3, 200)
    ('03_friday.mp4', '003_friday.mp4')
    """
    return f"{place:0{max(2, len(str(count)))}}_{name}"


def suffix_for(*paths: Path, copy: bool = False) -> str:
    """The suffix of a cut, or of several joined: .mp4, .m4a for sound alone, the source's for a copy."""
    sources = [source_path(path) for path in paths]
    for source in sources:
        check_media(source)
    if copy:
        return copy_suffix(sources[0])
    return ".mp4" if any(probe(source).picture is not None for source in sources) else ".m4a"


def cut(
    path: Path,
    start: float,
    end: float,
    out: Path,
    *,
    copy: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Cut:
    """Cut [start, end) seconds out of a file into `out`.

    Exact by default; with `copy` the stored packets are taken from the key frame before the start, which is
    quick and without loss but begins early (`Cut.start`). An end after the end of the file is moved there,
    with a note. `progress` gets the share done, 0 to 1.

    Raises MediaError if the source cannot be read or holds nothing there, UsageError for an invalid span or
    an existing `out` (unless `force`), WriteError if it cannot be written, StoreAway if the source's store or
    disk refuses a read. No partial file is left.
    """
    path, out = source_path(path), Path(out)
    if not copy:
        return join([(path, start, end)], out, force=force, progress=progress)[0]
    check_free(out, force=force, sources=[path])
    form, span = container_for(out, copy=True), look_at(path, start, end)
    before = refusals.count
    with _written(out, force=force) as aside:
        try:
            copied = copy_packets(span, aside, form, progress or (lambda share: None))
        finally:
            refusals.check(before, printable(path))
        _check_whole(aside, out)
    return _cut_of(out, span, copied.start, copied.end, copied.frames, _copy_notes(span, copied.start))


def join(
    parts: Sequence[tuple[Path, float, float]],
    out: Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> list[Cut]:
    """Cut each (path, start, end) and concatenate them in one file `out`.

    Pictures of different sizes are scaled to the largest, with bars if the aspect differs, and black for
    parts without. Sound is converted to the best rate and number of channels, with silence for parts without.
    Raises as `cut` does.
    """
    if not parts:
        raise UsageError("nothing to cut: no moment was given")
    out = Path(out)
    container_for(out)
    check_free(out, force=force, sources=[path for path, _, _ in parts])
    spans = [look_at(source_path(path), start, end) for path, start, end in parts]
    form, notes = common_form(spans)
    progress = progress or (lambda share: None)
    parts_done = _PartProgress(progress, sum((span.end - span.start for span in spans), Fraction(0)))
    done: list[Cut] = []
    before = refusals.count
    with _written(out, force=force) as aside:
        with MovieWriter(aside, form, container_for(out)) as writer:
            for span, span_notes in zip(spans, notes, strict=True):
                done.append(_put(writer, span, out, span_notes, parts_done))
                refusals.check(before, printable(span.path))
        _check_whole(aside, out)
    progress(1.0)
    return done


def _put(writer: MovieWriter, span: Span, out: Path, notes: Sequence[str], parts_done: _PartProgress) -> Cut:
    """Append one part."""
    if span.look is None:
        return _put_sound(writer, span, out, notes, parts_done)
    began = writer.time
    pictures = PictureSpan(span.path, span.start, span.end)
    first: Fraction | None = None
    sound: SoundSpan | None = None
    lengths, first_of = Counter[Fraction](), dict[Fraction, Fraction]()
    sound_ends = span.start
    with contextlib.ExitStack() as opened:
        for picture in pictures:
            if first is None:
                first = picture.start
                if span.sound is not None and writer.form.sound is not None:
                    sound = opened.enter_context(SoundSpan(span.path, first, writer.form.sound))
            at = began + picture.start - first
            writer.put_picture(picture.frame, span.look, at, began + picture.end - first)
            lengths[picture.end - picture.start] += 1
            first_of.setdefault(picture.end - picture.start, picture.start)
            if sound is not None:
                writer.put_sound(sound.read(picture.end))
            parts_done.reach(picture.end - first)
        if first is None:
            first = span.start
            sound_ends = _put_sound_alone(writer, span, pictures.nearest)
        elif sound is not None and not pictures.follows and _keeps_sound(writer, span, pictures):
            writer.put_sound(sound.read(max(pictures.end, span.end)))
            sound_ends = Fraction(sound.position, sound.form.rate)
    ends = max(pictures.end, sound_ends)
    if writer.form.sound is not None and writer.form.parts > 1:
        writer.fill_silence(began + ends - first)
    writer.time = began + ends - first
    parts_done.part_done(span.end - span.start)
    if span.end - ends > Fraction(1, 2):  # containers are often a little longer than their tracks
        notes = [*notes, f"the file breaks off at {float(ends):.3f} s, before the moment ends"]
    if pictures.damage:
        notes = [*notes, f"{pictures.damage}; {_gaps_note(span.path, lengths, first_of)}"]
    return _cut_of(out, span, first, ends, lengths.total(), notes)


def _keeps_sound(writer: MovieWriter, span: Span, pictures: PictureSpan) -> bool:
    """Whether sound after the last picture is part of the cut.

    In a joined film, sound that is slightly longer than the pictures would delay all later parts.
    """
    return writer.form.parts == 1 or span.end - pictures.end > HELD_SECONDS


def _put_sound_alone(writer: MovieWriter, span: Span, picture: VideoFrame | None) -> Fraction:
    """Append sound of a span without pictures, with a picture that stands still; returns the sound's end.

    Raises MediaError if there is no sound.
    """
    if picture is None or span.look is None or span.sound is None or writer.form.sound is None:
        raise _nothing_there(span)
    with SoundSpan(span.path, span.start, writer.form.sound) as sound:
        samples = sound.read(span.end)
        if not samples.shape[1]:
            raise _nothing_there(span)
        length = Fraction(samples.shape[1], sound.form.rate)
        writer.put_picture(picture, span.look, writer.time, writer.time + length)
        writer.put_sound(samples)
        return Fraction(sound.position, sound.form.rate)


def _gaps_note(path: Path, lengths: Counter[Fraction], first_of: Mapping[Fraction, Fraction]) -> str:
    """A note on how long pictures stand still because the next ones could not be read, if any do.

    `lengths` counts how long pictures are shown; `first_of` has the first time of each length.
    """
    rate = frame_rate(path)
    usual = lengths.most_common(1)[0][0] if rate is None else 1 / rate
    too_long = {length: count for length, count in lengths.items() if 2 * length > 3 * usual}
    if not too_long:
        return "no picture of the cut is missing"
    seconds = float(sum(count * (length - usual) for length, count in too_long.items()))
    first = float(min(first_of[length] for length in too_long) + usual)
    return f"{seconds:.2f} s of pictures are missing from {first:.2f} s on; the one before stands still"


def _put_sound(
    writer: MovieWriter, span: Span, out: Path, notes: Sequence[str], parts_done: _PartProgress
) -> Cut:
    """Append a part without pictures, black in a film, a second at a time."""
    form = writer.form.sound
    assert form is not None
    with SoundSpan(span.path, span.start, form) as sound:
        first, began = sound.position, writer.time
        at = span.start
        while at < span.end:
            at = min(at + 1, span.end)
            writer.put_sound(sound.read(at))
            ends = began + Fraction(sound.position - first, form.rate)
            writer.put_black(ends)
            writer.time = ends
            parts_done.reach(at - span.start)
    length = writer.time - began
    if not length:
        raise _nothing_there(span)
    parts_done.part_done(span.end - span.start)
    return _cut_of(out, span, span.start, span.start + length, 0, notes)


def _cut_of(out: Path, span: Span, start: Fraction, end: Fraction, frames: int, notes: Sequence[str]) -> Cut:
    """The cut of a span that holds [start, end) seconds of its file."""
    times = float(start), float(end), frames, float(end - start)
    return Cut(out, span.path, span.requested, *times, (*span.notes, *notes))


class _PartProgress:
    """Reports the share done over several parts."""

    def __init__(self, tell: Progress, total: Fraction) -> None:
        self._tell, self._total, self._before = tell, total, Fraction(0)

    def reach(self, within: Fraction) -> None:
        """Report `within` seconds of the current part."""
        self._tell(min(1.0, float((self._before + within) / self._total)))

    def part_done(self, length: Fraction) -> None:
        """Finish the current part."""
        self._before += length


@contextlib.contextmanager
def _written(out: Path, *, force: bool) -> Iterator[Path]:
    """`written_aside` that also turns errors of FFmpeg into WriteError."""
    import av

    with written_aside(out, force=force) as aside:
        try:
            yield aside
        except av.error.FFmpegError as error:
            raise write_error(out, OSError(error.errno, error.strerror)) from error


def _check_whole(aside: Path, out: Path) -> None:
    """Raise WriteError if the written file is empty or cut off: a full disk is not always reported."""
    if missing_bytes(aside) or lacks_index(aside) or not aside.stat().st_size:
        raise write_error(out, OSError(errno.ENOSPC, "the file ends too early"))


def _nothing_there(span: Span) -> MediaError:
    return MediaError(
        f"{printable(span.path)}: nothing to cut at {float(span.start):.3f}-{float(span.end):.3f} s; "
        "the file holds no picture or sound there"
    )


def _copy_notes(span: Span, start: Fraction) -> list[str]:
    off = float(exact(span.requested[0]) - start)
    if off <= _NOTABLE_SECONDS:
        return []
    place = "a key frame" if span.look is not None else "a whole packet"
    return [
        f"a copy begins at {place}: at {float(start):.3f} s, {off:.3f} s before {span.requested[0]:.3f} s; "
        "leave out --copy to cut exactly"
    ]
