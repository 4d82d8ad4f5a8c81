"""Facts in container headers that FFmpeg does not expose, such as a truncated end or a joined recording.

Containers state the length of their parts. In a truncated file the last part reaches beyond the end. Players
hide this: they play what is there and stop without a message.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from whenabouts.video.objects import open_source

_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_MP4_FIRST_BOXES = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp"}
# A level with more boxes is a long fragmented stream; it is not read to its end.
_MOST_BOXES = 100_000
# Five hours of a live recording, whose elements have no sizes, and a day of an Ogg stream.
_MOST_ELEMENTS = 1_000_000
# The EBML header of a Matroska file has some forty bytes.
_LONGEST_HEADER = 1 << 20
_FIRST_FRAME = 2048
# The header of an MP3 frame, its side information (9, 17 or 32 bytes) and the mark of a count of frames.
_COUNT_OF_FRAMES = re.compile(rb"\xff[\xe0-\xff]..(?:(?:.{9}|.{17}|.{32})(?:Xing|Info)|.{32}VBRI)", re.DOTALL)
# The mark of a FLAC stream and its first block, up to the number of its samples (RFC 9639, 8.1 and 8.2).
_FLAC_BEGIN = re.compile(rb"fLaC[\0\x80]\0\0\x22.{10}(.{8})", re.DOTALL)
# Headers and their lengths. Inside a file FFmpeg stops at them or misreads them. An FLV header is followed by
# the size of the tag before it, 0 (Video File Format 10.1, E.2 and E.3). NUT begins with a file identifier.
_INNER_HEADERS = {
    b"FLV": (re.compile(rb"FLV\x01[\0-\x05]\0\0\0\x09\0\0\0\0"), 13),
    b"nut": (re.compile(rb"nut/multimedia container\0"), 25),
}
_INITIAL = bytes(flags for flags in range(256) if flags & 8)  # WavPack: the bit of an initial block
# First bytes of formats. Of several joined files FFmpeg reads only the first, or the others at wrong times.
_BEGINNINGS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\0\xaa\0\x62\xce\x6c",  # ASF: WMV and WMA
        rb"\xb7\xd8\0\x20\x37\x49\xda\x11\xa6\x4e\0\x07\xe9\x5e\xad\x8d",  # WTV
        rb"\x06\x0e\x2b\x34\x02\x05\x01\x01\x0d\x01\x02\x01\x01\x02",  # MXF, the header partition
        rb"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\0\0",  # Wave64
        rb"\.RMF\0\0\0\x12\0",  # RealMedia
        rb"DKIF\0\0\x20\0",  # IVF
        rb"YUV4MPEG2 ",
        rb"FORM.{4}AIF[FC](COMM|FVER)",
        rb"\.snd\0\0.{2}.{4}\0\0\0[\1-\x1b]",  # AU
        rb"TTA1[\1\2]\0[\1-\x08]\0[\x08\x10\x18]\0",
        rb"wvpk.{12}\0{4}.{5}[%b]" % re.escape(_INITIAL),  # WavPack, the first block of several channels
        rb"MAC [\x8c-\x9f]\x0f\0\0\x34\0\0\0",  # Monkey's Audio
        rb"Creative Voice File\x1a",
        rb"#!AMR(-WB)?\n",
    )
]
_LONGEST_BEGINNING = 32


def missing_bytes(path: Path) -> int:
    """Bytes that the container claims beyond the end of the file; 0 if it is complete or unknown.

    Known for MP4/MOV (ISO 14496-12 boxes), Matroska/WebM (the EBML size of the segment) and AVI/WAV (RIFF).
    Raises OSError if the file cannot be read.
    """
    with open_source(path) as file:
        size = _size(file)
        head = file.read(16)
        if head[4:8] in _MP4_FIRST_BOXES:
            return max(0, max((last for _, _, last in _boxes(file, 0, size)), default=0) - size)
        if head[:4] == _EBML:
            return max(0, _segment_end(file) - size)
        if head[:4] == b"RIFF":
            return max(0, int.from_bytes(head[4:8], "little") + 8 - size) if head[4:8] != b"\xff" * 4 else 0
    return 0


def joined_bytes(path: Path) -> int:
    """The size of recordings appended to a file that FFmpeg ignores or reads at wrong times.

    Known for MP4/MOV, AVI, WAV and the formats of `_BEGINNINGS`. Raises OSError if the file cannot be read.
    """
    with open_source(path) as file:
        size = _size(file)
        head = file.read(_LONGEST_BEGINNING)
        if head[4:8] == b"ftyp":
            return _joined_boxes(file, size)
        if head[:4] == b"RIFF" and head[8:12] in (b"AVI ", b"WAVE"):
            end = int.from_bytes(head[4:8], "little") + 8
            end += end % 2  # chunks have an even length
            file.seek(end)
            after = file.read(12)
            return size - end if after[:4] + after[8:] == head[:4] + head[8:12] else 0
    for beginning in _BEGINNINGS:
        if beginning.match(head):
            places = (at for at, _ in _matches(path, beginning, _LONGEST_BEGINNING) if at)
            return size - next(places, size)
    return 0


def _joined_boxes(file: BinaryIO, size: int) -> int:
    """The number of bytes from the second `ftyp` of an MP4 on.

    0 if fragments after it continue the clock of fragments before it: a live recording repeats its header.
    """
    boxes = list(_boxes(file, 0, size))
    first, last = next(((start, end) for kind, start, end in boxes[1:] if kind == b"ftyp"), (size, size))
    if first == size:
        return 0
    before, after = dict(_fragment_times(file, 0, first)), list(_fragment_times(file, last, size))
    goes_on = before and after and all(time > before.get(track, -1) for track, time in after)
    return 0 if goes_on else size - first + 8


def _fragment_times(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(track number, decoding time in ticks) of each fragment between two places of an MP4."""
    for _, inside, after in _inside(file, (b"moof", b"traf"), start, end):
        track = time = 0
        for kind, first, _ in _boxes(file, inside, min(after, end)):
            file.seek(first)
            body = file.read(12)
            if kind == b"tfhd":
                track = int.from_bytes(body[4:8], "big")
            elif kind == b"tfdt":
                time = int.from_bytes(body[4 : 12 if body[:1] == b"\x01" else 8], "big")
        yield track, time


def counts_frames(path: Path) -> bool:
    """Whether an MP3 states how many frames it has: a frame near its start is a Xing, Info or VBRI header."""
    with open_source(path) as file:
        head = file.read(10)
        if head[:3] == b"ID3":  # its size has seven bits a byte (ID3v2.4, 3.1)
            file.seek(10 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(head[6:]))))
        head = head + file.read(_FIRST_FRAME)
    return _COUNT_OF_FRAMES.search(head) is not None


def is_chained(path: Path) -> bool:
    """Whether another file was appended to a Matroska, Ogg, FLV or NUT file; reads other files as FLAC."""
    with open_source(path) as file:
        head = file.read(4)
        file.seek(0)
        if head == _EBML:
            return _has_two_segments(file)
        if head == b"OggS":
            return _has_two_beginnings(file)
    return bool(inner_headers(path)) if head[:3] in _INNER_HEADERS else len(flac_lengths(path)) > 1


def _has_two_segments(file: BinaryIO) -> bool:
    """Whether a second EBML header follows. Elements of unknown size are entered, others skipped."""
    size, at, headers = _size(file), 0, 0
    for _ in range(_MOST_ELEMENTS):
        if at >= size:
            break
        file.seek(at)
        number = _element_number(file)
        length = _vint(file)
        headers += number == _EBML
        if headers > 1 or not number:
            break
        at = file.tell() + (0 if length is None else length)
    return headers > 1


def _element_number(file: BinaryIO) -> bytes:
    """The number of an EBML element (RFC 8794, 5); empty where there is none."""
    first = file.read(1)
    if not first or first[0] < 0x10:
        return b""
    return first + file.read(8 - first[0].bit_length())


def _has_two_beginnings(file: BinaryIO) -> bool:
    """Whether a logical stream of an Ogg file begins after data of another (RFC 3533, 4 and 6)."""
    size, at, has_data = _size(file), 0, False
    for _ in range(_MOST_ELEMENTS):
        if at + 27 > size:
            break
        file.seek(at)
        page = file.read(27 + 255)
        if page[:4] != b"OggS":
            return False  # damaged: FFmpeg looks for the next page
        begins = bool(page[5] & 2)
        if begins and has_data:
            return True
        has_data = has_data or not begins
        at += 27 + page[26] + sum(page[27 : 27 + page[26]])
    return False


def flac_lengths(path: Path) -> list[float]:
    """Seconds that each of the joined streams of a FLAC file states, 0 where it states none."""
    lengths = []
    for _, begin in _matches(path, _FLAC_BEGIN, 26):
        # After 20 bits of the sample rate come 8 bits of channels and depth.
        facts = int.from_bytes(begin[1], "big")
        lengths.append((facts & ((1 << 36) - 1)) / max(1, facts >> 44))
    return lengths


def inner_headers(path: Path) -> list[tuple[int, int]]:
    """The (first byte, end) of each header inside an FLV or NUT file: another file was appended there."""
    with open_source(path) as file:
        pattern, length = _INNER_HEADERS.get(file.read(3), (None, 0))
    if pattern is None:
        return []
    return [(at, at + length) for at, _ in _matches(path, pattern, length) if at]


def _matches(path: Path, pattern: re.Pattern[bytes], length: int) -> Iterator[tuple[int, re.Match[bytes]]]:
    """The (first byte, match) of each place where a pattern of `length` bytes occurs in a file."""
    tail, at = b"", 0
    with open_source(path) as file:
        while piece := file.read(1 << 20):
            window, after = tail + piece, 0
            for match in pattern.finditer(window):
                after = match.end()
                yield at + match.start(), match
            kept = max(after, len(window) - length + 1)
            tail, at = window[kept:], at + kept


def lacks_index(path: Path) -> bool:
    """Whether this is an MP4/MOV without its index (`moov`), which recorders write last."""
    with open_source(path) as file:
        if file.read(8)[4:] not in _MP4_FIRST_BOXES:
            return False
        return all(kind != b"moov" for kind, _, _ in _boxes(file, 0, _size(file)))


def track_matrices(path: Path) -> dict[int, tuple[int, ...]]:
    """Track number → display matrix (nine integers, row by row) of an MP4/MOV; empty for other files.

    Source: the track header `tkhd`, ISO 14496-12, 8.3.2.
    """
    matrices: dict[int, tuple[int, ...]] = {}
    with open_source(path) as file:
        if file.read(8)[4:] not in _MP4_FIRST_BOXES:
            return {}
        for _, start, end in _inside(file, (b"moov", b"trak", b"tkhd"), 0, _size(file)):
            file.seek(start)
            body = file.read(min(end - start, 96))
            long = body[:1] == b"\x01"
            if len(body) >= (88 if long else 76):
                (number,) = struct.unpack_from(">I", body, 20 if long else 12)
                matrices[number] = struct.unpack_from(">9i", body, 52 if long else 40)
    return matrices


def edit_starts(path: Path) -> list[list[int]]:
    """For each edit list of an MP4/MOV, the beginnings of its edits: ticks in the track, -1 for a pause.

    Empty for other files. Source: ISO 14496-12, 8.6.6.
    """
    with open_source(path) as file:
        if file.read(8)[4:] not in _MP4_FIRST_BOXES:
            return []
        lists = _inside(file, (b"moov", b"trak", b"edts", b"elst"), 0, _size(file))
        return [_edits(file, start, end) for _, start, end in lists]


def _edits(file: BinaryIO, start: int, end: int) -> list[int]:
    file.seek(start)
    body = file.read(min(end - start, _LONGEST_HEADER))
    layout = ">Qqi" if body[:1] == b"\x01" else ">Iii"
    rows = body[8 : 8 + (len(body) - 8) // struct.calcsize(layout) * struct.calcsize(layout)]
    return [begin for _, begin, _ in struct.iter_unpack(layout, rows)]


def _size(file: BinaryIO) -> int:
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(at)
    return size


def _inside(
    file: BinaryIO, kinds: tuple[bytes, ...], start: int, end: int
) -> Iterator[tuple[bytes, int, int]]:
    """The boxes at the end of a path of kinds: (kind, first byte, one past the last) of their contents."""
    for kind, first, last in _boxes(file, start, end):
        if kind != kinds[0]:
            continue
        if len(kinds) == 1:
            yield kind, first, last
        else:
            yield from _inside(file, kinds[1:], first, min(last, end))


def _boxes(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The boxes between two positions of a file: (kind, first byte, one past the last) of their contents.

    The last one may claim to reach beyond `end`; a box of length 0 reaches to `end`.
    """
    position = start
    for _ in range(_MOST_BOXES):
        if position + 8 > end:  # checked before the seek, which fails beyond 63 bits
            return
        file.seek(position)
        header = file.read(16)
        if len(header) < 8:
            return
        length, kind, before = int.from_bytes(header[:4], "big"), header[4:8], 8
        if length == 1:
            length, before = int.from_bytes(header[8:16], "big"), 16
        elif length == 0:
            length = end - position
        if length < before:
            return  # not a box
        yield kind, position + before, position + length
        position += length


def _segment_end(file: BinaryIO) -> int:
    """The stated end of a Matroska segment; 0 if unknown."""
    file.seek(4)
    header_size = _vint(file)
    if header_size is None or header_size > _LONGEST_HEADER:
        return 0
    file.seek(header_size, os.SEEK_CUR)
    if file.read(4) != _SEGMENT:
        return 0
    segment_size = _vint(file)
    return 0 if segment_size is None else file.tell() + segment_size


def _vint(file: BinaryIO) -> int | None:
    """An EBML variable-length size (RFC 8794, 4); None if unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    length = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (0xFF >> length)]) + file.read(length - 1), "big")
    return None if value == (1 << 7 * length) - 1 else value
