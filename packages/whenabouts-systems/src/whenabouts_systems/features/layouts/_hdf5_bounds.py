"""Refuse items of HDF5 files that cost too much to read, by their headers, before anything is read.

A file of a few hundred bytes can describe gigabytes: chunks that unpack to a thousand times their size,
chunks that were never written, millions of tiny chunks, or one data set under a hundred names.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import Any

from whenabouts.intake.files import most_unpacked

UNPACKED = "items as `h5repack -f NONE OLD.h5 NEW.h5` writes them"

_GZIP, _SHUFFLE, _CHECKSUM, _LZF = 1, 2, 3, 32_000
_PACKINGS = [(), (_SHUFFLE,), (_GZIP,), (_LZF,), (_SHUFFLE, _GZIP), (_SHUFFLE, _LZF)]
"""Accepted filters of a chunk, in the order of writing, without checksums."""
_CHECKSUM_BYTES = 4
_MOST_DEFLATED = 1032
"""Most bytes that one byte of gzip unpacks to; for LZF it is 88."""
_FREE_CHUNK_BYTES = most_unpacked(0)
_MOST_CHUNKS = 10_000


class Costly(ValueError):
    """An item whose reading costs far more than its bytes in the file; the message becomes part of a line."""


class Bounds:
    """Limits on the packed items of a file of `file_bytes`, each and all together."""

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self._counted: set[str] = set()
        self._total = 0

    def check(self, item: str, data: Any) -> None:
        """Raise Costly if a data set (an object of h5py's low-level interface) exceeds a limit."""
        from h5py import h5d

        plan = data.get_create_plist()
        is_chunked = plan.get_layout() == h5d.CHUNKED
        chunk = plan.get_chunk() if is_chunked else data.shape
        starts = [range(0, length, step) for length, step in zip(data.shape, chunk, strict=True)]
        count, chunk_bytes = math.prod(map(len, starts)), math.prod(chunk) * data.dtype.itemsize
        if count > _MOST_CHUNKS and count > 2 * data.get_num_chunks():
            raise Costly(f"has {count:,} chunks, most of which are not in the file")
        stored, size = min(data.get_storage_size(), self._file_bytes), count * chunk_bytes
        if size > most_unpacked(stored):
            raise Costly(f"unpacks from {stored:,} bytes to {size:,}, over a hundred times as many")
        self._total += 0 if item in self._counted else size
        self._counted.add(item)
        if self._total > most_unpacked(self._file_bytes):
            raise Costly(
                f"and the items before it unpack from a file of {self._file_bytes:,} bytes to "
                f"{self._total:,}, over a hundred times as many"
            )
        if is_chunked:
            self._check_filters(data, plan, starts, chunk_bytes)

    def _check_filters(self, data: Any, plan: Any, starts: Sequence[range], chunk_bytes: int) -> None:
        filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
        packing = tuple(code for code in filters if code != _CHECKSUM)
        if packing not in _PACKINGS or len(filters) > len(packing) + 1:
            raise Costly(f"is packed by the filters {filters}; only shuffle with gzip or LZF is read")
        if _GZIP not in filters or data.get_storage_size() * _MOST_DEFLATED <= _FREE_CHUNK_BYTES:
            return
        skips_gzip = 1 << filters.index(_GZIP)
        for start in itertools.product(*starts):
            chunk = data.get_chunk_info_by_coord(start)
            if not chunk.filter_mask & skips_gzip and chunk.size * _MOST_DEFLATED > _FREE_CHUNK_BYTES:
                _check_chunk(data.read_direct_chunk(start)[1], chunk_bytes + _CHECKSUM_BYTES)


def _check_chunk(packed: bytes, most: int) -> None:
    """Raise Costly for a chunk that HDF5 would unpack without end, and zlib.error for a damaged one."""
    if len(zlib.decompressobj().decompress(packed, most + 1)) > most:
        raise Costly(f"has a chunk that unpacks to more than its {most:,} bytes")
