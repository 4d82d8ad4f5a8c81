"""LMDB of CONQUER and HERO: id -> msgpack of {"features": array}, or the bytes of an npz with `features`.

In CONQUER's release videos are msgpack (with the extension of msgpack-numpy), sentences and subtitles are
npz. HERO also packs some values with LZ4, which are read too. Arrays are decoded here, because the package
msgpack-numpy would load a pickle if a file asks for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from whenabouts.intake.files import FormatError, ReaderMissing, most_unpacked
from whenabouts_bench.formats.lmdb_records import LmdbRecords
from whenabouts_systems.features.layouts._numpy_files import inspect_npz
from whenabouts_systems.features.source import (
    MOST_BYTES,
    FeatureLocation,
    FeatureSource,
    OpenOptions,
    UnreadArray,
)

NAME = "lmdb"
SUMMARY = "LMDB, id -> msgpack or npz with `features`: CONQUER, HERO"
OUTLINE = r"lmdb\n.*"

_KEY = "features"
_LZ4 = b"\x04\x22\x4d\x18"
_ZIP = b"PK\x03\x04"
_FLOAT = re.compile(r"[<>=|]?f[248]")


class Source(FeatureSource):
    """An LMDB with one record for each item."""

    layout = NAME

    def __init__(self, location: FeatureLocation, options: OpenOptions) -> None:
        super().__init__(location.path, options)
        file = location.lmdb_file
        if file is None:
            raise FormatError(
                location.path, f"is {location.describe()}", accepted="LMDB: a folder with data.mdb"
            )
        try:
            import msgpack
        except ImportError:
            raise ReaderMissing(location.path, "LMDB", "msgpack") from None
        self._msgpack: Any = msgpack
        self._records = LmdbRecords(file)

    def _items_by_id(self) -> Mapping[str, Any]:
        keys = self._records.all_keys()
        return {key.decode("utf-8", "surrogateescape"): key for key in keys}

    def _inspect(self, item: str, where: Any) -> UnreadArray:
        data = self._records.get(where)
        if data[:4] == _LZ4:
            data = self._unpacked(item, data)
        key = self.options.key or _KEY
        if data[:4] == _ZIP:
            return inspect_npz(data, item, (key,), self.path)
        return self._array(item, self._decoded(item, data), key)

    def _decoded(self, item: str, data: bytes) -> Any:
        try:
            # Strings, also keys, as bytes, because writers differ in which they mark as text.
            return self._msgpack.unpackb(data, raw=True, strict_map_key=False)
        except (ValueError, self._msgpack.UnpackException) as error:
            reason = str(error) or type(error).__name__
            self._refuse(
                item, f"is neither msgpack nor npz ({reason[:120]})", 'msgpack of {"features": array}'
            )

    def _array(self, item: str, record: Any, key: str) -> UnreadArray:
        """The array under a key, as msgpack-numpy writes it."""
        accepted = f"msgpack of {{{key!r}: array}}"
        if not isinstance(record, dict):
            hint = ", as a list of ranked videos does" if isinstance(record, list) else ""
            self._refuse(item, f"holds a {type(record).__name__}{hint}", accepted)
        if key.encode() not in record:
            self._refuse(item, f"has the keys {[_text(name) for name in list(record)[:5]]}", accepted)
        packed = record[key.encode()]
        if not isinstance(packed, dict) or not packed.get(b"nd"):  # msgpack-numpy's mark of an array
            self._refuse(
                item, f"holds a {type(packed).__name__} as {key!r}", "an array as msgpack-numpy writes it"
            )
        kind, name = packed.get(b"kind"), packed.get(b"type")
        if kind not in (b"", None) or not isinstance(name, bytes) or not _FLOAT.fullmatch(_text(name)):
            content = "Python objects (a pickle)" if kind == b"O" else f"type {_text(name)!r}"
            self._refuse(item, f"holds {content}, which is not read", "arrays of float16, float32, float64")
        dtype, data, shape = np.dtype(_text(name)), packed.get(b"data"), packed.get(b"shape")
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            self._refuse(item, f"has the shape {_text(shape)}", "a list of sizes")
        needed = math.prod(shape) * dtype.itemsize
        if not isinstance(data, bytes) or len(data) != needed:
            content = f"{len(data)} bytes" if isinstance(data, bytes) else f"a {type(data).__name__}"
            self._refuse(item, f"holds {content}, but its shape {shape} needs {needed}")
        return UnreadArray(tuple(shape), dtype, lambda: np.frombuffer(data, dtype).reshape(shape))

    def _unpacked(self, item: str, data: bytes) -> bytes:
        import pyarrow

        most = min(MOST_BYTES, most_unpacked(len(data)))
        try:
            with pyarrow.input_stream(pyarrow.BufferReader(data), compression="lz4") as stream:
                whole: bytes = stream.read(most + 1)
        except (OSError, pyarrow.ArrowException) as error:
            self._refuse(item, f"is damaged LZ4 ({str(error)[:120]})")
        if len(whole) > most:
            self._refuse(item, f"has {len(data):,} bytes that unpack to too many", f"at most {most:,} bytes")
        return whole

    def _release(self) -> None:
        self._records.close()


open_source = Source
"""`OpenOptions.key` names another array of the records than `features`."""


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)[:60]
