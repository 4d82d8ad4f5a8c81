"""The words of a video with their times, from subtitle files beside it and subtitle tracks in it."""

from __future__ import annotations

import html
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whenabouts.intake.faults import DataFault
from whenabouts.types import WhenaboutsError
from whenabouts.video.cue import Cue, Marks
from whenabouts.video.encodings import decode_text
from whenabouts.video.files import printable
from whenabouts.video.objects import open_source
from whenabouts.video.opened import discard_others, packets_of
from whenabouts.video.probe import Probe, SubtitleTrack, base_language, open_media
from whenabouts.video.speakers import marks_of

if TYPE_CHECKING:
    from av.subtitles.stream import SubtitleStream

LARGEST_BYTES = 64 << 20
_TAIL_BYTES = 1 << 14
# Language names in file names, as ISO 639-1 codes.
_NAMES = (
    "english en, french fr, german de, spanish es, portuguese pt, italian it, dutch nl, russian ru, "
    "chinese zh, japanese ja, korean ko, arabic ar, hindi hi"
)
_LANGUAGE_NAMES = dict(pair.split() for pair in _NAMES.split(", "))
_MICROSECONDS = 1_000_000
# Duration of a cue without a length, unless the next one starts earlier.
_LENGTHLESS_SECONDS = 2.0
# Later times are damage; a row per second up to them would take hundreds of gigabytes.
_LATEST_SECONDS = 360_000.0
_FAULTS = ("unreadable times", "reversed times", "no text", "times before 0", "times beyond 100 hours")
# Captions count as rolling if this share of cues repeats the line before; a chorus or a "Roger." stays below.
_ROLLING_SHARE, _ROLLING_GAP, _FEWEST_ROLLING = 0.3, 0.5, 3

# All expressions here take linear time on any text (benchmarks/hostile_text.py): adjacent repetitions match
# different letters, or the first one is possessive (`++`).
# `\r\r\n` is one line end, `\r\r` are two.
_CARRIAGE_RETURNS = re.compile(r"(?<!\r)\r++\n")
# Lenient on purpose: 5.5 s as 00:00:05.5, no hours, one digit, a comma or a point, a sign.
_STAMP = r"(-?)(?:(\d{1,5}):)?(\d{1,3}):(\d{1,2})(?:[.,:](\d{1,9}))?"
_ARROW_LINE = re.compile(rf"\s*{_STAMP}\s*-{{1,3}}>\s*{_STAMP}(?:\s.*)?")
# Malformed times: not part of the text before.
_BROKEN_LINE = re.compile(r"\s*-?\d+:\S*\s*-->")
_TIME = re.compile(_STAMP)
_SBV_LINE = re.compile(rf"\s*{_STAMP}\s*,\s*{_STAMP}\s*")
_ASS_EVENTS = re.compile(r"(?:\A|[\r\n])[ \t]*\[events\]", re.IGNORECASE)
_ASS_LINE = re.compile(rf"Dialogue:(?:[^,]*,)*?\s*{_STAMP}\s*,\s*{_STAMP}\s*,.*")
_HEADER = 2_000
_HEADER_LANGUAGE = re.compile(r"Language:\s*([A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*)\s*")
_VOICE = re.compile(r"<v(?:\.[\w.-]*+)?\s++([^<>]++)>")
_PROGRAM_TAG = re.compile(r"<(/?)(?:script|style)\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:a|b|big|br|c|center|code|div|em|font|h[1-6]|hr|i|img|lang|li|p|pre|q|rt|ruby|s|script|small|span|"
    r"strike|strong|style|sub|sup|table|td|tr|tt|u|ul|v|video|iframe)(?:[\s./][^<>]*)?/?>|<[\d:.,]+>",
    re.IGNORECASE,
)
# The order of fields in files without a `Format:` line.
_ASS_FIELDS = ["layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text"]
_DRAWING = re.compile(r"\\p[1-9]")
_OVERRIDE = re.compile(r"\{\\[^{}]*\}|\{[YyBbIiUu]:[^{}]*\}")
# Invisible characters (zero width, byte order and direction marks) keep words from matching.
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\x00-\x08\x0e-\x1f\x7f]")


class SubtitleError(WhenaboutsError):
    """A subtitle file or track cannot be read; the message names it, the cause and the remedy."""


class BrokenSubtitles(SubtitleError, DataFault):
    """The bytes of a file cannot be read as subtitles."""


@dataclass(frozen=True, slots=True)
class CueTrack:
    """All cues of one source, by start.

    `source` is "sidecar:friday.vtt", "embedded:2" (the stream's number) or "speech:NAME" (of the model);
    `notes` list repairs and omissions.
    """

    cues: tuple[Cue, ...]
    source: str
    language: str | None = None
    notes: tuple[str, ...] = ()
    is_forced: bool = False


def words_of(
    path: Path, sidecars: Sequence[Path], probe: Probe, *, language: str | None = None
) -> list[CueTrack]:
    """All text tracks of a video, the one to index first; empty without any.

    The order is: full tracks before forced ones (which translate only foreign parts), tracks in `language`
    (such as "en") before others, sidecars before embedded tracks. Then come a plain `talk.srt`, the language
    of the sound, English (which the offline encoder reads best), and the others. A broken track comes last,
    without cues and with a note. No picture is decoded. Raises SubtitleError if a sidecar cannot be read.
    """
    tracks = [_sidecar(sidecar, path.stem) for sidecar in sidecars]
    tracks += _embedded(path, [track for track in probe.subtitle_tracks if track.is_text])

    def preference(track: CueTrack) -> tuple[bool, bool, bool, bool, int]:
        is_other = language is not None and not speaks(track, language)
        is_embedded = not track.source.startswith("sidecar:")
        return not track.cues, track.is_forced, is_other, is_embedded, _distance(track, probe.sound_language)

    return sorted(tracks, key=preference)


def read_cue_file(path: Path) -> CueTrack:
    """The cues of an srt, vtt, ass, ssa or sbv file in any encoding; tags and entities resolved.

    The content decides the format, not the name. Cues with reversed times or without text are dropped and
    counted in `notes`; overlapping ones are kept; rolling captions (each cue repeats the line before) are
    unrolled. Raises SubtitleError if the file is not a subtitle file or larger than 64 MiB.
    """
    text, notes = _text_of(path)
    lines = _CARRIAGE_RETURNS.sub("\n", text).replace("\r", "\n").split("\n")
    if _ASS_EVENTS.search(text, 0, 1 << 20):
        raw = _ass_cues(lines)
    elif "->" in text and not _SBV_LINE.match(text):  # a spoken line may have an arrow too
        raw = _timed_blocks(lines, _ARROW_LINE, ends_at_blank=text.lstrip().startswith("WEBVTT"))
    else:
        raw = _sbv_cues(lines)
    cues, repairs = _tidied(raw)
    if not cues and not repairs and text.strip() and not text.lstrip().startswith("WEBVTT"):
        raise BrokenSubtitles(
            f"{printable(path)}: no line with times in it, so not subtitles in srt, vtt, ass or sbv; "
            "convert it to one of these or leave it out"
        )
    return CueTrack(cues, f"sidecar:{path.name}", _named_language(text), (*notes, *repairs))


def _named_language(text: str) -> str | None:
    """The language named in the header of a WebVTT file, which ends with the first empty line."""
    header = itertools.takewhile(str.strip, text[:_HEADER].lstrip().splitlines())
    if not next(header, "").startswith("WEBVTT"):
        return None
    named = (_HEADER_LANGUAGE.fullmatch(line) for line in header)
    return next((match[1].lower() for match in named if match), None)


def last_time(path: Path) -> float:
    """Approximate end of the last cue of a subtitle file in seconds, by its last lines; 0 without times."""
    try:
        with open_source(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES)
    except OSError:
        return 0.0
    # Without zero bytes, UTF-16 has ASCII digits too.
    lines = tail.replace(b"\0", b"").decode("latin-1").splitlines()
    matches = (_ARROW_LINE.fullmatch(x) or _SBV_LINE.fullmatch(x) or _ASS_LINE.fullmatch(x) for x in lines)
    spans = ((_seconds(*x.groups()[:5]), _seconds(*x.groups()[5:])) for x in matches if x)
    return max((end for start, end in spans if max(start, 0.0) <= end <= _LATEST_SECONDS), default=0.0)


@dataclass(slots=True)
class _RawCue:
    """A cue as stored: seconds (None: unreadable times), lines with their tags."""

    start: float | None
    end: float | None
    lines: list[str]


def _sidecar(path: Path, stem: str) -> CueTrack:
    # By dots, not by length: the same name may have more letters in another Unicode form.
    marks = path.stem.lower().split(".")[stem.count(".") + 1 :]
    try:
        track = read_cue_file(path)
    except BrokenSubtitles as error:
        return CueTrack((), f"sidecar:{path.name}", None, (f"left out: {error}",))
    tags = [_LANGUAGE_NAMES.get(mark, mark) for mark in marks]
    tags = [tag for tag in tags if re.fullmatch(r"[a-z]{2,3}([-_][a-z0-9]+)*", tag)]
    language = next((tag for tag in tags if tag not in ("sdh", "asr", "cc")), track.language)
    is_forced = "forced" in marks or "foreign" in marks
    return replace(track, language=language, is_forced=is_forced)


def speaks(track: CueTrack, language: str) -> bool:
    """Whether a track is in a language: `en` matches `en`, `en-US` and `eng`."""
    return track.language is not None and base_language(track.language) == base_language(language)


def _distance(track: CueTrack, sound: str | None) -> int:
    """A track's rank by language if none was named."""
    if track.language is None:
        return 0
    preferred = [language for language in (sound, "en") if language]
    return next((rank for rank, language in enumerate(preferred, 1) if speaks(track, language)), 3)


def _text_of(path: Path) -> tuple[str, tuple[str, ...]]:
    try:
        with open_source(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            data = file.read(LARGEST_BYTES + 1) if size <= LARGEST_BYTES else b""
    except OSError as error:
        raise SubtitleError(
            f"{printable(path)}: cannot be read ({error.strerror}); check that it is there and permitted"
        ) from error
    if max(size, len(data)) > LARGEST_BYTES:
        raise BrokenSubtitles(
            f"{printable(path)}: {size:,} bytes are too many for subtitles (at most {LARGEST_BYTES:,}); "
            "split the file, or leave it out if it is something else"
        )
    text, encoding = decode_text(data)
    if text.count("\x00") > len(text) // 100:
        raise BrokenSubtitles(f"{printable(path)}: holds binary data, no text; leave it out")
    notes = [] if encoding == "utf-8" else [f"read as {encoding}"]
    notes += ["some letters were damaged"] if "\ufffd" in text else []
    notes += ["the file is empty"] if not text.strip() else []
    return text, tuple(notes)


def _seconds(sign: str, hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    """Seconds of a time stamp; its fraction is a decimal: both `.5` and `,500` are half a second."""
    whole = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    value = whole + float(f"0.{fraction or 0}")
    return -value if sign else value


def _timed_blocks(lines: Iterable[str], times: re.Pattern[str], *, ends_at_blank: bool) -> Iterator[_RawCue]:
    """Cues of SubRip, WebVTT and SBV: a line of times, then lines of text.

    In WebVTT a blank line ends a cue, and lines before the next times are its name or a comment. Real SubRip
    files break that rule, so there every line belongs to the text except the next number.
    """
    cue: _RawCue | None = None
    is_open = False
    for line in lines:
        started = _cue_at(line, times)
        if started is not None:
            if cue is not None:
                yield cue if ends_at_blank else _without_number(cue)
            cue, is_open = started, True
        elif cue is not None and is_open:
            if ends_at_blank and not line.strip():
                # Rolling captions begin with a line of one space, a placeholder for the line above.
                is_open = line != "" and not cue.lines
            else:
                cue.lines.append(line)
    if cue is not None:
        yield cue


def _sbv_cues(lines: Iterable[str]) -> Iterator[_RawCue]:
    """Cues of YouTube's SBV, where `[br]` is a line break."""
    for cue in _timed_blocks(lines, _SBV_LINE, ends_at_blank=True):
        yield _RawCue(cue.start, cue.end, "\n".join(cue.lines).replace("[br]", "\n").split("\n"))


def _cue_at(line: str, times: re.Pattern[str]) -> _RawCue | None:
    """The cue that starts at a line of times (without times if malformed); None for other lines."""
    if times is _ARROW_LINE and "->" not in line:
        return None
    if (match := times.fullmatch(line)) is not None:
        groups = match.groups()
        return _RawCue(_seconds(*groups[:5]), _seconds(*groups[5:]), [])
    return _RawCue(None, None, []) if _BROKEN_LINE.match(line) else None


def _without_number(cue: _RawCue) -> _RawCue:
    """The cue without the number of the next one, which stands between its text and the next times."""
    lines = cue.lines
    while lines and not lines[-1].strip():
        lines.pop()
    if lines and lines[-1].strip().isdigit() and (len(lines) == 1 or not lines[-2].strip()):
        lines.pop()
    return cue


def _ass_cues(lines: Iterable[str]) -> Iterator[_RawCue]:
    """Cues of SubStation Alpha, from version 4 on, without comments and drawings.

    The `Format:` line of the events names their fields; the text is always the last one.
    """
    names = _ASS_FIELDS
    start, end = names.index("start"), names.index("end")
    for line in lines:
        kind, _, event = line.strip().partition(":")
        if kind == "Format":
            named = [name.strip().lower() for name in event.split(",")]
            if named[-1] == "text" and "start" in named and "end" in named:
                names, start, end = named, named.index("start"), named.index("end")
        fields = event.split(",", len(names) - 1)
        if kind != "Dialogue" or len(fields) < len(names):
            continue
        words, overrides = _without(fields[-1], "{", "}")
        if not any(_DRAWING.search(override) for override in overrides):
            shown = _ass_lines(words.replace("\\h", " "))
            yield _RawCue(_ass_time(fields[start]), _ass_time(fields[end]), shown)


def _ass_time(text: str) -> float | None:
    match = _TIME.fullmatch(text.strip())
    return None if match is None else _seconds(*match.groups())


# By hand: a pattern with `.*?` takes quadratic time if the end is missing.
def _without(text: str, opening: str, closing: str) -> tuple[str, list[str]]:
    """A text without its parts between two marks, and those parts."""
    kept, removed, at = [], [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[at:start])
        removed.append(text[start + len(opening) : end])
        at = end + len(closing)
    return "".join(kept) + text[at:], removed


def _tidied(raw: Iterable[_RawCue]) -> tuple[tuple[Cue, ...], tuple[str, ...]]:
    """Cues with clean text, by start, and notes on the repairs."""
    counts = dict.fromkeys(_FAULTS, 0)
    kept: list[_RawCue] = []
    voice = ""
    voices: set[str] = set()
    for cue in raw:
        if cue.start is None or cue.end is None:
            counts["unreadable times"] += 1
            continue
        if cue.end < cue.start:
            counts["reversed times"] += 1
            continue
        if cue.end > _LATEST_SECONDS:
            counts["times beyond 100 hours"] += 1
            continue
        if cue.start < 0:
            counts["times before 0"] += 1
            if cue.end <= 0:
                continue
        text, voice = _with_voice("\n".join(cue.lines), voice, voices)
        lines = [line for line in map(_clean, text.split("\n")) if line]
        if lines:
            kept.append(_RawCue(max(0.0, cue.start), cue.end, lines))
        else:
            counts["no text"] += 1
    kept.sort(key=lambda cue: cue.start or 0.0)
    notes = [f"{count} cue(s) with {what}" for what, count in counts.items() if count]
    kept, repeated = _unrolled(kept)
    if repeated:
        notes.append(f"{repeated} rolling caption(s) told once")
    marks = marks_of([cue.lines for cue in kept], {_clean(name) for name in voices})
    return tuple(_with_lengths(kept, marks)), tuple(notes)


def _with_voice(text: str, voice: str, voices: set[str]) -> tuple[str, str]:
    """Text with `<v Name>` written as `Name: ` when the speaker changes, and the speaker at its end.

    The names are added to `voices`.
    """
    if "<v" not in text:
        return text, voice

    def introduction(match: re.Match[str]) -> str:
        nonlocal voice
        name, before = match[1].strip(), voice
        voice = name
        voices.add(name)
        return "" if name == before else f"{name}: "

    return _VOICE.sub(introduction, text), voice


def _without_programs(line: str) -> str:
    kept, at, opened = [], 0, False
    for tag in _PROGRAM_TAG.finditer(line):
        if tag[1] and opened:
            at, opened = tag.end(), False
        elif not tag[1] and not opened:
            kept.append(line[at : tag.start()])
            at, opened = tag.start(), True
    return "".join(kept) + line[at:]


def _clean(line: str) -> str:
    """A line without tags, overrides, entities, invisible characters and needless space."""
    if "<" in line:
        line = _TAG.sub("", _without_programs(_without(line, "<!--", "-->")[0]))
    if "{" in line:
        line = _OVERRIDE.sub("", line)
    if "&" in line:
        line = _unescaped(line)
    if "\\" in line:
        line = re.sub(r"\\[Nnh]", " ", line)
    return " ".join(_INVISIBLE.sub("", line).split())


def _unescaped(line: str) -> str:
    """A line with its entities resolved; unchanged if one is a number of thousands of digits."""
    try:
        return html.unescape(line)
    except ValueError:
        return line


def _unrolled(cues: list[_RawCue]) -> tuple[list[_RawCue], int]:
    """Cues reduced to the text that the one before did not show, and how many changed.

    Live and automatic captions (above all YouTube's) repeat the last line above the new one, or let a line
    grow word by word. Files in which this is rare come back unchanged.
    """
    news = [_news(before, cue) for before, cue in pairwise(cues)]
    rolling = sum(lines is not None for lines in news)
    if rolling < _FEWEST_ROLLING or rolling < _ROLLING_SHARE * len(cues):
        return cues, 0
    unrolled = cues[:1]
    for cue, lines in zip(cues[1:], news, strict=True):
        if lines is None:
            unrolled.append(cue)
        elif lines:
            unrolled.append(_RawCue(cue.start, cue.end, lines))
    return unrolled, rolling


def _news(before: _RawCue, cue: _RawCue) -> list[str] | None:
    """The lines of a cue after those repeated from the cue before; None if it repeats none."""
    assert before.end is not None and cue.start is not None
    if cue.start - before.end > _ROLLING_GAP:
        return None
    for count in range(min(len(before.lines), len(cue.lines)), 0, -1):
        if before.lines[-count:] == cue.lines[:count]:
            return cue.lines[count:]
    shown, now = " ".join(before.lines), " ".join(cue.lines)
    return [now[len(shown) + 1 :]] if now.startswith(f"{shown} ") else None


def _with_lengths(cues: list[_RawCue], marks: Sequence[Marks]) -> Iterator[Cue]:
    """Cues with a length: one without gets two seconds, or the time to the next."""
    for (cue, following), speakers in zip(zip_longest(cues, cues[1:]), marks, strict=True):
        assert cue.start is not None and cue.end is not None
        end = cue.end
        if end <= cue.start:
            end = cue.start + _LENGTHLESS_SECONDS
            if following is not None and following.start is not None and cue.start < following.start < end:
                end = following.start
        yield Cue(cue.start, end, " ".join(cue.lines), speakers=speakers)


def _embedded(path: Path, tracks: Sequence[SubtitleTrack]) -> list[CueTrack]:
    """The cues of several text tracks, in one pass over the file."""
    if not tracks:
        return []
    raw: dict[int, list[_RawCue]] = {track.index: [] for track in tracks}
    with open_media(path) as container:
        discard_others(container, *raw)
        origin = Fraction(container.start_time or 0, _MICROSECONDS)
        notes = _read_packets(container, raw, origin)
    tidied = [(track, *_tidied(_with_ends(raw[track.index]))) for track in tracks]
    return [
        CueTrack(cues, f"embedded:{track.index}", track.language, (*notes, *repairs), track.is_forced)
        for track, cues, repairs in tidied
    ]


def _read_packets(container: Any, raw: dict[int, list[_RawCue]], origin: Fraction) -> tuple[str, ...]:
    """Fill `raw` from the packets of its streams; returns notes on unreadable ones."""
    import av

    undecodable = 0
    streams = [container.streams[index] for index in raw]
    try:
        for packet in packets_of(container, streams):
            if packet.size == 0 or packet.pts is None:
                continue
            try:
                raw[packet.stream_index] += _packet_cues(packet, origin)
            except (av.error.FFmpegError, ValueError):
                undecodable += 1
    except av.error.FFmpegError as error:
        return (f"the file cannot be read to its end ({error.strerror}); later words are missing",)
    return (f"{undecodable} cue(s) could not be decoded",) if undecodable else ()


def _packet_cues(packet: Any, origin: Fraction) -> list[_RawCue]:
    stream: SubtitleStream = packet.stream
    shown = stream.decode2(packet)
    if shown is None:
        return []
    start = packet.pts * packet.time_base - origin
    length = (packet.duration or 0) * packet.time_base
    if length <= 0 and 0 < shown.end_display_time < 0xFFFFFFFF:
        length = Fraction(shown.end_display_time, 1000)
    texts = [getattr(part, "dialogue", b"") or getattr(part, "text", b"") for part in shown.rects]
    lines = [line for text in texts for line in _ass_lines(text.decode("utf-8", "replace"))]
    return [_RawCue(float(start), float(start + length) if length > 0 else None, lines)]


def _ass_lines(text: str) -> list[str]:
    """Lines of an event of SubStation Alpha: overrides in braces, \\N between lines."""
    return re.split(r"\\N|\\n|\n", re.sub(r"\{\\[^{}]*\}", "", text))


def _with_ends(cues: list[_RawCue]) -> list[_RawCue]:
    """Cues without an end last until the next one, as in players."""
    ordered = sorted(cues, key=lambda cue: cue.start or 0.0)
    for cue, after in zip_longest(ordered, ordered[1:]):
        if cue.end is None and cue.start is not None:
            cue.end = after.start if after is not None else cue.start
    return ordered
