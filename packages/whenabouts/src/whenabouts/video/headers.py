"""Facts in container headers that FFmpeg does not expose: missing bytes, missing index, rotation.

Containers state the length of their parts. After a broken download or copy the parts reach beyond the end of
the file, which players hide: they show the beginning and stop without a message.
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
# More boxes on one level are a long fragmented stream, which is not worth walking to its end.
_MOST_BOXES = 100_000
# Five hours of a live recording, whose elements have no sizes, and a day of an Ogg stream.
_MOST_ELEMENTS = 1_000_000
# The EBML header of a Matroska file has some forty bytes.
_LONGEST_HEADER = 1 << 20
_FIRST_FRAME = 2048
# The mark of a FLAC stream and its first block, up to the number of its samples (RFC 9639, 8.1 and 8.2).
_FLAC_BEGIN = re.compile(rb"fLaC[\0\x80]\0\0\x22.{10}(.{8})", re.DOTALL)
# The header of an FLV file and the size of the tag before it, 0 (Video File Format 10.1, E.2 and E.3).
_FLV_BEGIN = re.compile(rb"FLV\x01[\0-\x05]\0\0\0\x09\0\0\0\0")


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
    """Bytes of other recordings that were joined to an MP4/MOV, AVI or WAV, which FFmpeg does not read.

    A fragmented MP4 may repeat its header, and is read to its end. Raises OSError if the file cannot be read.
    """
    with open_source(path) as file:
        size = _size(file)
        head = file.read(12)
        if head[4:8] == b"ftyp":
            boxes = [(kind, first) for kind, first, _ in _boxes(file, 0, size)]
            kinds = [kind for kind, _ in boxes]
            if b"moof" not in kinds and b"ftyp" in kinds[1:]:
                return size - boxes[kinds.index(b"ftyp", 1)][1] + 8
        elif head[:4] == b"RIFF" and head[8:] in (b"AVI ", b"WAVE"):
            end = int.from_bytes(head[4:8], "little") + 8
            end += end % 2  # chunks have an even length
            file.seek(end)
            after = file.read(12)
            return size - end if after[:4] + after[8:] == head[:4] + head[8:] else 0
    return 0


def counts_frames(path: Path) -> bool:
    """Whether an MP3 says how many frames it has: its first frame is a Xing, Info or VBRI header."""
    with open_source(path) as file:
        head = file.read(10)
        if head[:3] == b"ID3":  # its size has seven bits a byte (ID3v2.4, 3.1)
            file.seek(10 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(head[6:]))))
        head = head + file.read(_FIRST_FRAME)
    return any(name in head for name in (b"Xing", b"Info", b"VBRI"))


def is_chained(path: Path) -> bool:
    """Whether a Matroska, Ogg, FLAC or FLV file goes on with another one, joined to it byte by byte."""
    with open_source(path) as file:
        head = file.read(4)
        file.seek(0)
        if head == _EBML:
            return _has_two_segments(file)
        if head == b"OggS":
            return _has_two_beginnings(file)
    return bool(inner_headers(path)) if head[:3] == b"FLV" else len(flac_lengths(path)) > 1


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
    """First byte and one past the last of each header inside an FLV file, where another was joined to it."""
    with open_source(path) as file:
        if file.read(3) != b"FLV":
            return []
    return [(at, at + len(begin[0])) for at, begin in _matches(path, _FLV_BEGIN, 13) if at]


def _matches(path: Path, pattern: re.Pattern[bytes], length: int) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Where a pattern of `length` bytes occurs in a file."""
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
    """For each track of an MP4/MOV with an edit list: where each edit begins in the track, -1 for a pause.

    Source: ISO 14496-12, 8.6.6. Empty for other files.
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
        if position + 8 > end:  # before the seek: a length of 64 bits is no place in a file
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
