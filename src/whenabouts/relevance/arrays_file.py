"""Arrays and a few words about them in one file that cannot run anything: safetensors, read memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.formats.files import FormatError, write_atomically

_TYPES = {"F16": "<f2", "F32": "<f4", "I32": "<i4", "I64": "<i8", "U8": "|u1"}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}
_ALIGNED = 8


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> None:
    """Write named arrays; the file appears whole or not at all. Raises FormatError where it cannot be."""
    # The widest come first: then each begins where its type may be read in place.
    ordered = dict(sorted(arrays.items(), key=lambda one: (-one[1].dtype.itemsize, one[0])))
    header: dict[str, Any] = {"__metadata__": dict(about)}
    place = 0
    for name, array in ordered.items():
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with write_atomically(path) as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for array in ordered.values():
            stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_arrays(path: Path, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """(arrays, words about them); what is large is read from the disk as it is looked at.

    Raises FormatError for a file that is missing, cut off, or no such file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        # The library checks that the places of the arrays fill the file exactly.
        with safe_open(path, framework="numpy") as opened:
            about = dict(opened.metadata() or {})
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError) as error:
        raise FormatError(path, f"is no file of {what}, or is cut off ({error}); make it again") from None
    header.pop("__metadata__", None)
    return {name: _mapped(path, 8 + length, entry) for name, entry in header.items()}, about


def _mapped(path: Path, base: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    if entry["dtype"] not in _TYPES:
        raise FormatError(
            path, "holds an array of the type", value=entry["dtype"], accepted=", ".join(_TYPES)
        )
    dtype, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(entry["shape"])
    if 0 in shape:
        return np.zeros(shape, dtype)
    begin = base + entry["data_offsets"][0]
    return np.asarray(np.memmap(path, dtype, "r", begin, shape))
