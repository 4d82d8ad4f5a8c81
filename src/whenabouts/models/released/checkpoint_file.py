"""A checkpoint that `torch.save` wrote, of any year, read without running it: tensors and plain settings.

The released programs save `{"model": state_dict, "model_cfg": settings, "epoch": number}`; the settings are
an object of a package (easydict) that need not be here. PyTorch writes a zip file with a pickle and one entry
for each tensor's storage; before version 1.6 it wrote several pickles, and the storages behind them.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from whenabouts.formats.files import FormatError
from whenabouts.models.released.pickled import Call, Name, Outside, PickleRefused, Thing, read_pickle

MOST_PICKLE_BYTES = 64 << 20
"""Tensors lie outside the pickle: what it holds itself is names."""

ACCEPTED = "a checkpoint of torch.save with the parameters under the key 'model'"
_ZIP_BEGINS = b"PK\x03\x04"
_LEGACY_MAGIC, _LEGACY_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_TYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_STORAGES = {
    f"{place}.{name}Storage": kind for name, kind in _TYPES.items() for place in ("torch", "torch.cuda")
}
_TENSOR_CALLS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_PARAMETER_CALL = "torch._utils._rebuild_parameter"
_CALLS = frozenset(
    {
        *_TENSOR_CALLS,
        _PARAMETER_CALL,
        "collections.OrderedDict",
        # What else stands in settings and optimizers; it is let go.
        "_codecs.encode",
        "copy_reg._reconstructor",
        "copyreg._reconstructor",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.dtype",
        "pathlib.PosixPath",
        "torch.Size",
        "torch.device",
    }
)


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: `tensors` by name (float32), `settings` with plain values, the epoch if told."""

    path: Path
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    epoch: int | None = None


@dataclass(frozen=True)
class _Stored:
    """One storage: `count` values of a type, by the key it has in the file."""

    key: str
    type: torch.dtype
    count: int


def read_checkpoint(path: Path) -> Checkpoint:
    """The tensors and settings of a file of `torch.save`.

    Raises FormatError for a file that is missing, damaged or none of the kind, that asks for a call (it is
    never made), holds what is no tensor among the parameters, or tensors larger than itself.
    """
    try:
        with path.open("rb") as stream:
            if zipfile.is_zipfile(stream):
                return _of_zip(path, stream)
            stream.seek(0)
            if stream.read(len(_ZIP_BEGINS)) == _ZIP_BEGINS:  # its list of contents stands at the end
                raise FormatError(path, "is a zip file that is cut off; fetch it again")
            stream.seek(0)
            return _of_pickles(path, stream)
    except PickleRefused as error:
        raise FormatError(path, f"{error}; nothing of it was run", accepted=ACCEPTED) from None
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from None


def _of_zip(path: Path, stream: IO[bytes]) -> Checkpoint:
    """A file as PyTorch writes it since version 1.6."""
    try:
        with zipfile.ZipFile(stream) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise FormatError(path, "is a zip file of something else", accepted=ACCEPTED)
            root = pickles[0].removesuffix("data.pkl")
            if (
                f"{root}byteorder" in archive.namelist()
                and _entry(path, archive, f"{root}byteorder") != b"little"
            ):
                raise FormatError(
                    path, "was written on a machine of the other byte order; save it anew on this one"
                )
            value = read_pickle(io.BytesIO(_entry(path, archive, pickles[0], MOST_PICKLE_BYTES)), _CALLS)
            read = _Values(path, value)
            storages = {
                stored.key: _values(path, stored, _entry(path, archive, f"{root}data/{stored.key}"))
                for stored in read.storages()
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise FormatError(path, f"is a damaged zip file ({error}); fetch it again") from None
    return read.checkpoint(storages)


def _entry(path: Path, archive: zipfile.ZipFile, name: str, most: int | None = None) -> bytes:
    """The bytes of an entry, which PyTorch never packs, so that they are no more than the file's."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise FormatError(path, f"lacks its entry {name!r}: it is damaged; fetch it again") from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise FormatError(
            path, f"has a packed entry {name!r}, which torch.save does not write", accepted=ACCEPTED
        )
    if most is not None and info.file_size > most:
        raise FormatError(path, f"has {info.file_size} bytes of pickle in {name!r}; at most {most} are read")
    return archive.read(info)


def _of_pickles(path: Path, stream: IO[bytes]) -> Checkpoint:
    """A file as PyTorch wrote it before version 1.6."""
    magic = read_pickle(stream, ())
    if magic != _LEGACY_MAGIC:
        raise FormatError(path, "is a pickle, but not of torch.save", accepted=ACCEPTED)
    if read_pickle(stream, ()) != _LEGACY_PROTOCOL:
        raise FormatError(path, "was written by a version of PyTorch that is not known", accepted=ACCEPTED)
    system = read_pickle(stream, ())
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise FormatError(path, "was written on a machine of the other byte order; save it anew on this one")
    read = _Values(path, read_pickle(stream, _CALLS))
    keys = read_pickle(stream, ())
    stored = {one.key: one for one in read.storages()}
    storages: dict[str, Tensor] = {}
    for key in keys if isinstance(keys, list) else ():
        if key not in stored:
            raise FormatError(path, f"has a storage {key!r} that no tensor is of", accepted=ACCEPTED)
        head = stream.read(8)
        if len(head) < 8 or struct.unpack("<q", head)[0] != stored[key].count:
            raise FormatError(path, "is cut off or damaged among its tensors; fetch it again")
        storages[key] = _values(path, stored[key], stream.read(stored[key].count * stored[key].type.itemsize))
    return read.checkpoint(storages)


def _values(path: Path, stored: _Stored, data: bytes) -> Tensor:
    """The values of a storage, flat."""
    if not stored.count:
        return torch.empty(0, dtype=stored.type)
    needed = stored.count * stored.type.itemsize
    if len(data) < needed:
        raise FormatError(
            path,
            f"is cut off: storage {stored.key!r} has {len(data)} bytes, {needed} are told; fetch it again",
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, needed).copy()).view(stored.type)


class _Values:
    """The value of the main pickle: which tensors there are, of which storages; the plain settings."""

    def __init__(self, path: Path, value: Any) -> None:
        self._path = path
        if not isinstance(value, dict):
            raise FormatError(
                path, f"holds a {type(value).__name__}, no parameters by name", accepted=ACCEPTED
            )
        parameters = value.get("model", value)
        if not isinstance(parameters, dict) or not parameters:
            raise FormatError(path, "has no parameters under the key 'model'", accepted=ACCEPTED)
        self._tensors = {str(name): self._tensor(str(name), one) for name, one in parameters.items()}
        self._refuse_copies()
        told = value.get("model_cfg", {})
        told = told.items if isinstance(told, Thing) else told
        self._settings = (
            {str(k): v for k, v in told.items() if _is_plain(v)} if isinstance(told, dict) else {}
        )
        epoch = value.get("epoch")
        self._epoch = epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None

    def _refuse_copies(self) -> None:
        """Raise where many parameters are views of the same values: each is to be copied."""
        told = sum(prod(size) for _, _, size, _ in self._tensors.values())
        held = self._path.stat().st_size
        if told > held:  # weights that are tied, of two bytes a value, stay below
            raise FormatError(
                self._path, f"has parameters of {told} values together; the file has {held} bytes"
            )

    def storages(self) -> list[_Stored]:
        """The storages of the parameters, each once."""
        return list({one.key: one for one, *_ in self._tensors.values()}.values())

    def checkpoint(self, storages: Mapping[str, Tensor]) -> Checkpoint:
        """With the values in place; each tensor a copy of its own."""
        made = {}
        for name, (stored, offset, size, stride) in self._tensors.items():
            if stored.key not in storages:
                raise FormatError(self._path, f"lacks the values of parameter {name!r}; fetch it again")
            made[name] = storages[stored.key].as_strided(size, stride, offset).to(torch.float32, copy=True)
            made[name] = made[name].contiguous()
        return Checkpoint(self._path, made, self._settings, self._epoch)

    def _tensor(self, name: str, value: Any) -> tuple[_Stored, int, tuple[int, ...], tuple[int, ...]]:
        """Where the values of a parameter lie: storage, offset, size and stride."""
        if isinstance(value, Call) and value.path == _PARAMETER_CALL and value.arguments:
            value = value.arguments[0]
        if not (isinstance(value, Call) and value.path in _TENSOR_CALLS and len(value.arguments) >= 4):
            told = value.path if isinstance(value, Call | Thing | Name) else type(value).__name__
            raise FormatError(self._path, f"parameter {name!r} is no tensor but {told}", accepted=ACCEPTED)
        outside, offset, size, stride = value.arguments[:4]
        stored = self._stored(name, outside)
        sizes = [offset, *size, *stride] if isinstance(size, tuple) and isinstance(stride, tuple) else [None]
        if not all(type(one) is int and one >= 0 for one in sizes) or len(size) != len(stride):
            raise FormatError(self._path, f"parameter {name!r} has a size or stride that makes no tensor")
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if prod(size) > stored.count or (prod(size) and last >= stored.count):
            raise FormatError(
                self._path, f"parameter {name!r} is of size {size}, but {stored.count} values are kept for it"
            )
        return stored, offset, size, stride

    def _stored(self, name: str, outside: Any) -> _Stored:
        """The storage that a tensor names: ("storage", type, key, device, count) and in old files a view."""
        id = outside.id if isinstance(outside, Outside) else None
        if not isinstance(id, tuple) or len(id) < 5 or id[0] != "storage" or not isinstance(id[1], Name):
            raise FormatError(self._path, f"parameter {name!r} has no values in this file", accepted=ACCEPTED)
        type_, key, count = _STORAGES.get(id[1].path), id[2], id[4]
        if type_ is None or not isinstance(key, str) or type(count) is not int or count < 0:
            raise FormatError(
                self._path,
                f"parameter {name!r} is kept as {id[1].path}",
                accepted="torch.FloatStorage and the other plain types",
            )
        if len(id) > 5 and id[5] is not None:
            raise FormatError(
                self._path, f"parameter {name!r} is a view of a kept storage, which is not read"
            )
        size = self._path.stat().st_size
        if count * type_.itemsize > size:
            raise FormatError(
                self._path, f"parameter {name!r} is told to have {count} values; the file has {size} bytes"
            )
        return _Stored(key, type_, count)


def _is_plain(value: Any) -> bool:
    """Whether a setting is a number, a text, a truth value, nothing, or a short list of whole numbers."""
    if isinstance(value, list | tuple):
        return len(value) <= 100 and all(type(one) is int for one in value)
    return value is None or isinstance(value, bool | int | float | str)
