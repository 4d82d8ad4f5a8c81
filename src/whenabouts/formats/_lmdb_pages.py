"""Pages of an LMDB file, looked at before the library reads them: of damaged ones it may end the process.

LMDB trusts its pages: a zeroed page ends the process by an assertion, an offset that leads out of the file by
a bus error, and nothing is raised. So the tree is walked first: every page below the root must be what it is
taken for, and the records must be as many as the file says. What records hold is not looked at.

Only the form that the package `lmdb` writes on machines of 64 bits is known (little-endian; one database, a
value for each key); all else is left to the library.

Shapes: P pages, W words of 16 bits in each, N nodes (what a page has for each of its keys) of all P.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whenabouts.formats.files import FormatError

Words = NDArray[np.uint16]
Indices = NDArray[np.int64]

_HEADER, _NODE = 16, 8
_MAGIC = b"\xde\xc0\xef\xbe"
_META, _BRANCH, _LEAF, _KINDS = 0x08, 0x01, 0x02, 0x6F
_BIG, _NAMED = 0x01, 0x02
_NOTHING = (1 << 64) - 1
_PAGE_SIZE, _MAIN = struct.Struct("<40xI"), struct.Struct("<88xIHHQQQQQQQ")
_TOGETHER = 1024


@dataclass(frozen=True)
class _Tree:
    """Where the records are: the root's page, the last page, what kind they are of, how many they are."""

    root: int
    last: int
    flags: int
    records: int


def check_pages(file: Path) -> None:
    """Raise FormatError where a file is cut off, or where reading its records would end the process."""
    with file.open("rb") as raw:
        if raw.read(_HEADER + len(_MAGIC))[_HEADER:] != _MAGIC:
            return
    whole = np.memmap(file, np.uint8, "r")
    size = _page_size(file, whole)
    tree = _tree(file, whole, size)
    if len(whole) < (needed := (tree.last + 1) * size):
        raise FormatError(
            file, f"is cut off: it has {len(whole):,} bytes, and its pages need {needed:,}; fetch it again"
        )
    if tree.flags:
        raise _damaged(file, "its database is of another kind")
    pages = whole[:needed].reshape(-1, size).view("<u2")
    if (found := _records(file, pages, tree)) != tree.records:
        raise _damaged(file, f"it says that it has {tree.records:,} records, and {found:,} are found")


def _page_size(file: Path, whole: NDArray[np.uint8]) -> int:
    """Bytes of a page."""
    told = whole[: _PAGE_SIZE.size].tobytes()
    size = _PAGE_SIZE.unpack(told)[0] if len(told) == _PAGE_SIZE.size else 0
    if not 256 <= size <= 1 << 16 or size & (size - 1) or len(whole) < 2 * size:
        raise _damaged(file, f"pages of {size:,} bytes in {len(whole):,}")
    return int(size)


def _tree(file: Path, whole: NDArray[np.uint8], size: int) -> _Tree:
    """What the newer of the two first pages says."""
    found = []
    for page in (0, 1):
        first = whole[page * size : (page + 1) * size].tobytes()
        if not first[10] & _META or first[_HEADER : _HEADER + len(_MAGIC)] != _MAGIC:
            raise _damaged(file, f"page {page} is no first page")
        # pad, flags, depth; pages: branches, leaves, overflow; records, root; last page; turn
        _, flags, _, _, _, _, records, root, last, turn = _MAIN.unpack_from(first)
        found.append((turn, _Tree(root, last, flags, records)))
    return max(found, key=lambda one: one[0])[1]


def _records(file: Path, pages: Words, tree: _Tree) -> int:
    """How many records the pages below the root have."""
    waiting = np.array([] if tree.root == _NOTHING else [tree.root], np.uint64)
    seen, count = np.zeros(len(pages), bool), 0
    while len(waiting):
        if waiting.min() < 2 or waiting.max() >= len(pages):
            raise _damaged(file, "pages are named that are not there")
        some, waiting = waiting[:_TOGETHER].astype(np.int64), waiting[_TOGETHER:]
        if seen[some].any() or len(np.unique(some)) < len(some):
            raise _damaged(file, "a page is named twice")
        seen[some] = True
        below, records = _below(file, pages[some], some, len(pages))
        waiting = np.concatenate([waiting, below])
        count += records
    return count


def _below(file: Path, words: Words, numbers: Indices, last: int) -> tuple[NDArray[np.uint64], int]:
    """The pages that P pages (P, W) name as theirs, and how many records they have themselves."""
    size = 2 * words.shape[1]
    own = words[:, :4].astype(np.uint64) @ (np.uint64(1) << np.arange(0, 64, 16, dtype=np.uint64))
    kind, lower, upper = words[:, 5] & _KINDS, words[:, 6].astype(np.int64), words[:, 7].astype(np.int64)
    keys = (lower - _HEADER) // 2
    is_leaf = kind == _LEAF
    sound = (own == numbers.astype(np.uint64)) & (lower % 2 == 0) & (lower <= upper) & (upper <= size)
    sound &= (is_leaf & (keys > 0)) | ((kind == _BRANCH) & (keys > 1))
    _refuse(file, ~sound, numbers, "is none of the tree")
    page = np.repeat(np.arange(len(words)), keys)
    place = words[page, _HEADER // 2 + _counted(keys)].astype(np.int64)
    _refuse(file, (place % 2 > 0) | (place < upper[page]) | (place > size - _NODE), numbers[page], "is torn")
    node = np.stack([words[page, place // 2 + at] for at in range(4)], 1).astype(np.int64)
    value = place + _NODE + node[:, 3]
    _refuse(file, value > size, numbers[page], "is torn")
    leaf = is_leaf[page]
    _check_values(file, words, numbers, (page[leaf], value[leaf], node[leaf]), last)
    branch = node[~leaf].astype(np.uint64)
    below = branch[:, 0] | branch[:, 1] << np.uint64(16) | branch[:, 2] << np.uint64(32)
    return below, int(leaf.sum())


def _check_values(
    file: Path, words: Words, numbers: Indices, records: tuple[Indices, Indices, Indices], last: int
) -> None:
    """Raise where a value of R records is neither in its page nor in the file.

    Of each record its page (R,), where in it the value begins (R,), and its node (R, 4).
    """
    page, value, node = records
    size, flags, length = 2 * words.shape[1], node[:, 2], node[:, 0] | node[:, 1] << 16
    big = flags == _BIG
    end = value + np.where(big, 8, length)
    _refuse(file, (flags & ~(_BIG | _NAMED) != 0) | (end > size), numbers[page], "is torn")
    page, value, length = page[big], value[big], length[big]
    first = words.view(np.uint8)[page[:, None], value[:, None] + np.arange(8)].view("<u8")[:, 0]
    outside = (first < 2) | (first >= last)
    room = (last - np.where(outside, 0, first).astype(np.int64)) * size - _HEADER
    _refuse(file, outside | (length > room), numbers[page], "has a value that is not in the file")


def _counted(counts: Indices) -> Indices:
    """0, 1, … for each of the counts, one after the other."""
    ends = counts.cumsum()
    return np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)


def _refuse(file: Path, bad: NDArray[np.bool_], numbers: NDArray[np.int64], what: str) -> None:
    if bad.any():
        raise _damaged(file, f"page {numbers[int(np.argmax(bad))]} {what}")


def _damaged(file: Path, what: str) -> FormatError:
    return FormatError(file, f"is damaged ({what}); fetch it again")
